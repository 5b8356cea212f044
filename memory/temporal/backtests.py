"""Backtests: the alerts that a constraint would have raised on past states of users.

The constraint runs over the versions that users had, at the moments at which its result could have
changed (`workers/execution/backtesting.py`). Its findings are combined by the rules of
`memory.alerting.reconcile`, and nobody is notified. A version of a workspace's constraint may be
approved once a backtest of it has finished.
"""

import datetime
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from django.db import IntegrityError, transaction
from django.db.models import (
    CharField,
    Count,
    Exists,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
)
from django.db.models.functions import MD5, Cast, Concat, TruncMonth
from django.utils import timezone

from memory.admission import pauses, usage
from memory.alerting.findings import ConstraintFinding, differences, most_severe
from memory.canonical import sha256
from memory.models import (
    Backtest,
    BacktestFinding,
    BacktestUser,
    Blob,
    Checkpoint,
    MemoryUser,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.models.alerts import Severity, severity_rank
from memory.models.backtests import GOING_ON, BacktestState, UserState
from memory.models.log import By
from memory.models.workspace_constraints import VersionState
from memory.project import Outline
from memory.project.shapes import ShapeError, match, needs_of
from memory.temporal import states
from memory.work import leases
from memory.workspace_settings.alert_settings import DAY, OPENINGS_OF_ONE, EffectiveSettings

TASK = "workers.tasks.backtest"
_OWN = re.compile(r"constraints/[a-z][a-z0-9_]{0,99}\.py")
DAYS, MAX_DAYS = 365, 3650
USERS, MAX_USERS = 200, 2000
# The number of users matched against a shape at a time.
BATCH = 500
# Limits on the findings, and on the problems, that are kept for one user.
MAX_FINDINGS = 1000
MAX_PROBLEMS = 20
# The number of users and problems that a summary names.
NAMED = 10
# A backtest is deleted this long after its end.
KEPT = datetime.timedelta(days=90)


class BadBacktest(ValueError):
    """No such backtest can be run; `field` names the invalid argument."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NoSuchConstraint(BadBacktest):
    """The user has no such constraint now."""


class NotTestable(Exception):
    """The version has not passed the checks, so it may not run on anybody's records."""


class NotGoingOn(Exception):
    """The backtest has ended: there is nothing to cancel."""


# -- Starting and ending --------------------------------------------------------------------------


def start(
    version: WorkspaceConstraintVersion,
    *,
    by: str,
    days: int = DAYS,
    most_users: int = USERS,
    times: By = By.RECORDED,
) -> Backtest:
    """Start a backtest of a version over the histories of the users whom it fits; return it.

    A history follows what was known at each moment, or, with the `times` at which entries occurred,
    what was the case; a user for whom that cannot be computed counts as failed. A running backtest
    with the same arguments is returned; any other of this constraint is cancelled. Raises
    BadBacktest or NotTestable.
    """
    _check("days", days, MAX_DAYS)
    _check("users", most_users, MAX_USERS)
    with transaction.atomic():
        locked = (
            WorkspaceConstraintVersion.objects.select_related("constraint")
            .select_for_update(no_key=True, of=("self",))
            .get(pk=version.pk)
        )
        if locked.state not in (VersionState.PASSED, VersionState.APPROVED):
            raise NotTestable(
                f"Version {locked.number} is {locked.get_state_display()}: only one that passed all"
                " checks can be backtested."
            )
        return _start(
            Backtest(
                workspace_id=locked.constraint.workspace_id,
                version=locked,
                constraint=locked.constraint.path,
                source_hash=locked.source_hash,
                days=days,
                by=times,
                most_users=most_users,
                created_by=by,
            ),
            locked.backtests.all(),
        )


def start_own(
    user: MemoryUser,
    path: str,
    *,
    by: str,
    days: int = DAYS,
    source: str | None = None,
    times: By = By.RECORDED,
) -> Backtest:
    """Start a backtest of a constraint of the user's newest version over the user's history.

    `source` is run in place of that constraint's text; a worker checks it against the policy first.
    `path` is the constraint's path, or its name. Raises BadBacktest, and states.CannotBeTold if the
    history by the entries' own times cannot be computed.
    """
    _check("days", days, MAX_DAYS)
    path = path if "/" in path else f"constraints/{path}.py"
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        head = locked.head
        known = own_constraints(head)
        if head is None or (source is None and path not in known):
            has = f"has {', '.join(known)}" if known else "has no constraint of its own"
            raise NoSuchConstraint(
                "constraint",
                f"The user's newest version {has}. One of the workspace is backtested by POST"
                " /v1/constraints/{name}/versions/{number}/backtests/.",
            )
        if source is not None:
            if not _OWN.fullmatch(path):
                raise BadBacktest("constraint", "Give a name such as drug_allergy.")
            Blob.objects.get_or_create(
                user=locked, hash=sha256(source), defaults={"content": source}
            )
        if times == By.OCCURRED:
            states.refuse_untyped(head)
        backtest = _start(
            Backtest(
                workspace_id=locked.workspace_id,
                user=locked,
                constraint=path,
                source_hash=head.tree[path] if source is None else sha256(source),
                days=days,
                by=times,
                most_users=1,
                picked=True,
                looked_at=1,
                created_by=by,
            ),
            locked.backtests.filter(constraint=path),
        )
        BacktestUser.objects.get_or_create(backtest=backtest, user=locked)
    return backtest


def own_source(backtest: Backtest) -> str:
    """Return the source of the user's own constraint that a backtest runs; empty if redacted."""
    return Blob.objects.get(user=backtest.user, hash=backtest.source_hash).content or ""


def own_constraints(head: Checkpoint | None) -> list[str]:
    """Return the paths of the constraints in a user's newest version."""
    outlined = head.outline.get("constraints", ()) if head else ()
    return [f"constraints/{name}.py" for name, _ in outlined]


def _check(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise BadBacktest(name, f"Give a whole number from 1 to {most}.")


def _start(new: Backtest, others: QuerySet[Backtest]) -> Backtest:
    going_on = others.filter(state__in=GOING_ON).first()
    if going_on is not None:
        same = ("days", "most_users", "source_hash", "by")
        if all(getattr(going_on, name) == getattr(new, name) for name in same):
            return going_on
        _cancel(others, "another one was started")
    usage.check_backtests(new.workspace)
    new.until = timezone.now()
    new.save(force_insert=True)
    return new


def cancel(backtest: Backtest, *, by: str) -> Backtest:
    """Cancel a running backtest; its findings so far are kept. Raises NotGoingOn."""
    if not _cancel(Backtest.objects.filter(pk=backtest.pk), f"by {by}"):
        backtest.refresh_from_db()
        raise NotGoingOn(f"This backtest is {backtest.get_state_display()} already.")
    backtest.refresh_from_db()
    return backtest


def supersede(constraint: WorkspaceConstraint, number: int) -> None:
    """Cancel running backtests of a constraint, since a newer version of it was written."""
    earlier = Backtest.objects.filter(version__constraint=constraint, version__number__lt=number)
    _cancel(earlier, f"version {number} was written")


def _cancel(backtests: QuerySet[Backtest], reason: str) -> int:
    """Cancel these backtests: workers lose the lease with its token, so they write nothing."""
    return backtests.filter(state__in=GOING_ON).update(
        state=BacktestState.CANCELLED,
        reason=reason[:300],
        finished_at=timezone.now(),
        token=F("token") + 1,
        lease_owner="",
        lease_expires_at=None,
    )


def purge(limit: int) -> int:
    """Delete backtests that ended long ago, in pieces of `limit` findings; return the rows deleted.

    A backtest without findings is deleted itself. The backtest on which the approval of the newest
    or live version of a constraint rests is kept.
    """
    newer = WorkspaceConstraintVersion.objects.filter(
        constraint=OuterRef("version__constraint"), number__gt=OuterRef("version__number")
    )
    later = Backtest.objects.filter(
        version=OuterRef("version"),
        state=BacktestState.FINISHED,
        created_at__gt=OuterRef("created_at"),
    )
    old = Backtest.objects.filter(finished_at__lt=timezone.now() - KEPT).exclude(
        Q(version__isnull=False, state=BacktestState.FINISHED)
        & (Q(version=F("version__constraint__live")) | ~Exists(newer))
        & ~Exists(later)
    )
    oldest = old.order_by("finished_at").first()
    if oldest is None:
        return 0
    # What is left of it meanwhile must not look like its complete findings.
    told = {"state": BacktestState.CANCELLED, "reason": f"forgotten after {KEPT.days} days"}
    Backtest.objects.filter(pk=oldest.pk).update(**told)
    findings = BacktestFinding.objects.filter(result__backtest=oldest)
    some = list(findings.values_list("pk", flat=True)[:limit])
    if some:
        return BacktestFinding.objects.filter(pk__in=some).delete()[0]
    return oldest.delete()[0]


def waiting() -> QuerySet[Backtest]:
    """Select the backtests that a worker can continue."""
    return Backtest.objects.filter(~pauses.are_paused("user", "workspace"), state__in=GOING_ON)


# -- Evidence for an approval ---------------------------------------------------------------------


@dataclass(frozen=True)
class Tested:
    """The answer to whether a version's backtest suffices for approval, with the reason.

    `backtest` is the one that this is about, if any.
    """

    enough: bool
    detail: str
    backtest: Backtest | None = None


def tested(version: WorkspaceConstraintVersion) -> Tested:
    """Return whether a version may be approved as far as backtests are concerned."""
    of_version = version.backtests.filter(source_hash=version.source_hash).order_by("-created_at")
    finished = of_version.filter(state=BacktestState.FINISHED).first()
    if finished is not None:
        return Tested(True, conclusion(finished), finished)
    newest = of_version.first()
    with_project = MemoryUser.objects.filter(
        workspace=version.constraint.workspace_id, head__isnull=False
    )
    if not with_project.exists():
        nobody = "There is nobody to backtest it on: no user of the workspace has a project."
        return Tested(True, nobody, newest)
    if newest is None:
        return Tested(False, f"Version {version.number} was not backtested yet: start a backtest.")
    return Tested(False, conclusion(newest), newest)


def conclusion(backtest: Backtest) -> str:
    """Return the progress or the result of a backtest in a sentence."""
    done, of = progress(backtest)
    match backtest.state:
        case BacktestState.FINISHED if not of:
            return f"There was nobody to test it on: it fits none of {backtest.looked_at} users."
        case BacktestState.FINISHED:
            failed = backtest.users.filter(state=UserState.FAILED).count()
            without = f", of whom {failed} could not be looked at" if failed else ""
            return f"It was backtested on {of} of {backtest.looked_at} users{without}."
        case BacktestState.CANCELLED:
            return f"Its backtest was cancelled ({backtest.reason}): start another one."
        case BacktestState.FAILED:
            return f"Its backtest failed ({backtest.reason}): start another one."
    far = f" ({done} of {of} users so far)" if backtest.picked else ""
    return f"Its backtest goes on{far}: wait for its end."


def progress(backtest: Backtest) -> tuple[int, int]:
    """Return the numbers of users that are done, and of all users."""
    counted = backtest.users.aggregate(
        of=Count("pk"), done=Count("pk", filter=~Q(state=UserState.WAITING))
    )
    return counted["done"], counted["of"]


# -- Choosing users -------------------------------------------------------------------------------


def in_order(version: WorkspaceConstraintVersion) -> QuerySet[Any]:
    """Order the users with a project by the hash of version and user, as `place`.

    The order is the same each time, and nobody can influence it.
    """
    seed = Value(str(version.pk))
    return (
        MemoryUser.objects.filter(workspace=version.constraint.workspace_id, head__isnull=False)
        .annotate(place=MD5(Concat(seed, Cast("public_id", CharField()))))
        .order_by("place")
    )


def pick(backtest: Backtest) -> None:
    """Match users against the version's shapes until enough are found or none are left.

    The progress is stored after each batch, so that another worker can continue. Raises LeaseLost.
    """
    assert backtest.version is not None
    try:
        needs = needs_of(backtest.version.source)
    except ShapeError:  # judged by an earlier release: it fits nobody
        needs = None
    rest = in_order(backtest.version).filter(place__gt=backtest.cursor)
    room = backtest.most_users - backtest.users.count()
    # One query for all: ordering by hash sorts all users anyway.
    order = rest.values_list("pk", "place").iterator(chunk_size=BATCH)
    while not backtest.picked:
        places = dict(islice(order, BATCH if needs and room else 0))
        heads = MemoryUser.objects.filter(pk__in=places, head__isnull=False)
        rows = heads.values_list("pk", "head__outline").iterator(chunk_size=100)
        fits = {
            pk for pk, outline in rows if needs and match(needs, Outline.from_json(outline)).applies
        }
        found = [pk for pk in places if pk in fits][:room]
        last = len(places) < BATCH
        if len(found) == room:  # the users after the last one were not matched
            places = {pk: place for pk, place in places.items() if place <= places[found[-1]]}
        room -= len(found)
        with transaction.atomic():
            backtest.cursor = max(places.values(), default=backtest.cursor)
            backtest.picked = last or not room
            backtest.looked_at += len(places)
            backtest.attempts = 0
            leases.write(
                backtest,
                cursor=backtest.cursor,
                looked_at=backtest.looked_at,
                picked=backtest.picked,
                attempts=0,
            )
            BacktestUser.objects.bulk_create(
                BacktestUser(backtest=backtest, user_id=pk) for pk in found
            )


# -- Simulating alerts ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BacktestIssue:
    """An interval or event because of which a constraint would not have alerted.

    Kinds: `error`, it failed; `alert_limit`, it would have been paused; `redacted`, its input was
    redacted since; `unknown`, it could not be followed any further.
    """

    kind: str
    message: str

    def to_json(self, at: datetime.datetime, version: int) -> dict[str, Any]:
        """Return it with its time and version, as JSON."""
        told = {"kind": self.kind, "message": self.message[:1000]}
        return {"at": at.isoformat(), "version": version, **told}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The findings of a constraint from an instant on, in one version of a user's project."""

    at: datetime.datetime
    version: int
    findings: Sequence[ConstraintFinding] = ()
    problem: BacktestIssue | None = None


@dataclass
class Episode:
    """A finding, from the moment at which it would have opened an alert."""

    opened: ConstraintFinding
    at: datetime.datetime
    version: int
    newest: ConstraintFinding
    severity: Severity
    changes: list[dict[str, Any]] = field(default_factory=list)
    resolved: Evaluation | None = None


@dataclass
class UserResult:
    """The simulated alerts of one user, and the problems of the constraint."""

    episodes: list[Episode] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)


def put_together(moments: Iterable[Evaluation], limits: EffectiveSettings) -> UserResult:
    """Return what moments, in the order of time, come to by the rules of alerts.

    While the constraint has a problem it yields nothing, and its alerts stay open. Where it would
    have been paused, that is a problem of this moment alone, as if it was resumed at once.
    """
    told = UserResult()
    live: dict[str, Episode] = {}
    lately: deque[tuple[datetime.datetime, str]] = deque()
    before: BacktestIssue | None = None
    for moment in moments:
        while lately and lately[0][0] <= moment.at - DAY:
            lately.popleft()
        found = most_severe(moment.findings)
        new = [one for one in found if one not in live]
        problem = moment.problem or _exceeded_limit(moment, len(new), len(lately), limits)
        if problem is not None:
            if problem != before:
                told.problems.append(problem.to_json(moment.at, moment.version))
            before = problem
            continue
        before = None
        for fingerprint in live.keys() - found.keys():
            live.pop(fingerprint).resolved = moment
        for fingerprint, finding in found.items():
            if fingerprint in live:
                _keep(live[fingerprint], finding, moment)
                continue
            live[fingerprint] = Episode(
                finding, moment.at, moment.version, finding, finding.severity
            )
            told.episodes.append(live[fingerprint])
            lately.append((moment.at, fingerprint))
            times = sum(one == fingerprint for _, one in lately)
            if times == OPENINGS_OF_ONE:
                flaps = f"it opened the same alert {times} times within 24 hours"
                paused = BacktestIssue(kind="alert_limit", message=flaps)
                told.problems.append(paused.to_json(moment.at, moment.version))
    return told


def _exceeded_limit(
    moment: Evaluation, new: int, lately: int, limits: EffectiveSettings
) -> BacktestIssue | None:
    most, within_day = limits.alerts_per_constraint, limits.openings_per_day
    if len(moment.findings) > most:
        reason = f"it found more than {most}, at once"
    elif new and lately + new > within_day:
        reason = f"it would open more than {within_day} alerts within 24 hours"
    else:
        return None
    return BacktestIssue(kind="alert_limit", message=reason)


def _keep(episode: Episode, finding: ConstraintFinding, moment: Evaluation) -> None:
    changed = differences(episode.newest, finding)
    episode.newest = finding
    if changed:
        episode.changes.append(
            {
                "at": moment.at.isoformat(),
                "version": moment.version,
                "changed": changed,
                "severity": finding.severity,
            }
        )
    episode.severity = max(episode.severity, finding.severity, key=severity_rank)


def settle(backtest: Backtest, row: BacktestUser, told: UserResult, **columns: Any) -> None:
    """Write one user's result of a backtest; nothing for a user who was erased meanwhile.

    `columns` are further columns of the row. Raises LeaseLost.
    """
    zone = ZoneInfo(row.user.time_zone)
    kept = told.episodes[:MAX_FINDINGS]
    columns = {
        "state": UserState.DONE,
        "problems": told.problems[:MAX_PROBLEMS],
        "problem_count": len(told.problems),
        "left_out": len(told.episodes) - len(kept),
        **columns,
    }
    with transaction.atomic():
        # Reset the attempts: the next user gets as many.
        backtest.attempts = 0
        leases.write(backtest, attempts=0, last_error="")
        if not BacktestUser.objects.filter(pk=row.pk).update(**columns):
            return
        BacktestFinding.objects.bulk_create(
            BacktestFinding(
                result=row,
                fingerprint=one.opened.fingerprint,
                severity=one.severity,
                message=one.opened.message,
                evidence=list(one.opened.evidence),
                entries=one.opened.entries,
                opened_at=one.at,
                day=one.at.astimezone(zone).date(),
                version=one.version,
                changes=one.changes,
                resolved_at=one.resolved.at if one.resolved else None,
                resolved_version=one.resolved.version if one.resolved else None,
            )
            for one in kept
        )


def finish(backtest: Backtest) -> None:
    """Finish a backtest that has covered all its users. Raises LeaseLost."""
    states = Counter(backtest.users.values_list("state", flat=True))
    failed = bool(states) and not states[UserState.DONE]
    _end(backtest, "none of the users could be looked at" if failed else "")


def give_up(backtest: Backtest, reason: str, *, ours: bool = False) -> None:
    """End a backtest that cannot read any user's history. Raises LeaseLost.

    With `ours` the server failed, so that the staff may retry it.
    """
    _end(backtest, reason, dead_since=timezone.now() if ours else None)


class NotGivenUp(Exception):
    """The backtest did not fail permanently through a fault of the server."""


def retry(backtest: Backtest) -> Backtest:
    """Resume a backtest that failed permanently; raises NotGivenUp."""
    if not try_again(Backtest.objects.filter(pk=backtest.pk)):
        raise NotGivenUp(
            "Only a backtest that was given up because the server failed is gone on with, and none"
            " in whose place another one goes on: start a new one."
        )
    backtest.refresh_from_db()
    return backtest


def try_again(chosen: QuerySet[Backtest]) -> int:
    """Resume backtests that failed permanently through a fault of the server; return how many.

    A backtest in whose place another one runs by now is left as it is.
    """
    number = 0
    for backtest in chosen.filter(dead_since__isnull=False):
        with suppress(IntegrityError), transaction.atomic():
            number += Backtest.objects.filter(pk=backtest.pk, state=BacktestState.FAILED).update(
                state=BacktestState.RUNNING,
                reason="",
                finished_at=None,
                attempts=0,
                run_after=timezone.now(),
                hinted_at=None,
                dead_since=None,
            )
    return number


def _end(backtest: Backtest, failure: str, **columns: Any) -> None:
    leases.write(
        backtest,
        **columns,
        state=BacktestState.FAILED if failure else BacktestState.FINISHED,
        reason=failure[:300],
        finished_at=timezone.now(),
        lease_owner="",
        lease_expires_at=None,
        attempts=0,
    )


# -- Reading the result ---------------------------------------------------------------------------


def findings_of(backtest: Backtest) -> QuerySet[BacktestFinding]:
    """Select the findings of a backtest, with their users."""
    found = BacktestFinding.objects.filter(result__backtest=backtest)
    return found.select_related("result__user")


def summary(backtest: Backtest) -> dict[str, Any]:
    """Return the summary of a backtest, as far as it got."""
    users = backtest.users.all()
    found = findings_of(backtest).order_by()
    done, of = progress(backtest)
    by_severity = dict(found.values_list("severity").annotate(Count("pk")))
    by_month = found.annotate(month=TruncMonth("day")).values_list("month").annotate(Count("pk"))
    by_day = found.values_list("day").annotate(number=Count("pk"))
    busiest = by_day.order_by("-number", "day").first()
    by_user = users.values_list("user__user_id").annotate(number=Count("findings"))
    most = by_user.filter(number__gt=0).order_by("-number", "user__user_id")
    still_open = found.filter(resolved_at=None)
    return {
        "conclusion": conclusion(backtest),
        "looked_at": backtest.looked_at,
        "fits": of,
        "sampled": of >= backtest.most_users and _are_others(backtest),
        "done": done,
        "failed": users.filter(state=UserState.FAILED).count(),
        "fired": len(by_user.filter(number__gt=0)),
        "since": users.aggregate(first=Min("since"))["first"],
        "findings": sum(by_severity.values()),
        "left_out": users.aggregate(number=Sum("left_out"))["number"] or 0,
        "by_severity": {str(one): by_severity.get(one, 0) for one in Severity},
        "by_month": [
            {"month": f"{month:%Y-%m}", "findings": number}
            for month, number in by_month.order_by("month")
        ],
        "busiest": {"day": busiest[0], "findings": busiest[1]} if busiest else None,
        "open": still_open.count(),
        "most": [{"user_id": user_id, "findings": number} for user_id, number in most[:NAMED]],
        "troubled": users.filter(Q(problem_count__gt=0) | Q(state=UserState.FAILED)).count(),
        "problems": _problems(users),
    }


def _are_others(backtest: Backtest) -> bool:
    """Return whether there are users who were not matched against the constraint's shapes."""
    version = backtest.version
    return version is not None and in_order(version).filter(place__gt=backtest.cursor).exists()


def _problems(users: QuerySet[BacktestUser]) -> list[dict[str, Any]]:
    """Return the first problems, each with its user."""
    troubled = users.filter(Q(problem_count__gt=0) | Q(state=UserState.FAILED))
    found: list[dict[str, Any]] = []
    for row in troubled.select_related("user").order_by("pk")[:NAMED]:
        failed = {"kind": "failed", "message": row.error, "at": None, "version": None}
        told = [failed] if row.state == UserState.FAILED else row.problems
        found += [{"user_id": row.user.user_id, **one} for one in told]
    return found[:NAMED]
