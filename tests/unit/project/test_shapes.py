"""Shapes that a workspace constraint declares, and how a user's records match them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.project.outline import (
    Class,
    Collection,
    Domain,
    Enumeration,
    Field,
    Outline,
    Shard,
    Singleton,
)
from memory.project.shapes import Needs, ShapeError, match, needs_of
from memory.project.types import format_type, parse_type

from .strategies import projects

HEAD = '''"""A drug must not belong to a class that the user is allergic to."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, Record, critical

'''
MEDICATION = """
@dataclass(kw_only=True)
class Medication(Record):
    name: str
    drug_class: str | None
    ended_on: datetime.date | None = None
"""
CHECK = """
def check(today: datetime.date, medications: Sequence[Medication]) -> Iterator[Alert]:
    yield from ()
"""


def source(also: str = "", classes: str = MEDICATION, check: str = CHECK) -> str:
    return f"{HEAD}{also}\n{classes}\n{check.lstrip()}"


def shape(*fields: str, name: str = "Trip", also: str = "") -> Needs:
    """Return the needs of a constraint that takes one shape with these fields."""
    lines = "\n".join(f"    {field}" for field in fields) or "    pass"
    return needs_of(
        source(
            also=also,
            classes=f"@dataclass(kw_only=True)\nclass {name}(Record):\n{lines}\n",
            check=f"def check(records: Sequence[{name}]) -> Iterator[Alert]:\n    yield from ()\n",
        )
    )


def outline(*classes: Class, enums: tuple[Enumeration, ...] = (), domain: str = "life") -> Outline:
    """A project with one collection of each record class."""
    collections = {
        f"{one.name.lower()}s": Collection(
            f"{one.name.lower()}s", one.name, (Shard(f"domains/{domain}/state.py", 1, 10),)
        )
        for one in classes
        if one.is_record
    }
    return Outline().with_domain(
        Domain(
            domain,
            {one.name: one for one in enums},
            {one.name: one for one in classes},
            collections,
        )
    )


def class_(class_name: str = "Trip", /, **fields: str) -> Class:
    return Class(
        class_name, tuple(Field(name, parse_type(type_)) for name, type_ in fields.items())
    )


LINES = source().split("\n")
CLASS_LINE = LINES.index("class Medication(Record):") + 1
FIELD_LINE = CLASS_LINE + 4  # of a field after the others
CHECK_LINE = next(n for n, line in enumerate(LINES, start=1) if line.startswith("def check"))

# The parameters of a check or the classes before it, the message about them, and the fix.
MEDICATIONS = "medications: Sequence[Medication]"
WRONG_PARAMETERS = [
    ("medications", "the parameter medications has no type", "Sequence[Shape]"),
    (
        "medications: list[Medication]",
        "the parameter medications has the type list[Medication]",
        "Sequence[Shape]",
    ),
    (
        "drugs: Sequence[Drug]",
        "needs Drug, which is not a class in this file",
        "define class Drug(Record)",
    ),
    (f"{MEDICATIONS} = []", "has the default []", "give it the default ()"),
    ("*drugs: Medication", "takes *drugs", "Sequence"),
    (f"today: str, {MEDICATIONS}", "today has the wrong type", "today: datetime.date"),
    (f"{MEDICATIONS}, today: datetime.date = 1", "today has a default", "today: datetime.date"),
    (
        f"today: datetime.date, now: datetime.datetime, {MEDICATIONS}",
        "takes both today and now",
        "now.date()",
    ),
]
WRONG_CLASSES = [
    *(
        (
            MEDICATION.replace("(Record)", bases),
            CLASS_LINE,
            "does not extend Record alone",
            "class Medication(Record)",
        )
        for bases in ("", "(Record, Mixin)")
    ),
    (
        MEDICATION.replace("(kw_only=True)", ""),
        CLASS_LINE,
        "not a keyword-only dataclass",
        "@dataclass(kw_only=True)",
    ),
    (
        f"{MEDICATION}    key: str\n",
        FIELD_LINE,
        "Medication.key already exists",
        "every record has key",
    ),
    (f"{MEDICATION}    dose = 3\n", FIELD_LINE, "contains 'dose = 3'", "fields with their types"),
    *(
        (
            f"{MEDICATION}    dose: {type_}\n",
            FIELD_LINE,
            f"Medication.dose has the type {type_}",
            "use str, int",
        )
        for type_ in ("object", "Dose", "Ref[Dose]", "dict[str, int]", "None", "list[Dose]")
    ),
]


class TestNeeds:
    def test_reads_shapes_parameters_other_names_and_the_clock(self) -> None:
        needs = needs_of(
            source(also='ALSO = {"Medication": ("Drug",), "Medication.drug_class": ("category",)}')
        )
        (parameter,) = needs.parameters
        fields = {
            field.name: (format_type(field.type), field.has_default, field.also)
            for field in parameter.shape.fields
        }
        assert needs.clock == "today"
        assert (parameter.name, parameter.has_default) == ("medications", False)
        assert (parameter.shape.name, parameter.shape.also) == ("Medication", ("Drug",))
        assert fields == {
            "name": ("str", False, ()),
            "drug_class": ("str | None", False, ("category",)),
            "ended_on": ("datetime.date | None", True, ()),
        }

    @pytest.mark.parametrize(
        ("parameters", "clock", "optional"),
        [
            ("today: datetime.date, medications: Sequence[Medication]", "today", False),
            ("now: datetime.datetime, medications: Sequence[Medication]", "now", False),
            ("medications: Sequence[Medication]", None, False),
            ("medications: Sequence[Medication], today: datetime.date", "today", False),
            ("medications: Sequence[Medication] = ()", None, True),
            ("today: datetime.date, *, medications: Sequence[Medication] = ()", "today", True),
        ],
    )
    def test_forms_of_check(self, parameters: str, clock: str | None, optional: bool) -> None:
        needs = needs_of(source(check=f"def check({parameters}) -> Iterator[Alert]: ...\n"))
        assert needs.clock == clock
        assert [one.has_default for one in needs.parameters] == [optional]

    def test_a_constraint_may_have_classes_of_its_own_that_are_no_records(self) -> None:
        classes = MEDICATION + "\n@dataclass(frozen=True)\nclass Dose:\n    size: object\n"
        (parameter,) = needs_of(source(classes=classes)).parameters
        assert parameter.shape.name == "Medication"

    def test_a_shape_may_have_methods_and_documentation(self) -> None:
        classes = MEDICATION + '    def ended(self, day: datetime.date) -> bool:\n        """."""\n'
        assert len(needs_of(source(classes=classes)).parameters[0].shape.fields) == 3

    @pytest.mark.parametrize(
        ("broken", "line", "message", "fix"),
        [
            ("def check(", 1, "invalid Python", "syntax"),
            ("\0", 1, "invalid Python", ""),
            (source(check=""), 1, "check is missing", "define def check"),
            (source(classes="", check="def check(): ..."), 1, "takes no records", "Sequence"),
            (
                source(check="def check(today: datetime.date): ..."),
                CLASS_LINE,
                "no parameter of check takes Medication",
                "Sequence[Medication]",
            ),
            *(
                (source(check=f"def check({parameters}): ..."), CHECK_LINE, message, fix)
                for parameters, message, fix in WRONG_PARAMETERS
            ),
            *(
                (source(classes=classes), line, message, fix)
                for classes, line, message, fix in WRONG_CLASSES
            ),
            *(
                (source(also=also), 9, message, "ALSO" if fix is None else fix)
                for also, message, fix in (
                    ('ALSO = ["Medication"]', "ALSO is not a dict", None),
                    ('ALSO = {"Drug": ("Medicine",)}', "not a class or field", "name a class"),
                    ('ALSO = {"Medication.dose": ("x",)}', "not a class or field", "name a"),
                    ('ALSO = {"Medication": ("Drug")}', "not a tuple of names", None),
                    ('ALSO = {"Medication": ()}', "not a tuple of names", None),
                    ('ALSO = {"Medication": ("a drug",)}', "not a tuple of names", None),
                    ('ALSO = {"Medication": (1,)}', "not a tuple of names", None),
                    ("ALSO = {1: ('Drug',)}", "has the key 1", None),
                    ("ALSO = {**OTHER}", "has the key **", None),
                    ("ALSO: dict[str, str]", "ALSO is not a dict", None),
                )
            ),
        ],
    )
    def test_unclear_shape_is_refused_with_line_and_fix(
        self, broken: str, line: int, message: str, fix: str
    ) -> None:
        with pytest.raises(ShapeError) as refused:
            needs_of(broken)
        assert refused.value.line == line
        assert message in refused.value.message
        assert fix in refused.value.fix


class TestMatch:
    def test_names_what_each_parameter_gets(self) -> None:
        needs = shape("start: datetime.date", "place: str = ''")
        matched = match(needs, outline(class_(start="datetime.date", note="str")))
        assert matched.applies
        assert matched.bindings == {
            "records": [
                {
                    "domain": "life",
                    "name": "trips",
                    "class": "Trip",
                    "fields": {"start": "start"},
                    "not_none": [],
                }
            ]
        }

    def test_every_domain_collection_and_single_record_of_the_class(self) -> None:
        trip = class_(start="datetime.date")
        work = (
            outline(trip, domain="work")
            .domains["work"]
            .with_collection(Collection("visits", "Trip", (Shard("domains/work/state.py"),)))
            .with_singleton(Singleton("next_trip", "Trip"))
        )
        both = outline(trip, domain="life").with_domain(work)
        found = match(shape("start: datetime.date"), both).bindings["records"]
        assert [(one["domain"], one["name"]) for one in found] == [
            ("life", "trips"),
            ("work", "trips"),
            ("work", "visits"),
            ("work", "next_trip"),
        ]

    @pytest.mark.parametrize("name", ["Trip", "TRIP", "Journey", "Round_Trip", "RoundTrip"])
    def test_a_class_by_its_name_or_another(self, name: str) -> None:
        needs = shape("start: datetime.date", also='ALSO = {"Trip": ("Journey", "RoundTrip")}')
        assert match(needs, outline(class_(name, start="datetime.date"))).applies

    def test_a_field_by_its_name_or_another_that_fits(self) -> None:
        needs = shape(
            "start: datetime.date", also='ALSO = {"Trip.start": ("from_day", "start_on")}'
        )
        trip = class_(start="str", startOn="datetime.date")
        (binding,) = match(needs, outline(trip)).bindings["records"]
        assert binding["fields"] == {"start": "startOn"}

    @pytest.mark.parametrize(
        ("wanted", "users", "fits"),
        [
            ("str", "str", True),
            ("float", "int", True),
            ("int", "float", False),
            ("int", "bool", False),
            ("datetime.date", "datetime.datetime", False),
            ("datetime.datetime", "datetime.date", False),
            ("int | float | decimal.Decimal", "decimal.Decimal", True),
            ("int | float | decimal.Decimal", "int | float", True),
            ("str", "int | str", False),
            ("str", "Color", True),
            ("str", "Number", False),
            ("int", "Number", False),
            ("str", "Part", False),
            ("str", "Ref[Trip]", False),
            ("list[float]", "list[int]", True),
            ("list[str]", "list[Color]", False),
            ("list[str]", "list[str | None]", False),
            ("list[str | None]", "list[str | None]", True),
            ("str", "list[str]", False),
            ("list[str]", "list[object]", True),
            ("str | None", "str", True),
            ("str", "str | None", True),
            ("str", "object | None", True),
            ("datetime.date | PartialDate", "PartialDate", True),
        ],
    )
    def test_types(self, wanted: str, users: str, fits: bool) -> None:
        life = outline(
            class_(value=users),
            Class("Part", (), is_record=False),
            enums=(
                Enumeration("Color", (("RED", "red"),)),
                Enumeration("Number", (("ONE", 1),)),
            ),
        )
        matched = match(shape(f"value: {wanted}"), life)
        assert matched.applies == fits
        if not fits:
            assert matched.reasons == (
                f"life.Trip.value is {format_type(parse_type(users))},"
                f" not {format_type(parse_type(wanted))}",
            )

    @pytest.mark.parametrize(
        ("fields", "users", "reasons"),
        [
            (["start: str"], [class_("Visit", start="str")], ["no class Trip, Journey or Tour"]),
            (["start: str"], [class_()], ["life.Trip has no field start"]),
            (
                ["start: str", "end: str"],
                [class_(start="int")],
                ["life.Trip.start is int, not str", "life.Trip has no field end"],
            ),
            (
                ["start: str"],
                [Class("Trip", (), is_record=False)],
                ["life.Trip is not a record class"],
            ),
            (
                ["start: str"],
                [class_(), class_("Tour")],
                ["life.Trip has no field start", "life.Tour has no field start"],
            ),
        ],
    )
    def test_says_why_it_does_not_apply(
        self, fields: list[str], users: list[Class], reasons: list[str]
    ) -> None:
        needs = shape(*fields, also='ALSO = {"Trip": ("Journey", "Tour")}')
        matched = match(needs, outline(*users))
        assert not matched.applies
        assert list(matched.reasons) == reasons
        assert matched.bindings == {}

    def test_fitting_class_suffices_and_the_other_is_noted(self) -> None:
        needs = shape("start: str", also='ALSO = {"Trip": ("Tour",)}')
        matched = match(needs, outline(class_(), class_("Tour", start="str")))
        assert [one["class"] for one in matched.bindings["records"]] == ["Tour"]
        assert matched.notes == ("life.Trip has no field start",)

    @pytest.mark.parametrize(
        ("field", "users", "bound", "not_none", "notes"),
        [
            (
                "place: str",
                "str | None",
                True,
                ["place"],
                ["life.Trip records without place are left out"],
            ),
            ("place: str = ''", "str | None", True, ["place"], []),
            ("place: str | None", "str | None", True, [], []),
            (
                "place: str = ''",
                "int",
                False,
                [],
                ["life.Trip.place is int, not str: this field is not used"],
            ),
        ],
    )
    def test_says_what_is_left_out(
        self, field: str, users: str, bound: bool, not_none: list[str], notes: list[str]
    ) -> None:
        matched = match(shape(field), outline(class_(place=users)))
        (binding,) = matched.bindings["records"]
        assert ("place" in binding["fields"]) == bound
        assert binding["not_none"] == not_none
        assert list(matched.notes) == notes

    def test_a_parameter_with_a_default_needs_nothing(self) -> None:
        needs = needs_of(
            source(
                check="def check(medications: Sequence[Medication] = ()) -> Iterator[Alert]: ..."
            )
        )
        matched = match(needs, outline(class_()))
        assert matched.applies
        assert matched.bindings == {"medications": []}
        assert matched.notes == ("no class Medication",)

    def test_a_class_without_records_fits_with_none(self) -> None:
        domain = Domain("life", classes={"Trip": class_(start="str")})
        matched = match(shape("start: str"), Outline().with_domain(domain))
        assert matched.applies
        assert matched.bindings == {"records": []}


FIELDS = [
    f"{name}: {type_}{default}"
    for name in ("date", "list", "name", "x", "class_")
    for type_, default in (("str", ""), ("int | float", ""), ("datetime.date | None", " = None"))
]


@given(
    project=projects(),
    fields=st.lists(st.sampled_from(FIELDS), max_size=3, unique_by=lambda f: f.partition(":")[0]),
    name=st.sampled_from(["Passport", "Trip", "Stop", "Visa"]),
)
def test_a_binding_names_only_what_is_there(project: Any, fields: list[str], name: str) -> None:
    needs = shape(*fields, name=name)
    matched = match(needs, project.outline)
    assert matched.applies != bool(matched.reasons)
    assert set(matched.bindings) == ({"records"} if matched.applies else set())
    for binding in matched.bindings.get("records", []):
        domain = project.outline.domains[binding["domain"]]
        found = domain.classes[domain.holders[binding["name"]].class_name]
        assert binding["class"] == found.name
        assert all(found.field(users) is not None for users in binding["fields"].values())
        assert set(binding["not_none"]) <= set(binding["fields"])
        required = {f.name for f in needs.parameters[0].shape.fields if not f.has_default}
        assert required <= set(binding["fields"])
