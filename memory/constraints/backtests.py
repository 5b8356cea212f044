"""Backtests: which alerts a constraint would have raised on users' past states.

The constraint runs on users' project versions at the times when its result could have changed
(`workers/execution/backtesting.py`). The constraint's findings are combined into alerts by the
rules of `memory.alerts.reconcile`, but nobody is notified. A workspace constraint's version may
be approved once its backtest has finished.

A backtest's `report` has the number of users whose records were checked for the constraint's shape
(`checked`), and maps the key of each selected user to a result or, until it is known, to null:

    {"checked": 40, "users": {"7": {"alerts": 3, "findings": [...], "problems": [...]}, "9": null}}

`alerts` counts all alerts; `findings` has the first of them, with their evidence.
"""

import datetime
import re
from collections.abc import Collection
from itertools import islice
from typing import Any

from django.db import transaction
from django.db.models import CharField, Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import MD5, Cast, Concat
from django.utils import timezone

from memory.constraints.models.backtests import GOING_ON, Backtest, BacktestState
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.constraints.simulated_alerts import SimulatedAlert
from memory.kernel import pauses
from memory.kernel.admission import quotas
from memory.kernel.canonical import sha256
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.texts import REDACTED
from memory.kernel.work import leases
from memory.log import content_policy
from memory.log.models.entries import By
from memory.project import Outline
from memory.project.paths import constraint_path
from memory.project.shapes import match, needs_of
from memory.versions import computed_states
from memory.versions.models.checkpoints import Blob, Checkpoint

_OWN = re.compile(r"constraints/[a-z][a-z0-9_]{0,99}\.py")
DAYS, MAX_DAYS = 365, 3650
USERS, MAX_USERS = 200, 2000
# The maximum number of findings kept per backtest and per user; all alerts are counted.
MAX_FINDINGS = 200
MAX_FINDINGS_OF_USER = 20
# The maximum number of problems kept per user.
MAX_PROBLEMS = 5
# How many users to match against a shape at a time.
BATCH = 100
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
    at each point in time. A user whose history can't be computed counts as failed. The backtest
    replaces the version's earlier one. Raises BadBacktest if an argument is out of range, and
    NotTestable if the version hasn't passed the checks.
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
            Backtest.objects.filter(version=locked),
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
    checked it against the policy. `path` is the constraint's path or just its name. The backtest
    replaces the earlier one of this constraint. Raises BadBacktest if an argument is invalid,
    ContentRefused if the workspace's content policy does not simply store what is in the source,
    and NotComputable if the history by the entries' own times can't be computed.
    """
    _check("days", days, MAX_DAYS)
    if source is not None:
        content_policy.refuse_sensitive(user.workspace.content_policy, {"source": source})
    path = path if "/" in path else constraint_path(path)
    with transaction.atomic():
        locked = MemoryUser.objects.locked(user.pk)
        head = locked.head
        own = own_constraints(head)
        if head is None or (source is None and path not in own):
            has = f"it has {', '.join(own)}" if own else "it has no constraints"
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
        return _start(
            Backtest(
                workspace_id=locked.workspace_id,
                user=locked,
                constraint=path,
                source_hash=head.tree[path] if source is None else sha256(source),
                days=days,
                by=times,
                most_users=1,
                report={"checked": 1, "users": {str(locked.pk): None}},
                created_by=by,
            ),
            locked.backtests.filter(constraint=path),
        )


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


def _start(new: Backtest, earlier: QuerySet[Backtest]) -> Backtest:
    earlier.delete()  # a worker that is running it loses its lease
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
    """Delete up to `limit` expired backtests, oldest first, and return how many were deleted.

    Backtests that justify the approval of a constraint's newest or live version are kept.
    """
    newer = WorkspaceConstraintVersion.objects.filter(
        constraint=OuterRef("version__constraint"), number__gt=OuterRef("version__number")
    )
    old = Backtest.objects.filter(finished_at__lt=timezone.now() - KEPT).exclude(
        Q(version__isnull=False, state=BacktestState.FINISHED)
        & (Q(version=F("version__constraint__live")) | ~Exists(newer))
    )
    keys = old.order_by("finished_at").values("pk")[:limit]
    return Backtest.objects.filter(pk__in=keys).delete()[0]


def waiting() -> QuerySet[Backtest]:
    """Select the unfinished backtests that aren't paused."""
    return Backtest.objects.filter(~pauses.are_paused("user", "workspace"), state__in=GOING_ON)


