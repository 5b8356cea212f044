"""Hypothesis strategies: projects with everything that a project can have."""

import datetime
import string
from typing import Any

from hypothesis import strategies as st

from memory.project import Add, Domain, EnumMember, PartialDate, Project, Ref, Struct, apply
from memory.project.conform import normal_fields
from memory.project.types import ListOf, MapOf, Named, RefTo, Scalar, Type, Union

from .support import define, define_enum, edit, write

FIELD_NAMES = st.sampled_from(
    [
        *("date", "list", "type", "id", "time", "str", "int", "float", "bool", "object", "name"),
        *("Passport", "Color", "Stop", "class_", "größe", "日付", "x", "match", "property", "self"),
    ]
)
SCALARS = st.sampled_from(
    [
        *("str", "int", "float", "bool", "PartialDate"),
        *("datetime.date", "datetime.datetime", "datetime.time", "decimal.Decimal"),
    ]
)
UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
# Offsets as JSON can have them.
TIME_ZONES = st.none() | st.integers(-14 * 4, 14 * 4).map(
    lambda quarters: datetime.timezone(datetime.timedelta(minutes=15 * quarters))
)
PARTIAL_DATES = st.one_of(
    st.integers(1, 9999).map(lambda year: f"{year:04}"),
    st.dates().map(lambda date: date.isoformat()[:7]),
    st.dates().map(lambda date: date.isoformat()),
).map(PartialDate)

_SCALAR_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "None": st.none(),
    "object": st.nothing(),
    "str": UNICODE,
    "int": st.integers(-(2**70), 2**70),
    "float": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "bool": st.booleans(),
    "PartialDate": PARTIAL_DATES,
    "datetime.date": st.dates(),
    "datetime.datetime": st.datetimes(timezones=TIME_ZONES),
    "datetime.time": st.times(),
    "decimal.Decimal": st.decimals(allow_nan=False, allow_infinity=False),
}


def values(type_: Type, domain: Domain) -> st.SearchStrategy[Any]:
    """Draw values of a type, as records hold them."""
    match type_:
        case Scalar(name):
            return _SCALAR_VALUES[name]
        case Union(members):
            return st.one_of([values(member, domain) for member in members])
        case ListOf(element):
            return st.lists(values(element, domain), max_size=3)
        case MapOf(value):
            return st.dictionaries(UNICODE, values(value, domain), max_size=3)
        case RefTo(class_name):
            return KEYS.map(lambda key: Ref(class_name, key))
        case Named(name) if name in domain.enums:
            names = [member for member, _ in domain.enums[name].members]
            return st.sampled_from(names).map(lambda member: EnumMember(name, member))
        case Named(name):
            class_ = domain.classes[name]
            return fields_of(domain, name).map(
                lambda fields: Struct(name, normal_fields(fields, class_))
            )


def fields_of(domain: Domain, class_name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Draw all fields of an object of a class."""
    fields = domain.classes[class_name].fields
    return st.fixed_dictionaries({field.name: values(field.type, domain) for field in fields})


@st.composite
def types(draw: st.DrawFn, names: list[str]) -> str:
    """Draw types of fields over the scalars and the given names."""
    core = draw(SCALARS | st.sampled_from(names) if names else SCALARS)
    form = draw(
        st.sampled_from(
            ["{}", "{}", "{} | None", "list[{}]", "list[{} | None] | None", "dict[str, {}]"]
        )
    )
    return form.format(core)


@st.composite
def projects(draw: st.DrawFn) -> Project:
    """Draw projects with enums, nested dataclasses, references across domains, and records."""
    project = Project.empty()

    def define_some(domain: str, name: str, names: list[str], **arguments: object) -> None:
        fields = draw(st.lists(FIELD_NAMES, max_size=5, unique=True))
        specs = {field: draw(types(names)) for field in fields}
        edit(project, **define(domain, name, specs, doc=draw(UNICODE), **arguments))

    domains = draw(st.lists(st.sampled_from(["travel", "health", "über"]), unique=True))
    refs: list[str] = []
    for domain in domains:
        parts = []
        if draw(st.booleans()):
            blue = draw(UNICODE) + "!"
            edit(project, **define_enum(domain, "Color", RED="red", BLUE=blue, THREE=3))
            parts.append("Color")
        if draw(st.booleans()):
            define_some(domain, "Stop", [*parts, *refs], kind="object")
            parts.append("Stop")
        define_some(domain, "Passport", [*parts, *refs, "Ref[Passport]"], collection="passports")
        refs.append(f"Ref[{domain}.Passport]")
        if draw(st.booleans()):
            define_some(domain, "Trip", [*parts, *refs])
    for domain in domains:
        for class_ in [c for c in project.outline.domains[domain].classes.values() if c.is_record]:
            for key in draw(st.lists(KEYS, unique=True, max_size=4)):
                fields = draw(fields_of(project.outline.domains[domain], class_.name))
                sources = tuple(draw(st.lists(st.integers(1, 99), min_size=1, max_size=3)))
                apply(project, Add(domain, class_.name, fields, sources, key))
            if draw(st.booleans()):
                fields = draw(fields_of(project.outline.domains[domain], class_.name))
                name = f"own_{class_.name.lower()}"
                apply(project, Add(domain, class_.name, fields, (1,), "own", name, singleton=True))
    for name in draw(st.lists(st.sampled_from(string.ascii_lowercase), max_size=2)):
        edit(project, **write(name))
    return project


# -- Histories of typed entries --------------------------------------------------------------------

# Few keys and few fields, so that there are many updates, returns and contradictions.
_SAID = st.integers(0, 3) | st.sampled_from(["Rome", "2025-03-04", "x"]) | st.none() | st.booleans()
_PARTS = st.fixed_dictionaries({"stop": st.dictionaries(st.sampled_from("ab"), _SAID)})


@st.composite
def statements(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the content of a typed entry: a record, more of one, or its retirement."""
    found: dict[str, Any] = {
        "domain": draw(st.sampled_from(["travel", "health"])),
        "type": draw(st.sampled_from(["Trip", "Pill"])),
        "key": draw(st.sampled_from(["a", "b", "c"])),
    }
    if draw(st.integers(0, 5)) == 0:
        return {**found, "retired": True}
    fields = draw(st.dictionaries(st.sampled_from(["cost", "to", "on"]), _SAID, max_size=3))
    return {**found, "data": {**fields, **draw(st.just({}) | _PARTS)}}


def histories(
    told: st.SearchStrategy[Any], *, batches: int = 4, batch: int = 6
) -> st.SearchStrategy[Any]:
    """Draw histories of such entries, cut into what was posted and settled together."""
    return st.lists(st.lists(told, min_size=1, max_size=batch), min_size=1, max_size=batches)
