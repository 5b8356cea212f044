"""Translation of a graph of foreign objects into edits and records."""

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from memory.project.apply import apply
from memory.project.conform import normal_fields
from memory.project.edits import Add, AddField, DefineClass, Edit, FieldSpec
from memory.project.errors import EditError
from memory.project.foreign.graph import (
    ForeignClass,
    ForeignError,
    ForeignObject,
    Graph,
    Member,
    ModuleValue,
    Node,
    Notes,
    Pointer,
    is_key,
)
from memory.project.foreign.layout import is_lower
from memory.project.literals import Uses, record_literal
from memory.project.model import Project
from memory.project.names import (
    MAX_LENGTH,
    RESERVED_CLASSES,
    camel,
    check_class_name,
    check_enum_member,
    default_collection,
    escape_field_name,
    snake,
    unused,
)
from memory.project.outline import REQUIRED
from memory.project.types import (
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
from memory.project.values import (
    EnumMember,
    PartialDate,
    Record,
    RecordId,
    Ref,
    Struct,
    Value,
)


@dataclass
class _Home:
    """The target of an object: a collection or singleton of a domain, and its key there."""

    domain: str
    holder: str
    key: str
    singleton: bool


@dataclass(frozen=True)
class _Placed:
    """A record to be added."""

    home: _Home
    class_name: str
    fields: Mapping[str, Value]


@dataclass
class Plan:
    """The edits of the schema, and the records, that import a foreign project."""

    schema: list[Edit]
    records: list[_Placed]
    sources: tuple[int, ...]
    notes: Notes
    counts: dict[str, int]

    def carry_out(self, project: Project) -> list[Edit]:
        """Apply the plan to a project; return the edits. EditError leaves it half changed.

        The records are then exactly those that were read: an edit would take a text that looks like
        a date for a date if a field has several types, and this does not.
        """
        done = list(self.schema)
        for edit in self.schema:
            apply(project, edit)
        for placed in self.records:
            home = placed.home
            class_ = project.outline.domains[home.domain].classes[placed.class_name]
            fields = _normal(placed.fields, class_.name, project, home.domain)
            add = Add(
                domain=home.domain,
                class_name=placed.class_name,
                fields=fields,
                sources=self.sources,
                key=home.key,
                collection=home.holder,
                singleton=home.singleton,
            )
            apply(project, add)
            done.append(add)
            record_id = RecordId(home.domain, home.holder, home.key)
            exact = Record(placed.class_name, home.key, fields, self.sources)
            written = project.record(record_id)
            assert written, "it was added a moment ago"
            if record_literal(written, Uses()) != record_literal(exact, Uses()):
                project.replace(record_id, exact)
        return done


def _normal(
    fields: Mapping[str, Value], class_name: str, project: Project, domain: str
) -> dict[str, Value]:
    """Return fields, and those of nested objects, in order and without defaults."""
    class_ = project.outline.domains[domain].classes[class_name]

    def inner(value: Value) -> Value:
        if isinstance(value, list):
            return [inner(item) for item in value]
        if isinstance(value, Struct):
            return Struct(
                value.class_name, _normal(value.fields, value.class_name, project, domain)
            )
        return value

    return normal_fields({name: inner(value) for name, value in fields.items()}, class_)


def translate(
    graph: Graph, domains: Mapping[str, str], sources: tuple[int, ...], taken: Collection[str] = ()
) -> Plan:
    """Return the plan that brings the contents of the graph into a project.

    `domains` maps the file of each module to its target domain; the records cite `sources`; `taken`
    are the existing domains. Raises ForeignError.
    """
    if any(holding.module not in domains for holding in graph.holdings):
        raise ForeignError("malformed", "what was read of the project names a module it has not")
    for domain in sorted(set(domains.values())):
        if domain in taken:
            raise ForeignError(
                "domain_exists",
                f"the project has a domain {domain!r} already: import into a user who has none, or"
                " rename the module",
            )
    return _Translation(graph, domains, sources).plan()


class _Translation:
    def __init__(self, graph: Graph, domains: Mapping[str, str], sources: tuple[int, ...]) -> None:
        self.graph = graph
        self.domains = domains
        self.sources = sources
        self.homes: dict[int, _Home] = {}
        self.order: list[int] = []
        self.taken: dict[str, set[str]] = {domain: set() for domain in domains.values()}
        self.keys: set[tuple[int, str]] = set()
        self.variables: dict[str, dict[str, Node]] = {}
        self.names: dict[tuple[str, int], str] = {}
        self.enum_names: dict[tuple[str, int], str] = {}
        self.field_names: dict[int, dict[str, str]] = {}
        self.record_classes = self._record_classes()

    def plan(self) -> Plan:
        """Return the plan."""
        rest = self._place_collections()
        self._place_names(rest)
        self._place_others()
        self._gather_variables()
        members = self._members()
        schema = list(self._schema(members))
        records = [
            _Placed(
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

    # Record classes

    def _record_classes(self) -> set[int]:
        """Return the classes that become record classes.

        These are the classes of objects that a module holds, that more than one object holds, or
        that can contain themselves.
        """
        graph = self.graph
        found = {n for n, class_ in enumerate(graph.classes) if class_.is_record}
        for holding in graph.holdings:
            numbers = [p.number for p in _direct(holding.node)]
            found |= {
                graph.objects[n].class_number
                for n in numbers
                if isinstance(holding.node, Pointer)
                or _is_uniform(graph, holding.node)
                or not graph.classes[graph.objects[n].class_number].is_made_up
            }
        held: Counter[int] = Counter()
        edges: dict[int, set[int]] = {}
        for one in graph.objects:
            for number in {n for node in one.fields.values() for n in graph.pointers(node)}:
                held[number] += 1
                edges.setdefault(one.class_number, set()).add(graph.objects[number].class_number)
        found |= {graph.objects[n].class_number for n, times in held.items() if times > 1}
        return found | _in_cycles(edges)

    # Placing objects

    def _place_collections(self) -> list[ModuleValue]:
        """Place the members of collections; return the other holdings."""
        graph = self.graph
        rest = []
        bound: dict[int, str] = {}
        for holding in graph.holdings:
            if isinstance(holding.node, Pointer):
                bound.setdefault(holding.node.number, holding.name)
        for holding in graph.holdings:
            node = holding.node
            numbers = [p.number for p in _direct(node)] if isinstance(node, list) else []
            if (
                not _is_uniform(graph, node)
                or len(set(numbers)) < len(numbers)
                or any(number in self.homes for number in numbers)
            ):
                rest.append(holding)
                continue
            domain = self.domains[holding.module]
            name = self._holder(domain, holding.name)
            keys = self._keys(name, numbers, holding.keys, bound)
            self._settle_all(domain, name, numbers, keys)
        return rest

    def _keys(
        self, name: str, numbers: list[int], given: Sequence[str], bound: dict[int, str]
    ) -> list[str]:
        """Return a key for each object of a collection, all different."""
        objects = [self.graph.objects[number] for number in numbers]
        own = [one.key for one in objects]
        if all(key is not None for key in own):
            keys = [str(key) for key in own]
            double = [key for key, times in Counter(keys).items() if times > 1]
            if double:
                raise ForeignError(
                    "key_exists",
                    f"{name} has {Counter(keys)[double[0]]} records with the key {double[0]!r}:"
                    " give each its own",
                )
            return keys
        if given:
            return list(given)
        class_name = snake(self.graph.classes[objects[0].class_number].name) or "item"
        ids = [one.fields.get("id") for one in objects]
        plain = [i for i in ids if type(i) is int or (isinstance(i, str) and is_key(i))]
        if len(plain) == len(objects):
            if len({str(i) for i in plain}) == len(plain):
                return [str(i) if isinstance(i, str) else f"{class_name}-{i}" for i in plain]
            double_id = Counter(map(str, plain)).most_common(1)[0][0]
            self.graph.notes.add(
                "keyed", name, f"several objects have the id {double_id!r}: keyed by their order"
            )
        keys = []
        used = {bound[number] for number in numbers if number in bound}
        for position, number in enumerate(numbers, 1):
            key = bound.pop(number, "")
            if not key or key in keys:
                key = unused(f"{class_name}-{position}", used)
            used.add(key)
            keys.append(key)
        return keys

    def _place_names(self, rest: Sequence[ModuleValue]) -> None:
        """Place named objects; a value that is no record of its own goes to the variables."""
        for holding in rest:
            domain = self.domains[holding.module]
            node = holding.node
            number = node.number if isinstance(node, Pointer) else None
            class_number = self.graph.objects[number].class_number if number is not None else None
            if number is None or class_number not in self.record_classes:
                self._keep_variable(domain, holding.name, node)
            elif number not in self.homes:
                name = self._holder(domain, holding.name)
                key = self.graph.objects[number].key or name
                self._settle(number, _Home(domain, name, key, singleton=True))
        for holding in self.graph.holdings:  # a second name of a record
            if not isinstance(holding.node, Pointer) or holding.node.number not in self.homes:
                continue
            home = self.homes[holding.node.number]
            if holding.name not in (home.key, home.holder) and not (
                home.singleton and home.holder == self._lower(holding.name)
            ):
                self._keep_variable(self.domains[holding.module], holding.name, holding.node)

    def _keep_variable(self, domain: str, name: str, node: Node) -> None:
        """Keep a named value among the variables; two modules of a domain may share the name."""
        values = self.variables.setdefault(domain, {})
        found = unused(name, values)
        values[found] = node
        if found != name:
            self.graph.notes.add("renamed", name, f"is {domain}.variables.{found}")

    def _place_others(self) -> None:
        """Place records that no name and no collection holds into a collection of their class."""
        graph = self.graph
        overflow: dict[tuple[str, int], tuple[str, list[int]]] = {}
        pending = [(holding.node, self.domains[holding.module]) for holding in graph.holdings]
        seen: set[int] = set()
        for node, domain in pending:
            for number in graph.pointers(node):
                if number in seen:
                    continue
                seen.add(number)
                one = graph.objects[number]
                home = self.homes.get(number)
                place = home.domain if home else domain
                pending += [(value, place) for value in one.fields.values()]
                if home is None and one.class_number in self.record_classes:
                    where = (domain, one.class_number)
                    if where not in overflow:
                        name = default_collection(graph.classes[one.class_number].name)
                        overflow[where] = (self._holder(domain, name, note=False), [])
                    overflow[where][1].append(number)
        for (domain, _), (name, numbers) in overflow.items():
            self._settle_all(domain, name, numbers, self._keys(name, numbers, (), {}))

    def _gather_variables(self) -> None:
        """Make one record of the values that a domain's modules hold besides records."""
        for domain, values in self.variables.items():
            name = self._holder(domain, "variables", note=False)
            number = len(self.graph.objects)
            declared: list[tuple[str, str, list[Node]]] = [(field_, "", []) for field_ in values]
            class_ = ForeignClass(
                "Variables", doc="What the imported modules held by name.", fields=declared
            )
            self.graph.classes.append(class_)
            class_number = len(self.graph.classes) - 1
            self.record_classes.add(class_number)
            self.graph.objects.append(ForeignObject(class_number, dict(values)))
            self._settle(number, _Home(domain, name, name, singleton=True))

    def _settle_all(
        self, domain: str, name: str, numbers: Sequence[int], keys: Sequence[str]
    ) -> None:
        """Place the objects of a collection.

        A reference names the class and the key, but not the collection: so a key that a record of
        the class in another collection has is prefixed with the collection's name.
        """
        for number, key in zip(numbers, keys, strict=True):
            one = self.graph.objects[number]
            found = key
            if one.key is None and (one.class_number, key) in self.keys:
                found = f"{name}-{key}"
                self.graph.notes.add(
                    "keyed", name, f"keys begin with {name}-, since others have them"
                )
            self._settle(number, _Home(domain, name, found, singleton=False))

    def _settle(self, number: int, home: _Home) -> None:
        self.keys.add((self.graph.objects[number].class_number, home.key))
        if not is_key(home.key):
            raise ForeignError(
                "bad_key", f"{home.holder} has a record with the key {home.key!r:.80}"
            )
        self.homes[number] = home
        self.order.append(number)

    # Names

    def _lower(self, name: str) -> str:
        found = name.lstrip("_").lower() or "value"
        if not is_lower(found):
            found = f"{found[: MAX_LENGTH - 10].rstrip('_')}_"
        return found if is_lower(found) else "value"

    def _holder(self, domain: str, name: str, *, note: bool = True) -> str:
        """Return the name of a new collection or singleton."""
        found = unused(self._lower(name), self.taken[domain])
        self.taken[domain].add(found)
        if note and found != name:
            self.graph.notes.add("renamed", name, f"is {domain}.{found}")
        return found

    def _class_name(self, domain: str, number: int) -> str:
        if (domain, number) not in self.names:
            name = self.graph.classes[number].name
            found = self._new_class_name(domain, name)
            self.names[domain, number] = found
            if found != name and not self.graph.classes[number].is_made_up:
                self.graph.notes.add("renamed", name, f"is the class {domain}.{found}")
        return self.names[domain, number]

    def _enum_name(self, domain: str, number: int) -> str:
        if (domain, number) not in self.enum_names:
            name = self.graph.enums[number][0]
            found = self._new_class_name(domain, name)
            self.enum_names[domain, number] = found
            if found != name:
                self.graph.notes.add("renamed", name, f"is the enum {domain}.{found}")
        return self.enum_names[domain, number]

    def _new_class_name(self, domain: str, name: str) -> str:
        found = name.lstrip("_")[: MAX_LENGTH - 10]
        found = found[:1].upper() + found[1:]
        if found in RESERVED_CLASSES:
            found += "_"
        try:
            check_class_name(found)
        except EditError:
            found = camel(found) or "Item"
        found = unused(found, self.taken[domain])
        self.taken[domain].add(found)
        return found

    def _field_name(self, class_number: int, name: str) -> str:
        known = self.field_names.setdefault(class_number, {})
        if name not in known:
            class_name = self.graph.classes[class_number].name
            try:
                found = escape_field_name(name, class_name)
            except EditError:
                found = "field"
            found = unused(found, set(known.values()))
            known[name] = found
            if found != name:
                self.graph.notes.add("renamed", f"{class_name}.{name}", f"is {found}")
        return known[name]

    # Classes

    def _members(self) -> dict[tuple[str, int], list[int]]:
        """Return the objects of each class, by the domain that they are in."""
        found: dict[tuple[str, int], list[int]] = {}
        for number in self.order:
            domain = self.homes[number].domain
            pending = [number]
            while pending:
                one = pending.pop()
                found.setdefault((domain, self.graph.objects[one].class_number), []).append(one)
                for node in self.graph.objects[one].fields.values():
                    pending += [n for n in self.graph.pointers(node) if n not in self.homes]
        return found

    def _schema(self, members: Mapping[tuple[str, int], list[int]]) -> Iterator[Edit]:
        """Define the enums, then each class after those that it contains or refers to."""
        fields: dict[tuple[str, int], list[FieldSpec]] = {}
        types: dict[tuple[str, int], dict[str, Type]] = {}
        for (domain, class_number), numbers in members.items():
            self._class_name(domain, class_number)
            types[domain, class_number] = self._types(domain, class_number, numbers)
        enums = sorted(self.enum_names.items())
        for (domain, number), name in enums:
            yield DefineClass(
                domain, name, kind="enum", members=tuple(self._enum_members(number, name))
            )
        for place, by_name in types.items():
            fields[place] = [self._spec(*place, name, type_) for name, type_ in by_name.items()]
        by_class = {
            (domain, self.names[domain, number]): (domain, number) for domain, number in types
        }
        defined: set[tuple[str, int]] = set()
        late: list[Edit] = []

        def define(place: tuple[str, int], path: tuple[tuple[str, int], ...]) -> Iterator[Edit]:
            if place in defined or place in path:
                return
            domain, number = place
            for type_ in types[place].values():
                for name in sorted(classes_in(type_)):
                    owner, _, bare = name.rpartition(".")
                    needed = by_class.get((owner or domain, bare))
                    if needed is not None:
                        yield from define(needed, (*path, place))
            defined.add(place)
            now = []
            for spec in fields[place]:
                needs = {
                    by_class.get((name.rpartition(".")[0] or domain, name.rpartition(".")[2]))
                    for name in classes_in(parse_type(spec.type))
                } - {None}
                if needs <= defined:
                    now.append(spec)
                    continue
                if spec.default is REQUIRED:
                    spec = FieldSpec(spec.name, format_type(optional(parse_type(spec.type))))
                late.append(
                    AddField(domain, self.names[place], spec.name, spec.type, _or_none(spec))
                )
            class_ = self.graph.classes[number]
            yield DefineClass(
                domain,
                self.names[place],
                tuple(now),
                "record" if number in self.record_classes else "object",
                doc=class_.doc,
            )

        for place in types:
            yield from define(place, ())
        yield from late

    def _types(self, domain: str, class_number: int, numbers: Iterable[int]) -> dict[str, Type]:
        """Return the types of a class's fields, from its objects' values and the declarations."""
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
        found = {}
        for name, types in observed.items():
            type_ = _settled(union(*types) if types else UNKNOWN)
            type_ = self._with_declared(type_, declared.get(name, ""), domain)
            if present[name] < count:  # not all of them have it
                type_ = optional(type_)
            found[self._field_name(class_number, name)] = type_
        return found

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
        """Return the class and key that a reference of the foreign project means."""
        found = [
            (home.domain, self.graph.objects[number].class_number)
            for number, home in self.homes.items()
            if home.key == ref.key
            and self.graph.classes[self.graph.objects[number].class_number].name
            == ref.class_name.rpartition(".")[2]
        ]
        if not found:
            raise ForeignError(
                "unknown_record",
                f"a reference names {ref.class_name} {ref.key!r}, which the project does not hold",
            )
        return self._reference(domain, *found[0]), ref.key

    def _with_declared(self, type_: Type, annotation: str, domain: str) -> Type:
        """Widen a type to its declaration, as far as that is clear and safe."""
        if not annotation:
            return type_
        try:
            declared = parse_type(annotation)
        except EditError:
            return type_
        classes = {
            self.graph.classes[number].name: (number, name)
            for (place, number), name in self.names.items()
            if place == domain
        }
        enums = {
            self.graph.enums[number][0]: name
            for (place, number), name in self.enum_names.items()
            if place == domain
        }

        def known(name: str) -> bool:
            return name in enums or name in classes

        if not all(known(p.name) for p in parts(declared) if isinstance(p, Named)):
            return optional(type_) if is_optional(declared) else type_
        if any(isinstance(part, RefTo) for part in parts(declared)):
            return optional(type_) if is_optional(declared) else type_
        declared = map_names(
            declared, named=lambda name: enums[name] if name in enums else classes[name][1]
        )
        declared = _with_references(
            declared,
            {name for number, name in classes.values() if number in self.record_classes},
        )
        if type_ == NONE:
            return optional(declared)
        if is_wider(declared, type_):
            return declared
        return optional(type_) if is_optional(declared) else type_

    def _spec(self, domain: str, class_number: int, name: str, type_: Type) -> FieldSpec:
        """Return a field with the default that its author gave it, if it is valid here."""
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
                return FieldSpec(name, format_type(type_), *([[]] if _is_list(type_) else []))
            held = self._type(node, domain)
            if without_none(type_) == held or (held != Scalar("str") and is_wider(type_, held)):
                return FieldSpec(name, format_type(type_), self._value(node, domain))
            break
        return FieldSpec(name, format_type(type_))

    def _enum_members(self, number: int, name: str) -> Iterator[tuple[str, str | int]]:
        """Yield an enum's members with their values, or their names if a value is invalid here."""
        _, members = self.graph.enums[number]
        values = [value for _, value in members]
        plain = all(type(value) in (str, int) for value in values)
        distinct = len({(type(value), str(value)) for value in values}) == len(values)
        if not plain or not distinct:
            self.graph.notes.add(
                "converted", name, "values of the enum to the names of its members"
            )
        for label, value in members:
            if plain and distinct and isinstance(value, str | int):
                yield self._member_name(number, label), value
            else:
                yield self._member_name(number, label), label

    def _member_name(self, number: int, label: str) -> str:
        found = label
        try:
            check_enum_member(label, "enum")
        except EditError:
            found = f"{label.strip('_')}_"
            self.graph.notes.add("renamed", f"{self.graph.enums[number][0]}.{label}", f"is {found}")
        return found

    # Values

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


def _direct(node: Node) -> list[Pointer]:
    """Return the object that a name holds, or those of its list."""
    if isinstance(node, Pointer):
        return [node]
    return [item for item in node if isinstance(item, Pointer)] if isinstance(node, list) else []


def _is_list(type_: Type) -> bool:
    return isinstance(without_none(type_), ListOf)


def _is_uniform(graph: Graph, node: Node) -> bool:
    """Tell whether a value is a non-empty list of objects of one class."""
    if not isinstance(node, list) or not node:
        return False
    pointers = _direct(node)
    return (
        len(pointers) == len(node)
        and len({graph.objects[pointer.number].class_number for pointer in pointers}) == 1
    )


def _in_cycles(edges: Mapping[int, Collection[int]]) -> set[int]:
    """Return the nodes that lie on a cycle."""
    found = set()
    for start in edges:
        pending, seen = list(edges[start]), set()
        while pending:
            node = pending.pop()
            if node == start:
                found.add(start)
                break
            if node not in seen:
                seen.add(node)
                pending += edges.get(node, ())
    return found


def _settled(type_: Type) -> Type:
    """Merge the lists of a union, since `list[int] | list[str]` is harder to read than to widen."""
    lists = [part for part in getattr(type_, "members", ()) if isinstance(part, ListOf)]
    if len(lists) < 2:
        return type_
    others = [part for part in type_.members if not isinstance(part, ListOf)]  # type: ignore[union-attr]
    return union(*others, ListOf(union(*(part.element for part in lists))))


def _with_references(type_: Type, records: Collection[str]) -> Type:
    """Return the type with a reference in place of every record class."""
    match type_:
        case Named(name) if name in records:
            return RefTo(name)
        case ListOf(element):
            return ListOf(_with_references(element, records))
    if hasattr(type_, "members"):
        return union(*(_with_references(member, records) for member in type_.members))
    return type_


def _or_none(spec: FieldSpec) -> object:
    return None if spec.default is REQUIRED else spec.default