def select_users(backtest: Backtest) -> None:
    """Match users against the version's shape until enough of them match, and store the report.

    The users are matched in the order of a hash of the version and the user, which is always the
    same, but can't be influenced by anybody. Raises LeaseLost if the worker no longer holds the
    backtest's lease.
    """
    assert backtest.version is not None
    needs = needs_of(backtest.version.source)
    key = MD5(Concat(Value(str(backtest.version.pk)), Cast("public_id", CharField())))
    with_head = MemoryUser.objects.filter(workspace=backtest.workspace_id, head__isnull=False)
    # Ordering by hash has to sort every user: sort keys only, once.
    keys = with_head.order_by(key).values_list("pk", flat=True).iterator(chunk_size=BATCH)
    checked, selected = 0, list[int]()
    while len(selected) < backtest.most_users and (batch := list(islice(keys, BATCH))):
        outlines = dict(with_head.filter(pk__in=batch).values_list("pk", "head__outline"))
        for pk in batch:
            if len(selected) < backtest.most_users:
                checked += 1
                if pk in outlines and match(needs, Outline.from_json(outlines[pk])).applies:
                    selected.append(pk)
    backtest.report = {"checked": checked, "users": dict.fromkeys(map(str, selected))}
    backtest.attempts = 0
    leases.write(backtest, report=backtest.report, attempts=0)


def store_result(
    backtest: Backtest,
    user: MemoryUser,
    alerts: Collection[SimulatedAlert],
    problems: Collection[dict[str, Any]],
) -> None:
    """Store a backtest's result for a user; drop the user if erased in the meantime.

    Raises LeaseLost if the worker no longer holds the backtest's lease.
    """
    users = backtest.report["users"]
    room = MAX_FINDINGS - sum(len(result["findings"]) for result in users.values() if result)
    with transaction.atomic():
        # An erasure holds this lock until it has removed the user's results.
        alive = MemoryUser.objects.select_for_update(no_key=True).filter(pk=user.pk)
        if alive.values("pk").first():
            kept = list(alerts)[: max(min(MAX_FINDINGS_OF_USER, room), 0)]
            users[str(user.pk)] = {
                "alerts": len(alerts),
                "findings": [alert.to_json(user.time_zone) for alert in kept],
                "problems": list(problems)[:MAX_PROBLEMS],
            }
        else:
            del users[str(user.pk)]
        backtest.attempts = 0  # each user has attempts of its own
        leases.write(backtest, report=backtest.report, attempts=0, last_error="")


def erase_results(user: MemoryUser) -> None:
    """Remove a user from all reports; call this with the user's row locked."""
    for backtest in _interrupt(user):
        del backtest.report["users"][str(user.pk)]
        backtest.save(update_fields=["report"])


def redact_results(user: MemoryUser, since: datetime.datetime) -> None:
    """Remove what a user's results in backtests started since then may quote.

    Call this with the user's row locked.
    """
    for backtest in _interrupt(user):
        result = backtest.report["users"][str(user.pk)]
        if result is not None and backtest.created_at >= since:
            for finding in result["findings"]:
                finding |= {"message": REDACTED, "evidence": [], "fingerprint": ""}
            for problem in result["problems"]:
                problem["message"] = REDACTED
            backtest.save(update_fields=["report"])


def select_backtests(user: MemoryUser) -> QuerySet[Backtest]:
    """Select the backtests whose report has this user."""
    return Backtest.objects.filter(
        workspace=user.workspace_id, report__users__has_key=str(user.pk)
    ).order_by("created_at", "pk")


def _interrupt(user: MemoryUser) -> QuerySet[Backtest]:
    """Revoke the leases on backtests whose report has this user; select and lock all of these."""
    rows = select_backtests(user)
    rows.order_by().filter(state__in=GOING_ON).update(**leases.REVOKED, last_error="")
    return rows.select_for_update(no_key=True, of=("self",))


def finish(backtest: Backtest) -> None:
    """Finish a backtest that has covered all of its users.

    Raises LeaseLost if the worker no longer holds the backtest's lease.
    """
    results = backtest.report["users"].values()
    failed = bool(results) and all(map(is_failure, results))
    _end(backtest, "none of the users could be evaluated" if failed else "")


def is_failure(result: dict[str, Any]) -> bool:
    """Return whether a user's result says that the user could not be evaluated."""
    return any(problem["kind"] == "failed" for problem in result["problems"])


def give_up(backtest: Backtest, reason: str, *, ours: bool = False) -> None:
    """Mark a backtest as failed because it can't continue.

    If `ours` is set, the server is to blame, so staff may retry the backtest. Raises LeaseLost if
    the worker no longer holds the backtest's lease.
    """
    _end(backtest, reason, dead_since=timezone.now() if ours else None)


def try_again(chosen: QuerySet[Backtest]) -> int:
    """Resume backtests that failed permanently because of a server fault.

    Returns how many were resumed.
    """
    return chosen.filter(dead_since__isnull=False, state=BacktestState.FAILED).update(
        state=BacktestState.RUNNING,
        reason="",
        finished_at=None,
        attempts=0,
        run_after=timezone.now(),
        hinted_at=None,
        dead_since=None,
    )


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
