"""Edits as JSON: strict, and the same in both directions."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

from memory.project import (
    Add,
    AddField,
    Conflict,
    DefineClass,
    DeleteConstraint,
    Dismiss,
    Edit,
    EditError,
    EnumMember,
    FieldSpec,
    Note,
    PartialDate,
    RecordId,
    Ref,
    RenameField,
    Retire,
    RetireEarlier,
    Struct,
    Update,
    WidenField,
    WriteConstraint,
    edit_from_json,
    edit_to_json,
)

VALUES: dict[str, Any] = {
    "none": None,
    "truth": True,
    "small": 1,
    "large": 2**60,
    "float": 1.5,
    "text": "é",
    "decimal": Decimal("12.50"),
    "date": datetime.date(2024, 1, 31),
    "datetime": datetime.datetime(2024, 1, 31, 10, tzinfo=datetime.timezone.utc),  # noqa: UP017
    "time": datetime.time(10, 30),
    "partial": PartialDate("2024-03"),
    "member": EnumMember("Color", "RED"),
    "ref": Ref("identity.Passport", "p-1"),
    "struct": Struct("Stop", {"town": "Oslo", "dates": [datetime.date(2024, 1, 31)]}),
    "list": [1, [None, "x"]],
    "object": {"plain": {"nested": 1}},
}

EDITS: list[Edit] = [
    DefineClass(
        "travel",
        "Trip",
        (
            FieldSpec("to", "str"),
            FieldSpec("days", "int | None", None),
            FieldSpec("tags", "list[str]", []),
            FieldSpec("since", "PartialDate", PartialDate("2021")),
        ),
        collection="trips",
        doc="A trip.",
        sources=(1, 2),
    ),
    DefineClass("travel", "Stop", kind="object"),
    DefineClass("travel", "Color", kind="enum", members=(("RED", "red"), ("ONE", 1))),
    AddField("travel", "Trip", "cost", "float | None", sources=(1,)),
    AddField("travel", "Trip", "cost", "float | None", None),
    AddField("travel", "Trip", "cost", "float", 0.0),
    WidenField("travel", "Trip", "cost", "float | None"),
    RenameField("travel", "Trip", "cost", "price", (4,)),
    Add("travel", "Trip", VALUES, (1,), "trip-1", "trips"),
    Add("travel", "Trip", {}, (1,), collection="next", singleton=True),
    Update("travel", "trips", "trip-1", VALUES, (1, 2)),
    Update("travel", "trips", "trip-1", {"days": 3}, (1,), (("days", "from both dates"),)),
    Retire("travel", "trips", "trip-1", (3,), "cancelled"),
    RetireEarlier("travel", "trips", "trip-1", (3,), (1, 2), ("days",)),
    WriteConstraint("x", "source", "tests"),
    DeleteConstraint("x", (5,)),
    Note("text", (6,)),
    Conflict(
        "moving day",
        (RecordId("home", "moves", "move-1"), RecordId("home", "moves", "move.2")),
        (6, 8),
        "two people say two days",
    ),
    Dismiss("reason", (7,)),
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.op)
def test_every_edit_comes_back_from_json(edit: Edit) -> None:
    # PostgreSQL's jsonb does not keep the order of keys.
    stored = json.dumps(edit_to_json(edit), sort_keys=True)

    assert edit_from_json(json.loads(stored)) == edit
    assert json.loads(stored)["op"] == edit.op


def test_every_kind_of_edit_is_tried() -> None:
    assert {type(edit) for edit in EDITS} == set(Edit.__args__)


def test_omitted_fields_are_not_written() -> None:
    assert edit_to_json(Add("travel", "Trip", {"to": "Oslo"}, (1,))) == {
        "op": "add",
        "domain": "travel",
        "class_name": "Trip",
        "fields": {"to": "Oslo"},
        "sources": [1],
    }


def test_null_stands_for_what_may_be_left_out() -> None:
    data = {**edit_to_json(Add("travel", "Trip", {}, (1,))), "key": None, "collection": None}

    assert edit_from_json(data) == Add("travel", "Trip", {}, (1,))


ADD: dict[str, Any] = edit_to_json(Add("travel", "Trip", {"to": "Oslo"}, (1,)))
DEFINE: dict[str, Any] = edit_to_json(EDITS[0])
ENUM: dict[str, Any] = edit_to_json(EDITS[2])
CONFLICT: dict[str, Any] = edit_to_json(next(one for one in EDITS if isinstance(one, Conflict)))
RECORD: dict[str, Any] = CONFLICT["records"][0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "an edit must be an object"),
        ([], "an edit must be an object"),
        ({}, "op must be one of define_class, add_field"),
        ({"op": "drop"}, "op must be one of"),
        ({"op": ["add"]}, "op must be one of"),
        ({**ADD, "extra": 1}, "add does not take 'extra': it takes domain, class_name"),
        ({key: ADD[key] for key in ADD if key != "domain"}, "add.domain is missing"),
        ({key: ADD[key] for key in ADD if key != "sources"}, "add.sources is missing"),
        ({**ADD, "domain": None}, "add.domain must be a string"),
        ({**ADD, "domain": 7}, "add.domain must be a string, not 7"),
        ({**ADD, "key": 7}, "add.key must be a string"),
        ({**ADD, "domain": "\ud800"}, "add.domain contains a lone surrogate"),
        ({**ADD, "sources": 1}, "add.sources must be a list of entry numbers"),
        ({**ADD, "sources": ["1"]}, "add.sources must be"),
        ({**ADD, "sources": [True]}, "add.sources must be"),
        ({**ADD, "sources": [0]}, "add.sources must be"),
        ({**ADD, "sources": [1.5]}, "add.sources must be"),
        ({**ADD, "fields": []}, "add.fields must be an object"),
        ({**ADD, "singleton": 1}, "add.singleton must be true or false"),
        ({**ADD, "fields": {"at": {"$date": "2024-13-01"}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$date": 7}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$int": "0x1"}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$float": "nan"}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$decimal": 1.5}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$enum": 7}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$date": "2024-01-01", "x": 1}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$tuple": [1]}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$ref": "Passport"}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$enum": "RED"}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$object": "Stop", "fields": 7}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": {"$decimal": "many"}}}, "add.fields.at"),
        ({**ADD, "fields": {"at": json.loads("[" * 66 + "]" * 66)}}, "nested deeper than 64"),
        ({**DEFINE, "kind": "table"}, "define_class.kind must be one of record, object, enum"),
        ({**DEFINE, "fields": {"to": "str"}}, "define_class.fields must be a list of fields"),
        ({**DEFINE, "fields": ["to"]}, "define_class.fields must be a list of fields"),
        ({**DEFINE, "fields": [{"name": "to"}]}, r"define_class.fields[0].type is missing"),
        (
            {**DEFINE, "fields": [{"name": "to", "type": "str", "optional": True}]},
            "define_class.fields[0] does not take 'optional': it takes name, type, default",
        ),
        ({**ENUM, "members": ["RED"]}, "define_class.members must be an object"),
        ({**ENUM, "members": {"RED": None}}, "define_class.members must be an object"),
        ({**ENUM, "members": {"RED": True}}, "define_class.members must be an object"),
        ({**CONFLICT, "records": RECORD}, "conflict.records must be a list of records such as"),
        ({**CONFLICT, "records": ["home.moves.move-1"]}, "conflict.records must be a list"),
        ({**CONFLICT, "records": [{"domain": "home"}]}, "conflict.records must be a list"),
        ({**CONFLICT, "records": [{**RECORD, "x": 1}]}, "conflict.records must be a list"),
        (
            {**CONFLICT, "records": [RECORD, {**RECORD, "key": 7}]},
            "conflict.records[1].key must be a string, not 7",
        ),
        ({**CONFLICT, "about": None}, "conflict.about must be a string"),
    ],
)
def test_invalid_edit_is_refused_by_name(data: object, message: str) -> None:
    with pytest.raises(EditError) as error:
        edit_from_json(data)

    assert message in error.value.message
    assert error.value.code in {"malformed", "type_clash", "too_deep", "bad_text"}


def test_a_number_of_json_that_is_whole_is_an_integer() -> None:
    edit = edit_from_json({**ADD, "sources": [1.0, 2]})

    assert isinstance(edit, Add)
    assert [(seq, type(seq)) for seq in edit.sources] == [(1, int), (2, int)]
