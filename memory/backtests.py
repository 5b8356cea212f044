"""Backtests: what a constraint would have said, had it been there all along.

It is run over the versions that users had, at the moments at which its answer could have changed
(`workers/backtesting.py`); what it finds is put together as `memory.alerts` would have done it, and
nobody is told. A version of a workspace's constraint may be approved once one of it has finished.
"""

import datetime
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import CharField, Count, F, Min, Q, QuerySet, Sum, Value
from django.db.models.functions import MD5, Cast, Concat, TruncMonth
from django.utils import timezone

from memory import leases
from memory.alert_settings import DAY, OPENINGS_OF_ONE, Holding
from memory.alerts import Finding, differences, most_severe
from memory.models import (
    Backtest,
    BacktestFinding,
    BacktestUser,
    Checkpoint,
    MemoryUser,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.models.alerts import Severity, severity_rank
from memory.models.backtests import GOING_ON, BacktestState, UserState
from memory.models.workspace_constraints import VersionState
from memory.project import Outline
from memory.project.shapes import ShapeError, match, needs_of

TASK = "workers.tasks.backtest"
DAYS, MOST_DAYS = 365, 3650
USERS, MOST_USERS = 200, 2000
# So many users are held against a shape in one go.
BATCH = 500
# Of one user so many findings, and problems, are kept.
MOST_FINDINGS = 1000
MOST_PROBLEMS = 20
# So many users and problems are named in a summary.
NAMED = 10


class BadBacktest(ValueError):
    """There can be no such backtest; `field` says what of it is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NotTestable(Exception):
    """The version has not passed the checks: nothing of it is run on anybody's records."""


class NotGoingOn(Exception):
    """The backtest has ended: there is nothing to cancel."""


# -- Starting and ending --------------------------------------------------------------------------


def start(
    version: WorkspaceConstraintVersion, *, by: str, days: int = DAYS, most_users: int = USERS
) -> Backtest:
    """Have a version run over the history of the users whom it fits; return the backtest.

    One that goes on with the same numbers is that one; another one is cancelled. Raises
    BadBacktest, or NotTestable.
    """
    _check("days", days, MOST_DAYS)
    _check("users", most_users, MOST_USERS)
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
                most_users=most_users,
                created_by=by,
            ),
            locked.backtests.all(),
        )


def start_own(user: MemoryUser, path: str, *, by: str, days: int = DAYS) -> Backtest:
    """Have a constraint of the user's newest version run over the user's history.

    Raises BadBacktest.
    """
    _check("days", days, MOST_DAYS)
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        head = locked.head
        known = own_constraints(head)
        if head is None or path not in known:
            has = f"has {', '.join(known)}" if known else "has none"
            raise BadBacktest("constraint", f"The user's newest version {has}.")
        backtest = _start(
            Backtest(
                workspace_id=locked.workspace_id,
                user=locked,
                constraint=path,
                source_hash=head.tree[path],
                days=days,
                most_users=1,
                picked=True,
                looked_at=1,
                created_by=by,
            ),
            locked.backtests.filter(constraint=path),
        )
        BacktestUser.objects.get_or_create(backtest=backtest, user=locked)
    return backtest


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
        same = ("days", "most_users", "source_hash")
        if all(getattr(going_on, name) == getattr(new, name) for name in same):
            return going_on
        _cancel(others, "another one was started")
    new.until = timezone.now()
    new.save(force_insert=True)
    return new


def cancel(backtest: Backtest, *, by: str) -> Backtest:
    """End a backtest that goes on; what it found so far stays. Raises NotGoingOn."""
    if not _cancel(Backtest.objects.filter(pk=backtest.pk), f"by {by}"):
        backtest.refresh_from_db()
        raise NotGoingOn(f"This backtest is {backtest.get_state_display()} already.")
    backtest.refresh_from_db()
    return backtest


def supersede(constraint: WorkspaceConstraint, number: int) -> None:
    """Cancel what goes on of a constraint, since there is a newer version of it."""
    earlier = Backtest.objects.filter(version__constraint=constraint, version__number__lt=number)
    _cancel(earlier, f"version {number} was written")


