"""Mechanical repairs of Python that somebody else wrote, most often a model.

A repair is applied only if the text cannot run at all as it is, and can mean only one thing; it
corrects the form, never a value. So nothing is guessed that is cut off, misspelled or
contradictory: its author has to fix that. Every repair has a name, which is recorded wherever the
repaired text is used.
"""

import ast
import io
import re
import textwrap
import tokenize
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from memory.project import WriteConstraint
from memory.texts import parse_python
from workers.checkpointing.policy_tables import LIBRARY

# One repair may make another possible: a fence hides an indentation.
MAX_ROUNDS = 8

_Rules: TypeAlias = Mapping[str, Callable[[str], str]]


@dataclass(frozen=True)
class Repaired:
    """A text after its repairs, their names in order, and any remaining syntax error."""

    source: str
    repairs: tuple[str, ...] = ()
    error: str = ""
    line: int | None = None


def repair(source: str, library: Mapping[str, str] = MappingProxyType({})) -> Repaired:
    """Return the source with every mechanical repair that it needs; never raise.

    A valid text is returned unchanged. `error` tells what no repair could correct. `library` has
    the names that may be imported besides those of the standard library, with their modules: in
    somebody else's project, `Alert` means something else than ours.
    """
    names: list[str] = []
    missing_imports = partial(_missing_imports, known={**_KNOWN, **library})
    of_program: _Rules = {**_OF_PROGRAM, "missing_imports": missing_imports}
    for rules in (_OF_TEXT, of_program):
        for _ in range(MAX_ROUNDS):
            before = source
            for name, rule in rules.items():
                if rules is _OF_TEXT and name not in _ALWAYS and _parse(source) is not None:
                    break
                changed = rule(source)
                if changed != source:
                    source = changed
                    names += [name] if name not in names else []
            if source == before:
                break
    error = syntax_error(source)
    return Repaired(source, tuple(names), *(error or ("", None)))


def put_right(path: str, source: str) -> Repaired:
    """Return a project's file repaired; a file that no repair makes valid is returned unchanged."""
    repaired = repair(source, _library_of(path))
    return Repaired(source) if repaired.error else repaired


def repair_constraint(edit: WriteConstraint) -> tuple[WriteConstraint, list[tuple[str, str]]]:
    """Return the edit with its source and tests repaired, and each repair as (path, name).

    A text that no repair makes valid is returned unchanged.
    """
    path, tests_path = f"constraints/{edit.name}.py", f"tests/test_{edit.name}.py"
    source = put_right(path, edit.source)
    tests = put_right(tests_path, edit.tests_source)
    repairs = [(path, name) for name in source.repairs]
    repairs += [(tests_path, name) for name in tests.repairs]
    return replace(edit, source=source.source, tests_source=tests.source), repairs


