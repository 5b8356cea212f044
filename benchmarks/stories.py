"""Stories told session by session to the whole server, with the operator's own language model.

The stories are those of `scenarios.jsonl` (UAC_DATA_DIR); the model is that of UAC_LLM_MODEL,
UAC_LLM_BASE_URL and UAC_LLM_API_KEY. Without either there is nothing to measure, and it says so.
What was told goes through API, model, gate and sandbox; after each session the constraints run on
its day. Whether an alert says what it should, a person reads in the table: both texts stand there.
"""

import argparse
import datetime
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Client, alerts_of, data_file, report, run_on, settings_of
from uac_site.embedded.system import System, running_system

PATIENCE_SECONDS = 3600


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--only", help="ids of stories, with commas between them")
    options = parser.parse_args()
    stories = read_stories(options.only)
    absent = [
        reason
        for reason, is_absent in (
            ("scenarios.jsonl in UAC_DATA_DIR", not stories),
            ("a model in UAC_LLM_MODEL", not os.environ.get("UAC_LLM_MODEL")),
        )
        if is_absent
    ]
    settings = {"model": os.environ.get("UAC_LLM_MODEL", ""), "stories": len(stories)}
    if absent:
        figures = {"stories": "absent", "absent": ", ".join(absent)}
        report("stories", settings=settings, rows=[], figures=figures, path=options.json)
        return
    at_once = {
        "UAC_STRUCTURE_IDLE_SECONDS": "1",
        "UAC_STRUCTURE_AGE_SECONDS": "1",
        "UAC_SANDBOX_RUNNER": "docker",
    }
    with running_system(llm_workers=1, environment=at_once) as system:
        settings_of(system)
        key = json.loads(system.manage("create_workspace", "stories"))["api_key"]
        client = Client(system.base_url, key)
        rows = [row for story in stories for row in tell(system, client, story)]
    report("stories", settings=settings, rows=rows, figures=sums(rows), path=options.json)


def read_stories(only: str | None) -> list[dict[str, Any]]:
    """Read the recorded stories, all or those with these ids."""
    path = data_file("scenarios.jsonl")
    if path is None:
        return []
    stories = [json.loads(line) for line in path.read_text().splitlines()]
    ids = only.split(",") if only else [story["id"] for story in stories]
    return [story for story in stories if story["id"] in ids]


def tell(system: System, client: Client, story: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tell a story; return a row for each session."""
    rows = []
    user_id = story["id"]
    status, body = client.post("users/", {"user_id": user_id, "time_zone": "UTC"})
    assert status == 201, body
    for session in story["sessions"]:
        started = time.monotonic()
        status, body = client.post(
            f"users/{user_id}/entries/",
            {
                "kind": "message",
                "role": "user",
                "content": session["text"],
                "occurred_at": f"{session['date']}T09:00:00Z",
                "session_id": str(session["session_id"]),
            },
        )
        assert status == 202, body
        counts = settled(system, client, user_id)
        triggers = session["session_id"] == story["trigger_session_id"]
        found = alerts_of(run_on(user_id, session["date"])) if head_of(user_id) else []
        row = {
            "story": user_id,
            "session": session["session_id"],
            "date": session["date"],
            "entries": counts["total"],
            "pending": counts["pending"],
            "rejected": counts["rejected"],
            "dismissed": counts["dismissed"],
            **work_of(user_id),
            "seconds": round(time.monotonic() - started),
            "expected": story["expected_alert"]["message"] if triggers else "",
            "alerts": " | ".join(f"{one['severity']}: {one['message']}" for one in found),
        }
        print(json.dumps(row, ensure_ascii=False), flush=True)
        rows.append(row)
    return rows


def settled(system: System, client: Client, user_id: str) -> dict[str, int]:
    """Wait until every entry has an outcome, or the model has failed; return the counts."""
    from memory.models import Lane
    from memory.models.users import LaneName

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        system.check()
        counts: dict[str, int] = client.get(f"users/{user_id}/")[1]["entries"]
        lane = Lane.objects.get(user__user_id=user_id, name=LaneName.STRUCTURE)
        if counts["pending"] == 0 or lane.attempts > 3 or time.monotonic() > deadline:
            return counts
        time.sleep(1)


def head_of(user_id: str) -> Any:
    """Return the user's newest version, None if there is none."""
    from memory.models import MemoryUser

    return MemoryUser.objects.select_related("head").get(user_id=user_id).head


def work_of(user_id: str) -> dict[str, Any]:
    """Return what the user has taken so far: calls, tokens, refusals of the gate, versions."""
    from django.db.models import Sum

    from memory.models import Checkpoint, LlmCall, Run
    from memory.models.runs import RunKind, RunOutcome

    calls = LlmCall.objects.filter(user__user_id=user_id)
    proposals = Run.objects.filter(user__user_id=user_id, kind=RunKind.PROPOSAL)
    tokens = calls.aggregate(sent=Sum("input_tokens"), received=Sum("output_tokens"))
    return {
        "versions": Checkpoint.objects.filter(user__user_id=user_id).count(),
        "calls": calls.count(),
        "calls_wrong": calls.exclude(outcome="ok").count(),
        "proposals": proposals.count(),
        "refused": proposals.filter(outcome=RunOutcome.REJECTED).count(),
        "tokens_in": tokens["sent"] or 0,
        "tokens_out": tokens["received"] or 0,
    }


def sums(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the benchmark measures, from its rows."""
    last = {row["story"]: row for row in rows}
    triggered = [row for row in rows if row["expected"]]
    quiet = [row for row in rows if not row["expected"]]
    entries = sum(row["entries"] for row in last.values())
    return {
        "stories": len(last),
        "sessions": len(rows),
        "entries": entries,
        "settled_share": 1 - sum(row["pending"] for row in last.values()) / entries,
        "rejected": sum(row["rejected"] for row in last.values()),
        "with_alert_on_the_day": sum(bool(row["alerts"]) for row in triggered),
        "with_alert_before": sum(bool(row["alerts"]) for row in quiet),
        "checkpoints": sum(row["versions"] for row in last.values()),
        "proposals": sum(row["proposals"] for row in last.values()),
        "refused": sum(row["refused"] for row in last.values()),
        "calls": sum(row["calls"] for row in last.values()),
        "tokens_in": sum(row["tokens_in"] for row in last.values()),
        "tokens_out": sum(row["tokens_out"] for row in last.values()),
        "measured_on": str(datetime.datetime.now(datetime.UTC).date()),
    }


if __name__ == "__main__":
    main()
