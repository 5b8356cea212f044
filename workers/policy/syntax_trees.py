"""Classify expressions and definitions in a syntax tree, as far as the syntax alone allows."""

import ast
import re
import string
from collections.abc import Iterator


def parameters_of(node: ast.FunctionDef) -> list[ast.arg]:
    """Return all parameters of a function, including starred and keyword-only ones."""
    arguments = node.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*parameters, *filter(None, [arguments.vararg, arguments.kwarg])]


def list_bound_names(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module, or a class in it, binds on import."""
    for statement in statements:
        match statement:
            case ast.FunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name, body=body):
                yield name
                yield from list_bound_names(body)
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name


def root_name(node: ast.expr) -> str:
    """Return the name at the beginning of a dotted or subscripted expression, or ''."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def list_called(decorators: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield each decorator or, if the decorator is a call, the function that is called."""
    for decorator in decorators:
        yield decorator.func if isinstance(decorator, ast.Call) else decorator


def list_type_calls(*values: ast.expr) -> Iterator[ast.expr]:
    """Yield the `type` of each call `type(value)`."""
    for one in values:
        match one:
            case ast.Call(func=ast.Name(id="type") as function, args=[value], keywords=[]):
                if is_one_value([value]):
                    yield function


def is_text(node: ast.expr) -> bool:
    """Return whether the syntax shows that an expression is a string, or the class str."""
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr() | ast.Name(id="str"):
            return True
    return False


def is_one_value(arguments: list[ast.expr]) -> bool:
    """Return whether a call has exactly one positional argument, which isn't starred."""
    return len(arguments) == 1 and not isinstance(arguments[0], ast.Starred)


def is_docstring(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring or an ellipsis."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and (isinstance(node.value.value, str) or node.value.value is ...)
    )


def list_format_attributes(text: str) -> Iterator[str]:
    """Yield the attributes that a format string reads from its values, even in nested fields."""
    try:
        for _, field, specification, _ in string.Formatter().parse(text):
            yield from re.split(r"[.\[\]]", field or "")[1:]
            yield from list_format_attributes(specification or "")
    except ValueError:
        return  # the format string is broken, so using it will raise an error
