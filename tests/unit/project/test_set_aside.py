"""Values that do not fit their fields are set aside in the record, and nothing else is refused."""

import datetime
import itertools
import json
import re
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.project import (
    EditError,
    Project,
    WidenField,
    apply,
    edit_from_json,
    edit_to_json,
    render,
)
from memory.project.records import RecordEntry, compile_record, set_aside_by
from memory.project.set_aside import set_aside_in
from memory.project.typed import encode
from memory.project.types import format_type
from sandbox_image import uac
from tests.properties import examples

from .support import define, edit, project_with, remember
from .test_rendered_code import importable


def learned(*data: dict[str, Any], **entry: Any) -> Project:
    """Return a project that has been given these things, in this order."""
    project = Project.empty()
    for number, item in enumerate(data, start=1):
        remember(project, "Thing", item, seq=number, **entry)
    return project


def things(project: Project) -> list[dict[str, Any]]:
    return [dict(record.fields) for _, record in project.records("life", "things")]


def type_of(project: Project, field: str, name: str = "Thing") -> str:
    found = project.outline.domains["life"].classes[name].field(field)
    assert found
    return format_type(found.type)


MISFITS = [
    ("2024-01-31", "TBD"),
    ("2024-01-31", ""),
    ("2024-01-31", "2026-06"),
    ("2024-01-31", "May 3, 2026"),
    ("2024-01-31", "2026-02-30"),
    ("2024-01-31T10:00", "2024-01-31"),
    (1, "3,5"),
    (1, "012"),
    (1, "1_000"),
    (1, True),
    (1, [1]),
    (1, {"a": 1}),
    (1.5, True),
    (True, 1),
    ("1", 1),
    ("x", ["x"]),
    ("x", {"a": 1}),
    (["x"], "x"),
    ({"a": 1}, "x"),
    ({"a": 1}, [{"a": 1}]),
    ({"08:00": 1}, "x"),
]


@pytest.mark.parametrize(("first", "second"), MISFITS)
def test_a_value_of_another_kind_is_set_aside(first: Any, second: Any) -> None:
    project = learned({"x": first})
    before = type_of(project, "x")

    remember(project, "Thing", {"x": second}, seq=2)

    assert things(project)[1] == {"set_aside": {"x": second}}
    assert type_of(project, "x") == f"{before} | None"
    assert Project.from_files(render(project)) == project


@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        (1, "12", 12),
        (1, "-3", -3),
        (1.5, "12", 12.0),
        (1.5, "12.50", 12.5),
        (True, "false", False),
    ],
)
def test_text_that_can_only_mean_one_value_is_read(first: Any, second: str, read: Any) -> None:
    project = learned({"x": first}, {"x": second})

    assert things(project)[1] == {"x": read}
    assert type(things(project)[1]["x"]) is type(read)


def test_a_datetime_in_a_field_of_dates_gives_its_day_and_is_set_aside() -> None:
    project = learned({"x": "2024-01-31"}, {"x": "2026-07-01T23:30:00+02:00"})

    _, (_, other) = project.records("life", "things")
    assert encode(other.fields) == {
        "x": {"$date": "2026-07-01"},
        "set_aside": {"x": "2026-07-01T23:30:00+02:00"},
    }
    assert type_of(project, "x") == "datetime.date"


def test_items_that_do_not_fit_are_set_aside_one_by_one() -> None:
    project = learned(
        {"labels": [{"name": "bug"}], "hourly": {"08:00": 4}},
        {"labels": ["docs", {"name": "web"}, 7], "hourly": {"08:00": 5, "10:00": "n/a"}},
    )

    (_, _), (_, record) = project.records("life", "things")
    assert dict(set_aside_in(record)) == {
        "labels[0]": "docs",
        "labels[2]": 7,
        'hourly["10:00"]': "n/a",
    }
    assert encode(record.fields["labels"]) == [{"$object": "ThingLabel", "fields": {"name": "web"}}]
    assert record.fields["hourly"] == {"08:00": 5}


