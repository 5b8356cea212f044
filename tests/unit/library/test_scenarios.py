"""The recorded scenarios are retold all, and in other words."""

import json

import pytest

from benchmarks.harness import data_file
from memory.constraints import constraint_library
from tests.library_scenarios import RETELLINGS, days_of

PATH = data_file("scenarios.jsonl")
pytestmark = pytest.mark.skipif(PATH is None, reason="UAC_DATA_DIR does not hold scenarios.jsonl")


def test_every_scenario_is_told_again_session_by_session() -> None:
    assert PATH is not None
    scenarios = {one["id"]: one for one in map(json.loads, PATH.read_text().splitlines())}
    assert RETELLINGS.keys() == scenarios.keys()
    for name, retelling in RETELLINGS.items():
        sessions = {session["session_id"]: session for session in scenarios[name]["sessions"]}
        assert retelling.sessions.keys() <= sessions.keys(), name
        assert retelling.scope in ("", *constraint_library.names()), name
        said = " ".join(session["text"] for session in sessions.values()).casefold()
        days = list(days_of(scenarios[name]))
        assert [day for day, told in days if told], name
        for text in [
            value
            for _, told in days
            for _, _, data in told
            for value in data.values()
            if isinstance(value, str) and " " in value
        ]:
            assert len(text.split()) <= 3 or text.casefold() not in said, (name, text)
