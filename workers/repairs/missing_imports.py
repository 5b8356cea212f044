"""Missing imports: names that are not ambiguous, and the lines that import them."""

import ast
from collections.abc import Iterator, Mapping

from memory.kernel.texts import parse_valid
from memory.project.paths import is_own_constraint
from workers.policy.library import LIBRARY

KNOWN_NAMES = {
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
# Names in our library. Our own messages tell people to use some of these names, as in
# `Iterator[Alert]`.
_OF_CONSTRAINTS = dict.fromkeys(LIBRARY["uac"], "uac")
_OF_TESTS = {**_OF_CONSTRAINTS, **dict.fromkeys(LIBRARY["uac.testing"], "uac.testing")}


def add_missing_imports(source: str, modules: Mapping[str, str]) -> str:
    """Import undefined names that are unambiguous, such as `Optional` or `date`."""
    tree = parse_valid(source)
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
        elif name in modules:
            lines.append(f"from {modules[name]} import {name}\n")
        elif name in {"dataclasses", "decimal", "enum", "typing"}:
            lines.append(f"import {name}\n")
    return insert_after_docstring(source, tree, "".join(lines))


def library_of(path: str) -> Mapping[str, str]:
    """Return the names in our library that a project's file may import, with their modules."""
    if is_own_constraint(path):
        return _OF_CONSTRAINTS
    return _OF_TESTS if path.startswith("tests/") else {}


def module_of(name: str) -> str | None:
    """Return the module that constraints and tests import this name from; None if unknown."""
    return {**KNOWN_NAMES, **_OF_TESTS}.get(name)


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
    """Return whether the code uses this name as a module, reading an attribute such as `.date`."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and node.attr in {"date", "datetime", "time", "timedelta", "timezone"}
        for node in ast.walk(tree)
    )


def insert_after_docstring(source: str, tree: ast.Module, text: str) -> str:
    """Insert these lines after the docstring and the `__future__` imports."""
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
