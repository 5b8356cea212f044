"""The constraints that a workspace may start from: their tests, and the tests' strength.

The gate's other checks are in tests/integration/work/test_constraint_library.py.
"""

import ast
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import ModuleType

import pytest
from django.conf import settings

import sandbox_image.uac
import sandbox_image.uac.testing
from memory.constraints import constraint_library
from memory.project.shapes import needs_of

FOLDER = settings.CONSTRAINT_LIBRARY
DOCUMENT = Path(__file__).parents[3] / "docs" / "constraint-library.md"
NAMES = constraint_library.names()

OTHERS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
}
# Equivalent mutants: payments of zero are too small to be reported.
EQUIVALENT = {"duplicate_payment": ["amount < 0 → amount <= 0"]}


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the sandbox's modules importable by their names in a project."""
    package = ModuleType("workspace.constraints")
    monkeypatch.setitem(sys.modules, "uac", sandbox_image.uac)
    monkeypatch.setitem(sys.modules, "uac.testing", sandbox_image.uac.testing)
    monkeypatch.setitem(sys.modules, "workspace", ModuleType("workspace"))
    monkeypatch.setitem(sys.modules, "workspace.constraints", package)


def failures(name: str, tree: ast.Module) -> list[str]:
    """Return the tests of a constraint that fail with this source."""
    constraint = ModuleType(f"workspace.constraints.{name}")
    sys.modules[constraint.__name__] = constraint
    try:
        exec(compile(tree, f"{name}.py", "exec"), vars(constraint))
        setattr(sys.modules["workspace.constraints"], name, constraint)
        tests = ModuleType(f"workspace.tests.test_{name}")
        path = FOLDER / f"test_{name}.py"
        exec(compile(path.read_text(), str(path), "exec"), vars(tests))
    finally:
        del sys.modules[constraint.__name__]
    failed = []
    for test_name, test in vars(tests).items():
        if test_name.startswith("test_"):
            try:
                test()
            except Exception as error:
                failed.append(f"{test_name}: {type(error).__name__}: {error}")
    return failed


def mutants(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Yield the source with one comparison changed by one step, or one whole number by one."""
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                if type(operator) in OTHERS:
                    mutant = deepcopy(tree)
                    changed = list(ast.walk(mutant))[number]
                    assert isinstance(changed, ast.Compare)
                    changed.ops[place] = OTHERS[type(operator)]
                    yield f"{ast.unparse(node)} → {ast.unparse(changed)}", mutant
    for number, statement in enumerate(tree.body):
        if isinstance(statement, ast.Assign):
            for place, node in enumerate(ast.walk(statement)):
                if isinstance(node, ast.Constant) and type(node.value) is int:
                    mutant = deepcopy(tree)
                    changed = list(ast.walk(mutant.body[number]))[place]
                    assert isinstance(changed, ast.Constant)
                    changed.value = node.value + 1
                    yield f"{ast.unparse(statement)[:60]}: {node.value} + 1", mutant


def source_of(name: str) -> ast.Module:
    return ast.parse((FOLDER / f"{name}.py").read_text())


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_its_tests_pass(self, name: str) -> None:
        assert failures(name, source_of(name)) == []

    def test_its_tests_speak_are_silent_and_go_to_the_boundary(self, name: str) -> None:
        tests = [
            node.name
            for node in ast.parse((FOLDER / f"test_{name}.py").read_text()).body
            if isinstance(node, ast.FunctionDef)
        ]
        for word in ("says", "silent", "boundary"):
            assert any(word in test for test in tests), f"{name} has no test that {word}"

    def test_a_step_across_any_boundary_is_noticed(self, name: str) -> None:
        survived = [what for what, tree in mutants(source_of(name)) if not failures(name, tree)]
        assert survived == EQUIVALENT.get(name, [])

    def test_constraint_declares_exactly_what_it_needs(self, name: str) -> None:
        needs = needs_of((FOLDER / f"{name}.py").read_text())
        assert needs.clock == ("now" if name == "double_booking" else "today")
        assert any(not parameter.has_default for parameter in needs.parameters)

    def test_its_documentation_is_that_of_the_library(self, name: str) -> None:
        text = ast.get_docstring(source_of(name))
        assert text is not None
        for word in ("Raises ", "Needs ", "Does not consider "):
            assert f"\n\n{word}" in text, f"{name} does not say what it {word.lower()}"
        assert f"## {name}\n\n{text}\n" in DOCUMENT.read_text()