def _cancel(backtests: QuerySet[Backtest], reason: str) -> int:
    """Whoever works on one loses the lease with its token, and writes nothing any more."""
    return backtests.filter(state__in=GOING_ON).update(
        state=BacktestState.CANCELLED,
        reason=reason[:300],
        finished_at=timezone.now(),
        token=F("token") + 1,
        lease_owner="",
        lease_expires_at=None,
    )


def waiting() -> QuerySet[Backtest]:
    """Return the backtests on which there is work to do."""
    return Backtest.objects.filter(state__in=GOING_ON)


# -- What its approval rests on -------------------------------------------------------------------


@dataclass(frozen=True)
class Tested:
    """Whether a version was backtested, or need not be; why, or why not, in a sentence; and the
    backtest that this is about, if there is one."""

    enough: bool
    detail: str
    backtest: Backtest | None = None


def tested(version: WorkspaceConstraintVersion) -> Tested:
    """Return whether a version may be approved as far as backtests go."""
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
    """Say in a sentence how far a backtest got."""
    done, of = progress(backtest)
    match backtest.state:
        case BacktestState.FINISHED if not of:
            return f"There was nobody to test it on: it fits none of {backtest.looked_at} users."
        case BacktestState.FINISHED:
            failed = backtest.users.filter(state=UserState.FAILED).count()
            without = f", of whom {failed} could not be looked at" if failed else ""
            return f"It was backtested on {of} of {backtest.looked_at} users{without}."
        case BacktestState.CANCELLED | BacktestState.FAILED:
            named = backtest.get_state_display()
            return f"Its backtest was {named} ({backtest.reason}): start another one."
    far = f" ({done} of {of} users so far)" if backtest.picked else ""
    return f"Its backtest goes on{far}: wait for its end."


def progress(backtest: Backtest) -> tuple[int, int]:
    """Return on how many users it has looked, of how many."""
    counted = backtest.users.aggregate(
        of=Count("pk"), done=Count("pk", filter=~Q(state=UserState.WAITING))
    )
    return counted["done"], counted["of"]


# -- On whom --------------------------------------------------------------------------------------


def in_order(version: WorkspaceConstraintVersion) -> QuerySet[Any]:
    """Return the users with a project by the hash of version and user, as `place`: an order that
    is the same each time, and that nobody can choose."""
    seed = Value(str(version.pk))
    return (
        MemoryUser.objects.filter(workspace=version.constraint.workspace_id, head__isnull=False)
        .annotate(place=MD5(Concat(seed, Cast("public_id", CharField()))))
        .order_by("place")
    )


def pick(backtest: Backtest) -> None:
    """Hold the next users against what the version needs; those whom it fits are looked at.

    Ends with the last user, or when there are enough. Raises LeaseLost.
    """
    assert backtest.version is not None
    found: list[int] = []
    looked_at = 0
    cursor = backtest.cursor
    room = backtest.most_users - backtest.users.count()
    try:
        needs = needs_of(backtest.version.source)
    except ShapeError:  # one that was judged by an earlier release: it fits nobody
        needs = None
    users = in_order(backtest.version).filter(place__gt=cursor)
    rows = users.values_list("pk", "place", "head__outline")[: BATCH if needs and room > 0 else 0]
    for pk, place, outline in rows.iterator(chunk_size=100):
        if len(found) == room:
            break
        looked_at, cursor = looked_at + 1, place
        if needs and match(needs, Outline.from_json(outline)).applies:
            found.append(pk)
    picked = looked_at < BATCH or len(found) == room
    with transaction.atomic():
        backtest.cursor, backtest.picked = cursor, picked
        backtest.looked_at += looked_at
        leases.write(backtest, cursor=cursor, looked_at=backtest.looked_at, picked=picked)
        BacktestUser.objects.bulk_create(
            BacktestUser(backtest=backtest, user_id=pk) for pk in found
        )


# -- What it would have said ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something because of which a constraint would have said nothing.

    Kinds: `error`, it failed; `alert_limit`, it would have been paused; `redacted`, what it would
    have read is not told any more; `unknown`, it could not be followed any farther.
    """

    kind: str
    message: str

    def to_json(self, at: datetime.datetime, version: int) -> dict[str, Any]:
        """Return it with its time and version."""
        told = {"kind": self.kind, "message": self.message[:1000]}
        return {"at": at.isoformat(), "version": version, **told}


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a constraint finds from an instant on, in a version of a user's project."""

    at: datetime.datetime
    version: int
    findings: Sequence[Finding] = ()
    problem: Problem | None = None


