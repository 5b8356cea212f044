"""Every regular expression of the server takes at most linear time, whatever text it is given.

`re` holds the interpreter's lock while it searches: one text that a pattern backtracks over would
stop a whole process, and all users with it.
"""

import ast
import importlib
import itertools
import pkgutil
import re
import re._parser as sre_parse  # type: ignore[import-not-found]
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import memory
import sandbox_image.uac
import uac_site
import workers

PACKAGES = (memory, workers, uac_site, sandbox_image.uac)
# Modules that run when they are imported.
NOT_IMPORTED = re.compile(r"\.migrations\.|\.management\.|confine$|\.settings|asgi$|wsgi$")

AT_BEGINNING = {"match", "fullmatch"}

SHORT, LONG = 1_500, 6_000
# From one size to the next, linear time grows by 4, quadratic time by 16.
MAX_GROWTH = 9
# Anything faster is fast enough: the longest text that there is would take 0.3 s.
NEGLIGIBLE_SECONDS = 0.006


@dataclass(frozen=True)
class Use:
    """A pattern, and whether it is only matched at the beginning of a text, never searched for."""

    pattern: re.Pattern[Any]
    at_beginning: bool


def uses() -> dict[str, Use]:
    """Return every pattern of the server's modules: by name, or by its line."""
    found: dict[str, Use] = {}
    # Not by identity: whether two equal patterns are one object depends on `re`'s cache.
    seen: set[tuple[str | bytes, int]] = set()
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if NOT_IMPORTED.search(module.name):
                continue
            loaded = importlib.import_module(module.name)
            source = Path(loaded.__file__ or "").read_text()
            for name, value in vars(loaded).items():
                for pattern in _held(value):
                    if (pattern.pattern, pattern.flags) not in seen:
                        seen.add((pattern.pattern, pattern.flags))
                        called = set(re.findall(rf"\b{name}\.(\w+)\(", source))
                        shown = f"{module.name}.{name} {pattern.pattern!r:.40}"
                        found[shown] = Use(pattern, bool(called) and called <= AT_BEGINNING)
            for line, call, pattern in _inline(source):
                found[f"{module.name}:{line}"] = Use(pattern, call in AT_BEGINNING)
    return found


def _held(value: object, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, (tuple, list, set, frozenset)):
        for one in value:
            yield from _held(one, depth - 1)
    elif depth and type(value) is dict:
        for one in itertools.chain(value.keys(), value.values()):
            yield from _held(one, depth - 1)


def _inline(source: str) -> Iterator[tuple[int, str, re.Pattern[Any]]]:
    if not re.search(r"\bre\.(?!compile\b|escape\b)[a-z]+\(", source):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=call),
                args=[ast.Constant(value=str() | bytes() as text), *_],
            ) if call not in ("compile", "escape"):
                yield node.lineno, call, re.compile(text)


def units(pattern: re.Pattern[Any]) -> list[str]:
    """Return short texts from which texts that nearly match the pattern can be built."""
    characters: dict[str, None] = {}
    runs: dict[str, None] = {}

    def look(parsed: Any) -> None:
        run = ""
        for operator, argument in parsed:
            if str(operator) == "LITERAL":
                characters[chr(argument)] = None
                run += chr(argument)
                continue
            runs[run], run = None, ""
            if str(operator) == "IN":
                characters[_example([(operator, argument)])] = None
            for part in _parts(argument):
                look(part)
        runs[run] = None

    look(_parsed(pattern))
    always = ["a", "0", " ", "A", "_", "\n", '"', '\\"', "(", ",", "/"]
    longer = [run for run in runs if len(run) > 1]
    return list(dict.fromkeys([*always, *list(filter(None, characters))[:10], *longer[:4]]))


def beginnings(pattern: re.Pattern[Any]) -> list[str]:
    """Return an example text for each beginning of the pattern, by length."""
    parsed = list(_parsed(pattern))
    return list(dict.fromkeys(_example(parsed[:length]) for length in range(len(parsed) + 1)))


def _parsed(pattern: re.Pattern[Any]) -> Any:
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    return sre_parse.parse(pattern.pattern, flags)


def _parts(argument: object) -> Iterator[Any]:
    if isinstance(argument, sre_parse.SubPattern):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for one in argument:
            yield from _parts(one)


def _example(parsed: Any) -> str:
    """Return a text that matches the pattern, with the first alternative at each place."""
    text = ""
    for operator, argument in parsed:
        match str(operator):
            case "LITERAL":
                text += chr(argument)
            case "NOT_LITERAL" | "ANY":
                text += "a"
            case "IN":
                kind, value = argument[0]
                known = {"LITERAL": value, "RANGE": value[0] if isinstance(value, tuple) else value}
                category = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " "}.get(str(value), "a")
                text += chr(known[str(kind)]) if str(kind) in known else category
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                text += _example(argument[2]) * max(1, argument[0])
            case "BRANCH":
                text += _example(argument[1][0])
            case "SUBPATTERN" | "ATOMIC_GROUP":
                text += next((_example(part) for part in _parts(argument)), "")
    return text


def texts(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Yield texts of about that length that end in a mismatch.

    They are one unit repeated, two in turn, one after another, and one after each matching
    beginning.
    """
    those = units(pattern)
    for first, second in itertools.product(those, repeat=2):
        if first == second:
            yield (first * length)[:length]
        else:
            yield ((first + second) * length)[:length]
            yield first + (second * length)[:length]
    for beginning, unit in itertools.product(beginnings(pattern), those):
        for end in "_!.":
            yield beginning + (unit * length)[:length] + end
        yield ((beginning + unit) * length)[:length]


def seconds(use: Use, text: str) -> float:
    """Return the CPU time of a search through the whole text, or of a match at its beginning."""
    subject: Any = text.encode() if isinstance(use.pattern.pattern, bytes) else text
    began = time.thread_time()
    if use.at_beginning:
        use.pattern.match(subject)
        use.pattern.fullmatch(subject)
    else:
        for _ in use.pattern.finditer(subject):
            pass
    return time.thread_time() - began


def grows_faster(use: Use) -> str:
    """Return the beginning of a text for which the time grows faster than the text, or ""."""
    for short, long in zip(texts(use.pattern, SHORT), texts(use.pattern, LONG), strict=True):
        once = seconds(use, long)
        if once < NEGLIGIBLE_SECONDS:
            continue
        bound = MAX_GROWTH * max(min(seconds(use, short) for _ in range(3)), 1e-6)
        if once <= bound:
            continue
        quickest = min(seconds(use, long) for _ in range(3))
        if quickest > max(NEGLIGIBLE_SECONDS, bound):
            return f"{long[:30]}…{long[-1]}"
    return ""


USES = uses()


def test_all_are_looked_at() -> None:
    assert len(USES) > 100


@pytest.mark.parametrize("name", USES)
def test_pattern_takes_linear_time(name: str) -> None:
    assert grows_faster(USES[name]) == ""


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"A.*\s.*\w", r"(?<![\w.])0[oO]0*([0-9]+)\b", r"(?<![\w.])0+(?=[0-9])(?![0-9]*[.eE])"),
        r"(?<![\w])(?=[\w/-]*\d)(?=[\w/-]*[^\W\d_])[^\W_](?:[\w/-]*[^\W_])?",
        r"'(?:\\.|[^'\\\n])*'",
    ],
)
def test_quadratic_pattern_is_found(pattern: str) -> None:
    assert grows_faster(Use(re.compile(pattern), at_beginning=False))
