"""Ties: choices in a query that hide others which are just as good.

`Counter(cities).most_common(1)` and `max(trips, key=cost)` return one element even if several
share the first place, so a query that answers "which?" would keep silent about the others.
"""

import ast
import builtins
import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .uac import Record, protocol

# The name of the function added to a query's code; because of the "$", the query can't use it.
CHOOSES = "$chooses"
# Maximum number of ties reported, of elements named in each, and of characters of each name.
MAX_TIES = 5
MAX_NAMED = 5
MAX_CHARACTERS = 60


class Ties:
    """The ties that a query's choices have hidden."""

    def __init__(self, tree: ast.Module) -> None:
        """Instrument the code in `tree`, which must then be executed with `self.names` in scope."""
        self.names = {CHOOSES: self._choose}
        self.found: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_choice(node):
                node.args.insert(0, node.func)
                node.func = ast.copy_location(ast.Name(CHOOSES, ast.Load()), node.func)

    def _choose(self, function: Callable[..., Any], argument: Any, **options: Any) -> Any:
        """Return what `function` returns, and note what it leaves out although it is as good."""
        if function in (builtins.max, builtins.min):
            candidates = list(argument)
            chosen = function(candidates, **options)
            key = options["key"]
            if candidates and len(self.found) < MAX_TIES:
                self._note(f"{function.__name__}()", [chosen], _as_good(chosen, candidates, key))
            return chosen
        chosen = function(argument, **options)
        counter = getattr(function, "__self__", None)
        if isinstance(counter, collections.Counter) and chosen and len(self.found) < MAX_TIES:
            first, last = [one for one, _ in chosen], chosen[-1][1]
            others = [one for one, count in counter.items() if count == last and one not in first]
            self._note(f"most_common({argument})", first, others)
        return chosen

    def _note(self, call: str, chosen: Sequence[object], others: Sequence[object]) -> None:
        if others:
            more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
            last = "it" if len(chosen) == 1 else "the last"
            self.found.append(
                f"{call} chose {_named(chosen)}; as good as {last}: {_named(others)}{more}"
            )


def _is_choice(node: ast.Call) -> bool:
    """Return whether a call is of the form `max(…, key=…)`, `min(…, key=…)` or `….most_common(…)`.

    Which function it is turns out only when the code runs.
    """
    if len(node.args) != 1 or isinstance(node.args[0], ast.Starred):
        return False
    options = [keyword.arg for keyword in node.keywords]
    match node.func:
        case ast.Name(id="max" | "min"):
            return options in (["key"], ["key", "default"], ["default", "key"])
        case ast.Attribute(attr="most_common"):
            return not options
    return False


def _as_good(
    chosen: object, candidates: Iterable[object], key: Callable[[Any], Any] | None
) -> list[object]:
    """Return the different candidates other than the chosen one with the same key as it."""
    if key is None:
        return []
    best, others = key(chosen), list[object]()
    for one in candidates:
        if one is not chosen and one != chosen and key(one) == best and one not in others:
            others.append(one)
    return others


def _named(elements: Sequence[object]) -> str:
    names = [one.key if isinstance(one, Record) else repr(one) for one in elements[:MAX_NAMED]]
    return ", ".join(protocol.storable(name[:MAX_CHARACTERS]) for name in names)
