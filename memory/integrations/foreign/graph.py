"""A foreign project's objects as a graph, read from untrusted JSON."""

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from memory.project.errors import EditError
from memory.project.names import MAX_LENGTH, camel, check_key, field_name_for, singular
from memory.project.values import PartialDate, Ref, Value

# Maximum number of keys of a dictionary, which becomes an object with those keys as its fields.
MAX_FIELDS = 60
# Maximum number of digits in an integer field.
MAX_DIGITS = 300
# Maximum number of distinct key sets among the dictionaries found in the same place, such as a
# field.
MAX_SHAPES = 8
MAX_NOTES = 500


class ForeignError(Exception):
    """A foreign project can't be imported; the message explains why and how to fix it."""

    def __init__(
        self, code: str, message: str, path: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.path = path
        self.line = line


@dataclass(frozen=True)
class Pointer:
    """A reference to one of the graph's objects, by its number."""

    number: int


@dataclass(frozen=True)
class Member:
    """An enum member; `enum` is the enum's number in the graph."""

    enum: int
    name: str


Node: TypeAlias = "Value | Pointer | Member | list[Node]"


@dataclass
class ForeignClass:
    """A class in the foreign project, or a synthetic class for dictionaries with the same keys."""

    name: str
    is_record: bool = False
    doc: str = ""
    fields: list[tuple[str, str, list[Node]]] = field(default_factory=list)
    is_made_up: bool = False


@dataclass
class ForeignObject:
    """An object: its class, its fields, and its key if it is a `Record` of our own library."""

    class_number: int
    fields: dict[str, Node]
    key: str | None = None


@dataclass(frozen=True)
class ModuleValue:
    """A module-level name and its value."""

    module: str
    name: str
    node: Node
    annotation: str = ""


@dataclass
class Graph:
    """The contents of all modules of a foreign project."""

    classes: list[ForeignClass]
    enums: list[tuple[str, list[tuple[str, Node]]]]
    objects: list[ForeignObject]
    holdings: list[ModuleValue]
    notes: "Notes"

    def pointers(self, node: Node) -> Iterator[int]:
        """Yield the numbers of the objects a value contains directly, not inside other objects."""
        if isinstance(node, Pointer):
            yield node.number
        elif isinstance(node, list):
            for item in node:
                yield from self.pointers(item)


class Notes:
    """A report of what an import changed: each change's kind, place, message and count."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, kind: str, path: str, message: str) -> None:
        """Record that a value was converted, renamed or left out."""
        self._counts[kind, path, message] += 1

    def to_json(self) -> list[dict[str, Any]]:
        """Return the notes in the order in which they were first added."""
        return [
            {"kind": kind, "place": path, "message": message, "count": count}
            for (kind, path, message), count in list(self._counts.items())[:MAX_NOTES]
        ]


def read(data: Mapping[str, Any]) -> Graph:
    """Parse the graph extracted by a sandbox; raises ForeignError if it is invalid or empty."""
    try:
        graph = _Decoder(data).graph()
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, RecursionError) as error:
        raise ForeignError(
            "malformed", f"the extracted project is malformed: {error!r:.200}"
        ) from None
    if not graph.holdings:
        raise ForeignError(
            "no_objects",
            "executing the project creates no typed objects: bind instances of dataclasses, lists"
            " of them, or dictionaries to module-level names",
        )
    return graph


class _Decoder:
    """Turns a graph's JSON into nodes; dictionaries become objects of synthetic classes."""

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
        """Return the decoded graph."""
        enums = []
        for one in self.data["enums"]:
            name = _string(one["name"])
            members = [(_string(label), self.node(value, name)) for label, value in one["members"]]
            enums.append((name, members))
        for class_, description in zip(self.classes, self.data["classes"], strict=True):
            class_.fields = [
                (
                    _string(name),
                    _string(annotation),
                    [self.node(value, f"{class_.name}.{name}") for value in default],
                )
                for name, annotation, default in description["fields"]
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
        return Graph(
            self.classes,
            enums,
            [*decoded, *self._made_up],
            [holding for holding in holdings if holding is not None],
            self.notes,
        )

    def _holding(self, path: str, name: str, value: Any, annotation: str) -> ModuleValue | None:
        if isinstance(value, list) and value[0] == "other":
            self.notes.add("left_out", name, f"a {_string(value[1])} is not data")
            return None
        return ModuleValue(path, name, self.node(value, name), annotation)

    def node(self, value: Any, path: str) -> Node:  # noqa: C901 - one case for each kind
        """Return the node for a value in the graph's JSON; `path` is where the value was found."""
        if value is None or type(value) in (bool, int, str, float):
            return value  # type: ignore[no-any-return]
        kind, content = value
        match kind:
            case "object":
                return Pointer(_index(content, self.data["objects"]))
            case "enum":
                number, name = content
                return Member(_index(number, self.data["enums"]), _string(name))
            case "list":
                return [self.node(item, path) for item in content]
            case "dict":
                return self._dictionary(content, path)
            case "int":
                if len(_string(content)) > MAX_DIGITS:
                    raise unsupported(path, f"an integer of more than {MAX_DIGITS} digits")
                return int(content)
            case "decimal":
                return Decimal(_string(content))
            case "date":
                return datetime.date.fromisoformat(content)
            case "datetime":
                return datetime.datetime.fromisoformat(content)
            case "time":
                return datetime.time.fromisoformat(content)
            case "partial_date":
                return PartialDate(_string(content))
            case "ref":
                class_name, key = content
                return Ref(_string(class_name), _string(key))
            case "unsupported" | "other":
                raise unsupported(path, f"a {_string(content)} that cannot be stored")
        raise ValueError(f"unknown kind of value: {kind!r}")

    def _dictionary(self, pairs: Any, path: str) -> Node:
        """Turn a dictionary into an object with its keys as fields; an empty one becomes a list."""
        if not pairs:
            self.notes.add("converted", path, "empty dict to an empty list")
            return []
        if len(pairs) > MAX_FIELDS:
            raise unsupported(path, f"a dictionary with more than {MAX_FIELDS} keys")
        if not all(isinstance(key, str) and _is_field(key) for key, _ in pairs):
            raise unsupported(path, "a dictionary with keys that are no names")
        name = _class_of_place(path)
        self.notes.add("converted", path, "dict to an object")
        fields = {key: self.node(item, f"{path}.{key}") for key, item in pairs}
        shape = (name, tuple(sorted(fields)))
        if shape not in self._shapes:
            self._forms[name] += 1
            if self._forms[name] > MAX_SHAPES:
                raise unsupported(path, f"dictionaries with more than {MAX_SHAPES} sets of keys")
            self._shapes[shape] = len(self.classes)
            declared: list[tuple[str, str, list[Node]]] = [(field_, "", []) for field_ in fields]
            self.classes.append(ForeignClass(name, fields=declared, is_made_up=True))
        self._made_up.append(ForeignObject(self._shapes[shape], fields))
        return Pointer(len(self.data["objects"]) + len(self._made_up) - 1)


def unsupported(path: str, what: str) -> ForeignError:
    """Return the refusal of a value that is not converted; the message says what to write."""
    return ForeignError(
        "unsupported_value",
        f"{path} has {what}: write texts, numbers, dates, times with a UTC offset, enums, lists,"
        " objects of dataclasses, or dictionaries whose keys can name fields",
    )


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def _index(value: Any, items: Sequence[Any]) -> int:
    if type(value) is not int or not 0 <= value < len(items):
        raise IndexError(f"{value!r:.40} is not a valid index")
    return value


def _is_field(key: str) -> bool:
    return field_name_for(key) == key


def is_key(key: str) -> bool:
    """Return whether the text can be used as a record's key."""
    try:
        check_key(key)
    except EditError:
        return False
    return True


def _class_of_place(path: str) -> str:
    """Return a name for the synthetic class of a field's contents: `TripStop` for `Trip.stops`."""
    return (camel(singular(path.replace(".", "_").lower())) or "Item")[: MAX_LENGTH - 20]
