"""The benchmark of answers: its calls and its results, with a stand-in for models and judges."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import recorded_data
from tests.benchmarks.test_quick import run
from tests.llm_server import Request, Said, llm_server, said

pytestmark = pytest.mark.extended


def test_every_way_is_answered_judged_and_resumed(tmp_path: Path) -> None:
    recorded_data.write(tmp_path)
    record, table = tmp_path / "answers.jsonl", tmp_path / "table.md"
    path = tmp_path / "report.json"

    def script(request: Request) -> Said:
        is_judge = request.body["model"] == "judge"
        return said("Correct." if is_judge else "the answer")

    with llm_server(script=script) as server:
        options = ["--quick", "--json", str(path), "--record", str(record), "--table", str(table)]
        options += ["--models", f"reader@{server.openai_url}"]
        finished = run("answers", *options, data=str(tmp_path))
        assert finished.returncode == 0, finished.stderr[-4000:]
        answered = len(server.requests)
        options += ["--judges", f"judge@{server.openai_url}"]
        finished = run("answers", *options, data=str(tmp_path))
        judged = len(server.requests) - answered
        assert finished.returncode == 0, finished.stderr[-4000:]

    report = json.loads(path.read_text())
    questions = report["settings"]["questions"]
    # The answers of the first run are not asked for again.
    assert (answered, judged) == (3 * questions, 3 * questions)
    assert report["figures"]["calls"] == answered + judged
    totals = {row["way"]: row for row in report["rows"] if row["category"] == "all"}
    assert set(totals) == {"context", "bm25", "whole"}
    assert all(row["judge judge"] == 100 for row in totals.values())
    assert totals["whole"]["sent_tokens"] > 0
    assert "reader" in table.read_text()
