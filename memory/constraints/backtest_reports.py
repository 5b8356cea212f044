"""Backtest reports: progress, findings, and whether a backtest is sufficient for approval."""

from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from django.db.models import Count, Q, QuerySet

from memory.alerts.models.alerts import Severity
from memory.constraints.backtest_sampling import in_order
from memory.constraints.models.backtests import (
    Backtest,
    BacktestState,
    BacktestUser,
    UserState,
)
from memory.constraints.models.workspace_constraints import WorkspaceConstraintVersion
from memory.kernel.models.large import without_large
from memory.kernel.models.users import MemoryUser

# The maximum number of users, and of problems, listed in a summary.
NAMED = 10


@dataclass(frozen=True)
class Tested:
    """The verdict on whether a version's backtests are sufficient to approve it, and why.

    `backtest` is the backtest that decided this, if any.
    """

    enough: bool
    detail: str
    backtest: Backtest | None = None


def tested(version: WorkspaceConstraintVersion) -> Tested:
    """Return whether a version may be approved, judging by its backtests."""
    of_version = version.backtests.filter(source_hash=version.source_hash).order_by("-created_at")
    finished = of_version.filter(state=BacktestState.FINISHED).first()
    if finished is not None:
        return Tested(True, conclusion(finished), finished)
    newest = of_version.first()
    with_project = MemoryUser.objects.filter(
        workspace=version.constraint.workspace_id, head__isnull=False
    )
    if not with_project.exists():
        nobody = "There are no users to backtest on: no user in the workspace has a project."
        return Tested(True, nobody, newest)
    if newest is None:
        return Tested(
            False, f"Version {version.number} has not been backtested yet: start a backtest."
        )
    return Tested(False, conclusion(newest), newest)


def conclusion(backtest: Backtest) -> str:
    """Describe a backtest's progress or, once it has ended, its result in one sentence."""
    done, of = progress(backtest)
    match backtest.state:
        case BacktestState.FINISHED if not of:
            return (
                f"There were no users to backtest on: the constraint applies to none of"
                f" {backtest.looked_at} users."
            )
        case BacktestState.FINISHED:
            failed = backtest.users.filter(state=UserState.FAILED).count()
            without = f", of whom {failed} could not be evaluated" if failed else ""
            return f"The constraint was backtested on {of} of {backtest.looked_at} users{without}."
        case BacktestState.CANCELLED:
            return f"The backtest was cancelled ({backtest.reason}): start another one."
        case BacktestState.FAILED:
            return f"The backtest failed ({backtest.reason}): start another one."
    far = f" ({done} of {of} users so far)" if backtest.picked else ""
    return f"The backtest is still running{far}: wait until it has finished."


def progress(backtest: Backtest) -> tuple[int, int]:
    """Return how many users a backtest has evaluated so far, and how many it covers in total."""
    counted = backtest.users.aggregate(
        of=Count("pk"), done=Count("pk", filter=~Q(state=UserState.WAITING))
    )
    return counted["done"], counted["of"]


def findings_of(backtest: Backtest) -> list[dict[str, Any]]:
    """Return the alerts kept from a backtest, in chronological order, each with its user's id."""
    rows = backtest.users.filter(kept_count__gt=0).values_list("user__user_id", "findings")
    findings = [{"user_id": user_id, **finding} for user_id, kept in rows for finding in kept]
    return sorted(findings, key=itemgetter("opened_at", "user_id"))


def summary(backtest: Backtest) -> dict[str, Any]:
    """Return a summary of a backtest or, while it is running, of its progress so far."""
    users = backtest.users.all()
    columns = ("user__user_id", "state", "since", "alert_count", "kept_count", "counts")
    rows = list(users.values(*columns).order_by("-alert_count", "user__user_id"))
    counts = [row["counts"] for row in rows if row["alert_count"]]
    severities: Counter[str] = sum((Counter(one["severity"]) for one in counts), Counter())
    months: Counter[str] = sum((Counter(one["month"]) for one in counts), Counter())
    alerts = sum(row["alert_count"] for row in rows)
    states = Counter(row["state"] for row in rows)
    return {
        "conclusion": conclusion(backtest),
        "looked_at": backtest.looked_at,
        "fits": len(rows),
        "sampled": len(rows) >= backtest.most_users and _are_others(backtest),
        "done": len(rows) - states[UserState.WAITING],
        "failed": states[UserState.FAILED],
        "fired": len(counts),
        "since": min((row["since"] for row in rows if row["since"]), default=None),
        "findings": alerts,
        "left_out": alerts - sum(row["kept_count"] for row in rows),
        "by_severity": {str(severity): severities[severity] for severity in Severity},
        "by_month": [{"month": month, "findings": months[month]} for month in sorted(months)],
        "open": sum(one["open"] for one in counts),
        "most": [
            {"user_id": row["user__user_id"], "findings": row["alert_count"]}
            for row in rows[: min(NAMED, len(counts))]
        ],
        "troubled": _troubled(users).count(),
        "problems": _problems(users),
    }


def _troubled(users: QuerySet[BacktestUser]) -> QuerySet[BacktestUser]:
    return users.filter(Q(problem_count__gt=0) | Q(state=UserState.FAILED))


def _are_others(backtest: Backtest) -> bool:
    """Return whether there are users not yet matched against the constraint's shapes."""
    version = backtest.version
    return version is not None and in_order(version).filter(place__gt=backtest.cursor).exists()


def _problems(users: QuerySet[BacktestUser]) -> list[dict[str, Any]]:
    """Return the first few problems, each with the user's id."""
    problems: list[dict[str, Any]] = []
    for row in without_large(_troubled(users), "user").order_by("pk")[:NAMED]:
        failed = {"kind": "failed", "message": row.error, "at": None, "version": None}
        of_user = [failed] if row.state == UserState.FAILED else row.problems
        problems += [{"user_id": row.user.user_id, **problem} for problem in of_user]
    return problems[:NAMED]
