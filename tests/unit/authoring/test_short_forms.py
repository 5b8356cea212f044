"""The short forms in which models write facts and edits."""

from typing import Any

import pytest

from memory.project import EditError
from tests.edits import add, define, dismiss, note, retire, update
from workers.authoring.short_forms import expand_edits, expand_facts, refuse_row


def from_entry(edit: dict[str, Any], seq: Any) -> dict[str, Any]:
    """Return an edit that takes an entry over instead of citing it."""
    return {**{name: value for name, value in edit.items() if name != "sources"}, "from": seq}


def test_a_fact_begins_with_its_sources() -> None:
    both = {"text": "Ada moves.", "sources": [3, 14]}
    assert expand_facts(["[3, 14] Ada moves."]) == [both]
    explained = {"text": "[3] In 90 days.", "derived": "three months"}
    assert expand_facts([explained]) == [{**explained, "text": "In 90 days.", "sources": [3]}]
    assert expand_facts({"5": "[4] Ada stays.", "6": "Ada stays.", "7": None}) == {
        "5": {"text": "Ada stays.", "sources": [4]},
        "6": {"text": "Ada stays."},
        "7": None,
    }


@pytest.mark.parametrize("fact", ["Ada moves.", "[x] Ada", "[] Ada", 5, {"text": 5}, None])
def test_facts_without_numbers_get_none(fact: Any) -> None:
    (expanded,) = expand_facts([fact])
    assert not isinstance(expanded, dict) or "sources" not in expanded


SHORT: list[tuple[Any, list[Any]]] = [
    (
        {"define_class": "travel.Trip", "fields": {"to": "str"}},
        [define("travel.Trip", to="str")],
    ),
    (
        {"add": "travel.Trip", "from": 12, "fields": {"to": "Rome"}},
        [from_entry(add("travel.Trip", to="Rome"), 12)],
    ),
    (
        {
            "add": "travel.Trip",
            "fields": ["to", "on"],
            "rows": [[12, "rome", "Rome", None], [[13, 14], None, "Oslo", "2026-05-02"]],
        },
        [
            from_entry(add("travel.Trip", key="rome", to="Rome"), 12),
            from_entry(add("travel.Trip", to="Oslo", on="2026-05-02"), [13, 14]),
        ],
    ),
    (
        {"update": "travel.trips.rome.2", "sources": [12], "fields": {"to": "Oslo"}},
        [
            {**update("travel.trips.rome", 12, to="Oslo"), "key": "rome.2"},
        ],
    ),
    (
        {"retire": "travel.trips.rome", "sources": [12], "reason": "off"},
        [retire("travel.trips.rome", 12, reason="off")],
    ),
    ({"note": [12, 13]}, [{"op": "note", "from": 12}, {"op": "note", "from": 13}]),
    ({"note": "Likes tea.", "sources": [12]}, [note("Likes tea.", 12)]),
    ({"dismiss": [12, 13], "reason": "small talk"}, [from_entry(dismiss(), [12, 13])]),
    (
        {"conflict": "the day", "records": ["travel.trips.rome"], "sources": [1]},
        [
            {
                "op": "conflict",
                "about": "the day",
                "records": [{"domain": "travel", "collection": "trips", "key": "rome"}],
                "sources": [1],
            }
        ],
    ),
    (
        {"widen_field": "travel.Trip.on", "type": "PartialDate"},
        [
            {
                "op": "widen_field",
                "domain": "travel",
                "class_name": "Trip",
                "name": "on",
                "type": "PartialDate",
            }
        ],
    ),
    ({"delete_constraint": "x"}, [{"op": "delete_constraint", "name": "x"}]),
    (note("Likes tea.", 12), [note("Likes tea.", 12)]),
    ("note", ["note"]),
]


@pytest.mark.parametrize(("short", "long"), SHORT)
def test_an_edit_begins_with_its_operation(short: Any, long: list[Any]) -> None:
    assert expand_edits([short]) == long
    assert expand_edits(long) == long


def test_a_change_to_an_edit_may_be_short() -> None:
    changes = {"3": {"fields": {"to": "Oslo"}}, "4": {"note": [12]}, "5": None}
    assert expand_edits(changes) == {**changes, "4": {"op": "note", "from": 12}}


@pytest.mark.parametrize("row", [[12, "rome"], [12, "rome", "Rome", 1], "Rome"])
def test_a_row_that_does_not_fit_is_refused_with_its_columns(row: Any) -> None:
    (edit,) = expand_edits([{"add": "travel.Trip", "fields": ["to"], "rows": [row]}])
    with pytest.raises(EditError, match="from, key, to"):
        refuse_row(edit)
    (mended,) = expand_edits([{**edit, "row": [12, "rome", "Rome"]}])
    refuse_row(mended)
    assert mended == from_entry(add("travel.Trip", key="rome", to="Rome"), 12)
