"""Texts that people, models and backends wrote, made safe to look at where they stand in others."""

import ast
import re
import unicodedata

# Control characters but tab and line ends, bidirectional embeddings, overrides and isolates,
# characters of no width, tags. The marks and joiners of Arabic, Hebrew and emoji stay as they are.
STEERING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u200b\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


# The longest reason, or note, that somebody gives for what they do.
MAX_REASON = 2000
# What follows a letter and is drawn onto it: every character with a combining class.
_MARKS = "".join(
    re.escape(chr(number)) for number in range(0x300, 0x20000) if unicodedata.combining(chr(number))
)
MAX_MARKS = 30  # of Unicode's stream-safe text: no language needs more
_TOO_MANY_MARKS = re.compile(f"([{_MARKS}]{{{MAX_MARKS}}})[{_MARKS}]+")

# Of one file: signs other than letters, digits, blanks and underlines. Each may be a node of the
# syntax tree, which takes a kilobyte, and some microseconds in which no other thread runs.
MAX_SIGNS = 400_000
_NO_SIGNS = bytes(
    number for number in range(256) if number >= 128 or re.match(rb"[\w \t]", bytes([number]))
)


def with_few_marks(text: str) -> str:
    """Return the text without what is more than 30 combining marks in a row.

    Normalisation sorts the marks in a row, in quadratic time and with the interpreter's lock held:
    of 100,000 a process would not wake for seconds.
    """
    return text if text.isascii() else _TOO_MANY_MARKS.sub(r"\1", text)


def parse_python(source: str, path: str = "<unknown>") -> ast.Module:
    """Parse a module; raises what `ast.parse` does, and SyntaxError for a name that is no word.

    Python normalises each name, so a name of 100,000 combining marks is refused before; so is more
    code than can be parsed without stopping all other threads for seconds, and filling the memory.
    """
    _refuse_unparsed(source, path)
    return ast.parse(source, path)


def parse_expression(source: str) -> ast.Expression:
    """Parse an expression, as `parse_python` does a module."""
    _refuse_unparsed(source, "<unknown>")
    return ast.parse(source, mode="eval")


def _refuse_unparsed(source: str, path: str) -> None:
    if len(source) > MAX_SIGNS:
        signs = len(source.encode(errors="replace").translate(None, _NO_SIGNS))
        if signs > MAX_SIGNS:
            message = f"too much code for one file: {signs:,} signs, {MAX_SIGNS:,} at most"
            raise SyntaxError(message, (path, None, None, None))
    found = None if source.isascii() else _TOO_MANY_MARKS.search(source)
    if found is not None:
        line = source.count("\n", 0, found.start()) + 1
        message = f"more than {MAX_MARKS} combining marks in a row: leave them out"
        raise SyntaxError(message, (path, line, None, None))


def visible(text: str) -> str:
    """Return the text with every character that steers or hides others written as an escape."""
    return STEERING.sub(_escaped, text)


def shortened(text: str, length: int = 120) -> str:
    """Return the beginning of a text, made visible."""
    text = visible(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def one_line(text: str, length: int) -> str:
    """Return the beginning of a text in one line, which no header of a mail is ended by."""
    return shortened(" ".join(text.split()), length)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
