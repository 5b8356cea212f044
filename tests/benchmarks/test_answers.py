"""The benchmark of answers: its calls and its results, with a stand-in for models and judges."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import recorded_data
from tests.benchmarks.test_quick import run
from tests.llm_server import Request, Said, called, llm_server, said

pytestmark = pytest.mark.extended


def _totals(path: Path) -> dict[str, Any]:
    rows = json.loads(path.read_text())["rows"]
    return {row["way"]: row for row in rows if row["category"] == "all"}


def test_every_way_is_answered_judged_and_resumed(tmp_path: Path) -> None:
    recorded_data.write(tmp_path)
    record, table = tmp_path / "answers.jsonl", tmp_path / "table.md"
    path = tmp_path / "report.json"

    def script(request: Request) -> Said:
        is_judge = request.body["model"] == "judge"
        return said("Correct." if is_judge else "the answer")

    with llm_server(script=script) as server:
        options = ["--quick", "--json", str(path), "--record", str(record), "--table", str(table)]
        options += ["--models", f"reader@{server.openai_url}", "--price", "reader=1000/2000"]
        finished = run("answers", *options, data=str(tmp_path))
        assert finished.returncode == 0, finished.stderr[-4000:]
        answered = len(server.requests)
        options += ["--judges", f"judge@{server.openai_url}", "--stand-in"]
        finished = run("answers", *options, data=str(tmp_path))
        judged = len(server.requests) - answered
        assert finished.returncode == 0, finished.stderr[-4000:]
        # The record is that of one budget.
        other = run("answers", *options, "--tokens", "500", data=str(tmp_path))

    report = json.loads(path.read_text())
    questions = report["settings"]["questions"]
    # The answers of the first run are not asked for again.
    assert (answered, judged) == (3 * questions, 3 * questions)
    assert report["figures"]["estimated_calls"] == answered + judged
    assert report["figures"]["estimated_without_price"] == ["judge"]
    totals = _totals(path)
    assert set(totals) == {"context", "bm25", "whole"}
    for row in totals.values():
        assert row["judge judge"] == 100
        assert row["dollars"] == pytest.approx((row["sent"] + 2 * row["returned"]) / 1000)
    assert totals["whole"]["evidence"] == 100
    text = table.read_text()
    assert "reader" in text
    assert "Stand-ins" in text
    assert other.returncode == 1
    assert "tokens" in other.stderr


def test_questions_that_count_are_asked_and_computed(tmp_path: Path) -> None:
    recorded_data.write(tmp_path)
    path = tmp_path / "report.json"

    def script(request: Request) -> Said:
        if "answer" not in request.tools:
            return said("about five")
        if not request.results:
            return called("query", {"code": "len(trips)"})
        return called("answer", {"query": 1})

    with llm_server(script=script) as server:
        options = ["--benchmark", "aggregates", "--ways", "ask", "context", "--json", str(path)]
        options += ["--models", f"reader@{server.openai_url}", "--conversations", "1"]
        options += ["--record", str(tmp_path / "answers.jsonl")]
        finished = run("answers", *options, data=str(tmp_path))

    assert finished.returncode == 0, finished.stderr[-4000:]
    totals = _totals(path)
    assert (totals["ask"]["calls"], totals["context"]["calls"]) == (2, 1)
    assert totals["ask"]["sent"] == 200
    rows = map(json.loads, (tmp_path / "answers.jsonl").read_text().splitlines())
    answers = {row["id"]: row["answer"] for row in rows if "answer" in row}
    assert answers == {"count ask reader": "6", "count context reader": "about five"}
