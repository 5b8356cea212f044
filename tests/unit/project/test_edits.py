"""Every edit, its effect, and everything that it refuses."""

from collections.abc import Mapping
from typing import Any

import pytest

from memory.project import (
    EditError,
    EnumMember,
    PartialDate,
    Project,
    RecordId,
    Ref,
    Struct,
    render,
)
from memory.project.types import format_type

from .support import (
    SILENT,
    TESTS,
    Store,
    add,
    define,
    define_enum,
    edit,
    project_with,
    write,
)

STATE = "domains/travel/state.py"
SCHEMA = "domains/travel/schema.py"

PLACE = {"domain": "travel", "collection": "trips", "key": "trip-1", "sources": [9]}
UPDATE: dict[str, Any] = {"op": "update", **PLACE, "fields": {}}
RETIRE: dict[str, Any] = {"op": "retire", **PLACE}
OF_TRIP = {"domain": "travel", "class_name": "Trip"}
ADD_FIELD: dict[str, Any] = {"op": "add_field", **OF_TRIP, "name": "cost"}
WIDEN: dict[str, Any] = {"op": "widen_field", **OF_TRIP, "name": "days"}
RENAME: dict[str, Any] = {"op": "rename_field", **OF_TRIP, "name": "to"}
RENAME_TOWN = {**RENAME, "class_name": "Stop", "name": "town", "new_name": "place"}
TRIP: dict[str, Any] = add("travel", "Trip", "trip-3", to="Paris", days=5)


@pytest.fixture
def project() -> Project:
    return project_with(
        define_enum("travel", "Color", RED="red", BLUE="blue"),
        define("travel", "Stop", {"town": "str", "nights": "int | None"}, kind="object"),
        define(
            "travel",
            "Trip",
            {
                "to": "str",
                "days": "int",
                "stops": "list[Stop] | None",
                "color": "Color | None",
                "passport": "str | None",
            },
        ),
        define("identity", "Passport", {"number": "str"}),
        add("travel", "Trip", "trip-1", to="Oslo", days=3, stops=[{"town": "Bergen"}]),
        add("travel", "Trip", "trip-2", to="Rome", days=4, color="red"),
        {**add("travel", "Trip", "old", to="Bonn", days=1), "sources": [2]},
        {**RETIRE, "key": "old", "sources": [3]},
        {**add("identity", "Passport", "own", number="P"), "collection": "own", "singleton": True},
        write("never"),
    )


def record(project: Project, key: str, collection: str = "trips") -> Mapping[str, object]:
    found = project.record(RecordId("travel", collection, key))
    assert found
    return found.fields


def leg(fields: Mapping[str, str] | None = None, **arguments: object) -> dict[str, Any]:
    return define("travel", "Leg", fields, **arguments)


def fields(**values: object) -> dict[str, Any]:
    return {"fields": {"to": "Paris", "days": 5, **values}}


