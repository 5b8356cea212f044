"""The static policy for users' projects: what Python code may contain in each kind of file.

The policy keeps a project deterministic and readable, prevents it from deceiving its type checker,
and reports problems early, in plain words. The policy isn't meant to be a security boundary: the
sandbox, in which all code runs, is one.
"""

import io
import re
import tokenize
from collections.abc import Iterator, Sequence

from memory.kernel.texts import parse_python
from workers.findings import Finding
from workers.policy.kinds_of_file import MANIFEST, PROJECT, QUERY, FileKind, kind_of
from workers.policy.rules import Breach, check_tree

QUERY_PATH = "<query>"

_DIRECTIVE = re.compile(r"#\s*(?:(?:type|mypy|pyright|pytype|ty)\s*:|pyre-)")
_ENCODING = re.compile(r"coding[:=]")  # only in a comment in the first two lines of a file
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")


def check_policy(path: str, source: str, kinds: Sequence[FileKind] = PROJECT) -> list[Finding]:
    """Return the policy violations in a file, sorted by line; its path decides which kind it is."""
    kind = kind_of(path, kinds)
    if kind is None:
        message = (
            f"{path} is not a project file: use domains/<domain>/schema.py or state.py,"
            " constraints/<name>.py or tests/test_<name>.py"
        )
        return [Finding(code="path", path=path, line=1, message=message)]
    return _check(path, source, kind)


def check_query(code: str) -> list[Finding]:
    """Return the policy violations in a query, sorted by line."""
    return _check(QUERY_PATH, code, QUERY)


def _check(path: str, source: str, kind: FileKind) -> list[Finding]:
    text = source.replace("\r\n", "\n")
    try:
        tree = parse_python(text, path)
        breaches = list(check_tree(kind, tree))
        breaches += _check_text(text, kind)
    except SyntaxError as error:
        detail = error.msg.removeprefix("invalid syntax").lstrip(". ")
        why = f"invalid syntax: {detail}" if detail else "invalid syntax"
        breaches = [(error.lineno or 1, "syntax", why)]
    except (RecursionError, MemoryError):
        breaches = [(1, "syntax", "nested too deeply: use names for the parts")]
    except (ValueError, tokenize.TokenError) as error:  # such as null characters
        breaches = [(1, "syntax", f"not Python source: {error}")]
    return [
        Finding(code=code, path=path, line=line, message=message)
        for line, code, message in dict.fromkeys(sorted(breaches))
    ]


def _check_text(text: str, kind: FileKind) -> Iterator[Breach]:
    if kind is MANIFEST:
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if match := _UNPRINTABLE.search(line):
            name = f"U+{ord(match[0]):04X}"
            yield number, "syntax", f"the control character {name}: write an escape such as '\\n'"
            return  # Python may count lines differently from here on
    if kind is QUERY:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row = token.start[0]
        if token.type == tokenize.COMMENT and (
            _DIRECTIVE.search(token.string) or (row <= 2 and _ENCODING.search(token.string))
        ):
            message = f"the comment {token.string!r} is a directive: remove it and fix the cause"
            yield row, "directive", message
