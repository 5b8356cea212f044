"""Typed entries become classes, fields and records without a model."""

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.project import (
    Add,
    AddField,
    DefineClass,
    EditError,
    EnumMember,
    FieldSpec,
    PartialDate,
    Project,
    RecordEntry,
    RecordId,
    Ref,
    Retire,
    RetireEarlier,
    Update,
    WidenField,
    apply,
    compile_record,
    render,
)
from memory.project.types import format_type
from tests.properties import examples

from .support import Store, add, define, define_enum, project_with, remember

SCHEMA = "domains/life/schema.py"
STATE = "domains/life/state.py"


def annotations(project: Project, name: str = "Thing") -> dict[str, str]:
    fields = project.outline.domains["life"].classes[name].fields
    return {field.name: format_type(field.type) for field in fields}


def learned(*data: dict[str, Any]) -> Project:
    """Return a project that has been given these things, in this order."""
    project = Project.empty()
    remember(project, "Thing", *data)
    return project


def things(project: Project) -> list[dict[str, Any]]:
    return [dict(record.fields) for _, record in project.records("life", "things")]


def entry_of(**fields: Any) -> RecordEntry:
    return RecordEntry(**{"seq": 9, "domain": "life", "type": "Thing", **fields})


def refusal(project: Project, **entry: Any) -> EditError:
    """Return why an entry is refused, and check that it leaves the project unchanged."""
    before = render(project)
    with pytest.raises(EditError) as error:
        compile_record(project, entry_of(**entry))
    assert render(project) == before
    return error.value


# New types


@pytest.mark.parametrize(
    ("value", "annotation", "stored"),
    [
        ("text", "str", "text"),
        ("23:45", "str", "23:45"),
        ("2024", "str", "2024"),
        ("2024-01", "str", "2024-01"),
        ("on 2024-01-31", "str", "on 2024-01-31"),
        ("2024-01-31\n", "str", "2024-01-31\n"),
        ("2024-01-31", "datetime.date", datetime.date(2024, 1, 31)),
        (
            "2024-01-31T10:00",
            "datetime.datetime",
            datetime.datetime(2024, 1, 31, 10, tzinfo=datetime.UTC),
        ),
        (
            "2024-01-31 10:00:01.5Z",
            "datetime.datetime",
            datetime.datetime(2024, 1, 31, 10, 0, 1, 500_000, datetime.UTC),
        ),
        (1, "int", 1),
        (1.0, "float", 1.0),
        (True, "bool", True),
        (2**80, "int", 2**80),
        (None, "object | None", None),
        ([], "list[object]", []),
        ([None], "list[object | None]", [None]),
        (["a", "b"], "list[str]", ["a", "b"]),
        (["a", None], "list[str | None]", ["a", None]),
        ([1, 2.5], "list[float]", [1, 2.5]),
        (["2024-01-31"], "list[datetime.date]", [datetime.date(2024, 1, 31)]),
        (["2024-01-31", "soon"], "list[str]", ["2024-01-31", "soon"]),
        ([1, "a", None], "list[int | str | None]", [1, "a", None]),
        ({"08:00": 4, "09:00": 4.5}, "dict[str, float]", {"08:00": 4, "09:00": 4.5}),
        ("2021-11-00", "str", "2021-11-00"),
        ("0000-01-01", "str", "0000-01-01"),
        ("2021-01-01T25:00", "str", "2021-01-01T25:00"),
        (1e-320, "float", 1e-320),
        ([[1], []], "list[list[int]]", [[1], []]),
    ],
)
def test_a_new_field_gets_its_type_from_the_value(value: Any, annotation: str, stored: Any) -> None:
    project = learned({"x": value})

    assert annotations(project) == {"x": annotation}
    found = things(project)[0].get("x")
    assert (found, type(found)) == (stored, type(stored))
    assert Project.from_files(render(project)) == project


def test_a_new_type_becomes_one_class_and_one_collection() -> None:
    entry = RecordEntry(7, "life", "MedicalVisit", data={"at": "2024-01-31", "note": None})

    assert compile_record(Project.empty(), entry) == [
        DefineClass(
            "life",
            "MedicalVisit",
            (FieldSpec("at", "datetime.date"), FieldSpec("note", "object | None")),
        ),
        Add(
            "life",
            "MedicalVisit",
            {"at": datetime.date(2024, 1, 31)},
            (7,),
            "medical_visit-7",
            "medical_visits",
        ),
    ]


