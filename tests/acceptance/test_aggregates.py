"""The recorded aggregate questions: all are answered exactly, and with their evidence."""

import pytest

from benchmarks.analytical import FILES, Questions, answered
from benchmarks.harness import data_file
from tests.system import new_client
from uac_site.embedded.system import System

pytestmark = pytest.mark.skipif(
    not all(map(data_file, FILES)), reason=f"UAC_DATA_DIR does not hold {' and '.join(FILES)}"
)


def test_every_question_is_answered_exactly_and_names_its_evidence(system: System) -> None:
    questions = Questions.read(None)

    rows = list(answered(new_client(system, "aggregates"), questions))

    assert len(rows) == len(questions.analytical) + len(questions.ten_domains)
    assert [row for row in rows if not (row["correct"] and row["evidence_correct"])] == []
