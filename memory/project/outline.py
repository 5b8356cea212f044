"""The outline of a project: everything except its records.

An outline is small and immutable, and is all that's needed to append a record or write the
manifest. It is stored next to a checkpoint's tree, so nothing has to be parsed to find out what a
project contains.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, TypeVar

from memory.project.literals import literal, parse_literal
from memory.project.paths import constraint_path, constraint_tests_path
from memory.project.types import Type, format_type, is_optional, parse_type
from memory.project.values import Value


class Required(enum.Enum):
    """The type of `REQUIRED`, which stands for a missing default."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED
# The field of an object that holds its values that do not fit their fields, as they were sent. A
# class gets this field with the first such value.
SET_ASIDE: Final = "set_aside"
Default: TypeAlias = Value | Literal[Required.REQUIRED]


@dataclass(frozen=True)
class Field:
    """A field of a class. A field that may be None defaults to None unless otherwise set.

    `original` is the name in the caller's data, if that name can't be a field name.
    """

    name: str
    type: Type
    default: Default = REQUIRED
    original: str | None = None

    def __post_init__(self) -> None:
        if self.default is REQUIRED and is_optional(self.type):
            object.__setattr__(self, "default", None)


@dataclass(frozen=True)
class Class:
    """A dataclass in a domain's schema, for records (with key and sources) or parts of records."""

    name: str
    fields: tuple[Field, ...] = ()
    is_record: bool = True
    doc: str = ""

    def field(self, name: str) -> Field | None:
        """Return the field with this name, or None."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> Mapping[str, Field]:
        return {field.name: field for field in self.fields}

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """Each field's name by its name in the caller's data, `set_aside` excepted."""
        return {
            field.name if field.original is None else field.original: field.name
            for field in self.fields
            if field.name != SET_ASIDE
        }

    @property
    def keeps_set_aside(self) -> bool:
        """Whether objects of this class hold values that did not fit their fields."""
        return self.field(SET_ASIDE) is not None


@dataclass(frozen=True)
class Enumeration:
    """An enum in a domain's schema: its members' names and values, in order."""

    name: str
    members: tuple[tuple[str, str | int], ...]
    doc: str = ""


@dataclass(frozen=True)
class Shard:
    """One file of a collection, with its number of records and their size in bytes.

    `set_aside` is the number of values in its records that are set aside.
    """

    path: str
    count: int = 0
    size: int = 0
    set_aside: int = 0


@dataclass(frozen=True)
class Collection:
    """A list of records of one class in insertion order, split into shards."""

    name: str
    class_name: str
    shards: tuple[Shard, ...]

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(shard.count for shard in self.shards)

    @property
    def set_aside(self) -> int:
        """The number of values in its records that are set aside."""
        return sum(shard.set_aside for shard in self.shards)


@dataclass(frozen=True)
class Singleton:
    """A name that holds exactly one record, always in the domain's state.py."""

    name: str
    class_name: str
    size: int = 0
    set_aside: int = 0


@dataclass(frozen=True)
class Domain:
    """A domain: its schema and where its records are. Mappings are in definition order."""

    name: str
    enums: Mapping[str, Enumeration] = field(default_factory=dict)
    classes: Mapping[str, Class] = field(default_factory=dict)
    collections: Mapping[str, Collection] = field(default_factory=dict)
    singletons: Mapping[str, Singleton] = field(default_factory=dict)

    @property
    def state_path(self) -> str:
        """The file that holds the singletons and every collection's first shard."""
        return f"domains/{self.name}/state.py"

    @property
    def schema_path(self) -> str:
        """The file that defines the classes and enums."""
        return f"domains/{self.name}/schema.py"

    def shard_path(self, collection: str, number: int) -> str:
        """Return the path of a collection's nth shard, counted from 1."""
        if number == 1:
            return self.state_path
        return f"domains/{self.name}/{collection}_{number:04d}.py"

    @cached_property
    def holders(self) -> Mapping[str, Collection | Singleton]:
        """The collections, then the singletons, by name: both hold records."""
        return {**self.collections, **self.singletons}

    def names(self) -> set[str]:
        """Return all names already in use in the domain."""
        return {*self.enums, *self.classes, *self.holders}

    def has_part(self, name: str) -> bool:
        """Return whether `name` is an enum or non-record class, which can be a field's type."""
        return name in self.enums or (name in self.classes and not self.classes[name].is_record)

    def collections_of(self, class_name: str) -> list[str]:
        """Return the names of a class's collections, oldest first."""
        return [c.name for c in self.collections.values() if c.class_name == class_name]

    def schema_differs(self, other: "Domain | None") -> bool:
        """Return whether the two domains' schema.py files differ, even if only in order."""
        return other is None or [*self.enums.values(), *self.classes.values()] != [
            *other.enums.values(),
            *other.classes.values(),
        ]

    def with_enum(self, enumeration: Enumeration) -> "Domain":
        """Return the domain with an enum added or replaced."""
        return replace(self, enums={**self.enums, enumeration.name: enumeration})

    def with_class(self, class_: Class) -> "Domain":
        """Return the domain with a class added or replaced."""
        return replace(self, classes={**self.classes, class_.name: class_})

    def with_collection(self, collection: Collection) -> "Domain":
        """Return the domain with a collection added or replaced."""
        return replace(self, collections={**self.collections, collection.name: collection})

    def with_singleton(self, singleton: Singleton) -> "Domain":
        """Return the domain with a singleton added or replaced."""
        return replace(self, singletons={**self.singletons, singleton.name: singleton})

    def without_singleton(self, name: str) -> "Domain":
        """Return the domain without a singleton."""
        rest = {key: value for key, value in self.singletons.items() if key != name}
        return replace(self, singletons=rest)

    def state_paths(self) -> Iterator[str]:
        """Yield all files that hold records: state.py, then the shards."""
        yield self.state_path
        for collection in self.collections.values():
            for shard in collection.shards[1:]:
                yield shard.path

    def records_size(self, path: str) -> int:
        """Return the total size of a file's records in bytes, which limits further records."""
        shards = (shard for c in self.collections.values() for shard in c.shards)
        size = sum(shard.size for shard in shards if shard.path == path)
        if path == self.state_path:
            size += sum(singleton.size for singleton in self.singletons.values())
        return size


