"""Repairs to Python source that does not parse."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from memory.kernel.sent_code import tidied
from memory.kernel.texts import parse_python

Rules: TypeAlias = Mapping[str, Callable[[str], str]]


def syntax_error(source: str) -> tuple[str, int | None] | None:
    """Return a source's syntax error and the line that it is on; None if the source is valid."""
    try:
        compile(parse_python(source), "module", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{type(error).__name__}: {error.msg}", error.lineno
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"{type(error).__name__}: {error}", None
    return None


_OPENING = re.compile(r"#|'''|\"\"\"|'|\"")
_UNTIL = {
    "#": re.compile(r"[^\n]*+"),
    "'''": re.compile(r"(?:\\.|(?!''').)*+", re.DOTALL),
    '"""': re.compile(r'(?:\\.|(?!""").)*+', re.DOTALL),
    "'": re.compile(r"(?:\\.|[^'\\\n])*+", re.DOTALL),
    '"': re.compile(r'(?:\\.|[^"\\\n])*+', re.DOTALL),
}


def _masked(source: str) -> str:
    """Return the source with every string and comment blanked out; positions stay the same."""
    parts = []
    done = 0
    for start, end in _literals(source):
        parts += [source[done:start], re.sub(r"[^\n]", "_", source[start:end])]
        done = end
    return "".join([*parts, source[done:]])


def _literals(source: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each comment, and of each string that has closing quotes.

    A failed search for closing quotes is not repeated, so no part of the source is read twice.
    """
    open_until = dict.fromkeys(_UNTIL, 0)
    position = 0
    while (opening := _OPENING.search(source, position)) is not None:
        start, position = opening.start(), opening.start() + 1
        for mark in dict.fromkeys((opening[0], opening[0][0])):
            if start < open_until[mark]:
                continue
            within = _UNTIL[mark].match(source, start + len(mark))
            assert within is not None  # each pattern also matches an empty string
            end = within.end() if mark == "#" else within.end() + len(mark)
            if mark == "#" or source.startswith(mark, within.end()):
                yield start, end
                position = end
                break
            open_until[mark] = within.end()


def _surroundings(source: str) -> str:
    """Leave out what surrounds the code, such as Markdown's fences and indentation."""
    code = tidied(source)
    return source if code == source.strip() else f"{code}\n"


_CALENDAR = re.compile(r"\b(?:date|datetime|time|timedelta)\s*\(([^()]*)\)")
# These patterns use no possessive quantifiers on groups, since Python versions before 3.11.5 match
# such a group once too often.
_ZEROS = re.compile(r"(?<![\w.])(?![0-9_]*+[.eExXjJ])0+(?=[0-9])")


def _leading_zeros(source: str) -> str:
    """Write 9 for 09 in a date or a time, since Python doesn't accept leading zeros."""
    masked = _masked(source)
    drop: set[int] = set()
    for call in _CALENDAR.finditer(masked):
        for zeros in _ZEROS.finditer(masked, call.start(1), call.end(1)):
            drop |= set(range(zeros.start(), zeros.end()))
    return "".join(c for index, c in enumerate(source) if index not in drop)


_OCTAL = re.compile(r"(?<![\w.])0[oO]([0-9]++)\b")


def _impossible_octals(source: str) -> str:
    """Write 9 for 0o9 in a date or a time, since no octal number has the digit 9.

    Nothing is changed if any date or time contains a valid octal number such as 0o12: only the
    author knows whether 12 or the octal value is meant.
    """
    masked = _masked(source)
    literals = [
        (octal.span(), octal[1].lstrip("0") or "0")
        for call in _CALENDAR.finditer(masked)
        for octal in _OCTAL.finditer(masked, call.start(1), call.end(1))
    ]
    if any(set(digits) & {"8", "9"} for _, digits in literals) and not any(
        len(digits) > 1 and not set(digits) & {"8", "9"} for _, digits in literals
    ):
        for (start, end), digits in reversed(literals):
            source = source[:start] + digits + source[end:]
    return source


TEXT_RULES: Rules = {
    "surroundings": _surroundings,
    "leading_zeros": _leading_zeros,
    "impossible_octals": _impossible_octals,
}
