"""Backtests: which alerts a constraint would have raised on users' past states.

The constraint runs on users' project versions at the times when its result could have changed
(`workers/execution/backtesting.py`). The constraint's findings are combined into alerts by the
rules of `memory.alerts.reconcile`, but nobody is notified. A workspace constraint's version may
be approved once a backtest of that version has finished.
"""

import datetime
import re
from collections import Counter
from contextlib import suppress
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum
from django.utils import timezone

from memory.constraints.models.backtests import (
    GOING_ON,
    Backtest,
    BacktestState,
    BacktestUser,
    UserState,
)
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.constraints.simulated_alerts import UserResult
from memory.kernel import pauses
from memory.kernel.admission import quotas
from memory.kernel.canonical import sha256
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work import leases
from memory.log.models.entries import By
from memory.project.paths import constraint_path
from memory.versions import computed_states
from memory.versions.models.checkpoints import Blob, Checkpoint

_OWN = re.compile(r"constraints/[a-z][a-z0-9_]{0,99}\.py")
DAYS, MAX_DAYS = 365, 3650
USERS, MAX_USERS = 200, 2000
# The maximum number of findings kept per backtest and per user; all of them are counted.
MAX_FINDINGS = 1000
MAX_FINDINGS_OF_USER = 100
# The maximum number of problems kept per user.
MAX_PROBLEMS = 20
# How long a backtest is kept after it has ended.
KEPT = datetime.timedelta(days=90)


class BadBacktest(ValueError):
    """The requested backtest can't be run; `field` names the invalid argument."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NoSuchConstraint(BadBacktest):
    """The user's newest version has no such constraint."""


class NotTestable(Exception):
    """The version hasn't passed the checks, so it must not run on anybody's records."""


class NotGoingOn(Exception):
    """The backtest has already ended, so there is nothing to cancel."""


def start(
    version: WorkspaceConstraintVersion,
    *,
    by: str,
    days: int = DAYS,
    most_users: int = USERS,
    times: By = By.RECORDED,
) -> Backtest:
    """Start a backtest of a constraint version over the histories of the users it applies to.

    A history is what was known at each point in time or, if `times` is `By.OCCURRED`, what was true
    at each point in time. A user whose history can't be computed counts as failed. A backtest of
    this version that is already running is returned if it has the same arguments, and cancelled
    otherwise. Raises BadBacktest if an argument is out of range, and NotTestable if the version
    hasn't passed the checks.
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
                f"Version {locked.number} is {locked.get_state_display()}: only a version that"
                " passed all checks can be backtested."
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
    """Start a backtest of a constraint from the user's newest version over the user's history.

    If `source` is given, it is run instead of the constraint's stored source, after a worker has
    checked it against the policy. `path` is the constraint's path or just its name. Raises
    BadBacktest if an argument is invalid, and CannotBeTold if the history by the entries'
    own times can't be computed.
    """
    _check("days", days, MAX_DAYS)
    path = path if "/" in path else constraint_path(path)
    with transaction.atomic():
        locked = MemoryUser.objects.locked(user.pk)
        head = locked.head
        known = own_constraints(head)
        if head is None or (source is None and path not in known):
            has = f"it has {', '.join(known)}" if known else "it has no constraints"
            raise NoSuchConstraint(
                "constraint",
                f"The user's newest version has no {path}: {has}. Backtest a workspace constraint"
                " with POST /v1/constraints/{name}/versions/{number}/backtests/.",
            )
        if source is not None:
            if not _OWN.fullmatch(path):
                raise BadBacktest("constraint", "Give a name such as drug_allergy.")
            Blob.objects.get_or_create(
                user=locked, hash=sha256(source), defaults={"content": source}
            )
        if times == By.OCCURRED:
            computed_states.refuse_untyped(head)
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
    """Return the source of the user's constraint that a backtest runs; "" if it was redacted."""
    return Blob.objects.get(user=backtest.user, hash=backtest.source_hash).content or ""


def own_constraints(head: Checkpoint | None) -> list[str]:
    """Return the paths of the constraints in a user's newest version."""
    outlined = head.outline.get("constraints", ()) if head else ()
    return [constraint_path(name) for name, _ in outlined]


