"""Find the evidence for a query's answer: the records that the query returns, selects or reads.

If the answer contains records, they are its evidence. Otherwise, if the code has exactly one
comprehension and uses only the collections that it iterates over, the evidence is the elements that
pass its `if`s: the evidence for "13 trips" is those 13 trips. For any other code, the evidence is
every record in the collections that the code reads.
"""

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from .set_aside import names_read
from .uac import Record

Place = tuple[str, str]  # domain and collection
# Maps a name and an attribute accessed on it to the collections they refer to; the attribute ""
# stands for the name itself.
Meanings = Mapping[str, Mapping[str, Sequence[Place]]]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

# Names of the functions added to a query's code; because of the "$", the query can't use them.
GOES_THROUGH, SELECTS, SELECTS_SEVERAL = "$goes_through", "$selects", "$selects_several"


class Selection:
    """The collections that a query reads, and the elements that its comprehension selects."""

    def __init__(
        self,
        tree: ast.Module,
        named: Meanings,
        singles: Iterable[Place],
        locations: Mapping[int, Place],
    ) -> None:
        """Instrument the code in `tree`, which must then be executed with `self.names` in scope.

        `named` says which collections each name in the code refers to. `singles` are the places
        that hold a single record; a comprehension may use such records as well. `locations` maps
        each record's `id()` to its place in the state.
        """
        self.names = {
            GOES_THROUGH: self._goes_through,
            SELECTS: self._selects,
            SELECTS_SEVERAL: self._selects_several,
        }
        self.met = False  # whether the comprehension has iterated over a record
        self.selected: dict[int, Any] = {}
        self._places = locations
        self.names_read = names_read(tree)
        uses = list(_uses(tree, named))
        self.read: list[Place] = sorted({location for _, location in uses})
        self.beside: list[Place] = []  # places of single records also used by the comprehension
        comprehensions = [node for node in ast.walk(tree) if isinstance(node, COMPREHENSIONS)]
        if not uses or len(comprehensions) != 1:
            return
        gone_through = {
            id(node)
            for generator in comprehensions[0].generators
            for node in ast.walk(generator.iter)
        }
        inside = {id(node) for node in ast.walk(comprehensions[0])}
        others = [(node, location) for node, location in uses if id(node) not in gone_through]
        if all(id(node) in inside and location in set(singles) for node, location in others):
            self.beside = sorted({location for _, location in others})
            _watch(comprehensions[0])

    def _goes_through(self, elements: Iterable[Any]) -> Iterable[Any]:
        if self.met:
            return elements
        iterator = iter(elements)
        for first in iterator:
            parts = first if isinstance(first, tuple) else (first,)
            self.met = any(id(part) in self._places for part in parts)
            return itertools.chain((first,), iterator)
        return ()

    def _selects(self, element: object) -> bool:
        if id(element) in self._places:
            self.selected[id(element)] = element
        return True

    def _selects_several(self, *elements: object) -> bool:
        for element in elements:
            self._selects(element)
        return True

    @property
    def records(self) -> list[Record]:
        """The records that the comprehension selected."""
        return [one for one in self.selected.values() if isinstance(one, Record)]


def _watch(comprehension: Any) -> None:
    """Make the comprehension report what it iterates over and which elements pass its `if`s."""
    elements = []
    for generator in comprehension.generators:
        names = [node.id for node in ast.walk(generator.target) if isinstance(node, ast.Name)]
        elements += names
        generator.iter = _call(GOES_THROUGH, [generator.iter], generator.iter)
    last = comprehension.generators[-1]
    named = [ast.Name(name, ast.Load()) for name in elements]
    last.ifs.append(_call(SELECTS if len(named) == 1 else SELECTS_SEVERAL, named, last.target))


def _call(function: str, arguments: Sequence[ast.expr], where: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name(function, ast.Load()), [*arguments], [])
    return ast.fix_missing_locations(ast.copy_location(call, where))


def _uses(tree: ast.Module, named: Meanings) -> Iterator[tuple[ast.AST, Place]]:
    """Yield each node that uses one of the state's collections, along with that collection.

    Merely assigning a collection to another name is not a use.
    """
    meaning = {name: dict(meant) for name, meant in named.items()}
    passed: set[int] = set()
    for node in ast.walk(tree):
        if _is_naming(node) and _meant(node.value, meaning):
            passed |= {id(one) for one in ast.walk(node.value)}
        for name, meant in list(_named_otherwise(node, meaning)):
            # The name may mean different things in different parts of the code: keep all of its
            # meanings.
            attributes = meaning.setdefault(name, {})
            for attribute, locations in meant.items():
                attributes[attribute] = [
                    *dict.fromkeys([*attributes.get(attribute, ()), *locations])
                ]
    for node in ast.walk(tree):
        if id(node) not in passed and (locations := _meant(node, meaning)):
            passed |= {id(one) for one in ast.walk(node)}
            yield from ((node, location) for location in locations)


def _is_naming(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and all(isinstance(one, ast.Name) for one in node.targets)


def _named_otherwise(
    node: ast.AST, named: Meanings
) -> Iterator[tuple[str, Mapping[str, Sequence[Place]]]]:
    """Yield the names that an assignment or an import binds to parts of the state."""
    match node:
        case ast.Assign(targets=targets, value=value) if places := _meant(value, named):
            meant = named[value.id] if isinstance(value, ast.Name) else {"": places}
            yield from ((one.id, meant) for one in targets if isinstance(one, ast.Name))
        case ast.ImportFrom(module=str(module), names=aliases):
            for alias in aliases:
                name = alias.asname or alias.name
                match module.split("."):
                    case ["domains", _, "schema"]:
                        pass  # classes hold no records
                    case ["domains", domain, *_] if domain in named:
                        every = _every(named[domain])
                        places = named[domain].get(alias.name, every)
                        meant = {**named[domain], "": every}
                        yield name, meant if alias.name == "state" else {"": places}
                    case ["domains"] if alias.name in named:
                        yield name, {**named[alias.name], "": _every(named[alias.name])}
        case ast.Import(names=aliases):
            for alias in aliases:
                match alias.name.split("."):
                    case ["domains", domain, *_] if domain in named:
                        meant = named[domain] if alias.asname else {}
                        yield alias.asname or "domains", {**meant, "": _every(named[domain])}


def _every(meant: Mapping[str, Sequence[Place]]) -> list[Place]:
    return [*dict.fromkeys(location for locations in meant.values() for location in locations)]


def _meant(node: ast.AST, named: Meanings) -> Sequence[Place]:
    """Return the collections that an expression refers to, if any."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in named:
            return named[name].get(attribute, ())
        case ast.Name(id=name, ctx=ast.Load()) if name in named:
            return named[name].get("", ())
    return ()
