"""Repairs to Python source that does not parse."""

import ast
import io
import re
import textwrap
import tokenize
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

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


def parse_valid(source: str) -> ast.Module | None:
    """Return the syntax tree of a source; None if it does not parse."""
    try:
        return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
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
    place = 0
    while (opening := _OPENING.search(source, place)) is not None:
        start, place = opening.start(), opening.start() + 1
        for mark in dict.fromkeys((opening[0], opening[0][0])):
            if start < open_until[mark]:
                continue
            within = _UNTIL[mark].match(source, start + len(mark))
            assert within is not None  # each pattern also matches an empty string
            end = within.end() if mark == "#" else within.end() + len(mark)
            if mark == "#" or source.startswith(mark, within.end()):
                yield start, end
                place = end
                break
            open_until[mark] = within.end()


_FENCE = re.compile(r"^[ \t]*(?:```+|~~~+)[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_TAGS = {"", "py", "python", "python3", "py3"}


def _code_fence(source: str) -> str:
    """Return the code between Markdown fences, without the text around them."""
    if not _FENCE.search(source):
        return source
    blocks: list[list[str]] = []
    inside = False
    for line in source.splitlines(keepends=True):
        fence = _FENCE.match(line)
        if fence and not inside:
            inside = True
            blocks.append([] if fence[1].lower() in _TAGS else ["", ""])
            wanted = fence[1].lower() in _TAGS
        elif fence:
            inside = False
        elif inside and wanted:
            blocks[-1].append(line)
    code = "".join("".join(block) for block in blocks)
    if not code.strip():  # there is only a closing fence: the code comes before it
        code = source[: next(_FENCE.finditer(source)).start()]
    return code if code.strip() else source


def _language_tag(source: str) -> str:
    """Drop a first line that contains only the name of the language."""
    return re.sub(r"\A\s*(?:python3?|py)[ \t]*\n", "", source, flags=re.IGNORECASE)


def _unseen_characters(source: str) -> str:
    """Drop control and zero-width characters and normalize spaces, except in strings."""
    masked = _masked(source)
    kept = []
    for character, mask in zip(source, masked, strict=True):
        category = unicodedata.category(character)
        if character == "\0":  # not allowed anywhere in Python source
            continue
        if mask == "_" or character in "\t\n\r\f " or category not in {"Cc", "Cf", "Zs"}:
            kept.append(character)
        elif category == "Zs":
            kept.append(" ")
    return "".join(kept)


_CURLY = re.compile(r"[“„‟]([^\"“”„‟\\\n]*)[”“]|[‘‚‛]([^'‘’‚‛\\\n]*)[’‘]")


def _typographic_quotes(source: str) -> str:
    """Replace curly quotes that delimit a string with straight ones."""
    masked = _masked(source)

    def straight(match: re.Match[str]) -> str:
        if masked[match.start()] == "_":
            return match.group()
        quote = '"' if match[1] is not None else "'"
        return f"{quote}{match[1] if match[1] is not None else match[2]}{quote}"

    return _CURLY.sub(straight, source)


def _wide_punctuation(source: str) -> str:
    """Replace full-width punctuation and the mathematical minus sign with ASCII characters."""
    masked = _masked(source)
    kept = []
    for character, mask in zip(source, masked, strict=True):
        normal = "-" if character == "\N{MINUS SIGN}" else unicodedata.normalize("NFKC", character)
        is_mark = not character.isascii() and mask != "_" and normal in tuple("()[]{}:;,.=+-*/<>@")
        kept.append(normal if is_mark else character)
    return "".join(kept)


_PROMPT = re.compile(r"^(?:>>>|\.\.\.)(?: |$)", re.MULTILINE)


def _prompts(source: str) -> str:
    """Drop an interactive session's prompts (`>>>` or `...`) if every line has one."""
    lines = [line for line in source.splitlines() if line.strip()]
    if lines and all(_PROMPT.match(line) for line in lines):
        return _PROMPT.sub("", source)
    return source


def _indentation(source: str) -> str:
    """Remove the indentation common to all lines of a fragment, except inside string literals.

    The first line may have lost its indentation when the fragment was cut out.
    """
    lines = source.splitlines()
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(code) < 2:
        return textwrap.dedent(source) if code and parse_valid(textwrap.dedent(source)) else source
    margin = re.match(r"[ \t]*", code[1])
    assert margin
    candidates = [source]
    if margin.group() and not code[0][:1].isspace() and not code[0].rstrip().endswith(":"):
        first = source.index(code[0])
        candidates.append(f"{source[:first]}{margin.group()}{source[first:]}")
    for candidate in candidates:
        dedented = _dedented(candidate)
        if dedented != candidate and parse_valid(dedented) is not None:
            return dedented
    return source


def _dedented(source: str) -> str:
    """Remove the common indentation from all lines that do not continue a string literal."""
    inside: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(f"if 1:\n{source}\n").readline):
            if token.start[0] != token.end[0] and token.type not in (
                tokenize.NEWLINE,
                tokenize.NL,
                tokenize.ENDMARKER,
                tokenize.DEDENT,
                tokenize.INDENT,
            ):
                inside |= set(range(token.start[0], token.end[0]))  # "if 1:" shifts line numbers
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return source
    lines = source.split("\n")
    free = [line for number, line in enumerate(lines, 1) if number not in inside and line.strip()]
    margins = [re.match(r"[ \t]*", line).group() for line in free]  # type: ignore[union-attr]
    margin = min(margins, key=len, default="")
    if not margin or not all(line.startswith(margin) for line in free):
        return source
    return "\n".join(
        line if number in inside else line.removeprefix(margin)
        for number, line in enumerate(lines, 1)
    )


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
    return "".join(c for place, c in enumerate(source) if place not in drop)


