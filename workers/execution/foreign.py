"""Foreign code in the sandbox: read a foreign project's objects, and run its old constraints.

The foreign code may have forged the result, so the result's structure is checked here.
"""

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from memory.project.legacy import LIVE, original_path, surroundings
from memory.versions import checkpoints
from workers.execution.loading import LoadPlan
from workers.sandbox.interface import Sandbox, SandboxError
from workers.sandbox.results import ConstraintResult, FoundAlert, UserError

MAX_ALERTS = 1000
MAX_MESSAGE = 10_000

# Severity names used in old constraints; any other name is treated as a warning.
SEVERITIES = {
    **dict.fromkeys(("critical", "high", "urgent", "severe", "error", "danger"), "critical"),
    **dict.fromkeys(("info", "low", "notice", "minor", "information", "hint"), "info"),
}
# Fields that may identify an old constraint's alert, so that it is recognized as the same alert the
# next day.
KEYS = ("key", "id", "alert_id", "rule", "type", "kind", "code", "category", "name", "title")
MESSAGES = ("message", "msg", "text", "description", "detail", "details", "summary", "title")
LEVELS = ("severity", "level", "priority")


class ForeignCodeError(Exception):
    """Foreign code raised an error; `error` describes it, with the path and line in that code."""

    def __init__(self, error: UserError) -> None:
        super().__init__(f"{error.type}: {error.message}")
        self.error = error


def read_objects(
    sandbox: Sandbox,
    files: Mapping[str, str],
    modules: Sequence[str],
    *,
    now: datetime.datetime,
    time_zone: str,
) -> Mapping[str, Any]:
    """Execute modules of a foreign project and return the graph of the objects that they define.

    `memory.integrations.foreign.read` interprets the graph. Raises ForeignCodeError if the code
    raises an error, and SandboxError if the sandbox fails.
    """
    answer = sandbox.run_foreign("read", files, modules, now=now, time_zone=time_zone)
    _raise_error(answer)
    graph = answer.get("graph")
    return graph if isinstance(graph, dict) else {}


def run_old_constraint(
    sandbox: Sandbox,
    files: Mapping[str, str],
    path: str,
    *,
    now: datetime.datetime,
    time_zone: str,
) -> tuple[FoundAlert, ...]:
    """Run an old constraint and return its alerts.

    Raises ForeignCodeError if the constraint fails, and SandboxError if the sandbox fails.
    """
    answer = sandbox.run_foreign("check", files, [path], now=now, time_zone=time_zone)
    _raise_error(answer)
    alerts = answer.get("alerts")
    if not isinstance(alerts, list):
        raise ForeignCodeError(
            UserError(type="NoAlerts", message="the constraint did not return a list of alerts")
        )
    rows = [row for row in alerts[:MAX_ALERTS] if isinstance(row, dict)]
    keys = [_first(row, KEYS) or "alert" for row in rows]
    found, used = [], Counter[str]()
    for row, key in zip(rows, keys, strict=True):
        used[key] += 1
        message = _first(row, MESSAGES) or "; ".join(f"{name}: {row[name]}" for name in row)
        found.append(
            FoundAlert(
                severity=SEVERITIES.get(_first(row, LEVELS).strip().lower(), "warning"),
                message=message[:MAX_MESSAGE],
                key=(key if used[key] == 1 else f"{key}-{used[key]}")[:200],
                evidence=(),
            )
        )
    return tuple(found)


def run_old_constraints(
    sandbox: Sandbox, plan: LoadPlan, *, now: datetime.datetime
) -> list[ConstraintResult]:
    """Run every old constraint in a version; a constraint's error is reported in its own result.

    Raises SandboxError if the sandbox fails.
    """
    outline, checkpoint = plan.outline, plan.checkpoint
    if not outline.legacy_constraints:
        return []
    is_live = any(path.startswith(LIVE) for path in outline.legacy_constraints)
    needed = {
        path
        for path in checkpoint.tree
        if path in outline.legacy or (path.startswith("domains/") and is_live)
    }
    files = checkpoints.read_files(checkpoint, needed)
    results = []
    for path in outline.legacy_constraints:
        alerts: tuple[FoundAlert, ...] = ()
        error = None
        try:
            alerts = run_old_constraint(
                sandbox,
                surroundings(path, files),
                original_path(path),
                now=now,
                time_zone=plan.user.time_zone,
            )
        except ForeignCodeError as raised:
            error = raised.error
        except SandboxError as raised:
            if raised.infrastructure or not sandbox.alive:
                raise
            error = raised.error or UserError(type=raised.outcome, message=raised.message)
        results.append(ConstraintResult(path=path, alerts=alerts, error=error, seconds=0.0))
    return results


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((row[name] for name in names if isinstance(row.get(name), str) and row[name]), "")


def _raise_error(answer: Mapping[str, Any]) -> None:
    error = answer.get("error")
    if not isinstance(error, dict):
        return
    line = error.get("line")
    raise ForeignCodeError(
        UserError(
            type=str(error.get("type"))[:200],
            message=str(error.get("message"))[:2000],
            path=str(error["path"])[:300] if isinstance(error.get("path"), str) else None,
            line=line if type(line) is int and 0 <= line < 2**31 else None,
            traceback=str(error.get("traceback", ""))[:4000],
        )
    )