def syntax_error(source: str) -> tuple[str, int | None] | None:
    """Return the syntax error of a source, and its line; None if it is valid."""
    try:
        compile(parse_python(source), "module", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{type(error).__name__}: {error.msg}", error.lineno
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"{type(error).__name__}: {error}", None
    return None


def _parse(source: str) -> ast.Module | None:
    try:
        return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


# Repairs of a text that does not parse

_OPENING = re.compile(r"#|'''|\"\"\"|'|\"")
_UNTIL = {
    "#": re.compile(r"[^\n]*+"),
    "'''": re.compile(r"(?:\\.|(?!''').)*+", re.DOTALL),
    '"""': re.compile(r'(?:\\.|(?!""").)*+', re.DOTALL),
    "'": re.compile(r"(?:\\.|[^'\\\n])*+", re.DOTALL),
    '"': re.compile(r'(?:\\.|[^"\\\n])*+', re.DOTALL),
}


def _masked(source: str) -> str:
    """Return the source with every string and comment blanked out, at the same positions."""
    parts = []
    done = 0
    for start, end in _literals(source):
        parts += [source[done:start], re.sub(r"[^\n]", "_", source[start:end])]
        done = end
    return "".join([*parts, source[done:]])


def _literals(source: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each string and comment, except those left open.

    If one was left open, no later one ends with its quotes either, so nothing is read twice.
    """
    open_until = dict.fromkeys(_UNTIL, 0)
    place = 0
    while (opening := _OPENING.search(source, place)) is not None:
        start, place = opening.start(), opening.start() + 1
        for mark in dict.fromkeys((opening[0], opening[0][0])):
            if start < open_until[mark]:
                continue
            within = _UNTIL[mark].match(source, start + len(mark))
            assert within is not None  # an empty match
            end = within.end() if mark == "#" else within.end() + len(mark)
            if mark == "#" or source.startswith(mark, within.end()):
                yield start, end
                place = end
                break
            open_until[mark] = within.end()


_FENCE = re.compile(r"^[ \t]*(?:```+|~~~+)[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_TAGS = {"", "py", "python", "python3", "py3"}


def _code_fence(source: str) -> str:
    """Return the code between the fences of Markdown, without the text around them."""
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
    if not code.strip():  # only a closing fence: the code comes before it
        code = source[: next(_FENCE.finditer(source)).start()]
    return code if code.strip() else source


def _language_tag(source: str) -> str:
    """Drop a first line that only names the language."""
    return re.sub(r"\A\s*(?:python3?|py)[ \t]*\n", "", source, flags=re.IGNORECASE)


def _unseen_characters(source: str) -> str:
    """Drop control and zero-width characters, and make every space a plain one, outside texts."""
    masked = _masked(source)
    kept = []
    for character, mask in zip(source, masked, strict=True):
        category = unicodedata.category(character)
        if character == "\0":  # invalid anywhere in a source
            continue
        if mask == "_" or character in "\t\n\r\f " or category not in {"Cc", "Cf", "Zs"}:
            kept.append(character)
        elif category == "Zs":
            kept.append(" ")
    return "".join(kept)


_TYPOGRAPHIC = {
    **dict.fromkeys("“”„‟", '"'),
    **dict.fromkeys("‘’‚‛", "'"),
}
_CURLY = re.compile(r"[“„‟]([^\"“”„‟\\\n]*)[”“]|[‘‚‛]([^'‘’‚‛\\\n]*)[’‘]")


def _typographic_quotes(source: str) -> str:
    """Write straight quotes where curly ones delimit a text."""
    masked = _masked(source)

    def straight(match: re.Match[str]) -> str:
        if masked[match.start()] == "_":
            return match.group()
        quote = '"' if match[1] is not None else "'"
        return f"{quote}{match[1] if match[1] is not None else match[2]}{quote}"

    return _CURLY.sub(straight, source)


def _wide_punctuation(source: str) -> str:
    """Write ASCII where punctuation is full-width or a minus is the mathematical one."""
    masked = _masked(source)
    kept = []
    for character, mask in zip(source, masked, strict=True):
        normal = "-" if character == "\N{MINUS SIGN}" else unicodedata.normalize("NFKC", character)
        is_mark = not character.isascii() and mask != "_" and normal in tuple("()[]{}:;,.=+-*/<>@")
        kept.append(normal if is_mark else character)
    return "".join(kept)


_PROMPT = re.compile(r"^(?:>>>|\.\.\.)(?: |$)", re.MULTILINE)


def _prompts(source: str) -> str:
    """Drop the prompts of an interactive session if every line has one."""
    lines = [line for line in source.splitlines() if line.strip()]
    if lines and all(_PROMPT.match(line) for line in lines):
        return _PROMPT.sub("", source)
    return source


def _indentation(source: str) -> str:
    """Remove the indentation that all lines of a fragment share; texts keep theirs.

    The first line may have lost it when the fragment was cut out.
    """
    lines = source.expandtabs(8).splitlines() if "\t" not in source else source.splitlines()
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(code) < 2:
        return textwrap.dedent(source) if code and _parse(textwrap.dedent(source)) else source
    margin = re.match(r"[ \t]*", code[1])
    assert margin
    candidates = [source]
    if margin.group() and not code[0][:1].isspace() and not code[0].rstrip().endswith(":"):
        first = source.index(code[0])
        candidates.append(f"{source[:first]}{margin.group()}{source[first:]}")
    for candidate in candidates:
        dedented = _dedented(candidate)
        if dedented != candidate and _parse(dedented) is not None:
            return dedented
    return source


def _dedented(source: str) -> str:
    """Remove the common margin from the lines that do not continue a text."""
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
                inside |= set(range(token.start[0], token.end[0]))  # a line was inserted before it
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
# No group has a possessive quantifier here: before 3.11.5 Python repeats it once too often.
_ZEROS = re.compile(r"(?<![\w.])(?![0-9_]*+[.eExXjJ])0+(?=[0-9])")


def _leading_zeros(source: str) -> str:
    """Write 9 for the 09 of a date or a time, which Python does not accept as a number."""
    masked = _masked(source)
    drop: set[int] = set()
    for call in _CALENDAR.finditer(masked):
        for zeros in _ZEROS.finditer(masked, call.start(1), call.end(1)):
            drop |= set(range(zeros.start(), zeros.end()))
    return "".join(c for place, c in enumerate(source) if place not in drop)


_OCTAL = re.compile(r"(?<![\w.])0[oO]([0-9]++)\b")


def _impossible_octals(source: str) -> str:
    """Write 9 for the 0o9 of a date or a time: no octal number has that digit.

    This is not done if another of these calls has a valid octal number whose value differs from its
    digits: only the author knows which of the two is meant.
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
    """Drop sentences before the first and after the last line of code."""
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
        and _parse(line.strip()) is None
    )


_OF_TEXT: _Rules = {
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
# The word `python` alone on a line is valid Python.
_ALWAYS = {"language_tag"}


# Repairs of a program that parses and is bound to fail when it runs

_KNOWN = {
    **dict.fromkeys(("dataclass", "field"), "dataclasses"),
    **dict.fromkeys(("date", "datetime", "time", "timedelta", "timezone"), "datetime"),
    **dict.fromkeys(("Enum", "IntEnum", "StrEnum", "auto"), "enum"),
    **dict.fromkeys(
        ("Any", "ClassVar", "Dict", "List", "Literal", "Optional", "Set", "Tuple", "Union"),
        "typing",
    ),
    "Decimal": "decimal",
    **dict.fromkeys(("Callable", "Iterable", "Iterator", "Mapping", "Sequence"), "collections.abc"),
}
# Names that our own messages tell people to write, above all `Iterator[Alert]`.
_OF_CONSTRAINTS = dict.fromkeys(LIBRARY["uac"], "uac")
_OF_TESTS = {**_OF_CONSTRAINTS, **dict.fromkeys(LIBRARY["uac.testing"], "uac.testing")}


def _library_of(path: str) -> Mapping[str, str]:
    """Return the names of our library that a file of a project may import, with their modules."""
    if path.startswith("constraints/"):
        return _OF_CONSTRAINTS
    return _OF_TESTS if path.startswith("tests/") else {}


def module_of(name: str) -> str | None:
    """Return the module from which constraints and tests import a name; None if unknown."""
    return {**_KNOWN, **_OF_TESTS}.get(name)


def _missing_imports(source: str, known: Mapping[str, str]) -> str:
    """Import names that have only one meaning: `Optional`, `field`, `date` …"""
    tree = _parse(source)
    if tree is None:
        return source
    bound = set(_bound(tree))
    used = {
        node.id: node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    if "*" in bound:
        return source
    lines = []
    for name in sorted(used.keys() - bound):
        if name == "datetime" and _is_module(tree, name):
            lines.append("import datetime\n")
        elif name in known:
            lines.append(f"from {known[name]} import {name}\n")
        elif name in {"dataclasses", "decimal", "enum", "typing"}:
            lines.append(f"import {name}\n")
    return _after_docstring(source, tree, "".join(lines))


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    yield alias.asname or alias.name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def _is_module(tree: ast.Module, name: str) -> bool:
    """Return whether a name is followed by `.date(…)` and the like, as a module is."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and node.attr in {"date", "datetime", "time", "timedelta", "timezone"}
        for node in ast.walk(tree)
    )


def _after_docstring(source: str, tree: ast.Module, text: str) -> str:
    """Insert lines after the docstring and the imports from `__future__`."""
    if not text:
        return source
    line = 0
    for statement in tree.body:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not is_docstring and not is_future:
            break
        line = statement.end_lineno or line
    lines = source.splitlines(keepends=True)
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    return "".join([*lines[:line], text, *lines[line:]])


def _late_annotations(source: str) -> str:
    """Defer annotations that name something not yet defined, or hidden.

    That is a class that is defined further down; or a field called `date` before an annotation
    `date | None`.
    """
    tree = _parse(source)
    if tree is None or any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body
    ):
        return source
    later = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        hidden: set[str] = set()
        for item in node.body:
            if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
                continue
            hidden |= {item.target.id} if item.value is not None else set()
            if _evaluated(item.annotation) & (later | (hidden & _KNOWN.keys())):
                future = "from __future__ import annotations\n"
                return _after_docstring(source, tree, future)
        later.discard(node.name)
    return source


def _evaluated(annotation: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def _mutable_defaults(source: str) -> str:
    """Make a new list for each object if a dataclass's default is a list, which Python refuses."""
    tree = _parse(source)
    if tree is None:
        return source
    values = [
        item.value
        for class_ in _dataclasses(tree)
        for item in class_.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.value, ast.List | ast.Dict | ast.Set)
        and "ClassVar" not in _text(item.annotation)
    ]
    new = [f"field(default_factory=lambda: {_text(value)})" for value in values]
    return _replaced(source, zip(values, new, strict=True))


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def _keyword_only(source: str) -> str:
    """Make fields keyword-only if one without a default follows one with a default.

    Python refuses such a dataclass; if every call names its arguments, their order does not matter.
    """
    tree = _parse(source)
    if tree is None:
        return source
    by_keyword = {
        name: all(not call.args and all(keyword.arg for keyword in call.keywords) for call in calls)
        for name, calls in _calls(tree).items()
    }
    classes = {class_.name: class_ for class_ in _dataclasses(tree)}
    edits: list[tuple[ast.expr, str]] = []
    for class_ in classes.values():
        decorator = next(d for d in class_.decorator_list if _is_dataclass(d))
        if by_keyword.get(class_.name, True) and _is_out_of_order(class_, classes):
            name = _text(decorator.func if isinstance(decorator, ast.Call) else decorator)
            given = (
                [f"{keyword.arg}={_text(keyword.value)}" for keyword in decorator.keywords]
                if isinstance(decorator, ast.Call)
                else []
            )
            edits.append((decorator, f"{name}({', '.join([*given, 'kw_only=True'])})"))
    return _replaced(source, edits)


def _is_out_of_order(class_: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    if any("kw_only" in _text(decorator) for decorator in class_.decorator_list):
        return False
    seen_default = False
    for has_default in _defaults(class_, classes, 0):
        if seen_default and not has_default:
            return True
        seen_default |= has_default
    return False


def _defaults(
    class_: ast.ClassDef, classes: Mapping[str, ast.ClassDef], depth: int
) -> Iterator[bool]:
    """Yield for each field, those of the bases first, whether it has a default."""
    for base in class_.bases:
        if isinstance(base, ast.Name) and base.id in classes and depth < 20:
            yield from _defaults(classes[base.id], classes, depth + 1)
    for item in class_.body:
        if isinstance(item, ast.AnnAssign) and "ClassVar" not in _text(item.annotation):
            call = item.value if isinstance(item.value, ast.Call) else None
            if call is not None and _text(call.func).endswith("field"):
                given = {keyword.arg for keyword in call.keywords}
                yield bool(given & {"default", "default_factory"})
            else:
                yield item.value is not None


def _dataclasses(tree: ast.Module) -> list[ast.ClassDef]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(map(_is_dataclass, node.decorator_list))
    ]


def _is_dataclass(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _text(name) in {"dataclass", "dataclasses.dataclass"}


def _calls(tree: ast.Module) -> dict[str, list[ast.Call]]:
    calls: dict[str, list[ast.Call]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.setdefault(node.func.id, []).append(node)
    return calls


def _replaced(source: str, edits: Iterable[tuple[ast.expr, str]]) -> str:
    """Return the source with some expressions replaced."""
    lines = source.splitlines(keepends=True)
    for node, text in sorted(edits, key=lambda edit: _place(edit[0]), reverse=True):
        assert node.end_lineno is not None
        first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
        before, after = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
        lines[node.lineno - 1 : node.end_lineno] = [f"{before}{text}{after}"]
    return "".join(lines)


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


_OF_PROGRAM: _Rules = {
    "mutable_defaults": _mutable_defaults,
    "keyword_only": _keyword_only,
    "late_annotations": _late_annotations,
}
