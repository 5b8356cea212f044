"""Foreign projects: from the objects that executing one gave to the edits that make it ours.

What comes in is the graph that `sandbox_image.foreign` reads, which the foreign code may have
forged: nothing of it is trusted. What goes out are edits, exact records, and a report of all that
is otherwise afterwards: a name that could not stay, a set that became a list.

    layout(files)                           # which modules hold state, and for which domain
    graph = read(data)                      # ForeignError: no graph, or nothing in it
    plan = translate(graph, domains, sources)
    notes = plan.carry_out(project)         # EditError: refused

Where an object goes:
- what a module-level list or dictionary of one class holds is a collection, under that name;
- what a module-level name holds is a singleton, unless it is in a collection: then the name is its
  key there;
- a class that is held so anywhere is one of records, and what refers to its objects elsewhere
  becomes a reference; all other objects are parts of the records that hold them;
- whatever else a module holds is a field of one record, `variables`.
"""

import base64
import datetime
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from memory.project.apply import apply
from memory.project.conform import normal_fields
from memory.project.edits import Add, AddField, DefineClass, Edit, FieldSpec
from memory.project.errors import EditError
from memory.project.legacy import is_old_constraint
from memory.project.literals import Uses, record_literal
from memory.project.model import Project
from memory.project.names import (
    MAX_LENGTH,
    RESERVED_CLASSES,
    camel,
    check_class_name,
    check_enum_member,
    check_key,
    check_lower_name,
    default_collection,
    escape_field_name,
    singular,
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

# Of one dictionary whose keys can be the fields of a class.
MAX_FIELDS = 60
# Of an integer that a field can hold.
MAX_DIGITS = 300
# Of dictionaries in one place with other keys each, before they become lists of entries.
MAX_SHAPES = 8
MAX_NOTES = 500


class ForeignError(Exception):
    """A foreign project that cannot be imported; the message says why, and what would help."""

    def __init__(self, code: str, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.path = path


# The layout


@dataclass(frozen=True)
class Layout:
    """What the files of a foreign project are.

    `modules` are those that hold state, each with the domain that it goes to; `constraints` those
    that today's constraints can stay, by name; `keeps_old` tells that there are old ones.
    """

    modules: Mapping[str, str]
    constraints: Mapping[str, str]
    keeps_old: bool


def layout(files: Mapping[str, str]) -> Layout:
    """Tell what the files of a project are, whatever its folders are called."""
    old = {path for path, source in files.items() if is_old_constraint(source)}
    modules, constraints = {}, {}
    for path in sorted(files):
        *folders, name = path.removesuffix(".py").split("/")
        if {"tests", "test"} & set(folders) or name.startswith("test_") or name in _NO_STATE:
            continue
        if folders[-1:] == ["constraints"]:
            if path not in old:
                constraints[name] = path
        elif path != "manifest.py":
            modules[path] = _domain_name(folders, name)
    return Layout(modules, constraints, bool(old))


_NO_STATE = {"__init__", "conftest", "setup"}
# Files that are named for what they hold, in a folder that is named for what it is about.
_PARTS = {"state", "schema", "data", "models", "types"}


def _domain_name(folders: Sequence[str], name: str) -> str:
    if "domains" in folders[:-1]:
        found = folders[folders.index("domains") + 1]
    else:
        found = folders[-1] if folders and name in _PARTS else name
    found = re.sub(r"\W+", "_", found.lower()).strip("_") or "imported"
    found = found[: MAX_LENGTH - 10]
    for candidate in (found, f"{found}_", f"imported_{found}"):
        if _is_lower(candidate):
            return candidate
    return "imported"


# The graph


@dataclass(frozen=True)
class Pointer:
    """One object of the graph, by its number."""

    number: int


@dataclass(frozen=True)
class Member:
    """A member of an enum, by the enum's number."""

    enum: int
    name: str


Node: TypeAlias = "Value | Pointer | Member | list[Node]"


@dataclass
class ForeignClass:
    """A class of the foreign project, or one that its dictionaries of one form amount to."""

    name: str
    is_record: bool = False
    doc: str = ""
    fields: list[tuple[str, str, list[Node]]] = field(default_factory=list)
    is_made_up: bool = False


@dataclass
class ForeignObject:
    """An object: its class, its fields, and its key if it is a record of this very library."""

    class_number: int
    fields: dict[str, Node]
    key: str | None = None


@dataclass(frozen=True)
class Holding:
    """What a module holds under a name. `keys` are those of a dictionary of objects."""

    module: str
    name: str
    node: Node
    annotation: str = ""
    keys: tuple[str, ...] = ()


@dataclass
class Graph:
    """All that the modules hold."""

    classes: list[ForeignClass]
    enums: list[tuple[str, list[tuple[str, Node]]]]
    objects: list[ForeignObject]
    holdings: list[Holding]
    notes: "Notes"

    def pointers(self, node: Node) -> Iterator[int]:
        """Walk over the objects that a value holds itself, not those within these."""
        if isinstance(node, Pointer):
            yield node.number
        elif isinstance(node, list):
            for item in node:
                yield from self.pointers(item)


class Notes:
    """What is otherwise after an import: kind and place, each said once, with how often."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, kind: str, place: str, message: str) -> None:
        """Note that something changed its form or name, or was left out."""
        self._counts[kind, place, message] += 1

    def to_json(self) -> list[dict[str, Any]]:
        """Return the notes in the order in which they came up."""
        return [
            {"kind": kind, "place": place, "message": message, "count": count}
            for (kind, place, message), count in list(self._counts.items())[:MAX_NOTES]
        ]


def read(data: Mapping[str, Any]) -> Graph:
    """Read the graph that came from a sandbox; raises ForeignError if it is none, or empty."""
    try:
        graph = _Decoder(data).graph()
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, RecursionError) as error:
        raise ForeignError(
            "malformed", f"what was read of the project makes no sense: {error!r:.200}"
        ) from None
    if not graph.holdings:
        raise ForeignError(
            "no_objects",
            "executing it leaves no typed objects: bind instances of dataclasses, lists of them,"
            " or dictionaries to names of a module",
        )
    return graph


class _Decoder:
    """Turns the JSON of a graph into nodes; dictionaries become objects of classes made up."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.notes = Notes()
        self.classes = [
            ForeignClass(
                name=_string(c["name"]), is_record=c["is_record"] is True, doc=_string(c["doc"])
            )
            for c in data["classes"]
        ]
        self.objects: list[ForeignObject] = []
        self._enums = len(data["enums"])
        self._shapes: dict[tuple[str, tuple[str, ...]], int] = {}
        self._forms: Counter[str] = Counter()
        self._made_up: list[ForeignObject] = []

    def graph(self) -> Graph:
        """Return the graph."""
        number_of_objects = len(self.data["objects"])
        enums = []
        for one in self.data["enums"]:
            name = _string(one["name"])
            members = [(_string(label), self.node(value, name)) for label, value in one["members"]]
            enums.append((name, members))
        for class_, told in zip(self.classes, self.data["classes"], strict=True):
            class_.fields = [
                (
                    _string(name),
                    _string(annotation),
                    [self.node(value, f"{class_.name}.{name}") for value in default],
                )
                for name, annotation, default in told["fields"]
            ]
        decoded = []
        for class_number, fields, key in self.data["objects"]:
            class_name = self.classes[_index(class_number, self.classes)].name
            values = {
                _string(name): self.node(value, f"{class_name}.{name}") for name, value in fields
            }
            decoded.append(
                ForeignObject(class_number, values, None if key is None else _string(key))
            )
        holdings = [
            self._holding(_string(module["path"]), _string(name), value, _string(annotation))
            for module in self.data["modules"]
            for name, value, annotation in module["names"]
        ]
        assert len(decoded) == number_of_objects
        return Graph(
            self.classes,
            enums,
            [*decoded, *self._made_up],
            [holding for holding in holdings if holding is not None],
            self.notes,
        )

    def _holding(self, path: str, name: str, value: Any, annotation: str) -> Holding | None:
        if isinstance(value, list) and value[0] == "opaque":
            self.notes.add("left_out", name, f"a {_string(value[1][0])} is no data")
            return None
        if isinstance(value, list) and value[0] == "dict" and len(value[1]) > 0:
            keys = [key for key, _ in value[1]]
            nodes = [item for _, item in value[1]]
            objects = all(isinstance(item, list) and item[0] == "object" for item in nodes)
            distinct = len({str(item) for item in nodes}) == len(nodes)
            if objects and distinct and all(isinstance(key, str) and _is_key(key) for key in keys):
                items: list[Node] = [self.node(item, name) for item in nodes]
                numbers = [item.number for item in items if isinstance(item, Pointer)]
                classes = {str(self.data["objects"][number][0]) for number in numbers}
                if len(classes) == 1:
                    self.notes.add("converted", name, "dict to collection: its keys are the keys")
                    return Holding(path, name, items, annotation, tuple(keys))
        return Holding(path, name, self.node(value, name), annotation)

    def node(self, value: Any, place: str) -> Node:
        """Return what a value of the graph's JSON stands for."""
        if value is None or type(value) in (bool, int, str):
            return value  # type: ignore[no-any-return]
        if type(value) is float:
            return value
        kind, content = value
        match kind:
            case "object":
                return Pointer(_index(content, self.data["objects"]))
            case "enum":
                number, name = content
                return Member(_index(number, self.data["enums"]), _string(name))
            case "list":
                return [self.node(item, place) for item in content]
            case "tuple" | "set" | "range":
                ordered = ", in sorted order" if kind == "set" else ""
                self.notes.add("converted", place, f"{kind} to list{ordered}")
                return [self.node(item, place) for item in content]
            case "dict":
                return self._dictionary(content, place)
            case "int":
                return self._integer(_string(content), place)
            case "decimal":
                return self._decimal(_string(content), place)
            case "date":
                return datetime.date.fromisoformat(content)
            case "datetime":
                return datetime.datetime.fromisoformat(content)
            case "zoned":
                text, zone = content
                message = f"a moment in {_string(zone)} to its offset from UTC"
                self.notes.add("converted", place, message)
                return datetime.datetime.fromisoformat(text)
            case "time":
                return datetime.time.fromisoformat(content)
            case "partial_date":
                return PartialDate(_string(content))
            case "ref":
                class_name, key = content
                return Ref(_string(class_name), _string(key))
            case "float":
                return self._made("Number", {"text": _string(content)}, place, "float")
            case "duration":
                days, seconds, microseconds = map(int, content)
                fields: dict[str, Node] = {
                    "days": days,
                    "seconds": seconds,
                    "microseconds": microseconds,
                }
                return self._made("Duration", fields, place, "timedelta")
            case "bytes":
                base64.b64decode(content, validate=True)
                return self._made("Bytes", {"base64": _string(content)}, place, "bytes")
            case "opaque":
                class_name, text = content
                self.notes.add("converted", place, f"{_string(class_name)} to its text")
                return _string(text)
        raise ValueError(f"no kind of value: {kind!r}")

    def _integer(self, text: str, place: str) -> Node:
        if len(text) > MAX_DIGITS:
            return self._made("Number", {"text": text}, place, "int")
        return int(text)

    def _decimal(self, text: str, place: str) -> Node:
        number = Decimal(text)
        if number.is_finite():
            return number
        return self._made("Number", {"text": text}, place, "Decimal")

    def _made(self, name: str, fields: dict[str, Node], place: str, kind: str) -> Pointer:
        self.notes.add("converted", place, f"{kind} to an object {name}")
        return self._object(name, fields)

    def _dictionary(self, pairs: Any, place: str) -> Node:
        """Return an object with the keys as fields, or a list of entries where that cannot be."""
        name = _class_of_place(place)
        keys = tuple(key if isinstance(key, str) else None for key, _ in pairs)
        named = tuple(key for key in keys if key is not None and _is_field(key))
        shape = (name, tuple(sorted(named)))
        if 0 < len(named) == len(keys) <= MAX_FIELDS and (
            shape in self._shapes or self._forms[name] < MAX_SHAPES
        ):
            self.notes.add("converted", place, "dict to an object")
            fields = {key: self.node(item, f"{place}.{key}") for key, item in pairs}
            return self._object(name, fields)
        self.notes.add("converted", place, "dict to a list of entries")
        entries: list[Node] = [
            self._object(
                f"{name}Entry",
                {
                    "name": self.node(key, f"{place}.name"),
                    "value": self.node(item, f"{place}.value"),
                },
            )
            for key, item in pairs
        ]
        return entries

    def _object(self, name: str, fields: dict[str, Node]) -> Pointer:
        shape = (name, tuple(sorted(fields)))
        if shape not in self._shapes:
            self._forms[name] += 1
            self._shapes[shape] = len(self.classes)
            declared: list[tuple[str, str, list[Node]]] = [(field_, "", []) for field_ in fields]
            self.classes.append(ForeignClass(name, fields=declared, is_made_up=True))
        self._made_up.append(ForeignObject(self._shapes[shape], fields))
        return Pointer(len(self.data["objects"]) + len(self._made_up) - 1)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _index(value: Any, items: Sequence[Any]) -> int:
    if type(value) is not int or not 0 <= value < len(items):
        raise IndexError(f"{value!r:.40} is the number of nothing")
    return value


def _is_field(key: str) -> bool:
    try:
        return escape_field_name(key, "dict") == key
    except EditError:
        return False


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except EditError:
        return False
    return True


def _class_of_place(place: str) -> str:
    """Return the name of the class of what stands in a field: `TripStops` for `Trip.stops`."""
    return (camel(singular(place.replace(".", "_").lower())) or "Item")[: MAX_LENGTH - 20]


# The translation


@dataclass
class _Home:
    """Where an object goes: a collection or singleton of a domain, and its key there."""

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
    """The edits of the schema, and the records, that make a foreign project ours."""

    schema: list[Edit]
    records: list[_Placed]
    sources: tuple[int, ...]
    notes: Notes
    counts: dict[str, int]

    def carry_out(self, project: Project) -> list[Edit]:
        """Apply it to a project; returns the edits. Raises EditError, the project half changed.

        The records are then exactly those that were read: where a field has several types, an
        edit takes a text that looks like a date for one, and this does not.
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
    """Return fields, and those of the objects within, in order and without defaults."""
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
    """Return what has to be done so that a project holds what the graph does.

    `domains` says which domain the file of each module goes to, `sources` what the records cite,
    `taken` which domains there are. Raises ForeignError.
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
        self.variables: dict[str, dict[str, Node]] = {}
        self.names: dict[tuple[str, int], str] = {}
        self.enum_names: dict[tuple[str, int], str] = {}
        self.field_names: dict[int, dict[str, str]] = {}
        self.record_classes = self._record_classes()

    def plan(self) -> Plan:
        """Return all of it."""
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

    # Which classes are of records

    def _record_classes(self) -> set[int]:
        """Return the classes whose objects stand for themselves.

        Those that a module holds, those that more than one object holds, and those that can
        contain themselves.
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

    # Where objects go

    def _place_collections(self) -> list[Holding]:
        """Give the members of collections their homes; return the other holdings."""
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
            for number, key in zip(numbers, keys, strict=True):
                self._settle(number, _Home(domain, name, key, singleton=False))
        return rest

    def _keys(
        self, name: str, numbers: list[int], given: Sequence[str], bound: Mapping[int, str]
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
        plain = [i for i in ids if type(i) is int or (isinstance(i, str) and _is_key(i))]
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
            key = bound.get(number) or unused(f"{class_name}-{position}", used)
            used.add(key)
            keys.append(key)
        return keys

    def _place_names(self, rest: Sequence[Holding]) -> None:
        """Give what a name holds its home; what is no record of its own goes to the variables."""
        for holding in rest:
            domain = self.domains[holding.module]
            node = holding.node
            number = node.number if isinstance(node, Pointer) else None
            class_number = self.graph.objects[number].class_number if number is not None else None
            if number is None or class_number not in self.record_classes:
                self.variables.setdefault(domain, {})[holding.name] = node
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
                domain = self.domains[holding.module]
                self.variables.setdefault(domain, {})[holding.name] = holding.node

    def _place_others(self) -> None:
        """Give records that no name and no collection holds one of their class."""
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
            for number, key in zip(numbers, self._keys(name, numbers, (), {}), strict=True):
                self._settle(number, _Home(domain, name, key, singleton=False))

    def _gather_variables(self) -> None:
        """Make one record of what a domain's modules hold besides records."""
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

    def _settle(self, number: int, home: _Home) -> None:
        if not _is_key(home.key):
            raise ForeignError(
                "bad_key", f"{home.holder} has a record with the key {home.key!r:.80}"
            )
        self.homes[number] = home
        self.order.append(number)

    # Names

    def _lower(self, name: str) -> str:
        found = name.lstrip("_").lower() or "value"
        if not _is_lower(found):
            found = f"{found[: MAX_LENGTH - 10].rstrip('_')}_"
        return found if _is_lower(found) else "value"

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
        """Define the enums, then each class after those that it is made of or refers to."""
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
        """Return the types of a class's fields: what its objects hold, and what was declared."""
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
        """Return the class that a reference of the foreign project means, and the key."""
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
        """Widen a type to what its author declared, as far as that is clear and safe."""
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
        """Return a field with the default that its author gave it, if it can stay."""
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
        """Return an enum's members with values that can stay; their names stand in else."""
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


def _is_lower(name: str) -> bool:
    try:
        check_lower_name(name, "name")
    except EditError:
        return False
    return True


def _direct(node: Node) -> list[Pointer]:
    """Return the object that a name holds, or those of its list."""
    if isinstance(node, Pointer):
        return [node]
    return [item for item in node if isinstance(item, Pointer)] if isinstance(node, list) else []


def _is_list(type_: Type) -> bool:
    return isinstance(without_none(type_), ListOf)


def _is_uniform(graph: Graph, node: Node) -> bool:
    """Tell whether a value is a list of objects of one class, and not empty."""
    if not isinstance(node, list) or not node:
        return False
    pointers = _direct(node)
    return (
        len(pointers) == len(node)
        and len({graph.objects[pointer.number].class_number for pointer in pointers}) == 1
    )


def _in_cycles(edges: Mapping[int, Collection[int]]) -> set[int]:
    """Return the nodes from which a way leads back to them."""
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
    """Return the type with a reference in the place of every class of records."""
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
