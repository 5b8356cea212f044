"""Aggregate questions with known answers: records over HTTP, a real worker, queries over HTTP.

Reads `analytical.jsonl` (a user per case) and `ten_domains.json` (one user with ten domains) from
UAC_DATA_DIR. Scored as the recorded data says: exact for integers and collections, 1 % or 0.01 for
floats, containment without regard to case for strings.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness import Client, data_file, json_path, report, settled
from uac_site.embedded.system import running_system

BATCH = 250
CLASSES = {
    "trips": "Trip",
    "contacts": "Contact",
    "meals": "Meal",
    "transactions": "Transaction",
    "sleep": "Night",
    "workouts": "Workout",
    "books": "Book",
    "medical": "MedicalVisit",
    "meetings": "Meeting",
    "purchases": "Purchase",
}


def cases() -> list[dict[str, Any]] | None:
    """Return the cases of `analytical.jsonl`, None where it is absent."""
    path = data_file("analytical.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path else None


def ten_domains() -> dict[str, Any] | None:
    """Return `ten_domains.json`, None where it is absent."""
    path = data_file("ten_domains.json")
    return json.loads(path.read_text()) if path else None


def load(client: Client, user_id: str, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Create the user and post the records of each collection; return when all are settled."""
    status, body = client.post("users/", {"user_id": user_id})
    assert status == 201, body
    entries = [
        {
            "kind": "record",
            "domain": name,
            "type": CLASSES.get(name, name.title().replace("_", "")),
            "collection": name,
            "key": f"{name}-{record['id']}",
            "data": record,
        }
        for name, rows in records.items()
        for record in rows
    ]
    for start in range(0, len(entries), BATCH):
        status, body = client.post(
            f"users/{user_id}/entries/", {"entries": entries[start : start + BATCH]}
        )
        assert status == 202, body
    settled(client, user_id, len(entries))


def ask(client: Client, user_id: str, collection: str, code: str) -> tuple[Any, str]:
    """Run a query over `data`, which stands for the collection; return the value and the runner."""
    status, body = client.post(
        f"users/{user_id}/query/?wait=30", {"code": f"data = {collection}\n{code}"}
    )
    if status == 202:
        run = client.finished(body["id"])
        return (run["output"] or {}).get("value", run["error"]), run["runner"]
    return body["value"] if status == 200 else body.get("error", body), body.get("runner", "")


def equals_gold(value: Any, case: Mapping[str, Any]) -> bool:
    """Compare an answer with the gold one by the rule of its kind."""
    gold, kind = case["gold"], case["answer_kind"]
    if kind == "int":
        return type(value) is int and value == gold
    if kind == "float":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value - gold) <= max(0.01, 0.01 * abs(gold))
    if kind == "string":
        return isinstance(value, str) and str(gold).lower() in value.lower()
    return isinstance(value, list) and sorted(value, key=str) == sorted(gold, key=str)


def answered(client: Client) -> Iterator[dict[str, Any]]:
    """Ask every question of both files; yield a row for each."""
    for number, case in enumerate(cases() or []):
        user_id = f"analytical-{number}"
        started = time.monotonic()
        load(client, user_id, {case["type"]: case["records"]})
        loaded = time.monotonic()
        value, runner = ask(client, user_id, case["type"], case["query_code"])
        yield _row("analytical", case, value, runner, loaded - started, time.monotonic() - loaded)
    if user := ten_domains():
        started = time.monotonic()
        load(client, "ten-domains", user["user_state"])
        loading = time.monotonic() - started
        for case in user["cases"]:
            started = time.monotonic()
            domain = case["target_domain"]
            value, runner = ask(client, "ten-domains", f"{domain}.{domain}", case["query_code"])
            yield _row("ten_domains", case, value, runner, loading, time.monotonic() - started)
            loading = 0.0


def _row(
    part: str, case: Mapping[str, Any], value: Any, runner: str, loading: float, asking: float
) -> dict[str, Any]:
    return {
        "part": part,
        "case": case["case_id"],
        "gold": json.dumps(case["gold"]),
        "answer": json.dumps(value)[:60],
        "correct": equals_gold(value, case),
        "load_ms": round(1000 * loading),
        "query_ms": round(1000 * asking),
        "runner": runner,
    }


def main() -> None:
    """Run both parts and report."""
    path = json_path(__doc__)
    if cases() is None and ten_domains() is None:
        print("absent: UAC_DATA_DIR holds neither analytical.jsonl nor ten_domains.json")
        report("analytical", settings={}, rows=[], figures={}, path=path)
        return
    with running_system() as system:
        key = json.loads(system.manage("create_workspace", "benchmark"))["api_key"]
        rows = list(answered(Client(system.base_url, key)))
        settings = {"runner": sorted({row["runner"] for row in rows})}
    figures: dict[str, int | str] = {}
    for part, prefix in (("analytical", ""), ("ten_domains", "ten_domains_")):
        of_part = [row for row in rows if row["part"] == part]
        if not of_part:
            print(f"absent: the data of {part}")
            continue
        figures[f"{prefix}cases"] = len(of_part)
        figures[f"{prefix}correct"] = sum(row["correct"] for row in of_part)
    report("analytical", settings=settings, rows=rows, figures=figures, path=path)


if __name__ == "__main__":
    main()
