"""Backtest reports: progress, findings, and whether a backtest is sufficient for approval."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Min, Q, QuerySet, Sum
from django.db.models.functions import TruncMonth

from memory.alerts.models.alerts import Severity
from memory.constraints.backtest_sampling import in_order
from memory.constraints.models.backtests import (
    Backtest,
    BacktestFinding,
    BacktestState,
    BacktestUser,
    UserState,
)
from memory.constraints.models.workspace_constraints import WorkspaceConstraintVersion
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


def findings_of(backtest: Backtest) -> QuerySet[BacktestFinding]:
    """Select a backtest's findings, with their users."""
    found = BacktestFinding.objects.filter(result__backtest=backtest)
    return found.select_related("result__user")


def summary(backtest: Backtest) -> dict[str, Any]:
    """Return a summary of a backtest or, while it is running, of its progress so far."""
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
    """Return whether there are users not yet matched against the constraint's shapes."""
    version = backtest.version
    return version is not None and in_order(version).filter(place__gt=backtest.cursor).exists()


def _problems(users: QuerySet[BacktestUser]) -> list[dict[str, Any]]:
    """Return the first few problems, each with the user's id."""
    troubled = users.filter(Q(problem_count__gt=0) | Q(state=UserState.FAILED))
    found: list[dict[str, Any]] = []
    for row in troubled.select_related("user").order_by("pk")[:NAMED]:
        failed = {"kind": "failed", "message": row.error, "at": None, "version": None}
        told = [failed] if row.state == UserState.FAILED else row.problems
        found += [{"user_id": row.user.user_id, **one} for one in told]
    return found[:NAMED]
