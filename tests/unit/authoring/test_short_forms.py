"""The short forms in which models write facts and edits, and in which they change them."""

from typing import Any

import pytest

from memory.project import EditError
from tests.edits import add, define, dismiss, note, retire, update
from workers.authoring.partial_answers import change_items, take_items
from workers.authoring.short_forms import expand_edit, expand_facts, refuse_row, split_edits


def expanded(sent: Any) -> list[Any]:
    """Return single edits in long form."""
    return [expand_edit(edit) for edit in split_edits(sent)]


def changed(sent: list[Any], changes: dict[str, Any]) -> list[Any]:
    """Return the edits in long form after changes by number."""
    kept = take_items({}, [split_edits(sent)], 0, "edit")
    return [
        expand_edit(edit) for edit in change_items(kept, split_edits(changes), 0, "edit").values()
    ]


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
    assert expanded([short]) == long
    assert expanded(long) == long


TRIPS = {
    "add": "travel.Trip",
    "fields": ["to", "on"],
    "rows": [[12, "rome", "Rome", None], [13, None, "Oslo", "2026-05-02"]],
}
NOTES = [{"op": "note", "from": seq} for seq in (14, 15, 16)]
ROME = from_entry(add("travel.Trip", key="rome", to="Rome"), 12)
OSLO = from_entry(add("travel.Trip", to="Oslo", on="2026-05-02"), 13)
BERGEN = {"to": "Bergen", "on": "2026-05-02"}
AT_14 = OSLO | {"from": 14}
DEFINED = {"define_class": "travel.Trip", "fields": {"to": "str", "on": "str"}}


CHANGES: list[tuple[Any, dict[str, Any], list[Any]]] = [
    (TRIPS, {"1": {"fields": {"to": "Bergen"}}}, [ROME, OSLO | {"fields": BERGEN}]),
    (TRIPS, {"1": {"row": [14, None, "Oslo", "2026-05-02"]}}, [ROME, AT_14]),
    (
        TRIPS,
        {"1": {"row": [13, "b", "Oslo", None]}},
        [ROME, OSLO | {"key": "b", "fields": {"to": "Oslo"}}],
    ),
    (
        TRIPS,
        {"0": {"rows": [[12, "rome", "Rome", None], [14, None, "Oslo", "2026-05-02"]]}},
        [ROME, OSLO, AT_14],
    ),
    (TRIPS, {"1": None}, [ROME]),
    (TRIPS, {"2": {"note": [14, 15]}}, [ROME, OSLO, *NOTES[:2]]),
    (TRIPS, {"0": {"note": [14, 15]}, "2": {"note": 16}}, [NOTES[0], OSLO, NOTES[2], NOTES[1]]),
    (
        DEFINED,
        {"0": {"fields": {"on": "datetime.date"}}},
        [define("travel.Trip", to="str", on="datetime.date")],
    ),
    (DEFINED, {"0": {"fields": {"on": None}}}, [define("travel.Trip", to="str")]),
    (DEFINED, {"0": {"define_class": "travel.Tour"}}, [define("travel.Tour", to="str", on="str")]),
    (
        {"update": "travel.trips.rome", "from": 1},
        {"0": {"retire": "travel.trips.rome", "from": 1}},
        [from_entry(retire("travel.trips.rome"), 1)],
    ),
    (
        OSLO | {"derived": {"on": "tomorrow"}},
        {"0": {"fields": {"on": None}, "derived": {"on": None}}},
        [from_entry(add("travel.Trip", to="Oslo"), 13) | {"derived": {}}],
    ),
    (OSLO | {"derived": {"on": "tomorrow"}}, {"0": {"derived": None}}, [OSLO]),
    (
        {"update": "travel.trips.rome", "sources": [1], "fields": BERGEN},
        {"0": {"fields": {"on": None, "cost": None}}},  # of these, only `on` was sent before
        [update("travel.trips.rome", 1, to="Bergen", cost=None)],
    ),
    ({"note": "Likes tea.", "from": 1}, {"0": "Likes milk."}, [from_entry(note("Likes milk."), 1)]),
]


@pytest.mark.parametrize(("sent", "changes", "long"), CHANGES)
def test_a_change_keeps_what_it_does_not_name(
    sent: Any, changes: dict[str, Any], long: list[Any]
) -> None:
    assert changed([sent], changes) == long


@pytest.mark.parametrize("row", [[12, "rome"], [12, "rome", "Rome", 1], "Rome"])
def test_a_row_that_does_not_fit_is_refused_with_its_columns(row: Any) -> None:
    sent = {"add": "travel.Trip", "fields": ["to"], "rows": [row]}
    (edit,) = expanded([sent])
    with pytest.raises(EditError, match="from, key, to"):
        refuse_row(edit)
    (mended,) = changed([sent], {"0": {"row": [12, "rome", "Rome"]}})
    refuse_row(mended)
    assert mended == from_entry(add("travel.Trip", key="rome", to="Rome"), 12)
