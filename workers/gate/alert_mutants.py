"""Alert mutants: for each alert in a constraint, a copy of the constraint that fails at that point.

If the tests still pass, they don't reach that alert, and prove nothing about its branch. The mutant
fails instead of omitting the alert, so that a test that reaches the alert always notices.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memory.kernel.texts import parse_python
from workers.repairs.run_time_errors import place_of, replace_expressions

# Maximum number of mutants per constraint; mutants are created for the constraint's first alerts.
MAX_ALERTS = 20
MAKERS = frozenset({"Alert", "info", "warning", "critical"})
# An expression that raises an error; it replaces the alert, on the same line.
_FAILURE = "(1 // 0)"


@dataclass(frozen=True)
class UnreachedAlert:
    """A constraint's source, changed to fail where an alert is created, and that alert's line."""

    source: str
    line: int

    fix = "add a test with a state that triggers the alert, and assert that it is raised"

    @property
    def message(self) -> str:
        """Describe the alert that no test reaches."""
        return f"no test reaches the alert on line {self.line}"


def alert_mutants(source: str) -> list[UnreachedAlert]:
    """Return a constraint's mutants, in line order; `source` must be valid Python."""
    tree = parse_python(source)
    return [
        UnreachedAlert(replace_expressions(source, [(node, _FAILURE)]), node.lineno)
        for node in sorted(_alerts(tree), key=place_of)[:MAX_ALERTS]
    ]


def _alerts(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield calls that create alerts, and yielded expressions with alerts created elsewhere."""
    makers = set(_makers(tree))

    def is_made(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) in makers

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_made(node):
            yield node
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            if "Alert" not in ast.unparse(node.returns):
                continue
            for inner in ast.walk(node):
                if not isinstance(inner, ast.Yield) or inner.value is None:
                    continue
                if not any(map(is_made, ast.walk(inner))):
                    yield inner.value


def _makers(tree: ast.Module) -> Iterator[str]:
    """Yield the names under which the source calls the functions that create alerts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "uac":
            for alias in node.names:
                if alias.name in MAKERS:
                    yield alias.asname or alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "uac":
                    yield from (f"{alias.asname or alias.name}.{name}" for name in MAKERS)