@dataclass(frozen=True)
class Outline:
    """A project's domains, its constraints with their docstrings' first lines, and its tests."""

    domains: Mapping[str, Domain] = field(default_factory=dict)
    constraints: Mapping[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = ()

    def with_domain(self, domain: Domain) -> "Outline":
        """Return the outline with a domain added or replaced; domains are sorted by name."""
        if domain.name in self.domains:
            return replace(self, domains={**self.domains, domain.name: domain})
        return replace(self, domains=dict(sorted({**self.domains, domain.name: domain}.items())))

    def with_constraint(self, name: str, doc: str) -> "Outline":
        """Return the outline with a constraint and its test file added or replaced."""
        tests = sorted({*self.tests, constraint_tests_path(name)})
        constraints = dict(sorted({**self.constraints, name: doc}.items()))
        return replace(self, constraints=constraints, tests=tuple(tests))

    def without_constraint(self, name: str) -> "Outline":
        """Return the outline without a constraint and its test file."""
        rest = {key: doc for key, doc in self.constraints.items() if key != name}
        tests = tuple(path for path in self.tests if path != constraint_tests_path(name))
        return replace(self, constraints=rest, tests=tests)

    def paths(self) -> list[str]:
        """Return all files of the tree, sorted."""
        paths = {"manifest.py", *self.tests, *(constraint_path(n) for n in self.constraints)}
        for domain in self.domains.values():
            paths |= {domain.schema_path, *domain.state_paths()}
            paths |= {"domains/__init__.py", f"domains/{domain.name}/__init__.py"}
        if self.constraints:
            paths.add("constraints/__init__.py")
        if self.tests:
            paths.add("tests/__init__.py")
        return sorted(paths)

    def resolve(self, class_name: str, domain: str) -> tuple[Domain, Class] | None:
        """Return the record class that "Passport" or "identity.Passport" refers to in a domain.

        An unqualified name refers to the domain's own class or, failing that, to the only class
        with that name in the other domains.
        """
        prefix, _, bare = class_name.rpartition(".")
        places = [prefix] if prefix else [domain] if self._defines(domain, bare) else self.domains
        domains = [self.domains[name] for name in places if self._defines(name, bare)]
        return (domains[0], domains[0].classes[bare]) if len(domains) == 1 else None

    def _defines(self, domain: str, class_name: str) -> bool:
        return domain in self.domains and class_name in self.domains[domain].classes

    def to_json(self) -> dict[str, Any]:
        """Return the outline as JSON for `from_json`.

        It uses lists wherever order matters (PostgreSQL's jsonb doesn't preserve key order), and
        source text, which no JSON library can alter, for types and defaults.
        """
        return {
            "domains": [_domain_to_json(domain) for domain in self.domains.values()],
            "constraints": [list(item) for item in self.constraints.items()],
            "tests": list(self.tests),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Outline":
        """Parse the JSON returned by `to_json`."""
        return cls(
            domains=_by_name(_domain_from_json(item) for item in data["domains"]),
            constraints=dict(data["constraints"]),
            tests=tuple(data["tests"]),
        )


_Named = TypeVar("_Named", Enumeration, Class, Collection, Singleton, Domain)


def _by_name(items: Iterable[_Named]) -> dict[str, _Named]:
    return {item.name: item for item in items}


def _domain_to_json(domain: Domain) -> dict[str, Any]:
    return {
        "name": domain.name,
        "enums": [
            {"name": e.name, "members": [list(member) for member in e.members], "doc": e.doc}
            for e in domain.enums.values()
        ],
        "classes": [
            {
                "name": c.name,
                "fields": [_field_to_json(field) for field in c.fields],
                "is_record": c.is_record,
                "doc": c.doc,
            }
            for c in domain.classes.values()
        ],
        "collections": [
            {
                "name": c.name,
                "class_name": c.class_name,
                "shards": [list(astuple(shard)) for shard in c.shards],
            }
            for c in domain.collections.values()
        ],
        "singletons": [list(astuple(s)) for s in domain.singletons.values()],
    }


def _field_to_json(field: Field) -> list[str | None]:
    default = None if field.default is REQUIRED else literal(field.default)
    stored = [field.name, format_type(field.type), default, field.original]
    while stored[-1] is None:
        stored.pop()
    return stored


def _domain_from_json(data: Mapping[str, Any]) -> Domain:
    return Domain(
        name=data["name"],
        enums=_by_name(
            Enumeration(e["name"], tuple((name, value) for name, value in e["members"]), e["doc"])
            for e in data["enums"]
        ),
        classes=_by_name(
            Class(c["name"], tuple(map(_field_from_json, c["fields"])), c["is_record"], c["doc"])
            for c in data["classes"]
        ),
        collections=_by_name(
            Collection(c["name"], c["class_name"], tuple(Shard(*shard) for shard in c["shards"]))
            for c in data["collections"]
        ),
        singletons=_by_name(Singleton(*singleton) for singleton in data["singletons"]),
    )


def _field_from_json(data: list[Any]) -> Field:
    name, type_, default, original = (*data, None, None)[:4]
    parsed = REQUIRED if default is None else parse_literal(default)
    return Field(name, parse_type(type_), parsed, original)
