"""The commit message of a version."""

import datetime
from collections.abc import Mapping
from typing import Any

import pytest

from memory.export.story import MAX_SUBJECT, Event, message

CLASSES = {("health", "medications"): "Medication"}


def told(*edits: Mapping[str, Any], **known: Any) -> list[str]:
    """Return the lines of the message of version 12."""
    event = Event(
        version=12,
        origin=known.pop("origin", "llm"),
        seen_seq=9,
        created_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        edits=edits,
        restored=known.pop("restored", None),
    )
    return message(event, CLASSES, **known).splitlines()


def add(key: str, **more: Any) -> dict[str, Any]:
    return {"op": "add", "domain": "travel", "class_name": "Trip", "key": key, **more}


def test_commit_message_names_changes_and_reasons() -> None:
    lines = told(
        add("rome", collection="trips", sources=[3, 4], derived=[["nights", "from both dates"]]),
        {
            "op": "retire",
            "domain": "health",
            "collection": "medications",
            "key": "aspirin",
            "sources": [7],
            "reason": "no longer prescribed",
        },
    )
    assert lines == [
        "v12: adds Trip rome, retires Medication aspirin",
        "",
        "Origin: language model",
        "Entries: 3, 4, 7",
        "Log read up to entry 9",
        "",
        "- adds Trip rome in travel.trips (entries 3, 4): nights: from both dates",
        "- retires Medication aspirin in health.medications (entry 7): no longer prescribed",
    ]


@pytest.mark.parametrize(
    ("edits", "subject"),
    [
        ([add(str(n)) for n in range(500)], "adds 500 records"),
        ([{"op": "write_constraint", "name": "a"}], "writes the constraint a"),
        ([{"op": "define_class", "domain": "d", "name": "N"}], "defines N"),
        (
            [
                add("a"),
                *({"op": "add_field", "class_name": "T", "name": n, "type": "int"} for n in "abc"),
            ],
            "adds Trip a, 3 changes to the schema and constraints",
        ),
        ([{"op": "conflict", "about": "two birthdays"}], "marks a conflict: two birthdays"),
        ([], "changes no records"),
        ([{"op": "retire", "sources": [1], "redacted": True}], "retires a record"),
        # An edit of another release.
        ([{"op": "add", "domain": None, "key": 3, "sources": "x"}, {}], "adds a record, something"),
    ],
)
def test_subjects(edits: list[dict[str, Any]], subject: str) -> None:
    assert told(*edits)[0] == f"v12: {subject}"


def test_commit_message_stays_short_and_has_no_control_characters() -> None:
    lines = told(add("x" * 300 + "\x1b[31m\n\n", sources=list(range(1, 5000))), add("\u202eevil"))
    assert len(lines[0]) <= MAX_SUBJECT
    assert lines[1] == ""
    assert not any(one in text for text in lines for one in "\x1b\u202e")
    assert "100 and 4899 more" in "\n".join(lines)
    assert len(told(*(add(str(n)) for n in range(5000)))) < 120


def test_going_back_and_what_was_redacted_are_said() -> None:
    lines = told(restored={"version": 3, "reason": "wrong person"}, redacted=["domains/a/state.py"])
    assert lines[0] == "v12: rolls back to v3"
    assert "wrong person" in lines
    assert lines[-2:] == ["Redacted later, and therefore not included:", "- domains/a/state.py"]


def test_a_redaction_is_told_as_one() -> None:
    assert told(origin="redaction")[0] == "v12: removes redacted content"