def _check(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise BadBacktest(name, f"Give a whole number from 1 to {most}.")


def _start(new: Backtest, others: QuerySet[Backtest]) -> Backtest:
    going_on = others.filter(state__in=GOING_ON).first()
    if going_on is not None:
        same = ("days", "most_users", "source_hash", "by")
        if all(getattr(going_on, name) == getattr(new, name) for name in same):
            return going_on
        _cancel(others, "another backtest was started")
    check_backtests(new.workspace)
    new.until = timezone.now()
    new.save(force_insert=True)
    return new


def cancel(backtest: Backtest, *, by: str) -> Backtest:
    """Cancel a running backtest, keeping its findings so far; raises NotGoingOn if it has ended."""
    cancelled = _cancel(Backtest.objects.filter(pk=backtest.pk), f"by {by}")
    backtest.refresh_from_db()
    if not cancelled:
        raise NotGoingOn(f"This backtest is already {backtest.get_state_display()}.")
    return backtest


def supersede(constraint: WorkspaceConstraint, number: int) -> None:
    """Cancel running backtests of a constraint's earlier versions now that there is a new one."""
    earlier = Backtest.objects.filter(version__constraint=constraint, version__number__lt=number)
    _cancel(earlier, f"version {number} was written")


def _cancel(backtests: QuerySet[Backtest], reason: str) -> int:
    """Cancel whichever of these backtests are running; their workers lose their leases.

    Returns how many were cancelled.
    """
    return backtests.filter(state__in=GOING_ON).update(
        state=BacktestState.CANCELLED,
        reason=reason[:300],
        finished_at=timezone.now(),
        **leases.REVOKED,
    )


def purge(limit: int) -> int:
    """Delete expired backtests, oldest first, until `limit` rows have been deleted.

    Returns how many rows were deleted. Backtests that justify the approval of a constraint's newest
    or live version are kept.
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
    deleted = 0
    for backtest in old.order_by("finished_at")[:limit]:
        deleted += backtest.delete()[0]
        if deleted >= limit:
            break
    return deleted


def waiting() -> QuerySet[Backtest]:
    """Select the unfinished backtests that aren't paused."""
    return Backtest.objects.filter(~pauses.are_paused("user", "workspace"), state__in=GOING_ON)


def settle(backtest: Backtest, row: BacktestUser, result: UserResult, **columns: Any) -> None:
    """Store a backtest's result for a user, unless the user has been erased.

    `columns` are additional columns for the user's row. Raises LeaseLost if the worker no longer
    holds the backtest's lease.
    """
    with transaction.atomic():
        # Reset the attempt count for the next user.
        backtest.attempts = 0
        leases.write(backtest, attempts=0, last_error="")
        kept_before = backtest.users.aggregate(kept=Sum("kept_count", default=0))["kept"]
        findings = [episode.to_json(row.user.time_zone) for episode in result.episodes]
        kept = findings[: max(min(MAX_FINDINGS_OF_USER, MAX_FINDINGS - kept_before), 0)]
        BacktestUser.objects.filter(pk=row.pk).update(
            **{
                "state": UserState.DONE,
                "problems": result.problems[:MAX_PROBLEMS],
                "problem_count": len(result.problems),
                "alert_count": len(findings),
                "counts": {
                    "severity": Counter(finding["severity"] for finding in findings),
                    "month": Counter(finding["day"][:7] for finding in findings),
                    "open": sum(finding["resolved_at"] is None for finding in findings),
                },
                "findings": kept,
                "kept_count": len(kept),
                **columns,
            }
        )


def finish(backtest: Backtest) -> None:
    """Finish a backtest that has covered all of its users.

    Raises LeaseLost if the worker no longer holds the backtest's lease.
    """
    states = Counter(backtest.users.values_list("state", flat=True))
    failed = bool(states) and not states[UserState.DONE]
    _end(backtest, "none of the users could be evaluated" if failed else "")


def give_up(backtest: Backtest, reason: str, *, ours: bool = False) -> None:
    """Mark a backtest as failed because it can't continue.

    If `ours` is set, the server is to blame, so staff may retry the backtest. Raises LeaseLost if
    the worker no longer holds the backtest's lease.
    """
    _end(backtest, reason, dead_since=timezone.now() if ours else None)


def try_again(chosen: QuerySet[Backtest]) -> int:
    """Resume backtests that failed permanently because of a server fault.

    Failed backtests that have been replaced by a running one stay as they are. Returns how many
    were resumed.
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
    leases.release(
        backtest,
        **columns,
        state=BacktestState.FAILED if failure else BacktestState.FINISHED,
        reason=failure[:300],
        finished_at=timezone.now(),
        attempts=0,
    )


# Seconds after which to ask again for a backtest that was refused.
BACKTESTS_WAIT = 60.0


def check_backtests(workspace: Workspace) -> None:
    """Raise LimitExceeded if as many backtests are queued or running as the workspace may have."""
    number = count_running(workspace)
    if number >= quotas.quotas_of(workspace)["max_backtests"]:
        has = f"The number of queued or running backtests in this workspace is {number:,}"
        quotas.refuse_for_now(workspace, "max_backtests", has, BACKTESTS_WAIT)


def count_running(workspace: Workspace) -> int:
    """Return how many of the workspace's backtests are queued or running."""
    return Backtest.objects.filter(workspace=workspace, state__in=GOING_ON).count()
