"""Applicability: which users a workspace constraint applies to, and why it excludes the others."""

import functools
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from uuid import UUID

from memory.alerts.models.alerts import Alert
from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.project import Outline
from memory.project.paths import FOLDER, constraint_name
from memory.project.shapes import Match, Needs, match, needs_of
from memory.versions.models.checkpoints import Checkpoint

# Maximum number of users matched per coverage request.
COVERAGE_BATCH = 1000


@dataclass(frozen=True)
class Applicability:
    """A constraint matched against a user: the records that match, or why it does not apply."""

    constraint: WorkspaceConstraint
    match: Match
    reasons: tuple[str, ...]

    @property
    def applies(self) -> bool:
        """True if the constraint runs for the user."""
        return not self.reasons

    @property
    def ended(self) -> str:
        """The reason recorded when alerts are resolved because the constraint no longer runs."""
        if not self.constraint.enabled:
            return "constraint disabled"
        if self.match.applies:
            return "user no longer within the rollout percentage"
        return "no longer applies"


def applicabilities(user: MemoryUser, outline: Outline) -> list[Applicability]:
    """Return, for each constraint with a live version, whether the constraint applies to the user.

    The constraints are ordered by name. Their sources are not loaded.
    """
    constraints = WorkspaceConstraint.objects.filter(
        workspace=user.workspace_id, live__isnull=False
    )
    rows = defer_large(constraints, "live").order_by("name")
    return [applicability_of(constraint, user, outline) for constraint in rows]


def live_at(user: MemoryUser, path: str, outline: Outline) -> Applicability:
    """Return whether the live constraint with this path applies to the user.

    Raises WorkspaceConstraint.DoesNotExist if no live constraint has this path.
    """
    live = WorkspaceConstraint.objects.filter(workspace=user.workspace_id, live__isnull=False)
    constraint = live.select_related("live").get(name=constraint_name(path))
    return applicability_of(constraint, user, outline)


def concern(user: MemoryUser, outline: Outline) -> bool:
    """Return whether workspace constraints could open or resolve alerts for the user."""
    candidates = applicabilities(user, outline)
    if any(one.applies for one in candidates):
        return True
    live = Alert.objects.live().filter(user=user)
    return bool(candidates) and live.filter(constraint__startswith=FOLDER).exists()


def wants_constraints_run(checkpoint: Checkpoint) -> bool:
    """Return whether a run of the constraints could open or resolve an alert."""
    if checkpoint.user.merged_into_id is not None:
        return False  # merged: the remaining user's constraints run instead
    live = Alert.objects.live().filter(user_id=checkpoint.user_id)
    outline = Outline.from_json(checkpoint.outline)
    return bool(outline.constraints) or live.exists() or concern(checkpoint.user, outline)


def applicability_of(
    constraint: WorkspaceConstraint, user: MemoryUser, outline: Outline
) -> Applicability:
    """Return whether one constraint applies to the user."""
    shape_match = match(_needs(constraint.live_id), outline) if constraint.live_id else Match()
    reasons = list(shape_match.reasons)
    if not includes(constraint, user.public_id):
        reasons.insert(
            0, f"the user is not within the rollout percentage ({constraint.percentage} %)"
        )
    if not constraint.enabled:
        reasons.insert(0, "the constraint is disabled")
    return Applicability(constraint, shape_match, tuple(reasons))


def make_live_copy(version: WorkspaceConstraintVersion) -> WorkspaceConstraint:
    """Return an unsaved copy of the version's constraint, with the version live for all users."""
    constraint = WorkspaceConstraint.objects.get(pk=version.constraint_id)
    constraint.live, constraint.enabled, constraint.percentage = version, True, 100
    return constraint


def includes(constraint: WorkspaceConstraint, public_id: UUID) -> bool:
    """Return whether the rollout percentage includes a user; raising it only adds users."""
    digest = hashlib.sha256(constraint.pk.bytes + public_id.bytes).digest()
    return int.from_bytes(digest[:8]) % 100 < constraint.percentage


@functools.lru_cache(maxsize=4096)
def _needs(version_pk: UUID) -> Needs:
    """Parse the shapes that a version declares; cached, since judged versions never change."""
    return needs_of(WorkspaceConstraintVersion.objects.only("source").get(pk=version_pk).source)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The number of users with a project that a version applies to, and why it excludes others.

    `within` counts the users that the version applies to and who are within the rollout percentage.
    `after` is the primary key of the user to continue after, or None if no users are left.
    """

    users: int
    applies: int
    within: int
    reasons: Mapping[str, int]
    after: int | None


def coverage(
    version: WorkspaceConstraintVersion, *, after: int = 0, most: int = COVERAGE_BATCH
) -> Coverage:
    """Match a version against the projects of up to `most` of the workspace's users.

    Starts after the user with the primary key `after`. Raises ShapeError if the version declares no
    shape that can be matched.
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
    for pk, public_id, outline in users.iterator(chunk_size=100):
        if number == most:
            more = True
            break
        number, last = number + 1, pk
        shape_match = match(needs, Outline.from_json(outline))
        reasons.update(shape_match.reasons)
        applies += shape_match.applies
        within += shape_match.applies and includes(constraint, public_id)
    return Coverage(
        users=number,
        applies=applies,
        within=within,
        reasons=dict(reasons.most_common(20)),
        after=last if more else None,
    )


def read_live(constraints: Iterable[WorkspaceConstraint]) -> dict[str, WorkspaceConstraintVersion]:
    """Return the live versions of these constraints, with source and bytecode, keyed by path."""
    paths = {constraint.live_id: constraint.path for constraint in constraints}
    versions = WorkspaceConstraintVersion.objects.filter(pk__in=[*paths]).only(
        "source", "source_hash", "bytecode", "image_digest"
    )
    return {paths[version.pk]: version for version in versions}


def describe_constraints(workspaces: Collection[int]) -> dict[tuple[int, str], str]:
    """Return the descriptions of these workspaces' constraints, by workspace and path."""
    rows = WorkspaceConstraint.objects.filter(workspace__in=workspaces).exclude(description="")
    return {
        (one.workspace_id, one.path): one.description
        for one in rows.only("workspace", "name", "description")
    }


def version_of(alert: Alert) -> WorkspaceConstraintVersion | None:
    """Return the version that last reported an alert, or None if no workspace constraint did."""
    if alert.last_run is None or not alert.constraint.startswith(FOLDER):
        return None
    ran = (alert.last_run.output or {}).get("workspace", [])
    numbers = [one["version"] for one in ran if one["path"] == alert.constraint]
    return WorkspaceConstraintVersion.objects.filter(
        constraint__workspace=alert.user.workspace_id,
        constraint__name=PurePosixPath(alert.constraint).stem,
        number__in=numbers,
    ).first()
