"""Fixes for errors that people run into when writing their first constraints under `mypy --strict`.

The type checker reports what is wrong, but not what to write instead. Details that its message
leaves out (such as which function is meant, or which field may be None) are read from the source
line.
"""

import ast
import re
from collections.abc import Callable, Iterator

from memory.kernel.texts import parse_valid
from memory.project import Outline
from memory.project.types import format_type, members_of
from workers.policy.library import LIBRARY
from workers.repairs.missing_imports import module_of
from workers.typecheck.checker import TypeFault

_TESTS = re.compile(r"(?P<folder>workspace/)?tests/test_(?P<name>\w+)\.py")
_OPTIONAL = re.compile(r"\b(?:None|Optional)\b")
# Example values, keyed by mypy's names for their types.
_VALUES = {
    "date": "a date, as in datetime.date(2027, 1, 1)",
    "datetime": "a datetime, as in datetime.datetime(2027, 1, 1, 12, 0)",
    "int": "a number, as in 5",
    "float": "a number, as in 9.5",
    "Decimal": 'a Decimal, as in decimal.Decimal("9.50")',
}


class _Location:
    """The line of an error in a file; if the file has no source, lookups find nothing."""

    def __init__(self, fault: TypeFault, source: str, outline: Outline) -> None:
        self.path, self.line, self.outline = fault.path, fault.line, outline
        self.tree = parse_valid(source) or ast.Module(body=[], type_ignores=[])

    def function(self) -> ast.FunctionDef | None:
        functions = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))
        return next((node for node in functions if node.lineno == self.line), None)

    def owners(self, attribute: str) -> list[str]:
        """Return the expressions from which this line reads an attribute of the given name."""
        return _unique(
            ast.unparse(node.value) for node in self._attributes() if node.attr == attribute
        )

    def optional_fields(self) -> list[str]:
        """Return the fields that this line reads and that may be None."""
        optional = {*_optional_fields(self.outline), *self._optional_in_file()}
        return _unique(ast.unparse(node) for node in self._attributes() if node.attr in optional)

    def _attributes(self) -> Iterator[ast.Attribute]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and node.lineno == self.line:
                yield node

    def _optional_in_file(self) -> Iterator[str]:
        """Yield the optional fields of the classes that a workspace constraint declares."""
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and _OPTIONAL.search(ast.unparse(node.annotation))
            ):
                yield node.target.id


def fix_code(fault: TypeFault, source: str, outline: Outline) -> str:
    """Return what to write instead of the faulty code; "" if mypy's message is clear enough.

    `source` is the text of the file, or "" if it is not available.
    """
    for pattern, fix in _FIXES.items():
        if match := re.match(pattern, fault.message):
            return fix(match, _Location(fault, source, outline))
    return ""


def _annotate(match: re.Match[str], location: _Location) -> str:
    node = location.function()
    parameters = (
        [
            one.arg
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if one.annotation is None and one.arg not in ("self", "cls")
        ]
        if node
        else []
    )
    takes = ", ".join(f"{name}: …" for name in parameters)
    returns = _returned(node) if node else "-> None if it returns nothing"
    match match["what"]:
        case "return type annotation":
            wanted = returns
        case "type annotation for one or more parameters":
            wanted = f"the type of each parameter ({takes})" if takes else "each parameter's type"
        case _:
            wanted = f"the types of its parameters ({takes}) and {returns}" if takes else returns
    return f"write {wanted}"


def _returned(node: ast.FunctionDef) -> str:
    own = list(_own_nodes(node))
    if any(isinstance(one, ast.Yield | ast.YieldFrom) for one in own):
        return "-> Iterator[…] with the type that it yields"
    if any(isinstance(one, ast.Return) and one.value is not None for one in own):
        return "the type that it returns, such as -> bool"
    return "-> None"


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a function, except those inside functions or classes that it defines."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield from _own_nodes(child)