def test_a_value_within_an_object_is_set_aside_in_that_object() -> None:
    project = learned({"a": {"b": 1, "c": 1}}, {"a": {"b": "x", "c": 2}})

    (_, _), (_, record) = project.records("life", "things")
    assert dict(set_aside_in(record)) == {"a.b": "x"}


def test_data_nested_too_deep_is_set_aside() -> None:
    deep: Any = json.loads("[" * 20 + "1" + "]" * 20)

    project = learned({"x": deep, "y": {"z": deep}})

    (_, record), *_ = project.records("life", "things")
    assert len(dict(set_aside_in(record))) == 2
    assert Project.from_files(render(project)) == project


def test_a_widened_field_takes_in_what_fits() -> None:
    project = learned(
        {"x": 1, "many": [1]}, {"x": "soon", "many": [1, "a", 2, True]}, {"x": True, "many": []}
    )

    apply(project, WidenField("life", "Thing", "x", "int | str | None"))
    apply(project, WidenField("life", "Thing", "many", "list[int | str]"))

    assert things(project)[1:] == [
        {"x": "soon", "many": [1, "a", 2], "set_aside": {"many[3]": True}},
        {"many": [], "set_aside": {"x": True}},
    ]
    assert project.outline.domains["life"].collections["things"].set_aside == 2
    # Nothing about the records has changed.
    assert Project.from_files(render(project)) == project


def test_taking_in_shows_as_no_change_of_a_record() -> None:
    stored = render(learned({"x": 1}, {"x": "soon"}))
    project = Project.from_files(stored)

    edit(
        project, "widen_field", domain="life", class_name="Thing", name="x", type="int | str | None"
    )

    change = project.change()
    (record_id,) = change.updated
    assert change.as_named[record_id].fields == change.records[record_id].record.fields


def test_a_later_value_that_fits_replaces_what_was_set_aside() -> None:
    project = learned({"x": 1, "y": 1}, {"x": "a", "y": "b"}, {"x": 3}, key="k")

    assert things(project) == [{"x": 3, "set_aside": {"y": "b"}}]


def test_an_edit_of_a_field_replaces_what_was_set_aside() -> None:
    project = learned({"x": 1}, {"x": "a"}, key="k")

    edit(
        project,
        "update",
        domain="life",
        collection="things",
        key="k",
        fields={"x": 7},
        sources=[3],
    )

    assert things(project) == [{"x": 7}]


def test_an_entry_names_what_it_set_aside() -> None:
    project = learned({"x": 1, "a": {"b": 1}, "First Name": "Ida"}, key="k")
    entry = RecordEntry(
        2, "life", "Thing", "k", data={"x": "?", "a": {"b": "?"}, "First Name": 7, "new": "fits"}
    )

    edits = compile_record(project, entry)
    for one in edits:
        apply(project, one)

    assert sorted(set_aside_by(project, entry, edits)) == ["a.b", "first_name", "x"]
    again = RecordEntry(3, "life", "Thing", "k", data={"new": "else"})
    edits = compile_record(project, again)
    for one in edits:
        apply(project, one)
    assert set_aside_by(project, again, edits) == []


def test_a_model_cannot_declare_the_field_of_values_set_aside() -> None:
    for fields in ({"set_aside": "str"}, {"x": "Any"}, {"x": "dict[str, Any]"}):
        with pytest.raises(EditError) as error:
            project_with(define("life", "Thing", fields))
        assert error.value.code in ("bad_name", "bad_type")


# Names


def test_a_field_keeps_its_name_in_the_data() -> None:
    project = learned({"First Name": "Ida", "größe": 172})

    fields = project.outline.domains["life"].classes["Thing"].fields
    assert [(field.name, field.original) for field in fields] == [
        ("first_name", "First Name"),
        ("größe", None),
    ]
    assert "first_name='First Name'" in render(project)["manifest.py"]
    assert 'metadata={"name": "First Name"}' in render(project)["domains/life/schema.py"]