def test_nested_objects_become_classes_named_after_their_place() -> None:
    project = learned(
        {
            "home": {"street": "A", "geo": {"lat": 1.5}},
            "flight_legs": [{"from": "X"}, {"from": "Y", "to": "Z"}],
        }
    )

    assert render(project)[SCHEMA].partition("\n\n\n")[2] == (
        "@dataclass(kw_only=True)\n"
        "class ThingHomeGeo:\n"
        "    lat: float\n"
        "\n\n"
        "@dataclass(kw_only=True)\n"
        "class ThingHome:\n"
        "    street: str\n"
        "    geo: ThingHomeGeo\n"
        "\n\n"
        "@dataclass(kw_only=True)\n"
        "class ThingFlightLeg:\n"
        '    from_: str = dataclasses.field(metadata={"name": "from"})\n'
        "    to: str | None = None\n"
        "\n\n"
        "@dataclass(kw_only=True)\n"
        "class Thing(Record):\n"
        "    home: ThingHome\n"
        "    flight_legs: list[ThingFlightLeg]\n"
    )


def test_the_name_of_a_nested_class_gives_way_to_one_that_exists() -> None:
    project = project_with(define("life", "ThingHome", {"x": "str"}))

    remember(project, "Thing", {"home": {"street": "A"}})

    assert annotations(project) == {"home": "ThingHome2"}


def test_names_of_nested_classes_stay_apart_however_long_they_are() -> None:
    name = "x" * 90
    project = learned({name: {name: {name: {name: 1}}}})

    assert len(project.outline.domains["life"].classes) == 4
    assert Project.from_files(render(project)) == project


# Known types


@pytest.mark.parametrize(
    ("first", "second", "annotation"),
    [
        (1, 2, "int"),
        (1, 2.5, "float"),
        (2.5, 1, "float"),
        (1, None, "int | None"),
        (None, 1, "int | None"),
        (None, "2024-01-31", "datetime.date | None"),
        (None, [1], "list[int] | None"),
        (None, {"a": 1}, "ThingX | None"),
        ([], [1], "list[int]"),
        ([1], [], "list[int]"),
        ([1], [2.5], "list[float]"),
        ([1], [None], "list[int | None]"),
        ([], None, "list[object] | None"),
        ([None], ["a"], "list[str | None]"),
        ([], [{"a": 1}], "list[ThingX]"),
        ([[]], [[1]], "list[list[int]]"),
        ("soon", "2024-01-31", "str"),
        ("soon", "2021-11-00", "str"),
        ({"a": 1}, {"a": 2.5}, "ThingX"),
        ({"a": 1}, None, "ThingX | None"),
    ],
)
def test_a_field_becomes_as_wide_as_it_must(first: Any, second: Any, annotation: str) -> None:
    project = learned({"x": first})
    before = render(project)[STATE]

    remember(project, "Thing", {"x": second}, seq=2)

    assert annotations(project) == {"x": annotation}
    # Existing content stays as it is, byte for byte.
    assert before.splitlines()[-2] in render(project)[STATE].splitlines()
    assert Project.from_files(render(project)) == project


