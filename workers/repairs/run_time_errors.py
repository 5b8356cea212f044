"""Repairs to a program that parses but is bound to fail at run time."""

import ast
from collections.abc import Iterable, Iterator, Mapping

from memory.kernel.texts import parse_valid
from workers.repairs.invalid_syntax import Rules


def _keyword_only(source: str) -> str:
    """Make a dataclass keyword-only if a field without a default follows one with a default.

    Python rejects such a dataclass. The class is repaired only if every call passes its arguments
    by name, so that the order of the arguments doesn't matter.
    """
    tree = parse_valid(source)
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
            name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            given = (
                [f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in decorator.keywords]
                if isinstance(decorator, ast.Call)
                else []
            )
            edits.append((decorator, f"{name}({', '.join([*given, 'kw_only=True'])})"))
    return replace_expressions(source, edits)


def _is_out_of_order(class_: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    if any("kw_only" in ast.unparse(decorator) for decorator in class_.decorator_list):
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
    """For each field (inherited ones first), yield whether it has a default."""
    for base in class_.bases:
        if isinstance(base, ast.Name) and base.id in classes and depth < 20:
            yield from _defaults(classes[base.id], classes, depth + 1)
    for item in class_.body:
        if isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item.annotation):
            call = item.value if isinstance(item.value, ast.Call) else None
            if call is not None and ast.unparse(call.func).endswith("field"):
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
    return ast.unparse(name) in {"dataclass", "dataclasses.dataclass"}


def _calls(tree: ast.Module) -> dict[str, list[ast.Call]]:
    calls: dict[str, list[ast.Call]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.setdefault(node.func.id, []).append(node)
    return calls


def replace_expressions(source: str, edits: Iterable[tuple[ast.expr, str]]) -> str:
    """Return the source with each of these expressions replaced by the new text given for it."""
    lines = source.splitlines(keepends=True)
    for node, text in sorted(edits, key=lambda edit: place_of(edit[0]), reverse=True):
        assert node.end_lineno is not None
        first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
        before, after = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
        lines[node.lineno - 1 : node.end_lineno] = [f"{before}{text}{after}"]
    return "".join(lines)


def place_of(node: ast.expr) -> tuple[int, int]:
    """Return where an expression begins: its line and column."""
    return node.lineno, node.col_offset


PROGRAM_RULES: Rules = {"keyword_only": _keyword_only}
