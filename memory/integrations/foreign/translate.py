"""Translating a graph of foreign objects into edits and records."""

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal

from memory.integrations.foreign.graph import (
    ForeignError,
    Graph,
    Member,
    Node,
    Pointer,
    unsupported,
)
from memory.integrations.foreign.placement import Placement
from memory.integrations.foreign.plans import PlacedRecord, Plan
from memory.project.edits import AddField, DefineClass, Edit, FieldSpec
from memory.project.errors import EditError
from memory.project.names import (
    MAX_LENGTH,
    RESERVED_CLASSES,
    camel,
    check_class_name,
    check_enum_member,
    field_name_for,
    unused,
)
from memory.project.outline import REQUIRED
from memory.project.types import (
    ANY,
    NONE,
    UNKNOWN,
    ListOf,
    Named,
    RefTo,
    Scalar,
    Type,
    classes_in,
    format_type,
    is_optional,
    is_wider,
    map_names,
    optional,
    parse_type,
    parts,
    union,
    without_none,
)
from memory.project.values import EnumMember, PartialDate, Ref, Struct, Value


def translate(
    graph: Graph, domains: Mapping[str, str], sources: tuple[int, ...], taken: Collection[str] = ()
) -> Plan:
    """Return the plan for importing the graph's contents into a project.

    `domains` maps each module's file to its target domain, the records cite `sources`, and `taken`
    lists the project's existing domains. Raises ForeignError if the graph can't be imported.
    """
    if any(holding.module not in domains for holding in graph.holdings):
        raise ForeignError(
            "malformed", "the extracted project names a module that it does not contain"
        )
    for domain in sorted(set(domains.values())):
        if domain in taken:
            raise ForeignError(
                "domain_exists",
                f"the project already has a domain {domain!r}: import it for a user without a"
                " project, or rename the module",
            )
    placement = Placement(graph, domains)
    placement.place()
    return _Translation(placement, sources).plan()