_OCTAL = re.compile(r"(?<![\w.])0[oO]([0-9]++)\b")


def _impossible_octals(source: str) -> str:
    """Write 9 for 0o9 in a date or a time, since no octal number has the digit 9.

    Nothing is changed if any date or time contains a valid octal number such as 0o12: only the
    author knows whether 12 or the octal value is meant.
    """
    masked = _masked(source)
    found = [
        (octal.span(), octal[1].lstrip("0") or "0")
        for call in _CALENDAR.finditer(masked)
        for octal in _OCTAL.finditer(masked, call.start(1), call.end(1))
    ]
    if any(set(digits) & {"8", "9"} for _, digits in found) and not any(
        len(digits) > 1 and not set(digits) & {"8", "9"} for _, digits in found
    ):
        for (start, end), digits in reversed(found):
            source = source[:start] + digits + source[end:]
    return source


_BEGINNING = re.compile(
    r"(?:from\s+[\w.]+\s+import\b|import\s+[\w.]+|class\s+\w+|def\s+\w+|@\w|#|\"\"\"|'''"
    r"|\w+\s*(?::[^=\n]+)?=(?!=))"
)
_PROSE = re.compile(r"[A-Z*_>-]\S*+\s.*\w")


def _prose_around(source: str) -> str:
    """Drop prose before the first and after the last line of code."""
    lines = source.splitlines(keepends=True)
    first = next((n for n, line in enumerate(lines) if _BEGINNING.match(line)), 0)
    last = len(lines)
    while last > first and (not lines[last - 1].strip() or _is_prose(lines[last - 1])):
        last -= 1
    before, after = lines[:first], lines[last:]
    if not all(_is_prose(line) for line in (*before, *after) if line.strip()):
        return source
    return "".join(lines[first:last]) or source


def _is_prose(line: str) -> bool:
    return (
        _PROSE.match(line) is not None
        and len(line.split()) >= 3
        and not any(mark in line for mark in '=[]{}()"')
        and parse_valid(line.strip()) is None
    )


TEXT_RULES: Rules = {
    "language_tag": _language_tag,
    "code_fence": _code_fence,
    "unseen_characters": _unseen_characters,
    "prompts": _prompts,
    "prose_around": _prose_around,
    "indentation": _indentation,
    "typographic_quotes": _typographic_quotes,
    "wide_punctuation": _wide_punctuation,
    "leading_zeros": _leading_zeros,
    "impossible_octals": _impossible_octals,
}
# This repair is applied even to source that parses, since the word `python` alone on a line is
# valid Python.
ALWAYS_APPLIED = {"language_tag"}