def test_a_new_field_is_optional_and_a_missing_one_becomes_so() -> None:
    project = learned({"a": 1, "b": 2})

    edits = compile_record(project, RecordEntry(2, "life", "Thing", data={"a": 1, "c": [{"d": 1}]}))

    assert edits == [
        DefineClass("life", "ThingC", (FieldSpec("d", "int"),), "object"),
        WidenField("life", "Thing", "b", "int | None"),
        AddField("life", "Thing", "c", "list[ThingC] | None", None),
        edits[-1],
    ]
    for item in edits:
        apply(project, item)
    assert annotations(project) == {"a": "int", "b": "int | None", "c": "list[ThingC] | None"}


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        ("Color", "red", EnumMember("Color", "RED")),
        ("Color", "RED", EnumMember("Color", "RED")),
        ("Color", "BLUE", EnumMember("Color", "OTHER")),  # the value comes before the name
        ("Color", 3, EnumMember("Color", "THREE")),
        ("list[Color]", ["red", 3], [EnumMember("Color", "RED"), EnumMember("Color", "THREE")]),
        ("PartialDate", "2021", PartialDate("2021")),
        ("PartialDate", "2021-11", PartialDate("2021-11")),
        ("PartialDate", "2021-11-03", PartialDate("2021-11-03")),
        ("PartialDate", 2021, PartialDate("2021")),
        ("PartialDate", "1995~", PartialDate("1995~")),
        ("PartialDate", "2023-07-15/2023-07-16", PartialDate("2023-07-15/2023-07-16")),
        ("Ref[Thing]", "thing-1", Ref("Thing", "thing-1")),
        ("Ref[other.Far]", "far-1", Ref("other.Far", "far-1")),
        ("decimal.Decimal", "12.50", Decimal("12.50")),
        ("decimal.Decimal", 12, Decimal(12)),
        ("decimal.Decimal", 0.1, Decimal("0.1")),
        ("datetime.time", "23:45", datetime.time(23, 45)),
        ("str | datetime.date", "2024-01-31", datetime.date(2024, 1, 31)),
        ("str | datetime.date", "soon", "soon"),
        ("int | str", "7", "7"),
        ("str", "2024-01-31", "2024-01-31"),
    ],
)
def test_a_declared_type_says_what_a_value_means(type_: str, value: Any, stored: Any) -> None:
    project = project_with(
        define_enum("life", "Color", RED="red", THREE=3, OTHER="BLUE", BLUE="blue"),
        define("other", "Far"),
        define("life", "Thing", {"x": type_}),
    )

    remember(project, "Thing", {"x": value})

    assert annotations(project) == {"x": type_}
    assert str(things(project)[0]["x"]) == str(stored)
    assert things(project)[0]["x"] == stored
    assert Project.from_files(render(project)) == project


def test_a_field_of_a_declared_type_becomes_optional_with_null() -> None:
    project = project_with(define("life", "Thing", {"x": "PartialDate"}))

    remember(project, "Thing", {"x": None})

    assert annotations(project) == {"x": "PartialDate | None"}


# Names


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *[(name, name) for name in ("date", "list", "type", "id", "time", "str", "match", "größe")],
        *[(name, name) for name in ("Thing", "self", "field", "dataclass", "Record", "x" * 100)],
        *[(name, f"{name}_") for name in ("key", "sources", "class", "None", "datetime", "uac")],
        *[(name, f"{name}_") for name in ("builtins", "decimal", "domains", "Ref", "PartialDate")],
        *[(name, f"{name}_") for name in ("set_aside", "Any")],
        ("First Name", "first_name"),
        ("Amount (EUR)", "amount_eur"),
        ("e-mail", "e_mail"),
        ("2fa", "field_2fa"),
        ("x-app:id", "x_app_id"),
        ("$id", "dollar_id"),
        ("+1", "plus_1"),
        ("-1", "minus_1"),
        ("a.b", "a_b"),
        ("名前", "名前"),
        ("", "field"),
        (" ", "field"),
        ("_", "field"),
        ("😀", "field"),
        ("is-", "is_"),
        ("x" * 101, "x" * 90),
        ("_id", "id_"),
        ("__init__", "init_"),
        ("ﬁeld", "field"),
    ],
)
def test_every_name_of_a_client_becomes_one_of_python(name: str, field: str) -> None:
    project = learned({name: [1], "other": "x"})

    assert annotations(project) == {field: "list[int]", "other": "str"}
    assert Project.from_files(render(project)) == project
    # The same name finds the same field again.
    assert len(compile_record(project, entry_of(data={name: [2], "other": ""}))) == 1