@dataclass
class Episode:
    """A finding from the moment at which it would have opened an alert."""

    opened: Finding
    at: datetime.datetime
    version: int
    newest: Finding
    severity: Severity
    changes: list[dict[str, Any]] = field(default_factory=list)
    resolved: Moment | None = None


@dataclass
class Told:
    """What a constraint would have told of one user: in all, and where it would not have."""

    episodes: list[Episode] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)


def put_together(moments: Iterable[Moment], limits: Holding) -> Told:
    """Return what moments, in the order of time, come to by the rules of alerts.

    Where the constraint has a problem it says nothing, and what it said before stays. Where it
    would have been paused that is a problem of this moment alone, as if it was resumed at once.
    """
    told = Told()
    live: dict[str, Episode] = {}
    lately: deque[tuple[datetime.datetime, str]] = deque()
    before: Problem | None = None
    for moment in moments:
        while lately and lately[0][0] <= moment.at - DAY:
            lately.popleft()
        found = most_severe(moment.findings)
        new = [one for one in found if one not in live]
        problem = moment.problem or _flood(moment, len(new), len(lately), limits)
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
                paused = Problem(kind="alert_limit", message=flaps)
                told.problems.append(paused.to_json(moment.at, moment.version))
    return told


def _flood(moment: Moment, new: int, lately: int, limits: Holding) -> Problem | None:
    most, within_day = limits.alerts_per_constraint, limits.openings_per_day
    if len(moment.findings) > most:
        reason = f"it found more than {most}, at once"
    elif new and lately + new > within_day:
        reason = f"it would open more than {within_day} alerts within 24 hours"
    else:
        return None
    return Problem(kind="alert_limit", message=reason)


def _keep(episode: Episode, finding: Finding, moment: Moment) -> None:
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


def settle(backtest: Backtest, row: BacktestUser, told: Told, **columns: Any) -> None:
    """Write what a backtest came to for one user; of one who was erased meanwhile, nothing.

    `columns` are those of the row. Raises LeaseLost.
    """
    zone = ZoneInfo(row.user.time_zone)
    kept = told.episodes[:MOST_FINDINGS]
    columns = {
        "state": UserState.DONE,
        "problems": told.problems[:MOST_PROBLEMS],
        "problem_count": len(told.problems),
        "left_out": len(told.episodes) - len(kept),
        **columns,
    }
    with transaction.atomic():
        # The next user may be tried as often as this one.
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
    """End a backtest that has looked at everybody. Raises LeaseLost."""
    states = Counter(backtest.users.values_list("state", flat=True))
    failed = bool(states) and not states[UserState.DONE]
    leases.write(
        backtest,
        state=BacktestState.FAILED if failed else BacktestState.FINISHED,
        reason="none of the users could be looked at" if failed else "",
        finished_at=timezone.now(),
        lease_owner="",
        lease_expires_at=None,
        attempts=0,
    )


# -- What it comes to -----------------------------------------------------------------------------


def findings_of(backtest: Backtest) -> QuerySet[BacktestFinding]:
    """Return what a backtest found, with the users."""
    found = BacktestFinding.objects.filter(result__backtest=backtest)
    return found.select_related("result__user")


def summary(backtest: Backtest) -> dict[str, Any]:
    """Return what a backtest comes to, as far as it got."""
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
    """Whether there are users who were not held against what it needs."""
    version = backtest.version
    return version is not None and in_order(version).filter(place__gt=backtest.cursor).exists()


def _problems(users: QuerySet[BacktestUser]) -> list[dict[str, Any]]:
    """Return the first of the problems, each with its user."""
    troubled = users.filter(Q(problem_count__gt=0) | Q(state=UserState.FAILED))
    found: list[dict[str, Any]] = []
    for row in troubled.select_related("user").order_by("pk")[:NAMED]:
        failed = {"kind": "failed", "message": row.error, "at": None, "version": None}
        told = [failed] if row.state == UserState.FAILED else row.problems
        found += [{"user_id": row.user.user_id, **one} for one in told]
    return found[:NAMED]
