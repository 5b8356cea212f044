"""The benchmark `llm` as an operator runs it, against a scripted model."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.llm import FILES
from deploy.embedded.process import die_with_parent
from tests.llm_server import KEY, Called, Reply, Request, Said, Script, called, llm_server, said
from tests.system import PATIENT
from tests.waiting import scaled

SESSIONS = [
    {"session_id": "1", "date": "2026-01-10", "text": "My passport expires on 2026-03-01."},
    {
        "session_id": "2",
        "date": "2026-02-01",
        "text": "With that passport I fly to Rome on 2026-03-08.",
    },
]
MESSAGE = "The passport expires before you fly to Rome."
TURNS = [{"speaker": "Ada", "dia_id": f"D1:{n}", "text": s["text"]} for n, s in enumerate(SESSIONS)]
DATA: dict[str, Any] = {
    "locomo": {
        "sample_id": "conv-1",
        "conversation": {"session_1_date_time": "9:00 am on 10 January, 2026", "session_1": TURNS},
        "qa": [
            {"question": "Where to?", "answer": "Rome", "evidence": ["D1:2"], "category": 4},
            {"question": "Which dog?", "evidence": ["D1:1"], "category": 5},
        ],
    },
    "analytical": {
        "case_id": "trips",
        "type": "trips",
        "question": "How many trips in 2024?",
        "answer_kind": "int",
        "gold": 2,
        "records": [
            {"id": n, "date": f"{year}-05-01"} for n, year in enumerate((2023, 2024, 2024))
        ],
    },
    "active": {
        "case_id": "passport",
        "sessions": [{**one, "expected_alert": one["session_id"] == "2"} for one in SESSIONS],
        "rubric_required": {"document": ["passport"], "trip": ["rome"]},
        "expected_alert_message": MESSAGE,
    },
    "stories": {
        "id": "passport",
        "sessions": SESSIONS,
        "trigger_session_id": "2",
        "expected_alert": {"message": MESSAGE},
    },
}

CONSTRAINT = """\
import datetime
from collections.abc import Iterator

from domains.travel.state import documents
from uac import Alert, warning


def check(today: datetime.date) -> Iterator[Alert]:
    \"\"\"A passport outlasts the next flight.\"\"\"
    for document in documents:
        if {condition}:
            yield warning("{message}", evidence=[document])
"""
TESTS = """\
import datetime

from constraints import passports
from domains.travel.schema import Document
from uac.testing import run_check

DAY = datetime.date(2026, 1, 1)
LATER = datetime.date(2026, 2, 1)


def test_speaks() -> None:
    one = Document(key="a", expires_on=DAY, flight_on=LATER)
    assert len(run_check(passports, today=DAY, documents=[one])) == 1


def test_is_silent() -> None:
    assert run_check(passports, today=DAY, documents=[]) == []