@pytest.mark.parametrize(
    ("type_", "collection"),
    [
        ("Trip", "trips"),
        ("MedicalVisit", "medical_visits"),
        ("HTTPError", "http_errors"),
        ("Person", "people"),
        ("Address", "addresses"),
        ("Bus", "buses"),
        ("Regimen", "regimens"),
        ("Specimen", "specimens"),
        ("ContactLens", "contact_lenses"),
        ("Atlas", "atlases"),
        ("Canvas", "canvases"),
        ("German", "germans"),
        ("Woman", "women"),
        ("Diary", "diaries"),
        ("News", "news"),
        ("Trips", "trips"),
        ("Var", "vars_"),
        ("Statistic", "statistics_"),
        ("Übung", "übungs"),
        ("旅行", "旅行s"),
    ],
)
def test_a_collection_is_named_for_many_of_its_class(type_: str, collection: str) -> None:
    project = Project.empty()

    remember(project, type_, {"x": 1})

    assert list(project.outline.domains["life"].collections) == [collection]
    assert Project.from_files(render(project)) == project


def test_the_collection_of_a_class_is_settled_once() -> None:
    project = Project.empty()

    remember(project, "Thing", {"x": 1}, collection="stuff")
    remember(project, "Thing", {"x": 2}, seq=2)
    remember(project, "Thing", {"x": 3}, seq=3, collection="input")
    remember(project, "Thing", {"x": 4}, seq=4, collection="input")

    collections = project.outline.domains["life"].collections
    assert {name: c.count for name, c in collections.items()} == {"stuff": 2, "input_": 2}


def test_the_collections_of_two_classes_with_one_plural_stay_apart() -> None:
    project = Project.empty()

    remember(project, "Trip", {"x": 1})
    remember(project, "Trips", {"x": 1})

    assert list(project.outline.domains["life"].collections) == ["trips", "trips_"]


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ({"domain": "Life"}, "bad_name", "domain 'Life'"),
        ({"domain": "../life"}, "bad_name", "domain '../life'"),
        ({"type": "thing"}, "bad_name", "write 'Thing'"),
        ({"type": "My thing"}, "bad_name", "type 'My thing'"),
        ({"type": "Record"}, "bad_name", "type 'Record'"),
        ({"type": "Color"}, "class_exists", "life.Color is an enum"),
        ({"type": "Part"}, "not_a_record", "life.Part"),
        ({"collection": "Stuff"}, "bad_name", "collection 'Stuff'"),
        ({"collection": "others"}, "wrong_collection", "contains Other records, not Thing"),
        ({"key": ""}, "bad_key", "key ''"),
        ({"key": "a\x00b"}, "bad_key", "key"),
        ({"data": [1]}, "malformed", "data must be an object"),
        ({"data": {"x": float("nan")}}, "type_clash", "life.Thing.x"),
        ({"data": {"x": 10**400}}, "type_clash", "life.Thing.x"),
        ({"data": {"x": "\ud800"}}, "type_clash", "life.Thing.x"),
        ({"data": {"x": [float("inf")]}}, "type_clash", "x has type Any"),
        ({"retired": True, "key": None}, "unknown_key", "key is missing"),
    ],
)
def test_invalid_entry_is_refused(entry: dict[str, Any], code: str, message: str) -> None:
    project = project_with(
        define_enum("life", "Color", RED="red"),
        define("life", "Part", {"x": "int"}, kind="object"),
        define("life", "Thing", {"x": "int"}, collection="things"),
        define("life", "Other", {"x": "int"}, collection="others"),
    )

    error = refusal(project, **{"data": {"x": 1}, **entry})

    assert error.code == code
    assert message in error.message


# Known keys


@pytest.fixture
def known() -> Project:
    project = project_with(
        define("life", "Thing", {"x": "int", "at": "datetime.date | None", "tags": "list[str]"}),
        {**add("life", "Thing", "k", x=1, at="2024-01-31", tags=["a"]), "sources": [5]},
    )
    return Store(project).open()


def compiled(project: Project, data: dict[str, Any], **entry: Any) -> list[Any]:
    return compile_record(project, entry_of(**{"key": "k", "data": data, **entry}))


