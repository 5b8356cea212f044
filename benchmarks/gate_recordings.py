"""Read the recorded modules and programs, and import a module."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Client, expect, require_data

FILES = ("llm_modules.jsonl", "analytical.jsonl", "active_service.jsonl")
WAIT = "?wait=30"


@dataclass(frozen=True)
class Recorded:
    """The cases in the recorded data; modules whose true records are known come first."""

    modules: Sequence[Mapping[str, Any]]
    analytical: Mapping[str, Mapping[str, Any]]
    services: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, limit: int | None) -> "Recorded":
        """Read all files, with at most `limit` modules and services."""
        modules, cases, services = (
            [json.loads(line) for line in path.read_text().splitlines()]
            for path in require_data(*FILES)
        )
        analytical = {case["case_id"]: case for case in cases}
        modules.sort(key=lambda case: case["id"] not in analytical)
        return cls(modules[:limit], analytical, services[:limit])


def import_module(client: Client, user_id: str, source: str) -> tuple[int, Any]:
    """Create a user and import one module; return a status and the decision.

    The status is 200 if the gate accepts the module, 422 if it refuses it, and 500 if the import
    fails. If the API refuses the request itself, its status and answer are returned.
    """
    expect(201, client.post("users/", {"user_id": user_id, "time_zone": "UTC"}))
    status, body = client.post(f"users/{user_id}/import/{WAIT}", {"files": {"module.py": source}})
    if status == 202:
        run = client.finished(body["id"])
        output = run["output"] or {}
        body = {
            "accepted": run["outcome"] == "ok",
            "verdict": output.get("verdict"),
            "report": output.get("import"),
            "error": run["error"],
        }
        status = {"ok": 200, "rejected": 422}.get(run["outcome"], 500)
    return status, body
