"""Check whether a language model's constraints warn users in time.

Each model remembers the sessions of the cases, one by one, on a complete server. After each
session, the constraints run on its day and on the last day before the next session. The cases are
in UAC_DATA_DIR:

- `active`: an alert with the required content must be open on the day on which it is due; any alert
  before that day is early.
- `stories`: the same, but without required content, and mostly with due days that nobody has
  checked. A person has to compare each alert with the expected text: the table contains both.

Models are named as NAME or NAME@BASE_URL, like judges, which compare the alerts with the expected
texts; the default URL is UAC_BENCH_BASE_URL, and the key UAC_BENCH_API_KEY. Without models, nothing
is measured; with `--quick`, a stand-in that files every text by rule replaces them.
"""

import argparse
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.chat import Model, Prices, agrees
from benchmarks.filing_rules import answer, lines_in, tokens
from benchmarks.gate_programs import days_before, satisfies
from benchmarks.harness import (
    Client,
    Row,
    alerts_of,
    commit,
    expect,
    new_client,
    parser,
    report,
    require_data,
    run_on,
    server_environment,
    settings_of,
)
from deploy.embedded.system import System, running_system
from tests.llm_server import KEY, Request, Said, called, llm_server, said

FILES = {"active": "active_service.jsonl", "stories": "scenarios.jsonl"}
WARN = "Of what does a memory have to warn its user on this day?"
# Used to estimate the number of calls; a model whose edits are often refused needs more.
CALLS_PER_SESSION = 3

Case = dict[str, Any]


# -- Reading the cases -----------------------------------------------------------------------------


def read_cases(part: str, limit: int | None, only: Sequence[str] = ()) -> list[Case]:
    """Return the cases of a part: those with ids in `only`, if any, and at most `limit`."""
    (path,) = require_data(FILES[part])
    read = {"active": _active, "stories": _story}[part]
    cases = [read(json.loads(line)) for line in path.read_text().splitlines()]
    chosen = [case for case in cases if not only or case["id"] in only]
    return [{**case, "id": f"{part}-{case['id']}"} for case in chosen[:limit]]


def _active(case: Mapping[str, Any]) -> Case:
    return {
        "id": case["case_id"],
        "sessions": [_session(one, due=one["expected_alert"]) for one in case["sessions"]],
        "expected": case["expected_alert_message"],
        "rubric": case["rubric_required"],
    }


def _story(case: Mapping[str, Any]) -> Case:
    trigger = case["trigger_session_id"]
    return {
        "id": case["id"],
        "sessions": [_session(one, due=one["session_id"] == trigger) for one in case["sessions"]],
        "expected": case["expected_alert"]["message"],
        "rubric": {},
    }


def _session(session: Mapping[str, Any], *, due: bool) -> dict[str, Any]:
    message = {
        "kind": "message",
        "role": "user",
        "content": session["text"],
        "occurred_at": f"{session['date']}T09:00:00Z",
        "session_id": str(session["session_id"]),
    }
    return {"date": session["date"], "messages": [message], "due": due}


def calls_expected(cases: Sequence[Mapping[str, Any]]) -> int:
    """Estimate how many calls the cases take of each model."""
    return math.ceil(CALLS_PER_SESSION * sum(len(case["sessions"]) for case in cases))


# -- The command line and the report ---------------------------------------------------------------


def main() -> None:
    """Run the cases with every model, and report the results."""
    options = parser(__doc__, limit=(None, 1))
    options.add_argument("--part", action="append", choices=list(FILES), help="default: all parts")
    options.add_argument("--only", default="", help="ids of the cases to run, separated by commas")
    options.add_argument("--models", nargs="+", default=[], help="NAME or NAME@BASE_URL")
    options.add_argument("--judges", nargs="+", default=[], help="the same")
    options.add_argument("--price", nargs="+", default=[], help="NAME=SENT/RETURNED, as in answers")
    options.add_argument("--parallel", type=int, default=4, help="cases at a time")
    options.add_argument("--estimate", action="store_true", help="only estimate the calls")
    asked = options.parse_args()
    only = asked.only.split(",") if asked.only else []
    cases = {part: read_cases(part, asked.limit, only) for part in asked.part or list(FILES)}
    for part, those in cases.items():
        print(f"{part}: {len(those)} cases, about {calls_expected(those)} calls each", flush=True)
    rows: list[Row] = []
    figures: dict[str, Any] = {"cases": sum(map(len, cases.values()))}
    problems: list[str] = []
    with models_of(asked) as models:
        if models and not asked.estimate:
            rows, figures, problems = measure(models, cases, asked)
        elif not asked.estimate:
            problems.append("nothing is measured without --models")
    settings = {
        "models": [model.name for model in models],
        "judges": [name.partition("@")[0] for name in asked.judges],
        "commit": commit(),
    }
    report(
        "notice",
        settings=settings,
        rows=rows,
        figures=figures,
        path=asked.json,
        problems=problems,
    )


