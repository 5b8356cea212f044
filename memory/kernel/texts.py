"""Making text from people, models and backends safe to parse and to embed in other text."""

import ast
import re
import threading
import unicodedata
from collections.abc import Iterator

# Matches control characters (except tabs and line endings), bidirectional embeddings, overrides and
# isolates, zero-width characters, and tag characters, but not the marks and joiners that Arabic,
# Hebrew and emoji need.
STEERING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u200b\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


# Placeholder for redacted text that can't be empty.
REDACTED = "(redacted)"
# The maximum length of a reason or note that somebody gives for an action.
MAX_REASON = 2000
MAX_MARKS = 30  # the limit of Unicode's Stream-Safe Text Format; no language needs more


def _marks(first: int, last: int) -> str:
    """Return a regex that matches any combining mark with a code point in this range."""
    numbers = range(first, last + 1)
    return f"[{''.join(re.escape(chr(one)) for one in numbers if unicodedata.combining(chr(one)))}]"


def _too_many(mark: str) -> re.Pattern[str]:
    """Return a regex for an overlong run of combining marks; its group holds the marks to keep."""
    return re.compile(f"({mark}{mark}{{{MAX_MARKS - 1}}}){mark}+")


# The `re` module uses a lookup table if all characters in a character class are below U+10000;
# otherwise it tests the class's ranges one by one, which takes 50 times as long. So marks from
# U+10000 on, most of which are in historic scripts, are matched only in texts that contain such
# scripts.
_HISTORIC = "[\U00010000-\U0001efff]"
_HAS_HISTORIC = re.compile(_HISTORIC)
_COMMON_MARK = _marks(0x300, 0xFFFF)
_TOO_MANY_COMMON = _too_many(_COMMON_MARK)
_TOO_MANY = _too_many(f"(?:{_COMMON_MARK}|(?={_HISTORIC}){_marks(0x10000, 0x1EFFF)})")

# The maximum number of characters per file other than letters, digits, spaces, tabs and
# underscores. Each of these characters may become a node in the syntax tree, which takes a kilobyte
# of memory and blocks all other threads for some microseconds.
MAX_SIGNS = 400_000
# Before 3.11.8, Python counts the depth of syntax trees across all threads, so if two threads parse
# at the same time, one of them gets a SystemError
# (https://github.com/python/cpython/issues/106905).
_parsing = threading.RLock()
_NO_SIGNS = bytes(
    number for number in range(256) if number >= 128 or re.match(rb"[\w \t]", bytes([number]))
)


def with_few_marks(text: str) -> str:
    """Return the text with at most 30 combining marks in a row.

    Normalisation sorts consecutive marks in quadratic time while holding the GIL: 100,000 marks
    would block a process for seconds.
    """
    return text if text.isascii() else _pattern_for(text).sub(r"\1", text)


def _pattern_for(text: str) -> re.Pattern[str]:
    return _TOO_MANY if _HAS_HISTORIC.search(text) else _TOO_MANY_COMMON


def parse_python(source: str, path: str = "<unknown>") -> ast.Module:
    """Parse a module. Raises what `ast.parse` raises, and SyntaxError for code that is rejected.

    Code is rejected, without being parsed, if it is so long that parsing it would block all other
    threads for seconds and exhaust the memory, or if it has too many combining marks in a row,
    because Python normalises identifiers, which is slow for such text.
    """
    _refuse_unparsed(source, path)
    with _parsing:
        return ast.parse(source, path)


def parse_valid(source: str) -> ast.Module | None:
    """Parse a module; return None if it is not valid Python."""
    try:
        return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def docstring_of(module: ast.Module) -> str:
    """Return the docstring of a constraint's `check` or, failing that, of its module."""
    checks = [n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "check"]
    documented: list[ast.FunctionDef | ast.Module] = [*checks, module]
    return next((text for node in documented if (text := ast.get_docstring(node))), "")


def parse_expression(source: str) -> ast.Expression:
    """Parse an expression, rejecting the same code as `parse_python`."""
    _refuse_unparsed(source, "<unknown>")
    with _parsing:
        return ast.parse(source, mode="eval")


def _refuse_unparsed(source: str, path: str) -> None:
    if len(source) > MAX_SIGNS:
        signs = len(source.encode(errors="replace").translate(None, _NO_SIGNS))
        if signs > MAX_SIGNS:
            message = f"too much code for one file: {signs:,} tokens, maximum {MAX_SIGNS:,}"
            raise SyntaxError(message, (path, None, None, None))
    match = None if source.isascii() else _pattern_for(source).search(source)
    if match is not None:
        line = source.count("\n", 0, match.start()) + 1
        message = f"more than {MAX_MARKS} combining marks in a row: leave them out"
        raise SyntaxError(message, (path, line, None, None))


def visible(text: str) -> str:
    """Return the text with all invisible and direction-changing characters escaped."""
    return STEERING.sub(_escaped, text)


def shortened(text: str, length: int = 120) -> str:
    """Return the text, truncated to `length` characters, with invisible characters escaped."""
    text = visible(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def one_line(text: str, length: int) -> str:
    """Return the text as one line, truncated to `length` characters and safe in an email header."""
    return shortened(" ".join(text.split()), length)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def split_text(text: str, most: int) -> Iterator[str]:
    """Split a text into pieces of at most `most` characters that add up to the whole text.

    A piece ends with a paragraph or, failing that, with a line, a sentence or a word, as long as
    the break falls in the second half of the piece.
    """
    start = 0
    while len(text) - start > most:
        middle, end = start + most // 2, start + most
        cuts = (text.rfind(mark, middle, end) + len(mark) for mark in ("\n\n", "\n", ". ", " "))
        cut = next((position for position in cuts if position > middle), end)
        yield text[start:cut]
        start = cut
    yield text[start:]
