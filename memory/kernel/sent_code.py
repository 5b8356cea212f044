"""Code as people and language models send it: freed from what merely surrounds it."""

import re
import textwrap

from memory.kernel.texts import parse_valid

# Byte order marks, zero-width characters and no-break spaces, which copying from a page adds.
_INVISIBLE = "\ufeff\u200b\u2060\u00a0"
_FENCED = re.compile(r"(?ms)^[ \t]*(```|~~~)[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)")
_QUOTED = re.compile(r"`([^`]+)`|“([^“”]+)”|‘([^‘’]+)’|„([^„“”]+)[“”]", re.DOTALL)
# What must stay as it is (comments, and strings with straight quotes), or a string with other ones.
_STRINGS = re.compile(
    r'#[^\n]*|"""[\s\S]*?(?:"""|\Z)|' + r"'''[\s\S]*?(?:'''|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?' + r"|'(?:\\.|[^'\\\n])*'?"
    r"|[“”„](?P<double>[^“”„\n]*)[“”]|[‘’](?P<single>[^‘’\n]*)’"
)


def tidied(code: str) -> str:
    """Return the code without what surrounds it: a Markdown fence, invisible characters, quotes.

    Indentation of all lines is removed. If the code is not Python otherwise, typographic quotes
    around its strings become straight, and text around a single fenced block is left out.
    """
    text = code.strip(f"{_INVISIBLE}\r\n")
    blocks = list(_FENCED.finditer(text))
    if len(blocks) == 1 and (_is_all(blocks[0], text) or parse_valid(text) is None):
        text = blocks[0][2]
    text = textwrap.dedent(text.strip(f"{_INVISIBLE}\r\n")).strip()
    if (quoted := _QUOTED.fullmatch(text)) and parse_valid(text) is None:
        text = next(part for part in quoted.groups() if part).strip()
    if re.search("[“”„‘’]", text) and parse_valid(text) is None:
        text = _STRINGS.sub(_with_straight_quotes, text)
    return text


def _is_all(block: re.Match[str], code: str) -> bool:
    return not (code[: block.start()] + code[block.end() :]).strip()


def _with_straight_quotes(match: re.Match[str]) -> str:
    for name, quote in (("double", '"'), ("single", "'")):
        if (text := match[name]) is not None:
            return quote + text.replace(quote, f"\\{quote}") + quote
    return match[0]
