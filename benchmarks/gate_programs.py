"""Import the recorded programs and run them on the days of each step."""

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gate_recordings import Recorded, import_module
from benchmarks.harness import Client, Measured, Row, alerts_of, run_on


def days_before(steps: Sequence[Mapping[str, Any]], index: int) -> list[str]:
    """Return the days on which a step is checked: its own, and the last before the next step."""
    day = datetime.date.fromisoformat(steps[index]["date"])
    if index + 1 == len(steps):
        return [str(day)]
    following = datetime.date.fromisoformat(steps[index + 1]["date"])
    return [str(day), str(max(day, following - datetime.timedelta(1)))]


def programs(client: Client, recorded: Recorded) -> Measured:
    """Import the recorded program of every step and run it on the days of the step.

    An alert with the required content counts as early at a step that expects no alert. Other alerts
    at such a step are counted separately, since the program may be right to raise them.
    """
    rows: list[Row] = []
    steps = loaded = early = other = on_day = expected_on_day = 0
    for case in recorded.services:
        sessions = {session["step"]: session for session in case["sessions"]}
        for index, step in enumerate(case["recorded"]["v2"]):
            steps += 1
            user_id = f"v2-{case['case_id']}-{step['step']}"
            status, body = import_module(client, user_id, step["raw_response"])
            row = {"module": f"v2 {case['case_id']} {step['step']}", "status": status}
            rows.append(row)
            if status != 200:
                row["reason"] = str((body.get("verdict") or body).get("reason"))[:90]
                continue
            expected = sessions[step["step"]]["expected_alert"]
            ran = [run_on(user_id, day) for day in days_before(case["recorded"]["v2"], index)]
            failed = next((run.error for run in ran if run.outcome != "ok"), None)
            loaded += failed is None
            said = [alert["message"] for run in ran for alert in alerts_of(run)]
            spoke = any(satisfies(message, case["rubric_required"]) for message in said)
            early += spoke and not expected
            other += bool(said) and not spoke and not expected
            expected_on_day += expected
            on_day += expected and bool(alerts_of(ran[0]))
            row["alerts"] = f"{'some' if said else 'none'}, {'expected' if expected else 'not'}"
            row["reason"] = (failed or {}).get("message", "")
    figures = {
        "v2_steps": steps,
        "v2_loaded": loaded,
        "v2_early_alerts": early,
        "v2_other_alerts": other,
        "v2_alerts_on_day": on_day,
        "v2_alerts_expected": expected_on_day,
    }
    return rows, figures, []


def satisfies(message: str, rubric: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a message matches at least one pattern from every group."""
    return all(
        any(re.search(pattern, message, re.IGNORECASE) for pattern in group)
        for group in rubric.values()
    )
