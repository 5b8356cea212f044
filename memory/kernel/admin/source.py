"""Safe display of Python source: coloured, numbered and bounded.

We use our own lexer because Pygments takes minutes to process 100 kB of hostile text, such as lines
with a single space, and seconds even for an ordinary state file. Ours reads each character only
once, whatever the text: no two alternatives of its pattern start the same way, so it never
backtracks.
"""

import ast
import builtins
import json
import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from html import escape

from django.utils.safestring import SafeString

from memory.kernel.texts import parse_valid, visible
from sandbox_image.uac.alerts import Severity

# Maximum number of characters and of lines shown; the rest of a longer text is cut off.
MAX_SOURCE = 400_000
MAX_LINES = 20_000

_TOKEN = re.compile(
    r"""
    (?P<comment>\#[^\n]*+)
  | (?P<string>[bBfFrRtTuU]{0,2}+(?:
        \"\"\"(?:[^"\\]|\\.|"(?!""))*+(?:\"\"\")?
      | '''(?:[^'\\]|\\.|'(?!''))*+(?:''')?
      | "(?:[^"\\\n]|\\.)*+"?
      | '(?:[^'\\\n]|\\.)*+'?
    ))
  | (?P<decorator>(?m:^)[ \t]*+@[\w.]*+)
  | (?P<number>\d[\w.]*+)
  | (?P<cited>\bsources=\([\d, ]*+\))
  | (?P<name>[^\W\d]\w*+)
    """,
    re.VERBOSE | re.DOTALL,
)
# Stands in for the lines that an excerpt leaves out.
_LEFT_OUT = "⋮"
_KEYWORDS = frozenset(keyword.kwlist)
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))
_NUMBER = re.compile(r"\d+")
_SEVERITIES = frozenset(Severity)
# The CSS class of each kind of token.
_CLASSES = {
    "comment": "c",
    "string": "s",
    "number": "n",
    "decorator": "d",
    "keyword": "k",
    "builtin": "b",
    "definition": "d",
}


def code_lines(text: str, entries: Mapping[int, str] | None = None) -> list[SafeString]:
    """Return a program's lines as safe markup.

    `entries` maps entry numbers to URLs; numbers in records' `sources` become links to these URLs.
    """
    text = visible(text[:MAX_SOURCE].replace("\r\n", "\n").replace("\r", "\n")).removesuffix("\n")
    parts: list[str] = []
    end = 0
    for kind, start, stop in _tokens(text):
        parts.append(escape(text[end:start]))
        token, end = text[start:stop], stop
        if kind == "cited":
            parts.append(_linked(token, entries or {}))
            continue
        css = _CLASSES[kind]
        # A token that spans several lines gets its own tag on each line.
        parts.append(
            "\n".join(
                f'<span class="{css}">{escape(line)}</span>' if line else ""
                for line in token.split("\n")
            )
        )
    parts.append(escape(text[end:]))
    lines = "".join(parts).split("\n")
    return [SafeString(line) for line in lines]  # nosec B703 # its parts are escaped above


def block(
    text: str,
    *,
    marked: Collection[int] = (),
    entries: Mapping[int, str] | None = None,
    around: int | None = None,
) -> SafeString:
    """Return a program in a block with line numbers, which aren't copied along with the text.

    The `marked` lines are highlighted; if `around` is given, only these lines and that many lines
    before and after them are shown. `entries` is passed to `code_lines`.
    """
    rows: list[str] = []
    code = code_lines(text, entries)
    near = None if around is None else _near(marked, around)
    for number, line in enumerate(code[:MAX_LINES], 1):
        if near is not None and number not in near:
            if not rows or rows[-1] != _LEFT_OUT:
                rows.append(_LEFT_OUT)
            continue
        name = f'<span class="number" data-number="{number}"></span>'
        rows.append(f"{name}<mark>{line}</mark>" if number in marked else f"{name}{line}")
    if len(code) > MAX_LINES:
        rows.append(f"… {len(code) - MAX_LINES:,} more lines")
    if (more := len(text) - MAX_SOURCE) > 0:
        rows.append(f"… {more:,} more characters")
    block = f'<pre class="block code" tabindex="0">{chr(10).join(rows)}</pre>'
    return SafeString(block)  # nosec B703 # its lines are escaped


def _near(marked: Collection[int], around: int) -> set[int]:
    return {one for number in marked for one in range(number - around, number + around + 1)}


def marks(refused: Iterable[tuple[int, str]]) -> str:
    """Return the lines that were refused, each with the reason, as the editor takes them."""
    found = [(line, visible(reason)) for line, reason in refused]
    return json.dumps(found) if found else ""


def cited(text: str) -> set[int]:
    """Return the numbers of the entries that a file's records cite as sources."""
    if len(text) > MAX_SOURCE:
        text = text[:MAX_SOURCE]
    return {
        int(number)
        for kind, start, stop in _tokens(text)
        if kind == "cited"
        for number in _NUMBER.findall(text, start, stop)
        if len(number) < 19  # no log has entry numbers this large
    }


def matching_statements(text: str, severity: str, message: str) -> list[range]:
    """Return the lines of the statements that create alerts with this severity and message.

    These are calls such as `critical(f"…")` whose constant parts occur in the message in order.
    Without any, they are calls with `evidence` that may have any severity, such as `raised(…)`. The
    list is empty if the text is not valid Python or creates its alerts some other way.
    """
    module = parse_valid(text[:MAX_SOURCE])
    if module is None:
        return []
    spans: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    left: list[tuple[ast.AST, ast.stmt | None]] = [(module, None)]
    while left:
        node, statement = left.pop()
        if isinstance(node, ast.stmt):
            # In a compound statement, such as a loop, only the lines of the call are returned.
            statement = None if hasattr(node, "body") or hasattr(node, "cases") else node
        match node:
            case ast.Call(func=ast.Name(id=name), args=[words, *_], keywords=named):
                has_severity = name == severity
                cites = any(one.arg == "evidence" for one in named)
                if (has_severity or (cites and name not in _SEVERITIES)) and _may_say(
                    words, message
                ):
                    target = statement or node
                    spans[has_severity].add((target.lineno, target.end_lineno or target.lineno))
        left += ((child, statement) for child in ast.iter_child_nodes(node))
    return [range(first, last + 1) for first, last in sorted(spans[True] or spans[False])]


def _may_say(words: ast.expr, message: str) -> bool:
    """Return whether an expression can produce this message, judging by its constant parts."""
    position = 0
    parts = words.values if isinstance(words, ast.JoinedStr) else [words]
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            start = message.find(part.value, position)
            if start < 0:
                return False
            position = start + len(part.value)
    return True


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) for each token that has a colour or a link."""
    defines = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "name":
            name = match[0]
            if defines:
                kind = "definition"
            elif name in _KEYWORDS:
                kind = "keyword"
            elif name in _BUILTINS:
                kind = "builtin"
            defines = kind == "keyword" and name in ("def", "class")
            if kind == "name":
                continue
        yield kind, match.start(), match.end()


def _linked(text: str, entries: Mapping[int, str]) -> str:
    """Turn the numbers in text such as `sources=(3, 7)` into links; such text needs no escaping."""

    def link(match: re.Match[str]) -> str:
        url = entries.get(int(match[0])) if len(match[0]) < 19 else None
        number = f'<span class="n">{match[0]}</span>'
        return f'<a href="{escape(url)}">{number}</a>' if url else number

    return _NUMBER.sub(link, text)