@contextmanager
def models_of(asked: argparse.Namespace) -> Iterator[list[Model]]:
    """Yield the models that were named or, with `--quick`, a stand-in if none was."""
    if asked.models or not asked.quick:
        yield [Model.named(name) for name in asked.models]
        return
    with llm_server(script=stand_in) as server:
        yield [Model("stand-in", server.openai_url, KEY)]


def stand_in(request: Request) -> Said:
    """Answer as a model that remembers every text verbatim and files it by rule.

    The rules are those of `benchmarks.filing_rules`, which estimate the tokens, too.
    """
    if "remember" in request.tools:
        facts = [f"[{seq}] {text}" for seq, text in lines_in(request)]
        reply = called("remember", {"facts": facts})
    else:
        reply = answer(request) if "finish" in request.tools else said("yes")
    sent = tokens([request.body["messages"], request.body.get("tools", [])])
    returned = tokens([call.arguments for call in reply.calls])
    return replace(reply, tokens=(round(sent), round(returned)))


# -- Measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """A model's workspace on the server, and what judges its alerts."""

    system: System
    client: Client
    workspace: str
    judges: Sequence[Model]
    problems: list[str]


def measure(
    models: Sequence[Model], cases: Mapping[str, Sequence[Case]], asked: argparse.Namespace
) -> tuple[list[Row], dict[str, Any], list[str]]:
    """Run all cases with every model; return a row per session, figures, and problems."""
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    problems: list[str] = []
    prices = Prices(asked.price)
    judges = [Model.named(name) for name in asked.judges]
    with running_system(llm_workers=1, environment=server_environment()) as system:
        settings_of(system)
        logging.disable(logging.INFO)  # otherwise every call would be logged
        from benchmarks.model_server import set_model, spent

        for number, model in enumerate(models):
            for part, those in cases.items():
                workspace = f"{part}-{number}"
                client = new_client(system, workspace)
                set_model(workspace, model)
                bench = Bench(system, client, workspace, judges, problems)
                with ThreadPoolExecutor(asked.parallel) as pool:
                    found = [
                        {"model": model.name, "part": part, **row}
                        for of_case in pool.map(lambda case, to=bench: run_case(to, case), those)
                        for row in of_case
                    ]
                rows += found
                of_part = {**scores_of(found), **spent(workspace)}
                of_part["dollars"] = prices.cost(model.name, of_part["sent"], of_part["returned"])
                figures |= {f"{model.name}_{part}_{name}": one for name, one in of_part.items()}
    return rows, figures, problems


def run_case(bench: Bench, case: Case) -> list[Row]:
    """Have a new user's memory take in a case session by session; return a row for each."""
    from django.db import connections

    try:
        body = {"user_id": case["id"], "time_zone": "UTC"}
        expect(201, bench.client.post("users/", body))
        return [_run_session(bench, case, index) for index in range(len(case["sessions"]))]
    finally:
        connections.close_all()


def _run_session(bench: Bench, case: Case, index: int) -> Row:
    """Send a session and run the constraints.

    A session scores if the alert that is due on its day is open then, or if no alert is due and
    none is open.
    """
    from benchmarks.model_server import remember

    session, user_id = case["sessions"][index], case["id"]
    remember(
        bench.system, bench.client, bench.workspace, user_id, session["messages"], bench.problems
    )
    has_state = bench.client.get(f"users/{user_id}/")[1]["head"] is not None
    days = days_before(case["sessions"], index)
    found = [alerts_of(run_on(user_id, day)) if has_state else [] for day in days]
    messages = [[alert["message"] for alert in alerts] for alerts in found]
    row: Row = {"case": user_id, "day": session["date"], "due": session["due"]}
    row |= {"alert": " | ".join(messages[0]), "early": "", "expected": ""}
    if session["due"]:
        row["expected"] = case["expected"]
        row["score"] = int(any(satisfies(message, case["rubric"]) for message in messages[0]))
    else:
        row["early"] = " | ".join(message for of_day in messages for message in of_day)
        row["score"] = int(not row["early"])
    for judge in bench.judges:
        row[f"judge {judge.name}"] = (
            agrees(judge, WARN, case["expected"], row["alert"])
            if session["due"] and row["alert"]
            else None
        )
    print(json.dumps(row, ensure_ascii=False), flush=True)
    return row


def scores_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the scores of a model's alerts in a part."""
    due = [row for row in rows if row["due"]]
    judges = [name for name in (rows[0] if rows else ()) if name.startswith("judge ")]
    return {
        "cases": len({row["case"] for row in rows}),
        "passed": len({row["case"] for row in rows})
        - len({row["case"] for row in rows if not row["score"]}),
        "on_day": sum(row["score"] for row in due),
        "early": sum(bool(row["early"]) for row in rows),
        **{name.replace(" ", "_"): sum(bool(row[name]) for row in due) for name in judges},
    }


if __name__ == "__main__":
    main()
