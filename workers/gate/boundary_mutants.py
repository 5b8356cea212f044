"""Boundary mutants: copies of a constraint with one comparison, `and`, `or` or number changed.

Most mistakes in constraints that read the clock are at a boundary: `<` instead of `<=`, or 29 days
instead of 30. Tests that stay clear of the boundary pass either way. Each mutant replaces a single
token and leaves the rest of the source unchanged; string literals are never changed.
"""

import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

# Maximum number of mutants per constraint. Mutants with a changed comparison come first, then
# mutants with a changed `and` or `or`, then mutants with a changed number.
MAX_MUTANTS = 40
CLOCK = frozenset({"today", "now"})

_FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_COMPARING = frozenset({*_FLIPPED, "==", "!="})
_SWAPPED = {"and": "or", "or": "and"}
# Tokens that end a comparison's operand, on either side of the operator. MAX_QUOTED limits how much
# of a comparison is quoted.
_OUTSIDE = frozenset(
    {
        *_COMPARING,
        "and",
        "or",
        "not",
        "if",
        "elif",
        "else",
        "while",
        "in",
        "for",
        "return",
        "assert",
    }
    | {"=", ",", ":", ":=", ";"}
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
MAX_QUOTED = 80
_FACTORS = frozenset({"*", "/", "//", "%", "**"})
# Months per year, hours per day, minutes per hour, seconds per hour and per day: used as a factor,
# each of these converts units.
_UNITS = frozenset({"12", "24", "60", "3600", "86400"})
_INTEGER = re.compile(r"[0-9]{1,9}", re.ASCII)
_IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True)
class BoundaryMutant:
    """A constraint's source with one token replaced, the token's line, and the test to add."""

    source: str
    line: int
    written: str
    instead: str
    quoted: str
    fix: str

    @property
    def message(self) -> str:
        """Describe the unnoticed change; the quoted code shows which token on the line is meant."""
        return (
            f"no test fails with `{self.instead}` instead of `{self.written}` on line {self.line},"
            f" in `{self.quoted}`"
        )


def boundary_mutants(source: str) -> list[BoundaryMutant]:
    """Return a constraint's boundary mutants, starting with the most likely mistakes.

    A constraint that doesn't read `today` or `now` has no boundary mutants. `source` must be valid
    Python.
    """
    tokens = [token for token in _tokens(source) if token.type not in _IGNORED]
    # The first `today` or `now` token is the parameter of `check`; if there is no other such token,
    # the constraint doesn't read the clock.
    if sum(token.string in CLOCK for token in tokens) < 2:
        return []
    lines = source.splitlines(keepends=True)
    mutants: tuple[list[BoundaryMutant], ...] = ([], [], [])
    for index, token in enumerate(tokens):
        written, quoted = token.string, ""
        if token.type == tokenize.OP and written in _FLIPPED:
            rank, instead, quoted = 0, _FLIPPED[written], _comparison(tokens, index)
            fix = (
                "decide from the entries whether the condition holds when both sides are equal, and"
                " add a test for exactly that day or value"
            )
        elif token.type == tokenize.NAME and written in _SWAPPED:
            rank, instead = 1, _SWAPPED[written]
            fix = "add a test in which only one of the two conditions holds"
        elif _is_boundary(tokens, index):
            rank, instead = 2, str(int(written) + 1)
            fix = (
                "decide from the entries which day or value is the last one for which the condition"
                " holds, and add a test for that day or value and one for the next"
            )
        else:
            continue
        row, start = token.start[0] - 1, token.start[1]
        line = lines[row]
        changed = f"{line[:start]}{instead}{line[token.end[1] :]}"
        mutant = "".join([*lines[:row], changed, *lines[row + 1 :]])
        quoted = quoted or line.strip()
        if len(quoted) > MAX_QUOTED:
            quoted = f"{quoted[: MAX_QUOTED - 1]}…"
        mutants[rank].append(BoundaryMutant(mutant, row + 1, written, instead, quoted, fix))
    return list(itertools.chain(*mutants))[:MAX_MUTANTS]


def _comparison(tokens: Sequence[tokenize.TokenInfo], index: int) -> str:
    """Return the source of the comparison whose operator is at `index`, including both operands."""
    before = list(_operand(reversed(tokens[:index]), _CLOSING, _OPENING))
    after = list(_operand(tokens[index + 1 :], _OPENING, _CLOSING))
    both = [*reversed(before), tokens[index], *after]
    gaps = [" " if one.end != another.start else "" for one, another in itertools.pairwise(both)]
    return "".join(
        part for one, gap in zip(both, [*gaps, ""], strict=True) for part in (one.string, gap)
    )


def _operand(
    tokens: Iterable[tokenize.TokenInfo], opening: AbstractSet[str], closing: AbstractSet[str]
) -> Iterator[tokenize.TokenInfo]:
    """Yield an operand's tokens, moving away from the comparison operator."""
    depth = 0
    for token in tokens:
        depth += (token.string in opening) - (token.string in closing)
        if depth < 0 or (depth == 0 and token.string in _OUTSIDE):
            return
        yield token


def _is_boundary(tokens: Sequence[tokenize.TokenInfo], index: int) -> bool:
    """Return whether a token is a whole number that can be a boundary.

    An index, an increment, a unit conversion or another number's factor can't be a boundary: no
    test is expected for the 24 in `days * 24` or `24 * 60`.
    """
    token = tokens[index]
    if token.type != tokenize.NUMBER or not _INTEGER.fullmatch(token.string):
        return False
    around = [
        tokens[one] if 0 <= one < len(tokens) else None for one in range(index - 2, index + 3)
    ]
    further, before, _, after, beyond = [one.string if one else "" for one in around]
    if token.string == "0" and not {before, after} & _COMPARING:
        return False  # such as the 0 in `count or 0` or `max(0, count)`: a default
    is_index = after == "]" and before in ("[", "-")
    is_factor = (after in _FACTORS and beyond[:1].isdigit()) or (
        before in _FACTORS and further[:1].isdigit()
    )
    is_unit = token.string in _UNITS and not _FACTORS.isdisjoint((before, after))
    return not (is_index or is_factor or is_unit or before in ("+=", "-="))


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens outside string literals.

    The contents of f-strings are skipped, because Python has tokenized them only since version
    3.12.
    """
    begin, end = (getattr(tokenize, f"FSTRING_{name}", -1) for name in ("START", "END"))
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        depth += (token.type == begin) - (token.type == end)
        if not depth:
            yield token
