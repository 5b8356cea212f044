"""Backtest reports: progress, findings, and whether a backtest is sufficient for approval."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from memory.constraints.backtests import is_failure
from memory.constraints.models.backtests import Backtest, BacktestState
from memory.constraints.models.workspace_constraints import WorkspaceConstraintVersion
from memory.kernel.models.users import MemoryUser

# The maximum number of problems listed in a summary.
NAMED = 10


@dataclass(frozen=True)
class Tested:
    """The verdict on whether a version's backtest is sufficient to approve it, and why.

    `backtest` is the backtest that decided this, if any, `evaluated` the number of users it ran on,
    and `unseen` the number of users who have a project now and whom it did not look at.
    """

    enough: bool
    detail: str
    backtest: Backtest | None = None
    unseen: int = 0
    evaluated: int = 0


def tested(version: WorkspaceConstraintVersion) -> Tested:
    """Return whether a version may be approved, judging by its backtest."""
    backtest = version.backtests.filter(source_hash=version.source_hash).first()
    with_project = MemoryUser.objects.filter(
        workspace=version.constraint.workspace_id, head__isnull=False
    )
    if backtest is not None and backtest.state == BacktestState.FINISHED:
        now = with_project.count()
        counts = count_users(backtest)
        unseen = max(now - counts["looked_at"], 0)
        part = f" {now:,} users have a project now." if unseen else ""
        evaluated = counts["done"] - counts["failed"]
        return Tested(True, f"{conclusion(backtest)}{part}", backtest, unseen, evaluated)
    if not with_project.exists():
        nobody = "There are no users to backtest on: no user in the workspace has a project."
        return Tested(True, nobody, backtest)
    if backtest is None:
        return Tested(
            False, f"Version {version.number} has not been backtested yet: start a backtest."
        )
    return Tested(False, conclusion(backtest), backtest)


def conclusion(backtest: Backtest) -> str:
    """Describe a backtest's progress or, once it has ended, its result in one sentence."""
    counts = count_users(backtest)
    match backtest.state:
        case BacktestState.FINISHED if not counts["fits"]:
            return (
                "There were no users to backtest on: the constraint applies to none of"
                f" {counts['looked_at']} users."
            )
        case BacktestState.FINISHED:
            failed = counts["failed"]
            without = f", of whom {failed} could not be evaluated" if failed else ""
            return (
                f"The constraint was backtested on {counts['fits']} of {counts['looked_at']}"
                f" users{without}."
            )
        case BacktestState.CANCELLED:
            return f"The backtest was cancelled ({backtest.reason}): start another one."
        case BacktestState.FAILED:
            return f"The backtest failed ({backtest.reason}): start another one."
    far = f" ({counts['done']} of {counts['fits']} users so far)" if backtest.report else ""
    return f"The backtest is still running{far}: wait until it has finished."


def count_users(backtest: Backtest) -> dict[str, int]:
    """Return how many users a backtest has checked, covers, has evaluated, and could not evaluate.

    `fired` counts the users for whom the constraint would have raised alerts, `findings` these
    alerts, and `left_out` those that are not listed.
    """
    report = backtest.report or {"checked": 0, "users": {}}
    results = [result for result in report["users"].values() if result]
    alerts = sum(result["alerts"] for result in results)
    return {
        "looked_at": report["checked"],
        "fits": len(report["users"]),
        "done": len(results),
        "failed": sum(map(is_failure, results)),
        "fired": sum(result["alerts"] > 0 for result in results),
        "findings": alerts,
        "left_out": alerts - sum(len(result["findings"]) for result in results),
    }


def summary(backtest: Backtest) -> dict[str, Any]:
    """Return a summary of a backtest or, while it is running, of its progress so far."""
    return {
        "conclusion": conclusion(backtest),
        **count_users(backtest),
        "problems": list(_listed(backtest, "problems"))[:NAMED],
    }


def findings_of(backtest: Backtest) -> list[dict[str, Any]]:
    """Return the alerts kept from a backtest, in chronological order, each with its user's id."""
    return sorted(_listed(backtest, "findings"), key=itemgetter("opened_at", "user_id"))


def _listed(backtest: Backtest, part: str) -> Iterator[dict[str, Any]]:
    """Yield what is listed in this part of the users' results, each with its user's id."""
    users = backtest.report["users"] if backtest.report else {}
    results = {int(pk): result[part] for pk, result in users.items() if result and result[part]}
    ids = MemoryUser.objects.filter(pk__in=results).order_by("pk").values_list("pk", "user_id")
    for pk, user_id in ids:
        for item in results[pk]:
            yield {"user_id": user_id, **item}