@pytest.mark.parametrize(
    "keys",
    [("a b", "a_b"), ("class", "class_"), ("_a", "a_"), ("ﬁ", "fi"), ("a b", "a.b"), ("", "?")],
)
def test_two_keys_never_have_one_field(keys: tuple[str, str]) -> None:
    for order in itertools.permutations(keys):
        project = learned(dict.fromkeys(order, 1), dict.fromkeys(reversed(order), 2))

        fields = project.outline.domains["life"].classes["Thing"].fields
        assert {field.original or field.name for field in fields} >= {key for key in keys if key}
        assert len(fields) == 2
        assert [len(thing) for thing in things(project)] == [2, 2]


def test_the_same_payload_has_the_same_fields_whatever_the_order_of_its_keys() -> None:
    payload = {"First Name": 1, "first_name": 2, "class": 3, "class_": 4}
    names = set()
    for order in itertools.permutations(payload.items()):
        project = learned(dict(order))
        names.add(frozenset(things(project)[0].items()))

    assert len(names) == 1


# Mappings


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ({"08:00": 4.1, "09:00": 5}, "dict[str, float]"),
        ({"2026-05-01": 5000}, "dict[str, int]"),
        ({"+1": 3, "-1": 0, "total_count": 3}, "dict[str, int]"),
        ({"order id": "6735", "2fa": "no"}, "dict[str, str]"),
        ({"ida@example.org": True}, "dict[str, bool]"),
        ({"1": "a", "2": 3}, "dict[str, str | int]"),
        ({"59833787-2cf9-4fdf-8782-e53db20768a5": {"a": 1}}, "dict[str, ThingX]"),
        ({}, "dict[str, object]"),
        ({"Due date": 1}, "ThingX"),
    ],
)
def test_objects_whose_keys_are_data_become_mappings(value: Any, type_: str) -> None:
    project = learned({"x": value}, {"x": {}})

    assert type_of(project, "x") == type_
    assert Project.from_files(render(project)) == project


# Anything at all

KEYS = st.sampled_from(["a", "First Name", "class", "08:00", "$id", "+1", "名前"]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**90), 2**90)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
    | st.sampled_from(["2024-01-31", "2021-11-00", "12", "12.50", "TBD"])
)


def _json(depth: int) -> st.SearchStrategy[Any]:
    if depth == 0:
        return SCALARS
    inner = _json(depth - 1)
    return SCALARS | st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)


@settings(max_examples=examples(60))
@given(st.lists(st.dictionaries(KEYS, _json(5), max_size=4), min_size=1, max_size=4))
def test_any_objects_are_held_whole(objects: list[dict[str, Any]]) -> None:
    project = Project.empty()
    for number, data in enumerate(objects, start=1):
        entry = RecordEntry(number, "life", "Thing", data=data)
        for one in compile_record(project, entry):
            # As edits are stored with a version.
            stored = edit_from_json(json.loads(json.dumps(edit_to_json(one))))
            assert stored == one
            apply(project, stored)

    files = render(project)
    assert Project.from_files(files) == project
    assert render(Project.from_files(files)) == files
    with importable(project):
        records = import_module("domains.life.state").things
        told = [uac.original_data(record) for record in records]
    assert [plain(one) for one in told] == [plain(data) for data in objects]


def plain(value: Any) -> Any:
    """Return data without nulls, which mean what is missing means, and without types of scalars.

    A number may have been sent as text, and is compared as a number.
    """
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items() if item is not None}
        case list():
            return [plain(item) for item in value]
        case datetime.date():
            return value.isoformat()
        case bool():
            return str(value).lower()
        case int() | float():
            return Decimal(str(value))
        case str() if re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", value):
            return Decimal(value)
    return value
