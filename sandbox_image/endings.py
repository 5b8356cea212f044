"""The value of a query: that of its last statement."""

import ast
from collections.abc import Iterator

# The name under which a query's value is kept; because of the "$", the query can't use it.
VALUE = "$value"

# Methods of Python's collections that change the collection and return None.
_CHANGING = frozenset(
    {
        *("add", "append", "clear", "discard", "extend", "insert", "remove", "reverse", "sort"),
        "update",
    }
)
_STATEMENTS = {
    ast.Assert: "an `assert`",
    ast.AugAssign: "a change to a part of an object",
    ast.Delete: "a `del`",
    ast.For: "a `for` loop",
    ast.If: "an `if`",
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.Match: "a `match`",
    ast.Pass: "`pass`",
    ast.Try: "a `try`",
    ast.While: "a `while` loop",
    ast.With: "a `with`",
}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_MAX_QUOTED = 200


class NoValueError(Exception):
    """The last statement of a query has no value; the message says how to end the query."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(f"The code has no value: {why}")
        self.line = line


def keep_value(tree: ast.Module) -> NoValueError | None:
    """Make a query keep the value of its last statement as VALUE.

    The value is that of an expression, or what is assigned or returned. If the last statement has
    no value, or might be a call that returns nothing, return the error to raise unless VALUE has
    been set to something. It is raised after the code has run, so that the caller sees what was
    printed. Raises NoValueError for a `return` within another statement, which can't be run.
    """
    if not tree.body:
        return NoValueError("it is empty. Write an expression.", 1)
    *block, last = tree.body
    for node in _nodes(block if isinstance(last, ast.Return) else tree.body):
        if isinstance(node, ast.Return):
            raise NoValueError(
                "only its last statement can be a `return`. Assign the value to a name in each"
                " case, and end the code with that name.",
                node.lineno,
            )
    why = _why_none(tree, last)
    kept: ast.expr = ast.Name(VALUE, ast.Store())
    match last:
        case ast.Expr(value=value) | ast.Return(value=ast.expr() as value):
            tree.body[-1] = ast.Assign([kept], value)
        case ast.Assign(targets=targets, value=value):
            tree.body[-1] = ast.Assign([kept, *targets], value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            tree.body[-1] = ast.Assign([kept, target], value)
        case ast.AugAssign(target=ast.Name(id=name)):
            tree.body.append(ast.Assign([kept], ast.Name(name, ast.Load())))
        case ast.Return():
            tree.body[-1] = ast.Pass()
    ast.fix_missing_locations(ast.copy_location(tree.body[-1], last))
    return NoValueError(why, last.lineno) if why else None


def _why_none(tree: ast.Module, last: ast.stmt) -> str:
    """Return why the last statement has no value, with the fix; otherwise an empty string."""
    match last:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=printed)):
            wanted = _computed(printed)
            such = f": `{_quoted(wanted)}`" if wanted else ""
            return f"it ends with print(). End it with the printed value itself{such}."
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in _procedures(tree):
            return f"it ends with {name}(), which returns nothing. Let {name} return its result."
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=changed, attr=method))) if (
            method in _CHANGING
        ):
            return (
                f"it ends with {method}(), which returns nothing. End it with the object that is"
                f" changed: `{_quoted(changed)}`."
            )
        case ast.Expr() | ast.Assign() | ast.AugAssign(target=ast.Name()):
            return ""
        case ast.Return(value=value) | ast.AnnAssign(value=value) if value is not None:
            return ""
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return f"it ends with the definition of {name}. End it with its use, such as {name}()."
        case ast.Return():
            ending = "a `return` without a value"
        case ast.AnnAssign():
            ending = "a declaration without a value"
        case _:
            ending = _STATEMENTS.get(type(last), "a statement")
    name = _last_name(tree)
    return (
        f"it ends with {ending}. End it with an expression{f', such as `{name}`' if name else ''}."
    )


def _computed(printed: list[ast.expr]) -> ast.expr | None:
    """Return the last of the printed values that is not merely text, if there is one."""
    parts = [
        part
        for one in printed
        for part in (one.values if isinstance(one, ast.JoinedStr) else [one])
        if not isinstance(part, (ast.Constant, ast.Starred))
    ]
    last = parts[-1] if parts else None
    return last.value if isinstance(last, ast.FormattedValue) else last


def _procedures(tree: ast.Module) -> set[str]:
    """Return the names of the code's functions that return nothing."""
    returning = (ast.Return, ast.Yield, ast.YieldFrom)
    return {
        one.name
        for one in tree.body
        if isinstance(one, ast.FunctionDef)
        and not any(isinstance(node, returning) for node in _nodes(one.body))
    }


def _last_name(tree: ast.Module) -> str:
    """Return the name that the code assigned last other than as a loop's variable, if any."""
    nodes = list(_nodes(tree.body))
    loops = [node.target for node in nodes if isinstance(node, (ast.For, ast.comprehension))]
    passing = {one.id for loop in loops for one in ast.walk(loop) if isinstance(one, ast.Name)}
    names = [
        node
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in passing
    ]
    return max(names, key=lambda node: (node.lineno, node.col_offset)).id if names else ""


def _quoted(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _MAX_QUOTED else f"{text[: _MAX_QUOTED - 1]}…"


def _nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes in these statements, but not those within functions and classes."""
    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)
