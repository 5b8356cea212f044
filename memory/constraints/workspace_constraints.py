"""Workspace constraints: written once, judged, approved, and run for all users whom they fit.

A version is immutable; a worker judges it (`workers/execution/workspace_constraints.py`); an
authorised person approves it, which makes it the live one. It then runs for its percentage of the
users, if the user's project has the records that it needs. Any change to that makes the constraints
of the affected users run again, soon and a few at a time.
"""

import datetime
import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.canonical import sha256
from memory.models import (
    Alert,
    MemoryUser,
    Workspace,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.models.alerts import AlertState
from memory.models.workspace_constraints import FOLDER, VersionState
from memory.project import EditError, Outline
from memory.project.names import check_lower_name
from memory.project.shapes import Match, Needs, ShapeError, match, needs_of
from memory.temporal import backtests
from memory.work.hints import hint

MAX_SOURCE = 64 * 1024
TASK = "workers.tasks.judge_workspace_constraint"
# The number of users that are matched at a time, to report where a constraint applies.
COVERAGE_BATCH = 1000
_CHUNK = 100


class ConstraintExists(Exception):
    """The workspace already has a constraint of this name."""


class NotApprovable(Exception):
    """The version has not passed the checks, or was not backtested."""


class BadConstraint(ValueError):
    """The name, text or percentage of a constraint is invalid; `field` says which."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


# -- Writing ------------------------------------------------------------------------------------


def create(
    workspace: Workspace, name: str, *, source: str, tests: str, description: str = "", by: str
) -> WorkspaceConstraint:
    """Create a constraint with its first version, which waits to be judged.

    Raises ConstraintExists, or BadConstraint.
    """
    check_name(name)
    try:
        with transaction.atomic():
            constraint = WorkspaceConstraint.objects.create(
                workspace=workspace, name=name, description=description, created_by=by
            )
            propose(constraint, source=source, tests=tests, by=by)
    except IntegrityError as error:
        raise ConstraintExists(name) from error
    return constraint


def check_name(name: str) -> None:
    """Raise BadConstraint unless this is a valid name for a constraint."""
    try:
        check_lower_name(name, "constraint")
    except EditError as error:
        raise BadConstraint("name", str(error)) from None
    if len(name) > 100:
        raise BadConstraint("name", "A name has 100 characters at most.")


def check_text(source: str, tests: str) -> None:
    """Raise BadConstraint unless source and tests are neither empty nor too long to be judged."""
    for field, text in (("source", source), ("tests", tests)):
        if not text.strip():
            raise BadConstraint(field, "This is empty: write Python.")
        if len(text.encode()) > MAX_SOURCE:
            raise BadConstraint(field, f"This has more than {MAX_SOURCE} bytes: write less.")


def propose(
    constraint: WorkspaceConstraint, *, source: str, tests: str, by: str
) -> WorkspaceConstraintVersion:
    """Write the next version, to be judged; return the newest one if its text is the same.

    Raises BadConstraint.
    """
    check_text(source, tests)
    with transaction.atomic():
        _lock(constraint)
        newest = constraint.versions.order_by("-number").first()
        if newest is not None and (newest.source, newest.tests) == (source, tests):
            return newest
        version = WorkspaceConstraintVersion.objects.create(
            constraint=constraint,
            number=newest.number + 1 if newest else 1,
            source=source,
            source_hash=sha256(source),
            tests=tests,
            created_by=by,
            hinted_at=timezone.now(),
        )
        backtests.supersede(constraint, version.number)
        hint(TASK, str(version.pk), workspace_pk=constraint.workspace_id)
    return version


# -- Approving and enabling ---------------------------------------------------------------------


def approve(version: WorkspaceConstraintVersion, *, by: str) -> WorkspaceConstraint:
    """Make a version live that has passed and was backtested; an earlier approved one can return.

    Raises NotApprovable.
    """
    with transaction.atomic():
        constraint = _lock(version.constraint)
        now = timezone.now()
        version.refresh_from_db()
        if version.state == VersionState.PASSED:
            tested = backtests.tested(version)
            if not tested.enough:
                raise NotApprovable(tested.detail)
            version.state, version.approved_by, version.approved_at = VersionState.APPROVED, by, now
            version.save(update_fields=["state", "approved_by", "approved_at"])
        elif version.state != VersionState.APPROVED:
            raise NotApprovable(
                f"Version {version.number} is {version.get_state_display()}: only one that passed"
                " all checks can be approved."
            )
        if constraint.live_id != version.pk:
            constraint.live = version
            _save(constraint, by, now, "live")
    return constraint


def change(
    constraint: WorkspaceConstraint,
    *,
    by: str,
    percentage: int | None = None,
    enabled: bool | None = None,
    description: str | None = None,
) -> WorkspaceConstraint:
    """Change what is given: the percentage, whether it is enabled, and its description.

    Raises BadConstraint.
    """
    if percentage is not None and not 0 <= percentage <= 100:
        raise BadConstraint("percentage", "Give a whole number from 0 to 100.")
    given = {"percentage": percentage, "enabled": enabled, "description": description}
    with transaction.atomic():
        locked = _lock(constraint)
        changed = [
            name
            for name, value in given.items()
            if value is not None and value != getattr(locked, name)
        ]
        for name in changed:
            setattr(locked, name, given[name])
        if changed:
            _save(locked, by, timezone.now(), *changed)
    return locked


def _lock(constraint: WorkspaceConstraint) -> WorkspaceConstraint:
    return WorkspaceConstraint.objects.select_for_update(no_key=True).get(pk=constraint.pk)


def _save(constraint: WorkspaceConstraint, by: str, now: datetime.datetime, *changed: str) -> None:
    constraint.changed_at, constraint.changed_by = now, by
    constraint.save(update_fields=["changed_at", "changed_by", *changed])
    runs = constraint.live_id is not None and constraint.enabled and constraint.percentage
    if (runs and {*changed} - {"description"}) or {"enabled", "percentage"} & {*changed}:
        # Lock the workspace's row first: two such changes must not lock the users' rows
        # concurrently.
        Workspace.objects.select_for_update(no_key=True).get(pk=constraint.workspace_id)
        # Users that are marked already are written too: a dispatcher that is removing the mark has
        # not seen this change. So are users without a project: a worker that has not seen this
        # change may be committing their first version right now.
        MemoryUser.objects.filter(workspace=constraint.workspace_id).update(
            constraints_changed_at=Coalesce("constraints_changed_at", Value(now))
        )


# -- Users that it applies to -------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """The applicability of a constraint to a user: matching records, or reasons against it."""

    constraint: WorkspaceConstraint
    match: Match
    reasons: tuple[str, ...]

    @property
    def applies(self) -> bool:
        """Tell whether it runs for the user."""
        return not self.reasons

    @property
    def ended(self) -> str:
        """The reason that its alerts get when it does not run any more."""
        if not self.constraint.enabled:
            return "constraint disabled"
        if self.match.applies:
            return "user left the percentage"
        return "no longer applies"


def standings(user: MemoryUser, outline: Outline) -> list[Standing]:
    """Return the applicability of every constraint with a live version to the user, by name.

    Their sources are not read.
    """
    constraints = (
        WorkspaceConstraint.objects.filter(workspace=user.workspace_id, live__isnull=False)
        .select_related("live")
        .defer("live__source", "live__tests", "live__verdict", "live__bytecode")
        .order_by("name")
    )
    return [standing(constraint, user, outline) for constraint in constraints]


def live_at(user: MemoryUser, path: str, outline: Outline) -> Standing:
    """Return the applicability of the live constraint of this path to the user.

    Raises WorkspaceConstraint.DoesNotExist if there is none.
    """
    live = WorkspaceConstraint.objects.filter(workspace=user.workspace_id, live__isnull=False)
    name = path.rpartition("/")[2].removesuffix(".py")
    return standing(live.select_related("live").get(name=name), user, outline)


def concern(user: MemoryUser, outline: Outline) -> bool:
    """Tell whether workspace constraints could open or resolve an alert of the user's."""
    found = standings(user, outline)
    if any(standing.applies for standing in found):
        return True
    live = Alert.objects.filter(user=user).exclude(state=AlertState.RESOLVED)
    return bool(found) and live.filter(constraint__startswith=FOLDER).exists()


def standing(constraint: WorkspaceConstraint, user: MemoryUser, outline: Outline) -> Standing:
    """Return the applicability of one constraint to the user."""
    try:
        found = match(_needs(constraint.live_id), outline) if constraint.live_id else Match()
    except ShapeError as error:  # judged by an earlier release
        found = Match(reasons=(f"what it needs cannot be read: {error}",))
    reasons = list(found.reasons)
    if not includes(constraint, user.public_id):
        reasons.insert(0, f"the user is not among the {constraint.percentage} % that have it")
    if not constraint.enabled:
        reasons.insert(0, "it is disabled")
    return Standing(constraint, found, tuple(reasons))


def as_if_live(version: WorkspaceConstraintVersion) -> WorkspaceConstraint:
    """Return an unsaved copy of the constraint in which this version is live for everybody."""
    constraint = WorkspaceConstraint.objects.get(pk=version.constraint_id)
    constraint.live, constraint.enabled, constraint.percentage = version, True, 100
    return constraint


def includes(constraint: WorkspaceConstraint, public_id: UUID) -> bool:
    """Tell whether a user is within the percentage; a higher percentage only adds users."""
    digest = hashlib.sha256(constraint.pk.bytes + public_id.bytes).digest()
    return int.from_bytes(digest[:8]) % 100 < constraint.percentage


@functools.lru_cache(maxsize=4096)
def _needs(version_pk: UUID) -> Needs:
    """Parse the shapes that a version declares, cached: it never changes, and was judged."""
    return needs_of(WorkspaceConstraintVersion.objects.only("source").get(pk=version_pk).source)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The number of users with a project whom a version fits, and the reasons for the others.

    `within` counts those of the fitting users that are within the percentage. `after` is the key
    after which to continue; it is None if no users are left.
    """

    users: int
    applies: int
    within: int
    reasons: Mapping[str, int]
    after: int | None


def coverage(
    version: WorkspaceConstraintVersion, *, after: int = 0, most: int = COVERAGE_BATCH
) -> Coverage:
    """Match a version with the projects of `most` of the workspace's users, after a user's key.

    Raises ShapeError if the version declares nothing that could be matched.
    """
    constraint = version.constraint
    needs = needs_of(version.source)
    users = (
        MemoryUser.objects.filter(
            workspace=constraint.workspace_id, head__isnull=False, pk__gt=after
        )
        .order_by("pk")
        .values_list("pk", "public_id", "head__outline")[: most + 1]
    )
    number = applies = within = last = 0
    more = False
    reasons: Counter[str] = Counter()
    for pk, public_id, outline in users.iterator(chunk_size=_CHUNK):
        if number == most:
            more = True
            break
        number, last = number + 1, pk
        found = match(needs, Outline.from_json(outline))
        reasons.update(found.reasons)
        applies += found.applies
        within += found.applies and includes(constraint, public_id)
    return Coverage(
        users=number,
        applies=applies,
        within=within,
        reasons=dict(reasons.most_common(20)),
        after=last if more else None,
    )


# -- Source and bytecode ------------------------------------------------------------------------


def read_live(constraints: Iterable[WorkspaceConstraint]) -> dict[str, WorkspaceConstraintVersion]:
    """Return the live versions of these constraints by path, with source and bytecode."""
    paths = {constraint.live_id: constraint.path for constraint in constraints}
    versions = WorkspaceConstraintVersion.objects.filter(pk__in=[*paths]).only(
        "source", "source_hash", "bytecode", "image_digest"
    )
    return {paths[version.pk]: version for version in versions}


def version_of(alert: Alert) -> WorkspaceConstraintVersion | None:
    """Return the version that last found an alert; None if no workspace constraint did."""
    if alert.last_run is None or not alert.constraint.startswith(FOLDER):
        return None
    ran = (alert.last_run.output or {}).get("workspace", [])
    numbers = [one["version"] for one in ran if one["path"] == alert.constraint]
    return WorkspaceConstraintVersion.objects.filter(
        constraint__workspace=alert.user.workspace_id,
        constraint__name=PurePosixPath(alert.constraint).stem,
        number__in=numbers,
    ).first()


def store_bytecode(version_pk: UUID, bytecode: str, image_digest: str) -> None:
    """Store the bytecode that an image compiled from a version; an empty text deletes it."""
    WorkspaceConstraintVersion.objects.filter(pk=version_pk).update(
        bytecode=bytecode, image_digest=image_digest
    )


def unjudged() -> QuerySet[WorkspaceConstraintVersion]:
    """Select the versions that wait to be judged."""
    return WorkspaceConstraintVersion.objects.filter(state=VersionState.CHECKING)
