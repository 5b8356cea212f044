"""Boundary mutants: a constraint that is a day, a step or an "or" away from what was written.

Most slips in constraints that read the clock sit on a boundary: `<` for `<=`, 29 days for 30. Tests
that stay away from it pass either way. Mutants are made of the tokens of a source, so that all else
of it stays as it is; what stands within texts is left alone.
"""

import io
import itertools
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

# Of one constraint: comparisons first, then `and` and `or`, then numbers.
MAX_MUTANTS = 40
CLOCK = frozenset({"today", "now"})

_FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_SWAPPED = {"and": "or", "or": "and"}
_INTEGER = re.compile(r"[0-9]{1,9}", re.ASCII)
_IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True)
class BoundaryMutant:
    """A source with one token replaced, the line of that token, and the test that is missing."""

    source: str
    line: int
    written: str
    instead: str
    fix: str

    @property
    def message(self) -> str:
        """Say what no test notices."""
        return f"no test notices `{self.instead}` for `{self.written}` in line {self.line}"


def boundary_mutants(source: str) -> list[BoundaryMutant]:
    """Return the boundary mutants of a constraint, the likeliest slips first.

    One that does not read `today` or `now` has none: `source` is Python that parses.
    """
    tokens = [token for token in _tokens(source) if token.type not in _IGNORED]
    # The parameter of `check` is the first of them: who only takes the clock does not read it.
    if sum(token.string in CLOCK for token in tokens) < 2:
        return []
    lines = source.splitlines(keepends=True)
    found: tuple[list[BoundaryMutant], ...] = ([], [], [])
    blank = tokenize.TokenInfo(tokenize.OP, "", (0, 0), (0, 0), "")
    for before, token, after in zip([blank, *tokens], tokens, [*tokens[1:], blank], strict=False):
        written = token.string
        if token.type == tokenize.OP and written in _FLIPPED:
            rank, instead, fix = 0, _FLIPPED[written], "add one on that very day, or at that value"
        elif token.type == tokenize.NAME and written in _SWAPPED:
            rank, instead, fix = 1, _SWAPPED[written], "add one in which only one of the two holds"
        elif _is_boundary(before, token, after):
            rank, instead = 2, str(int(written) + 1)
            fix = "add one on the last day, or value, for which it holds, and one just beyond"
        else:
            continue
        row, start = token.start[0] - 1, token.start[1]
        line = lines[row]
        changed = f"{line[:start]}{instead}{line[token.end[1] :]}"
        mutant = "".join([*lines[:row], changed, *lines[row + 1 :]])
        found[rank].append(BoundaryMutant(mutant, row + 1, written, instead, fix))
    return list(itertools.chain(*found))[:MAX_MUTANTS]


def _is_boundary(
    before: tokenize.TokenInfo, token: tokenize.TokenInfo, after: tokenize.TokenInfo
) -> bool:
    """Whether a token is a whole number, neither an index nor the step of a loop."""
    if token.type != tokenize.NUMBER or not _INTEGER.fullmatch(token.string):
        return False
    is_index = after.string == "]" and before.string in ("[", "-")
    return not is_index and before.string not in ("+=", "-=")


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens outside of texts; those within an f-string are some only since 3.12."""
    begin, end = (getattr(tokenize, f"FSTRING_{name}", -1) for name in ("START", "END"))
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        depth += (token.type == begin) - (token.type == end)
        if not depth:
            yield token