REFUSED: dict[str, tuple[Mapping[str, Any], str, str]] = {
    # define_class
    "class exists": (define("travel", "Trip"), "class_exists", "add_field or widen_field"),
    "class named like an enum": (define("travel", "Color"), "class_exists", "travel.Color"),
    "enum named like a class": (
        define_enum("travel", "Trip", A=1),
        "class_exists",
        "is not an enum",
    ),
    "class in lower case": (define("travel", "trip_leg"), "bad_name", "write 'TripLeg'"),
    "class of uac": (define("travel", "Record"), "bad_name", "'Record'"),
    "class of Python": (define("travel", "ValueError"), "bad_name", "'ValueError'"),
    "class with a blank": (define("travel", "Trip Leg"), "bad_name", "'Trip Leg'"),
    "domain in upper case": (define("Travel", "Leg"), "bad_name", "write 'travel'"),
    "domain of Python": (define("list", "Leg"), "bad_name", "domain 'list'"),
    "domain that leaves the tree": (define("../x", "Leg"), "bad_name", "'../x'"),
    "domain that is a keyword": (define("import", "Leg"), "bad_name", "'import'"),
    "field twice": (
        {**leg(), "fields": [{"name": "a", "type": "str"}] * 2},
        "field_exists",
        "'a' twice",
    ),
    "reserved field": (leg({"key": "str"}), "bad_name", "write 'key_'"),
    "private field": (leg({"_id": "str"}), "bad_name", "write 'id_'"),
    "module as field": (leg({"datetime": "str"}), "bad_name", "'datetime_'"),
    "no type": (leg({"a": "dict[int, str]"}), "bad_type", "is not a valid field type"),
    "code as type": (leg({"a": "exit()"}), "bad_type", "exit()"),
    "type of nothing": (leg({"a": ""}), "bad_type", "is not a valid field type"),
    "unknown class as type": (leg({"a": "Foo"}), "unknown_class", "Foo"),
    "record as type": (leg({"a": "Trip"}), "unknown_class", "Ref[Trip]"),
    "reference to a part": (leg({"a": "Ref[Stop]"}), "unknown_class", "Stop"),
    "reference to nothing": (leg({"a": "Ref[X]"}), "unknown_class", "Ref[X]"),
    "reference to no domain": (leg({"a": "Ref[health.Trip]"}), "unknown_class", "health.Trip"),
    "wrong default": (
        {**leg(), "fields": [{"name": "a", "type": "int", "default": "x"}]},
        "type_clash",
        "travel.Leg.a has type int",
    ),
    "mutable default": (
        {**leg(), "fields": [{"name": "a", "type": "list[int]", "default": [1]}]},
        "bad_default",
        "travel.Leg.a",
    ),
    "default hidden by a field": (
        {
            **leg(),
            "fields": [
                {"name": "a", "type": "Color", "default": "RED"},
                {"name": "Color", "type": "str"},
            ],
        },
        "bad_name",
        "travel.Leg.Color hides",
    ),
    "members without an enum": ({**leg(), "members": {"A": 1}}, "malformed", "members"),
    "collection of parts": (
        leg(kind="object", collection="legs"),
        "malformed",
        "cannot have a collection",
    ),
    "collection exists": (leg(collection="trips"), "collection_exists", "travel.trips"),
    "collection of Python": (leg(collection="list"), "bad_name", "'list'"),
    "collection like a shard": (leg(collection="legs_0002"), "bad_name", "drop the number"),
    "enum without members": (define_enum("travel", "Size"), "bad_enum", "travel.Size"),
    "enum with one value twice": (
        define_enum("travel", "Size", A=1, B=1),
        "bad_enum",
        "unique values",
    ),
    "enum with fields": (
        {**define_enum("travel", "Size", A=1), "fields": [{"name": "a", "type": "str"}]},
        "malformed",
        "only members",
    ),
    "enum that loses a member": (
        define_enum("travel", "Color", RED="red"),
        "bad_enum",
        "must keep its members RED='red', BLUE='blue'",
    ),
    "enum that alters a member": (
        define_enum("travel", "Color", RED="rot", BLUE="blue"),
        "bad_enum",
        "must keep",
    ),
    "reserved member": (define_enum("travel", "Size", mro=1), "bad_name", "'mro'"),
    "private member": (define_enum("travel", "Size", _a=1), "bad_name", "'_a'"),
    # add_field
    "field exists": ({**ADD_FIELD, "name": "to", "type": "str | None"}, "field_exists", "Trip.to"),
    "field without default": ({**ADD_FIELD, "type": "float"}, "no_default", "Trip.cost"),
    "field of a bad type": ({**ADD_FIELD, "type": "Foo | None"}, "unknown_class", "Trip.cost: Foo"),
    "field of no class": ({**ADD_FIELD, "class_name": "X", "type": "int"}, "unknown_class", "'X'"),
    "field of no domain": ({**ADD_FIELD, "domain": "x", "type": "int"}, "unknown_domain", "'x'"),
    "field of an enum": ({**ADD_FIELD, "class_name": "Color", "type": "int"}, "unknown_class", ""),
    # widen_field
    "narrower type": ({**WIDEN, "name": "color", "type": "Color"}, "narrower", "Color | None"),
    "other type": ({**WIDEN, "type": "str"}, "narrower", "write int | ..."),
    "widen no field": ({**WIDEN, "name": "x", "type": "str"}, "unknown_field", "it has to, days"),
    "widen to a bad type": ({**WIDEN, "type": "int |"}, "bad_type", "'int |'"),
    # rename_field
    "rename no field": ({**RENAME, "name": "x", "new_name": "y"}, "unknown_field", "'x'"),
    "rename to another": ({**RENAME, "new_name": "days"}, "field_exists", "'days' twice"),
    "rename to a reserved name": ({**RENAME, "new_name": "class"}, "bad_name", "'class_'"),
    "rename to no name": ({**RENAME, "new_name": "a b"}, "bad_name", "'a b'"),
    # add
    "add to no domain": (add("x", "Trip", "k"), "unknown_domain", "(existing: identity, travel)"),
    "add no class": (add("travel", "X", "k"), "unknown_class", "define_class"),
    "add a class of another domain": (
        add("travel", "Passport", "k"),
        "unknown_class",
        "define_class; Passport is in identity.own",
    ),
    "add a part": (add("travel", "Stop", "k", town="x"), "not_a_record", "travel.Stop"),
    "add an enum": (add("travel", "Color", "k"), "unknown_class", "'Color'"),
    "add twice": ({**TRIP, "key": "trip-1"}, "key_exists", "change it with update"),
    "add a key with a newline": ({**TRIP, "key": "a\nb"}, "bad_key", "control"),
    "add a long key": ({**TRIP, "key": "x" * 201}, "bad_key", "200"),
    "add without a field": (
        {**TRIP, "fields": {"to": "x"}},
        "missing_field",
        "travel.Trip.days is missing: give it a value of type int",
    ),
    "add an unknown field": (
        {**TRIP, **fields(price=1)},
        "unknown_field",
        "no field 'price': it has to, days, stops, color, passport",
    ),
    "add a wrong value": ({**TRIP, **fields(days="five")}, "type_clash", "Trip.days has type int"),
    "add a float as int": ({**TRIP, **fields(days=5.5)}, "type_clash", "5.5"),
    "add a truth as int": ({**TRIP, **fields(days=True)}, "type_clash", "True"),
    "add null": ({**TRIP, **fields(days=None)}, "type_clash", "None"),
    "add no member": ({**TRIP, **fields(color="green")}, "type_clash", "(RED, BLUE)"),
    "add a wrong part": (
        {**TRIP, **fields(stops=[{"town": "a"}, {"town": 7}])},
        "type_clash",
        "travel.Trip.stops[1].town has type str but got 7",
    ),
    "add half a part": (
        {**TRIP, **fields(stops=[{"nights": 7}])},
        "missing_field",
        "travel.Trip.stops[0].town",
    ),
    "add half a character": ({**TRIP, **fields(to="\ud800")}, "type_clash", "Trip.to"),
    "add to another class's collection": (
        {**add("identity", "Passport", "k", number="1"), "collection": "own"},
        "collection_exists",
        "identity.own",
    ),
    "add to a collection of Python": ({**TRIP, "collection": "list"}, "bad_name", "'list'"),
    "add to a shard": ({**TRIP, "collection": "trips_0002"}, "bad_name", "shard"),
    "add a second singleton": (
        {**add("identity", "Passport", "k", number="1"), "collection": "own", "singleton": True},
        "singleton_exists",
        "change it with update",
    ),
    "add a singleton over a collection": (
        {**TRIP, "collection": "trips", "singleton": True},
        "collection_exists",
        "travel.trips",
    ),
    "add a singleton without a name": ({**TRIP, "singleton": True}, "malformed", "the name of the"),
    "add without sources": ({**TRIP, "sources": []}, "no_sources", "cite the entries"),
    # update
    "update nothing": ({**UPDATE, "key": "x"}, "unknown_key", "create it with add"),
    "update what is retired": ({**UPDATE, "key": "old"}, "key_retired", "retired"),
    "update no collection": (
        {**UPDATE, "collection": "tripz"},
        "unknown_collection",
        "it has trips",
    ),
    "update a collection by its class": (
        {**UPDATE, "collection": "Trip"},
        "unknown_collection",
        "it has trips; Trip is in travel.trips",
    ),
    "update a collection of another domain": (
        {**UPDATE, "collection": "passport"},
        "unknown_collection",
        "it has trips; Passport is in identity.own",
    ),
    "update no domain": ({**UPDATE, "domain": "x"}, "unknown_domain", "'x'"),
    "update to null": ({**UPDATE, "fields": {"to": None}}, "type_clash", "Trip.to has type str"),
    "update no field": ({**UPDATE, "fields": {"x": 1}}, "unknown_field", "'x'"),
    "update half": ({**UPDATE, "fields": {"to": "new", "days": "x"}}, "type_clash", "Trip.days"),
    "update without sources": ({**UPDATE, "fields": {}, "sources": []}, "no_sources", "cite"),
    # retire
    "retire nothing": ({**RETIRE, "key": "x"}, "unknown_key", "'x'"),
    "retire twice": ({**RETIRE, "key": "old"}, "key_retired", "travel.trips.old"),
    "retire without sources": ({**RETIRE, "sources": []}, "no_sources", "cite"),
    # constraints
    "constraint that is no Python": (write("x", "def"), "syntax", "x.source, line 1"),
    "tests that are no Python": (write("x", tests="\x00"), "syntax", "x.tests_source"),
    "constraint that takes long to parse": (
        write("x", "a,\n" * 30_000),
        "too_large",
        "has 90,000 characters: at most 65,536",
    ),
    "tests that take long to parse": (
        write("x", tests="a\n" * 40_000),
        "too_large",
        "write_constraint.tests_source has 80,000",
    ),
    "constraint outside of the tree": (write("../x"), "bad_name", "'../x'"),
    "constraint in upper case": (write("X"), "bad_name", "write 'x'"),
    "delete no constraint": (
        {"op": "delete_constraint", "name": "x"},
        "unknown_constraint",
        "(existing: never)",
    ),
    # note and dismiss
    "note without text": ({"op": "note", "text": " ", "sources": [1]}, "malformed", "note.text"),
    "note without sources": ({"op": "note", "text": "x", "sources": []}, "no_sources", "cite"),
    "dismiss without reason": (
        {"op": "dismiss", "reason": "", "sources": [1]},
        "malformed",
        "dismiss.reason",
    ),
    "dismiss nothing": ({"op": "dismiss", "reason": "x", "sources": []}, "no_sources", "cite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_edit_says_why_and_changes_nothing(project: Project, case: str) -> None:
    refused, code, message = REFUSED[case]
    store = Store(project)
    opened = store.open()

    with pytest.raises(EditError) as error:
        edit(opened, **refused)

    assert (error.value.code, str(error.value)) == (code, error.value.message)
    assert message in error.value.message
    assert opened.change().files == {}
    assert opened.change().transient == []
    assert opened.outline == project.outline
    assert render(opened) == store.files


def test_define_class_adds_to_the_schema(project: Project) -> None:
    edit(
        project,
        **leg(
            {"trip": "Ref[Trip]", "by": "Ref[Passport] | None", "color": "Color"},
            doc="One leg.\n  Of a trip.",
            collection="legs",
        ),
    )

    files = render(project)
    assert files[SCHEMA].endswith(
        "@dataclass(kw_only=True)\n"
        "class Leg(Record):\n"
        '    """One leg. Of a trip."""\n'
        "\n"
        "    trip: Ref[Trip]\n"
        '    by: "Ref[Passport] | None" = None\n'
        "    color: Color\n"
    )
    assert "    from domains.identity.schema import Passport\n" in files[SCHEMA]
    assert "legs: list[Leg] = []\n" in files[STATE]


def test_reference_prefers_its_own_domain(
    project: Project,
) -> None:
    edit(project, **define("travel", "Own", {"a": "Ref[Trip]", "b": "Ref[Passport]"}))
    edit(project, **define("travel", "Passport"))
    edit(project, **define("travel", "Now", {"b": "Ref[Passport]", "c": "Ref[identity.Passport]"}))
    edit(project, **define("health", "Visit", {"t": "Ref[Trip]"}))

    with pytest.raises(EditError, match=r"Ref\[domain\.Class\]"):  # there are two by now
        edit(project, **define("health", "Stay", {"p": "Ref[Passport]"}))

    def refs(domain: str, name: str) -> list[str]:
        class_ = project.outline.domains[domain].classes[name]
        return [format_type(field.type) for field in class_.fields]

    assert refs("travel", "Own") == ["Ref[Trip]", "Ref[identity.Passport]"]
    assert refs("travel", "Now") == ["Ref[Passport]", "Ref[identity.Passport]"]
    assert refs("health", "Visit") == ["Ref[travel.Trip]"]


def test_an_enum_is_extended_and_keeps_its_order(project: Project) -> None:
    edit(project, **define_enum("travel", "Color", GREEN="green", BLUE="blue", RED="red"))

    assert '    RED = "red"\n    BLUE = "blue"\n    GREEN = "green"\n' in render(project)[SCHEMA]


def test_add_field_goes_to_the_end(project: Project) -> None:
    edit(project, **{**ADD_FIELD, "type": "float | None"})
    edit(project, **{**ADD_FIELD, "name": "tags", "type": "list[str]", "default": []})
    edit(project, **{**ADD_FIELD, "name": "since", "type": "PartialDate", "default": "2021"})
    edit(project, **{**ADD_FIELD, "name": "own", "type": "bool | None", "default": False})

    assert render(project)[SCHEMA].endswith(
        "    cost: float | None = None\n"
        "    tags: list[str] = dataclasses.field(default_factory=list)\n"
        '    since: PartialDate = PartialDate("2021")\n'
        "    own: bool | None = False\n"
    )


def test_widen_field_changes_the_annotation(project: Project) -> None:
    state = render(project)[STATE]

    edit(project, **{**WIDEN, "type": "int | str | None"})

    assert "    days: int | str | None = None\n" in render(project)[SCHEMA]
    assert render(project)[STATE] == state
    edit(project, **{**WIDEN, "type": "None | str | int"})  # the same type in another order
    edit(project, **{**UPDATE, "fields": {"days": "long"}})
    assert record(project, "trip-1")["days"] == "long"


def test_rename_field_renames_it_in_every_record(project: Project) -> None:
    before = render(project)

    edit(project, **{**RENAME, "new_name": "destination"})
    edit(project, **RENAME_TOWN)

    files = render(project)
    assert files[SCHEMA] == before[SCHEMA].replace("to: str", "destination: str").replace(
        "town:", "place:"
    )
    assert files[STATE] == before[STATE].replace("to=", "destination=").replace("town=", "place=")
    assert project.change().updated == []  # they are all new since `empty`
    assert Project.from_files(files) == project


def test_rename_field_counts_its_records_as_updated(project: Project) -> None:
    opened = Store(project).open()

    edit(opened, **RENAME_TOWN)

    assert [record_id.key for record_id in opened.change().updated] == ["trip-1"]


USES_TO = SILENT.replace("return", "print(today.to)\n    return")
BUILDS = "def test_x():\n    assert Trip(key='x', to='y')\n"


@pytest.mark.parametrize(
    ("source", "tests", "where"),
    [
        (USES_TO, TESTS, "constraints/going.py:3 uses `.to`"),
        (SILENT, BUILDS, "tests/test_going.py:2 uses `.to`"),
    ],
)
def test_rename_field_is_refused_while_a_constraint_or_test_uses_the_old_name(
    project: Project, source: str, tests: str, where: str
) -> None:
    edit(project, **write("going", source, tests))
    store = Store(project)

    opened = store.open()
    edit(opened, **{**RENAME, "new_name": "destination"})
    with pytest.raises(EditError) as error:
        opened.change()
    assert error.value.code == "field_in_use"
    assert where in error.value.message

    # Unless it is rewritten in the same change, before or after,
    edit(opened, **write("going"))
    assert SCHEMA in opened.change().files
    # or deleted,
    opened = store.open()
    edit(opened, "delete_constraint", name="going")
    edit(opened, **{**RENAME, "new_name": "destination"})
    assert SCHEMA in opened.change().files
    # or the name is given back.
    opened = store.open()
    edit(opened, **{**RENAME, "new_name": "destination"})
    edit(opened, **{**RENAME, "name": "destination", "new_name": "to"})
    assert opened.change().files == {}


def test_a_constraint_may_mention_the_old_name_in_a_text(project: Project) -> None:
    source = SILENT.replace("Never", "From here .to there; never")
    edit(project, **write("going", source))
    opened = Store(project).open()

    edit(opened, **{**RENAME, "new_name": "destination"})

    assert SCHEMA in opened.change().files


def test_add_takes_values_as_json_has_them(project: Project) -> None:
    edit(
        project,
        **define(
            "travel",
            "All",
            {
                "date": "datetime.date",
                "at": "datetime.datetime",
                "time": "datetime.time",
                "partial": "PartialDate",
                "cost": "decimal.Decimal",
                "color": "Color",
                "trip": "Ref[Trip]",
                "passport": "Ref[identity.Passport]",
                "stop": "Stop",
                "many": "list[Stop | None]",
            },
            collection="all_things",
        ),
    )
    plain = {
        "date": "2025-01-31",
        "at": "2025-01-31T10:00:00Z",
        "time": "23:45",
        "partial": "2021-11",
        "cost": 0.1,
        "color": "RED",
        "trip": "trip-1",
        "passport": "own",
        "stop": {"town": "Oslo", "nights": None},
        "many": [{"nights": 2, "town": "Rome"}, None],
    }
    typed = {
        "date": {"$date": "2025-01-31"},
        "at": {"$datetime": "2025-01-31T10:00:00+00:00"},
        "time": {"$time": "23:45:00"},
        "partial": {"$partial_date": "2021-11"},
        "cost": {"$decimal": "0.1"},
        "color": {"$enum": "Color.RED", "value": "red"},
        "trip": {"$ref": "Trip", "key": "trip-1"},
        "passport": {"$ref": "Passport", "key": "own"},
        "stop": {"$object": "Stop", "fields": {"town": "Oslo"}},
        "many": [{"$object": "Stop", "fields": {"nights": 2, "town": "Rome"}}, None],
    }

    edit(project, **add("travel", "All", "plain", **plain))
    edit(project, **add("travel", "All", "typed", **typed))

    stored = record(project, "plain", "all_things")
    assert record(project, "typed", "all_things") == stored
    assert stored["partial"] == PartialDate("2021-11")
    assert stored["color"] == EnumMember("Color", "RED")
    assert stored["passport"] == Ref("identity.Passport", "own")
    assert stored["many"] == [Struct("Stop", {"town": "Rome", "nights": 2}), None]
    assert str(stored["cost"]) == "0.1"


def test_add_makes_key_and_collection(project: Project) -> None:
    edit(project, **define("travel", "MedicalVisit", {"at": "str"}))
    for _ in range(2):
        item = add("travel", "MedicalVisit", "", at="x")
        edit(project, **{**item, "key": None, "sources": [40, 41, 41]})

    visits = dict(project.records("travel", "medical_visits"))
    assert [record_id.key for record_id in visits] == ["medical_visit-41", "medical_visit-41-2"]
    assert {record.sources for record in visits.values()} == {(40, 41)}


def test_a_class_can_have_a_second_collection(project: Project) -> None:
    edit(project, **{**TRIP, "collection": "dream_trips"})
    edit(project, **{**TRIP, "key": "trip-1", "collection": "dream_trips"})
    edit(project, **TRIP)

    assert [r.key for _, r in project.records("travel", "dream_trips")] == ["trip-3", "trip-1"]
    assert [r.key for _, r in project.records("travel", "trips")] == ["trip-1", "trip-2", "trip-3"]


def test_update_changes_the_given_fields_and_extends_the_sources(project: Project) -> None:
    edit(project, **{**UPDATE, "fields": {"color": "BLUE", "stops": None}, "sources": [9, 1]})

    updated = project.record(RecordId("travel", "trips", "trip-1"))
    assert updated
    assert dict(updated.fields) == {"to": "Oslo", "days": 3, "color": EnumMember("Color", "BLUE")}
    assert updated.sources == (1, 9)
    assert next(project.records("travel", "trips"))[1] is updated  # it stays where it was


def test_a_singleton_is_updated_and_retired_by_its_name(project: Project) -> None:
    place = {"domain": "identity", "collection": "own", "key": "own", "sources": [7]}

    edit(project, "update", **place, fields={"number": "Q"})
    assert (
        'own = Passport(key="own", number="Q", sources=(1, 7))\n'
        in render(project)["domains/identity/state.py"]
    )

    edit(project, "retire", **place)
    assert "own" not in render(project)["domains/identity/state.py"]
    again = {**add("identity", "Passport", "own", number="R"), "collection": "own"}
    edit(project, **{**again, "singleton": True})
    assert (
        'own = Passport(key="own", number="R", sources=(1,))\n'
        in render(project)["domains/identity/state.py"]
    )
    assert Project.from_files(render(project)) == project


def test_retire_takes_a_record_out(project: Project) -> None:
    edit(project, **RETIRE, reason="cancelled")

    assert [r.key for _, r in project.records("travel", "trips")] == ["trip-2"]
    assert project.record(RecordId("travel", "trips", "trip-1")) is None


def test_write_constraint_keeps_every_byte(project: Project) -> None:
    source = "# coding\r\n" + SILENT + "\n\n# é\t"

    edit(project, **write("never", source, TESTS + "#"))

    files = render(project)
    assert files["constraints/never.py"] == source
    assert files["tests/test_never.py"] == TESTS + "#"
    assert project.outline.constraints == {"never": "Never says anything."}


def test_note_keeps_a_text(project: Project) -> None:
    for text in ("Likes tea", "Hates coffee"):
        edit(project, "note", text=text, sources=[41])

    assert (
        '    Note(key="note-41", text="Likes tea", sources=(41,)),\n'
        '    Note(key="note-41-2", text="Hates coffee", sources=(41,)),\n'
    ) in render(project)["domains/notes/state.py"]


def test_dismiss_leaves_the_project_alone(project: Project) -> None:
    opened = Store(project).open()

    edit(opened, "dismiss", reason="small talk", sources=[5])

    assert opened.change().files == {}


def test_derived_fields_are_reported_with_the_change(project: Project) -> None:
    edit(project, "note", text="three of them", sources=[2], derived={"text": "counted"})
    derived = {"to": "the only airport there"}
    edit(project, **{**UPDATE, "fields": {"to": "Oslo"}, "derived": derived})

    told = project.change().derived

    assert told[RecordId("travel", "trips", "trip-1")] == derived
    assert [dict(reasons) for record_id, reasons in told.items() if record_id.domain == "notes"]


@pytest.mark.parametrize(
    ("derived", "words"),
    [
        ({"nights": "why"}, "derived names the field 'nights'"),
        ({"to": ""}, "a reason for each field"),
        ({"to": 1}, "a reason for each field"),
        (["to"], "a reason for each field"),
        ("to", "a reason for each field"),
    ],
)
def test_derived_names_a_field_with_a_reason(project: Project, derived: Any, words: str) -> None:
    with pytest.raises(EditError, match=words):
        edit(project, **{**UPDATE, "fields": {"to": "Oslo"}, "derived": derived})