class _Translation:
    def __init__(self, placement: Placement, sources: tuple[int, ...]) -> None:
        self.graph = placement.graph
        self.sources = sources
        self.homes = placement.homes
        self.order = placement.order
        self.taken = placement.taken
        self.record_classes = placement.record_classes
        self.names: dict[tuple[str, int], str] = {}
        self.enum_names: dict[tuple[str, int], str] = {}
        self.field_names: dict[int, dict[str, str]] = {}

    def plan(self) -> Plan:
        """Return the plan for the import."""
        members = self._members()
        schema = list(self._schema(members))
        records = [
            PlacedRecord(
                home := self.homes[number],
                self._class_name(home.domain, self.graph.objects[number].class_number),
                self._fields(number, home.domain),
            )
            for number in self.order
        ]
        counts = {
            "objects": len(self.graph.objects),
            "records": len(records),
            "classes": sum(isinstance(edit, DefineClass) for edit in schema),
        }
        return Plan(schema, records, self.sources, self.graph.notes, counts)

    # Translating names

    def _class_name(self, domain: str, number: int) -> str:
        if (domain, number) not in self.names:
            name = self.graph.classes[number].name
            new_name = self._new_class_name(domain, name)
            self.names[domain, number] = new_name
            if new_name != name and not self.graph.classes[number].is_made_up:
                self.graph.notes.add("renamed", name, f"is the class {domain}.{new_name}")
        return self.names[domain, number]

    def _enum_name(self, domain: str, number: int) -> str:
        if (domain, number) not in self.enum_names:
            name = self.graph.enums[number][0]
            new_name = self._new_class_name(domain, name)
            self.enum_names[domain, number] = new_name
            if new_name != name:
                self.graph.notes.add("renamed", name, f"is the enum {domain}.{new_name}")
        return self.enum_names[domain, number]

    def _new_class_name(self, domain: str, name: str) -> str:
        candidate = name.lstrip("_")[: MAX_LENGTH - 10]
        candidate = candidate[:1].upper() + candidate[1:]
        if candidate in RESERVED_CLASSES:
            candidate += "_"
        try:
            check_class_name(candidate)
        except EditError:
            candidate = camel(candidate) or "Item"
        candidate = unused(candidate, self.taken[domain])
        self.taken[domain].add(candidate)
        return candidate

    def _field_name(self, class_number: int, name: str) -> str:
        names = self.field_names.setdefault(class_number, {})
        if name not in names:
            class_name = self.graph.classes[class_number].name
            new_name = unused(field_name_for(name), set(names.values()))
            names[name] = new_name
            if new_name != name:
                self.graph.notes.add("renamed", f"{class_name}.{name}", f"is {new_name}")
        return names[name]

    # Translating classes

    def _members(self) -> dict[tuple[str, int], list[int]]:
        """Return the numbers of each class's objects, keyed by domain and class number."""
        members: dict[tuple[str, int], list[int]] = {}
        for number in self.order:
            domain = self.homes[number].domain
            pending = [number]
            while pending:
                one = pending.pop()
                members.setdefault((domain, self.graph.objects[one].class_number), []).append(one)
                for node in self.graph.objects[one].fields.values():
                    pending += [n for n in self.graph.pointers(node) if n not in self.homes]
        return members

    def _schema(self, members: Mapping[tuple[str, int], list[int]]) -> Iterator[Edit]:
        """Yield the edits that define the enums, then the classes, then the remaining fields.

        Each class comes after the classes it needs. The remaining fields are those that can't be
        defined along with their class because classes refer to each other.
        """
        types: dict[tuple[str, int], dict[str, Type]] = {}
        for (domain, class_number), numbers in members.items():
            self._class_name(domain, class_number)
            types[domain, class_number] = self._types(domain, class_number, numbers)
        enums = sorted(self.enum_names.items())
        for (domain, number), name in enums:
            yield DefineClass(
                domain, name, kind="enum", members=tuple(self._enum_members(number, name))
            )
        fields = {
            class_key: [self._spec(*class_key, name, type_) for name, type_ in by_name.items()]
            for class_key, by_name in types.items()
        }
        by_class = {
            (domain, self.names[domain, number]): (domain, number) for domain, number in types
        }
        defined: set[tuple[str, int]] = set()
        late: list[Edit] = []

        def needed_by(type_: Type, domain: str) -> list[tuple[str, int]]:
            parts = [name.rpartition(".") for name in sorted(classes_in(type_))]
            places = ((owner or domain, bare) for owner, _, bare in parts)
            return [by_class[one] for one in places if one in by_class]

        def define(key: tuple[str, int], path: tuple[tuple[str, int], ...]) -> Iterator[Edit]:
            if key in defined or key in path:
                return
            domain, number = key
            for type_ in types[key].values():
                for needed in needed_by(type_, domain):
                    yield from define(needed, (*path, key))
            defined.add(key)
            now = []
            for spec in fields[key]:
                if defined.issuperset(needed_by(parse_type(spec.type), domain)):
                    now.append(spec)
                    continue
                type_text, default = spec.type, spec.default
                if default is REQUIRED:
                    type_text, default = format_type(optional(parse_type(type_text))), None
                late.append(AddField(domain, self.names[key], spec.name, type_text, default))
            class_ = self.graph.classes[number]
            yield DefineClass(
                domain,
                self.names[key],
                tuple(now),
                "record" if number in self.record_classes else "object",
                doc=class_.doc,
            )

        for class_key in types:
            yield from define(class_key, ())
        yield from late

    def _types(self, domain: str, class_number: int, numbers: Iterable[int]) -> dict[str, Type]:
        """Return the types of a class's fields, based on their declarations and values."""
        class_ = self.graph.classes[class_number]
        observed: dict[str, list[Type]] = {name: [] for name, _, _ in class_.fields}
        present: Counter[str] = Counter()
        count = 0
        for number in numbers:
            count += 1
            for name, node in self.graph.objects[number].fields.items():
                present[name] += 1
                types = observed.setdefault(name, [])
                type_ = self._type(node, domain)
                if type_ not in types:
                    types.append(type_)
        declared = {name: annotation for name, annotation, _ in class_.fields}
        field_types = {}
        for name, types in observed.items():
            type_ = _settled(union(*types) if types else UNKNOWN)
            type_ = self._with_declared(type_, declared.get(name, ""), domain)
            if present[name] < count:  # some of the objects don't have this field
                type_ = optional(type_)
            field_types[self._field_name(class_number, name)] = type_
        return field_types

    def _type(self, node: Node, domain: str) -> Type:
        match node:
            case None:
                return NONE
            case Pointer(number):
                class_number = self.graph.objects[number].class_number
                home = self.homes.get(number)
                if home is None:
                    return Named(self._class_name(domain, class_number))
                return RefTo(self._reference(domain, home.domain, class_number))
            case Member(number, _):
                return Named(self._enum_name(domain, number))
            case Ref():
                return RefTo(self._target(node, domain)[0])
            case list():
                types: list[Type] = []
                for item in node:
                    type_ = self._type(item, domain)
                    if type_ not in types:
                        types.append(type_)
                return ListOf(union(*types) if types else UNKNOWN)
        return Scalar(_SCALARS[type(node)])

    def _reference(self, domain: str, target: str, class_number: int) -> str:
        name = self._class_name(target, class_number)
        return name if target == domain else f"{target}.{name}"

    def _target(self, ref: Ref, domain: str) -> tuple[str, str]:
        """Return the class and key of the record that a foreign project's reference points to."""
        matches = [
            (home.domain, self.graph.objects[number].class_number)
            for number, home in self.homes.items()
            if home.key == ref.key
            and self.graph.classes[self.graph.objects[number].class_number].name
            == ref.class_name.rpartition(".")[2]
        ]
        if not matches:
            raise ForeignError(
                "unknown_record",
                f"a reference names {ref.class_name} {ref.key!r}, which the project does not"
                " contain",
            )
        return self._reference(domain, *matches[0]), ref.key

    def _with_declared(self, type_: Type, annotation: str, domain: str) -> Type:
        """Widen a type to the declared type if the latter can be parsed and includes all values."""
        if not annotation:
            return type_
        try:
            declared = parse_type(annotation)
        except EditError:
            return type_
        if ANY in parts(declared):
            return type_
        classes = {
            self.graph.classes[number].name: (number, name)
            for (owner, number), name in self.names.items()
            if owner == domain
        }
        enums = {
            self.graph.enums[number][0]: name
            for (owner, number), name in self.enum_names.items()
            if owner == domain
        }
        fallback = optional(type_) if is_optional(declared) else type_
        known_names = enums.keys() | classes.keys()
        if any(
            isinstance(part, RefTo) or (isinstance(part, Named) and part.name not in known_names)
            for part in parts(declared)
        ):
            return fallback
        declared = map_names(
            declared, named=lambda name: enums[name] if name in enums else classes[name][1]
        )
        declared = _with_references(
            declared,
            {name for number, name in classes.values() if number in self.record_classes},
        )
        if type_ == NONE:
            return optional(declared)
        return declared if is_wider(declared, type_) else fallback

    def _spec(self, domain: str, class_number: int, name: str, type_: Type) -> FieldSpec:
        """Return a field's specification, including its declared default if the type allows it."""
        class_ = self.graph.classes[class_number]
        names = self.field_names[class_number]
        for original, _, default in class_.fields:
            if names.get(original) != name or not default:
                continue
            node = default[0]
            if node is None:
                return FieldSpec(name, format_type(optional(type_)), None)
            if isinstance(node, Member) and (domain, node.enum) not in self.enum_names:
                break
            if isinstance(node, list):
                is_list = isinstance(without_none(type_), ListOf)
                return FieldSpec(name, format_type(type_), [] if is_list else REQUIRED)
            held = self._type(node, domain)
            if without_none(type_) == held or (held != Scalar("str") and is_wider(type_, held)):
                return FieldSpec(name, format_type(type_), self._value(node, domain))
            break
        return FieldSpec(name, format_type(type_))

    def _enum_members(self, number: int, name: str) -> Iterator[tuple[str, str | int]]:
        """Yield an enum's members with their values, which must be distinct texts or integers."""
        _, members = self.graph.enums[number]
        if len({(type(value), value) for _, value in members if type(value) in (str, int)}) < len(
            members
        ):
            raise unsupported(name, "enum members whose values are not distinct texts or integers")
        for label, value in members:
            assert isinstance(value, str | int)
            yield self._member_name(number, label), value

    def _member_name(self, number: int, label: str) -> str:
        new_name = label
        try:
            check_enum_member(label, "enum")
        except EditError:
            new_name = f"{label.strip('_')}_"
            self.graph.notes.add(
                "renamed", f"{self.graph.enums[number][0]}.{label}", f"is {new_name}"
            )
        return new_name

    # Translating values

    def _fields(self, number: int, domain: str) -> dict[str, Value]:
        one = self.graph.objects[number]
        return {
            self._field_name(one.class_number, name): self._value(node, domain)
            for name, node in one.fields.items()
        }

    def _value(self, node: Node, domain: str) -> Value:
        match node:
            case Pointer(number):
                class_number = self.graph.objects[number].class_number
                home = self.homes.get(number)
                if home is None:
                    name = self._class_name(domain, class_number)
                    return Struct(name, self._fields(number, domain))
                return Ref(self._reference(domain, home.domain, class_number), home.key)
            case Member(number, name):
                return EnumMember(self._enum_name(domain, number), self._member_name(number, name))
            case Ref():
                return Ref(*self._target(node, domain))
            case list():
                return [self._value(item, domain) for item in node]
        return node


_SCALARS: Mapping[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Decimal: "decimal.Decimal",
    datetime.date: "datetime.date",
    datetime.datetime: "datetime.datetime",
    datetime.time: "datetime.time",
    PartialDate: "PartialDate",
}


def _settled(type_: Type) -> Type:
    """Merge a union's list types: `list[int | str]` is easier to read than two list types."""
    lists = [part for part in getattr(type_, "members", ()) if isinstance(part, ListOf)]
    if len(lists) < 2:
        return type_
    others = [part for part in type_.members if not isinstance(part, ListOf)]  # type: ignore[union-attr]
    return union(*others, ListOf(union(*(part.element for part in lists))))


def _with_references(type_: Type, records: Collection[str]) -> Type:
    """Return the type with each record class replaced by a reference to it."""
    match type_:
        case Named(name) if name in records:
            return RefTo(name)
        case ListOf(element):
            return ListOf(_with_references(element, records))
    if hasattr(type_, "members"):
        return union(*(_with_references(member, records) for member in type_.members))
    return type_
