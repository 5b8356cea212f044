"""Placement: which collection, singleton or variable each foreign object becomes."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memory.integrations.foreign.graph import (
    ForeignClass,
    ForeignError,
    ForeignObject,
    Graph,
    ModuleValue,
    Node,
    Pointer,
    is_key,
)
from memory.integrations.foreign.layout import is_lower
from memory.project.names import MAX_LENGTH, default_collection, snake, unused


@dataclass
class Home:
    """Where an object is placed: its domain, its collection or singleton there, and its key."""

    domain: str
    holder: str
    key: str
    singleton: bool


class Placement:
    """Decides where to place each object in a graph, and which classes become record classes.

    `domains` maps each module's file to its target domain. `order` lists the objects in the order
    in which they were placed. `taken` has the names used so far in each target domain.
    """

    def __init__(self, graph: Graph, domains: Mapping[str, str]) -> None:
        self.graph = graph
        self.domains = domains
        self.homes: dict[int, Home] = {}
        self.order: list[int] = []
        self.taken: dict[str, set[str]] = {domain: set() for domain in domains.values()}
        self.keys: set[tuple[int, str]] = set()
        self.variables: dict[str, dict[str, Node]] = {}
        self.record_classes = self._record_classes()

    def place(self) -> None:
        """Place all objects, and add each domain's variables to the graph as a single record."""
        rest = self._place_collections()
        self._place_names(rest)
        self._place_others()
        self._gather_variables()

    def _record_classes(self) -> set[int]:
        """Return the numbers of the classes that become record classes.

        These are our library's record classes, plus any classes whose objects are referenced by a
        module or by more than one object, or can contain objects of the same class, directly or
        indirectly.
        """
        graph = self.graph
        record_classes = {n for n, class_ in enumerate(graph.classes) if class_.is_record}
        for holding in graph.holdings:
            numbers = [p.number for p in _direct(holding.node)]
            record_classes |= {
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
        record_classes |= {graph.objects[n].class_number for n, times in held.items() if times > 1}
        return record_classes | _in_cycles(edges)

    def _place_collections(self) -> list[ModuleValue]:
        """Place the members of collections; return the remaining module-level values."""
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
            keys = self._keys(name, numbers, bound)
            self._settle_all(domain, name, numbers, keys)
        return rest

    def _keys(self, name: str, numbers: list[int], bound: dict[int, str]) -> list[str]:
        """Return a unique key for each object in a collection."""
        objects = [self.graph.objects[number] for number in numbers]
        own = [one.key for one in objects]
        if all(key is not None for key in own):
            keys = [str(key) for key in own]
            double = [key for key, times in Counter(keys).items() if times > 1]
            if double:
                raise ForeignError(
                    "key_exists",
                    f"{name} has {Counter(keys)[double[0]]} records with the key {double[0]!r}:"
                    " give each a unique key",
                )
            return keys
        class_name = snake(self.graph.classes[objects[0].class_number].name) or "item"
        ids = [one.fields.get("id") for one in objects]
        plain = [i for i in ids if type(i) is int or (isinstance(i, str) and is_key(i))]
        if len(plain) == len(objects):
            if len({str(i) for i in plain}) == len(plain):
                return [str(i) if isinstance(i, str) else f"{class_name}-{i}" for i in plain]
            double_id = Counter(map(str, plain)).most_common(1)[0][0]
            self.graph.notes.add(
                "keyed",
                name,
                f"several objects have the id {double_id!r}: keys are numbered instead",
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
        """Place objects with module-level names; values that are not records become variables."""
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
                self._settle(number, Home(domain, name, key, singleton=True))
        for holding in self.graph.holdings:  # other names for placed records
            if not isinstance(holding.node, Pointer) or holding.node.number not in self.homes:
                continue
            home = self.homes[holding.node.number]
            if holding.name not in (home.key, home.holder) and not (
                home.singleton and home.holder == self._lower(holding.name)
            ):
                self._keep_variable(self.domains[holding.module], holding.name, holding.node)

    def _keep_variable(self, domain: str, name: str, node: Node) -> None:
        """Keep a named value as a variable, renaming it if the domain already has that name."""
        values = self.variables.setdefault(domain, {})
        new_name = unused(name, values)
        values[new_name] = node
        if new_name != name:
            self.graph.notes.add("renamed", name, f"is {domain}.variables.{new_name}")

    def _place_others(self) -> None:
        """Put records that have neither a name nor a collection in a collection for their class."""
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
                owner = home.domain if home else domain
                pending += [(value, owner) for value in one.fields.values()]
                if home is None and one.class_number in self.record_classes:
                    where = (domain, one.class_number)
                    if where not in overflow:
                        name = default_collection(graph.classes[one.class_number].name)
                        overflow[where] = (self._holder(domain, name, note=False), [])
                    overflow[where][1].append(number)
        for (domain, _), (name, numbers) in overflow.items():
            self._settle_all(domain, name, numbers, self._keys(name, numbers, {}))

    def _gather_variables(self) -> None:
        """Combine each domain's non-record module-level values into one record."""
        for domain, values in self.variables.items():
            name = self._holder(domain, "variables", note=False)
            number = len(self.graph.objects)
            declared: list[tuple[str, str, list[Node]]] = [(field_, "", []) for field_ in values]
            class_ = ForeignClass(
                "Variables", doc="Values that imported modules bound to names.", fields=declared
            )
            self.graph.classes.append(class_)
            class_number = len(self.graph.classes) - 1
            self.record_classes.add(class_number)
            self.graph.objects.append(ForeignObject(class_number, dict(values)))
            self._settle(number, Home(domain, name, name, singleton=True))

    def _settle_all(
        self, domain: str, name: str, numbers: Sequence[int], keys: Sequence[str]
    ) -> None:
        """Place a collection's objects.

        A reference names the class and the key, but not the collection. So if a record of the same
        class in another collection already has the key, the key is prefixed with this collection's
        name.
        """
        for number, key in zip(numbers, keys, strict=True):
            one = self.graph.objects[number]
            new_key = key
            if one.key is None and (one.class_number, key) in self.keys:
                new_key = f"{name}-{key}"
                self.graph.notes.add(
                    "keyed",
                    name,
                    f"keys get the prefix {name}-, since other records have the same keys",
                )
            self._settle(number, Home(domain, name, new_key, singleton=False))

    def _settle(self, number: int, home: Home) -> None:
        self.keys.add((self.graph.objects[number].class_number, home.key))
        if not is_key(home.key):
            raise ForeignError(
                "bad_key",
                f"{home.holder} has a record with the invalid key {home.key!r:.80}: use 1 to 200"
                " characters and no control characters",
            )
        self.homes[number] = home
        self.order.append(number)

    def _lower(self, name: str) -> str:
        lowered = name.lstrip("_").lower() or "value"
        if not is_lower(lowered):
            lowered = f"{lowered[: MAX_LENGTH - 10].rstrip('_')}_"
        return lowered if is_lower(lowered) else "value"

    def _holder(self, domain: str, name: str, *, note: bool = True) -> str:
        """Return an unused name for a new collection or singleton, and mark it as taken."""
        holder = unused(self._lower(name), self.taken[domain])
        self.taken[domain].add(holder)
        if note and holder != name:
            self.graph.notes.add("renamed", name, f"is {domain}.{holder}")
        return holder


def _direct(node: Node) -> list[Pointer]:
    """Return the object that a node points to, or, for a list, the objects that are its items."""
    if isinstance(node, Pointer):
        return [node]
    return [item for item in node if isinstance(item, Pointer)] if isinstance(node, list) else []


def _is_uniform(graph: Graph, node: Node) -> bool:
    """Return whether a value is a non-empty list of objects of the same class."""
    if not isinstance(node, list) or not node:
        return False
    pointers = _direct(node)
    return (
        len(pointers) == len(node)
        and len({graph.objects[pointer.number].class_number for pointer in pointers}) == 1
    )


def _in_cycles(edges: Mapping[int, Collection[int]]) -> set[int]:
    """Return the nodes that lie on a cycle."""
    cyclic = set()
    for start in edges:
        pending, seen = list(edges[start]), set()
        while pending:
            node = pending.pop()
            if node == start:
                cyclic.add(start)
                break
            if node not in seen:
                seen.add(node)
                pending += edges.get(node, ())
    return cyclic