"""


def constraint(condition: str, message: str) -> dict[str, Any]:
    source = CONSTRAINT.format(condition=condition, message=message)
    edit = {"op": "write_constraint", "name": "passports", "source": source}
    return {**edit, "tests_source": TESTS, "sources": [2]}


FIELDS = [{"name": name, "type": "datetime.date | None"} for name in ("expires_on", "flight_on")]
DOCUMENT = {"op": "define_class", "domain": "travel", "name": "Document", "fields": FIELDS}
PASSPORT = {"op": "add", "domain": "travel", "class_name": "Document", "key": "passport"}
FLIGHT = {"op": "update", "domain": "travel", "collection": "documents", "key": "passport"}
RIGHT = constraint(
    "document.expires_on and document.flight_on and document.expires_on < document.flight_on",
    MESSAGE,
)
TOO_SOON = constraint("document.expires_on", "Beware!")


def entries_of(request: Request) -> list[tuple[int, str]]:
    """Return the entries that the model is to remember, or to bring into the project."""
    question = request.body["messages"][1]["content"].rpartition(":\n")[2]
    return [
        (int(seq), text)
        for seq, text in re.findall(r"^\[(\d+)\] \(.*?\) (.*)$", question, re.MULTILINE)
    ]


def remembers(request: Request) -> Said:
    facts = [{"text": text, "sources": [seq]} for seq, text in entries_of(request)]
    return called("remember", {"facts": facts})


def structures(request: Request, rule: dict[str, Any]) -> Said:
    """File the passport with the rule, and the flight that uses it."""
    edits: list[dict[str, Any]] = []
    for seq, text in entries_of(request):
        if "expires" in text:
            fields = {"expires_on": "2026-03-01"}
            edits += [DOCUMENT, {**PASSPORT, "fields": fields, "sources": [seq]}, rule]
        else:
            edits.append({**FLIGHT, "fields": {"flight_on": "2026-03-08"}, "sources": [seq]})
    return Said(calls=(Called("edit", {"edits": edits}), Called("finish", {})))


def capable(request: Request) -> Reply:
    """A model that first searches, and then answers from what it found."""
    tools, found = request.tools, "".join(request.results)
    if "remember" in tools:
        return remembers(request)
    if "finish" in tools:
        return structures(request, RIGHT)
    if "answer" in tools:
        if not found:
            return called("search", {"words": "Rome"})
        asked_for_rome = "Where to?" in request.text and "Rome" in found
        return called("answer", {"text": "Rome" if asked_for_rome else "Not mentioned"})
    if "compute" in tools:
        if not found:
            return called("query", {"code": "trips[0]"})
        return called("compute", {"code": "sum(trip.date.year == 2024 for trip in trips)"})
    if "verdict" in tools:
        assert request.model == "the-judge"
        return called("verdict", {"correct": True})
    return said("yes")


def babbling(request: Request) -> Reply:
    """A model that remembers, but otherwise calls tools too early and at random."""
    tools = request.tools
    if "remember" in tools:
        return remembers(request)
    if "finish" in tools:
        return structures(request, TOO_SOON)
    if "answer" in tools:
        return called("answer", {"text": "purple elephants"})
    if "compute" in tools:
        return called("compute", {"code": "'purple'"})
    return called("verdict", {"correct": False}) if tools else said("yes")


def start(
    folder: Path, script: Script, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    for part, case in DATA.items():
        (folder / FILES[part]).write_text(json.dumps([case] if part == "locomo" else case))
    kept = ("UAC_LLM_", "UAC_BENCH_", "UAC_DATA_DIR", "DATABASE_URL", "REDIS_URL", "DJANGO_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
    with llm_server(script=script) as server:
        environment |= {
            **PATIENT,
            "UAC_DATA_DIR": str(folder),
            "UAC_DISPATCH_SECONDS": "0.5",
            **server.environment,
            "UAC_LLM_PRICES": '{"openai:the-model": {"input": 1, "output": 10}}',
            "UAC_BENCH_JUDGE_MODEL": "openai:the-judge",
            "UAC_BENCH_JUDGE_BASE_URL": server.openai_url,
            "UAC_BENCH_JUDGE_API_KEY": KEY,
        } | variables
        return subprocess.run(
            [sys.executable, "-m", "benchmarks.llm", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=scaled(570),
            check=False,
            preexec_fn=die_with_parent(15),
        )


def run(folder: Path, script: Script, *arguments: str, **variables: str) -> dict[str, Any]:
    """Run the benchmark on invented data; return its report."""
    report = folder / "report.json"
    finished = start(folder, script, "--json", str(report), *arguments, **variables)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert "PROBLEM" not in finished.stdout, finished.stdout
    document: dict[str, Any] = json.loads(report.read_text())
    return document


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("script", "right"), [(capable, 1), (babbling, 0)])
def test_figures_are_those_of_the_model(tmp_path: Path, script: Script, right: int) -> None:
    parts = ("locomo", "analytical", "active")
    arguments = [argument for part in parts for argument in ("--part", part)]

    document = run(tmp_path, script, "--limit", "1", *arguments)

    figures = document["figures"]
    scores = {
        "locomo_f1": right,
        "locomo_single_hop": right,
        "locomo_adversarial": right,
        "locomo_judged": right,
        "analytical_correct": right,
        "active_passed": right,
        "active_on_day": right,
        "active_early": 1 - right,
        "active_judged": right,
    }
    assert {name: figures[name] for name in scores} == scores
    for part in parts:
        assert (figures[f"{part}_pending"], figures[f"{part}_rejected"]) == (0, 0)
        calls = figures[f"{part}_calls"]
        assert calls > 0
        assert figures[f"{part}_calls_wrong"] == 0
        assert figures[f"{part}_tokens_in"] == 100 * calls
        assert figures[f"{part}_tokens_out"] == 20 * calls
        assert figures[f"{part}_cost"] == pytest.approx(300e-6 * calls)
    assert figures["judge_calls"] == 2
    assert "absent" not in figures


def test_without_a_key_everything_is_absent(tmp_path: Path) -> None:
    document = run(tmp_path, capable, UAC_LLM_API_KEY="", UAC_LLM_BASE_URL="")

    figures = document["figures"]
    assert {part: figures[part] for part in FILES} == dict.fromkeys(FILES, "absent")
    assert "UAC_LLM_API_KEY" in figures["absent"]
    assert document["rows"] == []
