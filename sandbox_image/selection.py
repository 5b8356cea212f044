"""What the answer to a query rests on: which records it names, selects, or has read.

Records in the value are what it rests on. Where the code has one comprehension and uses the state
nowhere else, those elements are that pass its `if`s: "13 trips" names the 13. Of all other code it
is known which collections it reads, and that is said.
"""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from .uac import Record

Place = tuple[str, str]  # domain and collection
# Name → attribute that is asked of it → the collections meant; of the name itself by "".
Meanings = Mapping[str, Mapping[str, Iterable[Place]]]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

# No name that code can have.
MEETS, SELECTS = "$meets", "$selects"


class Selection:
    """Of one query: what its code reads, and while it runs, what its comprehension selects."""

    def __init__(
        self,
        tree: ast.Module,
        named: Meanings,
        places: Mapping[int, Place],
    ) -> None:
        """Change the code so that it tells; it has to be executed with `names` then.

        `places` are those of the state's records, by their ids.
        """
        self.names = {MEETS: self._meets, SELECTS: self._selects}
        self.met = False  # whether the comprehension has come upon a record
        self.selected: dict[int, Record] = {}
        self._places = places
        found = [node for node in ast.walk(tree) if isinstance(node, COMPREHENSIONS)]
        inside = {id(node) for node in ast.walk(found[0])} if len(found) == 1 else set[int]()
        uses = list(_uses(tree, named))
        self.read: list[Place] = sorted({place for _, place in uses})
        if inside and all(id(node) in inside for node, _ in uses):
            _watch(found[0])

    def _meets(self, *elements: object) -> bool:
        self.met = self.met or any(id(one) in self._places for one in elements)
        return True

    def _selects(self, *elements: object) -> bool:
        for one in elements:
            if id(one) in self._places and isinstance(one, Record):
                self.selected[id(one)] = one
        return True


def _watch(comprehension: Any) -> None:
    """Have it tell which elements it meets, and which pass its conditions."""
    generators: list[ast.comprehension] = comprehension.generators
    elements = []
    for generator in generators:
        targets = [node.id for node in ast.walk(generator.target) if isinstance(node, ast.Name)]
        elements += targets
        generator.ifs.insert(0, _call(MEETS, targets, generator.target))
    last = generators[-1]
    last.ifs.append(_call(SELECTS, elements, last.target))


def _call(function: str, arguments: list[str], where: ast.expr) -> ast.expr:
    names = [ast.Name(name, ast.Load()) for name in arguments]
    call = ast.Call(ast.Name(function, ast.Load()), [*names], [])
    return ast.fix_missing_locations(ast.copy_location(call, where))


def _uses(tree: ast.Module, named: Meanings) -> Iterable[tuple[ast.AST, Place]]:
    """Where the state is used, and which collection. To name one otherwise is no use of it."""
    meaning = dict(named)
    passed: set[int] = set()
    for node in ast.walk(tree):
        meaning |= dict(_named_otherwise(node, meaning))
        if isinstance(node, ast.Assign) and _meant(node.value, meaning):
            passed |= {id(one) for one in ast.walk(node.value)}
    for node in ast.walk(tree):
        if id(node) not in passed and (places := _meant(node, meaning)):
            passed |= {id(one) for one in ast.walk(node)}
            yield from ((node, place) for place in places)


def _named_otherwise(
    node: ast.AST, named: Meanings
) -> Iterable[tuple[str, Mapping[str, Iterable[Place]]]]:
    """The names that a statement gives to what of the state, by an assignment or an import."""
    match node:
        case ast.Assign(targets=targets, value=value) if places := _meant(value, named):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, {"": places}
        case ast.ImportFrom(module=str(module), names=aliases):
            for alias in aliases:
                name = alias.asname or alias.name
                match module.split("."):
                    case ["domains", domain, "state"] if domain in named:
                        yield name, {"": named[domain].get(alias.name, named[domain][""])}
                    case ["domains", domain] if domain in named and alias.name == "state":
                        yield name, named[domain]
                    case ["domains"] if alias.name in named:
                        yield name, named[alias.name]
        case ast.Import(names=aliases):
            for alias in aliases:
                match alias.name.split("."):
                    case ["domains", domain, *_] if domain in named:
                        yield alias.asname or "domains", {"": named[domain][""]}


def _meant(node: ast.AST, named: Meanings) -> Iterable[Place]:
    """The collections that an expression names, if that is what it does."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in named:
            return named[name].get(attribute, ())
        case ast.Name(id=name, ctx=ast.Load()) if name in named:
            return named[name].get("", ())
    return ()