@pytest.mark.parametrize(
    ("data", "changed"),
    [
        ({"x": 2}, {"x": 2}),
        ({"x": 1, "at": "2024-01-31", "tags": ["a"]}, {}),
        ({}, {}),
        ({"x": 1, "at": "2024-02-01", "tags": ["a"]}, {"at": datetime.date(2024, 2, 1)}),
        ({"at": None}, {"at": None}),
        ({"tags": []}, {"tags": []}),
        ({"tags": ["a", "b"]}, {"tags": ["a", "b"]}),
    ],
)
def test_a_known_key_updates_what_differs(
    known: Project, data: dict[str, Any], changed: dict[str, Any]
) -> None:
    assert compiled(known, data) == [Update("life", "things", "k", changed, (9,))]


def test_an_update_that_says_nothing_new_still_counts_as_a_source(known: Project) -> None:
    for item in compiled(known, {"x": 1}):
        apply(known, item)

    record = known.record(RecordId("life", "things", "k"))
    assert record
    assert record.sources == (5, 9)
    assert known.change().updated == [RecordId("life", "things", "k")]


def test_an_update_evolves_the_schema_but_makes_nothing_optional(known: Project) -> None:
    assert compiled(known, {"new": "n", "tags": None}) == [
        WidenField("life", "Thing", "tags", "list[str] | None"),
        AddField("life", "Thing", "new", "str | None", None),
        Update("life", "things", "k", {"new": "n", "tags": None}, (9,)),
    ]


def test_an_entry_can_retire_its_record(known: Project) -> None:
    (retire,) = compiled(known, {"ignored": 1}, retired=True)

    assert retire == Retire("life", "things", "k", (9,))
    apply(known, retire)
    assert known.record(RecordId("life", "things", "k")) is None


def test_an_entry_can_retire_what_is_not_known(known: Project) -> None:
    for key in ("k", "none"):
        (edit,) = compiled(known, {}, key=key, retired=True, seq=7)
        apply(known, edit)

    (again,) = compiled(known, {}, key="k", retired=True)

    assert again == RetireEarlier("life", "things", "k", (9,))
    assert known.record(RecordId("life", "things", "none")) is None
    assert {seq: one.code for seq, one in known.change().remarks.items()} == {
        7: "nothing_to_retire",
        9: "nothing_to_retire",
    }


def test_a_retired_record_comes_back_with_only_what_is_said_then(known: Project) -> None:
    apply(known, *compiled(known, {}, retired=True))

    (back,) = compiled(known, {"x": 2, "tags": []}, seq=10)

    assert back == Add("life", "Thing", {"x": 2, "tags": []}, (10,), "k", "things")


def test_an_entry_for_a_singleton_needs_no_key() -> None:
    project = project_with(
        define("life", "Thing", {"x": "int"}),
        {**add("life", "Thing", "the-one", x=1), "collection": "own", "singleton": True},
    )

    assert compiled(project, {"x": 2}, key=None, collection="own") == [
        Update("life", "own", "the-one", {"x": 2}, (9,))
    ]
    assert compiled(project, {}, key=None, collection="own", retired=True) == [
        Retire("life", "own", "the-one", (9,))
    ]


def test_a_key_that_was_made_is_never_anothers() -> None:
    project = project_with(
        define("life", "Thing", {"x": "int"}, collection="things"),
        add("life", "Thing", "thing-9", x=1),
    )

    (added,) = compiled(project, {"x": 2}, key=None)

    assert isinstance(added, Add)
    assert added.key == "thing-9-2"


# Anything at all

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["2024-01-31", "2021-11-00", "2024-01-31T10:00:00Z", "23:45"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", "list", "class"]) | st.text(max_size=3), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def test_a_later_object_of_a_list_may_have_parts_that_the_first_has_not() -> None:
    project = learned({"legs": [{}, {"seat": {"row": 1}}]})

    assert annotations(project) == {"legs": "list[ThingLeg]"}
    assert annotations(project, "ThingLeg") == {"seat": "ThingLegSeat | None"}
    assert Project.from_files(render(project)) == project


@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "date"]), JSON, max_size=3), max_size=5))
def test_any_data_is_taken(data: list[dict[str, Any]]) -> None:
    project = learned(*data)

    files = render(project)
    assert Project.from_files(files) == project
    assert render(Project.from_files(files)) == files
    assert len(things(project)) == len(data) if data else "life" not in project.outline.domains
