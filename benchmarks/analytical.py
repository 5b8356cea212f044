"""Score the server's answers to aggregate questions whose answers are known.

Records are posted and queries are run over HTTP, with a real worker. The questions come from
`analytical.jsonl` (one user per case) and `ten_domains.json` (one user with ten domains) in
UAC_DATA_DIR. Answers are scored by the rules of the recorded data: integers and collections must be
equal, floats may differ by 1 % or 0.01, and strings must contain the right answer, ignoring case.
"""

import ast
import datetime
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from benchmarks.harness import (
    Client,
    Row,
    append,
    expect,
    new_client,
    parser,
    report,
    require_data,
    settled,
)
from deploy.embedded.system import running_system

FILES = ("analytical.jsonl", "ten_domains.json")
BATCH = 250
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
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


@dataclass(frozen=True)
class Questions:
    """The questions about users with one collection each, and about one user with ten domains."""

    analytical: Sequence[Mapping[str, Any]]
    ten_domains: Sequence[Mapping[str, Any]]
    state: Mapping[str, Sequence[Mapping[str, Any]]]  # records of the user with ten domains

    @classmethod
    def read(cls, limit: int | None) -> "Questions":
        """Read both files; with a limit, keep only that many questions per file."""
        several, one = (path.read_text() for path in require_data(*FILES))
        user = json.loads(one)
        chosen = user["cases"][:limit]
        asked = {case["target_domain"] for case in chosen}
        return cls(
            [json.loads(line) for line in several.splitlines()][:limit],
            chosen,
            {
                name: records
                for name, records in user["user_state"].items()
                if limit is None or name in asked
            },
        )


def record_entries(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the records of each collection as typed entries."""
    return [
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


def load(client: Client, user_id: str, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Create a user and post the records of each collection; wait until all are settled."""
    expect(201, client.post("users/", {"user_id": user_id}))
    entries = record_entries(records)
    append(client, user_id, entries, BATCH)
    settled(client, user_id, len(entries))


def ask(client: Client, user_id: str, collection: str, code: str) -> dict[str, Any]:
    """Run a query in which `data` is the collection; return the answer."""
    status, body = client.post(
        f"users/{user_id}/query/?wait=30", {"code": f"data = {collection}\n{code}"}
    )
    if status == 202:
        run = client.finished(body["id"])
        body, status = {**run, **(run["output"] or {})}, 200 if run["outcome"] == "ok" else 422
    return body if status == 200 else {"value": body, "runner": "", "evidence": {"scope": ""}}


def with_all_evidence(client: Client, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer with the evidence that its run names; the answer names only the first."""
    if not answer["evidence"].get("more"):
        return answer
    run = expect(200, client.get(f"runs/{answer['id']}/"))
    return {**answer, "evidence": run["output"]["evidence"]}


def names_its_evidence(
    evidence: Mapping[str, Any], code: str, collection: str, records: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether an answer names the right evidence.

    For code with a single comprehension, the right evidence is the records that the comprehension
    selects, computed again here; for other code, it is the whole collection that the code reads.
    """
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, _COMPREHENSIONS)]
    if len(found) != 1:
        read = {"domain": collection, "collection": collection, "count": len(records)}
        return (evidence["scope"], evidence["collections"]) == ("read", [read])
    (generator,) = found[0].generators
    element = ast.unparse(generator.target)
    conditions = "".join(f" if {ast.unparse(one)}" for one in generator.ifs)
    selected = f"[{element} for {element} in {ast.unparse(generator.iter)}{conditions}]"
    names = {"data": [_parsed(record) for record in records], "date": datetime.date}
    expected = {f"{collection}-{one.id}" for one in eval(selected, names)}
    told = [key for columns in evidence["records"] for key in columns["keys"]]
    return evidence["scope"] == "selected" and set(told) == expected and len(told) == len(expected)


def _parsed(record: Mapping[str, Any]) -> SimpleNamespace:
    values = dict(record)
    for name, value in record.items():
        if isinstance(value, str) and _DAY.fullmatch(value):
            values[name] = datetime.date.fromisoformat(value)
    return SimpleNamespace(**values)


def equals_gold(value: Any, case: Mapping[str, Any]) -> bool:
    """Return whether an answer matches the gold answer by the rule for the answer's kind."""
    gold, kind = case["gold"], case["answer_kind"]
    if kind == "int":
        return type(value) is int and value == gold
    if kind == "float":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value - gold) <= max(0.01, 0.01 * abs(gold))
    if kind == "string":
        return isinstance(value, str) and str(gold).lower() in value.lower()
    return isinstance(value, list) and sorted(value, key=str) == sorted(gold, key=str)


def answered(client: Client, questions: Questions) -> Iterator[Row]:
    """Load the records and ask every question; yield a row for each question."""
    for number, case in enumerate(questions.analytical):
        user_id = f"analytical-{number}"
        started = time.monotonic()
        load(client, user_id, {case["type"]: case["records"]})
        loaded = time.monotonic()
        name, records = case["type"], case["records"]
        answer = ask(client, user_id, name, case["query_code"])
        seconds = (loaded - started, time.monotonic() - loaded)
        all_told = with_all_evidence(client, answer)
        yield _row("analytical", case, name, records, all_told, *seconds)
    started = time.monotonic()
    load(client, "ten-domains", questions.state)
    loading = time.monotonic() - started
    for case in questions.ten_domains:
        started = time.monotonic()
        domain = case["target_domain"]
        answer = ask(client, "ten-domains", f"{domain}.{domain}", case["query_code"])
        seconds = (loading, time.monotonic() - started)
        all_told = with_all_evidence(client, answer)
        yield _row("ten_domains", case, domain, questions.state[domain], all_told, *seconds)
        loading = 0.0


def _row(
    part: str,
    case: Mapping[str, Any],
    collection: str,
    records: Sequence[Mapping[str, Any]],
    answer: Mapping[str, Any],
    loading: float,
    asking: float,
) -> Row:
    value, evidence = answer["value"], answer["evidence"]
    return {
        "part": part,
        "case": case["case_id"],
        "gold": json.dumps(case["gold"]),
        "answer": json.dumps(value)[:60],
        "correct": equals_gold(value, case),
        "evidence": evidence["scope"],
        "evidence_correct": names_its_evidence(evidence, case["query_code"], collection, records),
        "load_ms": round(1000 * loading),
        "query_ms": round(1000 * asking),
        "runner": answer["runner"],
    }


def main() -> None:
    """Run both parts and report the results."""
    asked = parser(__doc__, limit=(None, 2)).parse_args()
    questions = Questions.read(asked.limit)
    with running_system() as system:
        rows = list(answered(new_client(system, "benchmark"), questions))
        settings = {"runner": sorted({row["runner"] for row in rows})}
    figures: dict[str, int | str] = {}
    for part, prefix in (("analytical", ""), ("ten_domains", "ten_domains_")):
        of_part = [row for row in rows if row["part"] == part]
        figures[f"{prefix}cases"] = len(of_part)
        figures[f"{prefix}correct"] = sum(row["correct"] for row in of_part)
        figures[f"{prefix}evidence_correct"] = sum(row["evidence_correct"] for row in of_part)
        figures[f"{prefix}selected"] = sum(row["evidence"] == "selected" for row in of_part)
    report("analytical", settings=settings, rows=rows, figures=figures, path=asked.json)


if __name__ == "__main__":
    main()
