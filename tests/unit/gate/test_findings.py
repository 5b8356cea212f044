"""The gate's findings, for programs and for people."""

import json

from memory.project import RecordId
from memory.project.errors import RunError
from workers.findings import MAX_FINDINGS, Check, Finding, Verdict

WRONG = Finding(
    code="ungrounded_number",
    message="the number 7 is nowhere",
    fix="correct it",
    record=RecordId("travel", "trips", "a"),
    field="nights",
    entry=3,
)
REPORTED = Finding(code="ungrounded_name", message="the name Ada is nowhere", blocking=False)


def test_json_has_what_applies_and_nothing_else() -> None:
    assert json.loads(json.dumps(WRONG.to_json())) == {
        "code": "ungrounded_number",
        "message": "the number 7 is nowhere",
        "fix": "correct it",
        "record": {"domain": "travel", "collection": "trips", "key": "a"},
        "field": "nights",
        "entry": 3,
        "blocking": True,
    }
    assert REPORTED.to_json() == {
        "code": "ungrounded_name",
        "message": "the name Ada is nowhere",
        "blocking": False,
    }


def test_an_error_of_the_users_code_comes_with_its_type_and_place() -> None:
    error = RunError(type="KeyError", message="'x'", path="tests/test_a.py", line=3, traceback="…")

    data = Finding.of_error("test_failed", error, "'x'", test="tests/test_a.py::test_x").to_json()

    assert data == {
        "code": "test_failed",
        "message": "KeyError: 'x'",
        "path": "tests/test_a.py",
        "line": 3,
        "test": "tests/test_a.py::test_x",
        "type": "KeyError",
        "traceback": "…",
        "blocking": True,
    }


def test_an_error_without_words_is_told_by_its_type() -> None:
    silent = RunError(type="AssertionError", message="")
    assert Finding.of_error("x", silent, "").message == "AssertionError"


def test_reported_findings_refuse_nothing() -> None:
    verdict = Verdict([Check("policy", []), Check("grounding", [REPORTED])])

    assert verdict.accepted
    assert verdict.reason == ""
    assert [check["passed"] for check in verdict.to_json()["checks"]] == [True, True]


def test_the_reason_is_the_first_thing_that_blocks_with_its_fix() -> None:
    verdict = Verdict([Check("grounding", [REPORTED, WRONG])])

    assert not verdict.accepted
    assert verdict.reason == "grounding: the number 7 is nowhere: correct it"
    placed = Finding(code="x", message="is wrong", path="constraints/a.py", line=4)
    assert Verdict([Check("types", [placed])]).reason == "types: constraints/a.py:4: is wrong"


def test_blocking_findings_of_very_many_are_kept() -> None:
    check = Check("grounding", [REPORTED] * 50 + [WRONG])

    kept = check.to_json()["findings"]

    assert len(kept) == MAX_FINDINGS
    assert kept[0]["code"] == WRONG.code