def _import(match: re.Match[str], location: _Location) -> str:
    name = match["name"]
    tests = _TESTS.fullmatch(location.path)
    imports = []
    if tests and tests["name"] == name:
        imports.append(f"from {'workspace.' if tests['folder'] else ''}constraints import {name}")
    for domain in location.outline.domains.values():
        if name in domain.collections or name in domain.singletons:
            imports.append(f"from domains.{domain.name}.state import {name}")
        elif name in domain.classes or name in domain.enums:
            imports.append(f"from domains.{domain.name}.schema import {name}")
    if not imports and name in LIBRARY:
        imports.append(f"import {name}")
    elif not imports and (module := module_of(name)) is not None:
        imports.append(f"from {module} import {name}")
    if imports:
        return f"write {' or '.join(imports)} at the top of the file"
    return "give it a value first, or import it at the top of the file"


def _test_for_none(match: re.Match[str], location: _Location) -> str:
    attribute = match.groupdict().get("attribute")
    named = (location.owners(attribute) if attribute else []) or location.optional_fields()
    return (
        f"{' or '.join(named) or 'a value on this line'} may be None: test for it first, as in"
        f" if {named[0] if named else 'value'} is not None and …"
    )


def _compare_alike(match: re.Match[str], location: _Location) -> str:
    """Advise comparing values of the same type: a string is neither a date nor a number."""
    types = {match["left"], match["right"]}
    values = [_VALUES[one] for one in types if one in _VALUES]
    return f"write the text as {values[0]}" if "str" in types and values else ""


def _return_alike(match: re.Match[str], location: _Location) -> str:
    got, expected = match["got"], match["expected"]
    if expected.startswith(("Iterator[", "Generator[")) and got.startswith("list["):
        return f"yield each item instead of returning a list, or write -> {got}"
    if "None" in got and "None" not in expected:
        return f"it may return None: return another value, or write -> {expected} | None"
    return f"return what the signature declares, or write -> {got}"


def _return_always(match: re.Match[str], location: _Location) -> str:
    return "return a value on every path; a check yields its alerts"


def _describe_type(match: re.Match[str], location: _Location) -> str:
    example = {"dict": "dict[str, int]", "Mapping": "Mapping[str, int]"}
    return f"write the element types, as in {example.get(match['type'], match['type'] + '[str]')}"


def _annotate_called(match: re.Match[str], location: _Location) -> str:
    return f"annotate the parameters and the result of {match['name']}"


def _name_fields(match: re.Match[str], location: _Location) -> str:
    classes = [
        class_
        for domain in location.outline.domains.values()
        for name, class_ in domain.classes.items()
        if name == match["class"]
    ]
    return (
        f"the fields of {match['class']} are {', '.join(one.name for one in classes[0].fields)}"
        if len(classes) == 1
        else ""
    )


_FIXES: dict[str, Callable[[re.Match[str], _Location], str]] = {
    r"Function is missing a (?P<what>(?:return )?type annotation(?: for one or more \w+)?)$": (
        _annotate
    ),
    r'Call to untyped function "(?P<name>\w+)" in typed context': _annotate_called,
    r'Name "(?P<name>\w+)" is not defined': _import,
    r'"(?P<class>\w+)" has no attribute "\w+"': _name_fields,
    r'Item "None" of "[^"]+" has no attribute "(?P<attribute>\w+)"': _test_for_none,
    r"Unsupported (?:left |right )?operand types? for \S+ \(.*\bNone\b.*\)": _test_for_none,
    r'No overload variant of .* matches argument type "None"': _test_for_none,
    r'Value of type "[^"]*\bNone\b[^"]*" is not indexable': _test_for_none,
    r'Argument \S+ to "[^"]+" has incompatible type "[^"]*\| None"; expected "(?![^"]*None)': (
        _test_for_none
    ),
    r'Unsupported operand types for \S+ \("(?P<left>\w+)" and "(?P<right>\w+)"\)': _compare_alike,
    r'Incompatible return value type \(got "(?P<got>[^"]+)", expected "(?P<expected>[^"]+)"\)': (
        _return_alike
    ),
    r"Missing return statement": _return_always,
    r'Missing type arguments for generic type "(?P<type>\w+)"': _describe_type,
}


def _optional_fields(outline: Outline) -> Iterator[str]:
    for domain in outline.domains.values():
        for class_ in domain.classes.values():
            for field in class_.fields:
                if "None" in map(format_type, members_of(field.type)):
                    yield field.name


def _unique(texts: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(texts))
