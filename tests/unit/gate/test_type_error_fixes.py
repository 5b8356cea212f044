"""The gate's advice on a constraint that was written for a different project."""

import pytest

from memory.project import Outline
from tests.unit.project.support import define, project_with
from workers.gate.type_error_fixes import fix_code
from workers.gate.type_errors import suggest_fix
from workers.typecheck.checker import TypeFault


@pytest.fixture
def outline() -> Outline:
    """A project with one class, in which one field is optional."""
    fields = {"allergen": "str", "noted_on": "datetime.date | None"}
    return project_with(define("health", "Allergy", fields, collection="allergies")).outline


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (
            'Cannot find implementation or library stub for module named "domains.travel.state"',
            "This project has no domain 'travel': log a record in that domain first. Its"
            " domains: health.",
        ),
        (
            'Module "domains.health.state" has no attribute "medications"',
            "domains.health.state has allergies.",
        ),
        (
            'Module "domains.health.schema" has no attribute "Medication"',
            "domains.health.schema has Allergy.",
        ),
        (
            'Missing named argument "allergen" for "Allergy"',
            "Each Allergy here needs key, allergen.",
        ),
        ('Missing named argument "x" for "f"', ""),
        ('Cannot find implementation or library stub for module named "numpy"', ""),
        ('"Allergy" has no attribute "drug"; maybe "drug_class"?', ""),
    ],
)
def test_constraint_for_another_project_has_a_fix(outline: Outline, message: str, fix: str) -> None:
    fault = TypeFault(path="constraints/a.py", line=6, code="any", message=message)

    assert suggest_fix(fault, outline) == fix


def test_an_empty_project_says_that_it_has_nothing_yet() -> None:
    message = 'Cannot find implementation or library stub for module named "domains.health.state"'
    fault = TypeFault(path="constraints/a.py", line=6, code="any", message=message)

    assert suggest_fix(fault, Outline()).endswith("Its domains: none yet.")


# mypy's message about a line; the code in that line.
MISSING = "Function is missing a"
OPTIONAL = "{} may be None: test for it first, as in if {} is not None and …"


@pytest.mark.parametrize(
    ("message", "line", "fix"),
    [
        (f"{MISSING} return type annotation", "def test_x(): assert True", "write -> None"),
        (f"{MISSING} return type annotation", "def f(): return 1",
         "write the type that it returns, such as -> bool"),
        (f"{MISSING} return type annotation", "def f(): yield 1",
         "write -> Iterator[…] with the type that it yields"),
        (f"{MISSING} return type annotation", "", "write -> None if it returns nothing"),
        (f"{MISSING} type annotation", "def f(a, b): pass",
         "write the types of its parameters (a: …, b: …) and -> None"),
        (f"{MISSING} type annotation for one or more parameters", "def f(a: int, b) -> int: ...",
         "write the type of each parameter (b: …)"),
        ('Call to untyped function "late" in typed context', "",
         "annotate the parameters and the result of late"),
        ('Unsupported operand types for > ("date" and "None")', "if one.noted_on < today: ...",
         OPTIONAL.format("one.noted_on", "one.noted_on")),
        ('No overload variant of "__sub__" of "date" matches argument type "None"',
         "x = today - one.noted_on", OPTIONAL.format("one.noted_on", "one.noted_on")),
        ('Unsupported operand types for > ("date" and "None")', "if last < today: ...",
         OPTIONAL.format("a value on this line", "value")),
        ('Item "None" of "date | None" has no attribute "year"', "x = last[0].year",
         OPTIONAL.format("last[0]", "last[0]")),
        ('Argument 1 to "f" has incompatible type "date | None"; expected "date"',
         "f(one.noted_on)", OPTIONAL.format("one.noted_on", "one.noted_on")),
        ('Argument 1 to "f" has incompatible type "date | None"; expected "str | None"', "", ""),
        ('Unsupported operand types for > ("date" and "str")', "",
         "write the text as a date, as in datetime.date(2027, 1, 1)"),
        ('Unsupported operand types for + ("Allergy" and "str")', "", ""),
        ('Name "allergies" is not defined', "",
         "write from domains.health.state import allergies at the top of the file"),
        ('Name "Allergy" is not defined', "",
         "write from domains.health.schema import Allergy at the top of the file"),
        ('Name "a" is not defined', "", "write from constraints import a at the top of the file"),
        ('Name "math" is not defined', "", "write import math at the top of the file"),
        ('Name "Alert" is not defined', "", "write from uac import Alert at the top of the file"),
        ('Name "nobody" is not defined', "",
         "give it a value first, or import it at the top of the file"),
        ('Incompatible return value type (got "list[Alert]", expected "Iterator[Alert]")', "",
         "yield each item instead of returning a list, or write -> list[Alert]"),
        ('Incompatible return value type (got "date | None", expected "date")', "",
         "it may return None: return another value, or write -> date | None"),
        ('Incompatible return value type (got "int", expected "str")', "",
         "return what the signature declares, or write -> int"),
        ("Missing return statement", "",
         "return a value on every path; a check yields its alerts"),
        ('Missing type arguments for generic type "dict"', "",
         "write the element types, as in dict[str, int]"),
        ('"Allergy" has no attribute "x"', "", "the fields of Allergy are allergen, noted_on"),
        ('"date" has no attribute "x"', "", ""),
    ],
)  # fmt: skip
def test_common_type_error_has_a_fix(outline: Outline, message: str, line: str, fix: str) -> None:
    fault = TypeFault(path="tests/test_a.py", line=2, code="any", message=message)

    assert fix_code(fault, f"import datetime\n{line}\n" if line else "", outline) == fix


def test_a_workspace_constraint_declares_what_may_be_none() -> None:
    source = "class Pet(Record):\n    until: Optional[date]\n\nif pet.until < today: ...\n"
    message = 'Unsupported left operand type for < ("date | None")'
    path = "workspace/constraints/pets.py"
    fault = TypeFault(path=path, line=4, code="operator", message=message)
    unknown = TypeFault(
        path="workspace/tests/test_pets.py", line=1, code="x", message='Name "pets" is not defined'
    )

    assert fix_code(fault, source, Outline()).startswith("pet.until may be None")
    assert "from workspace.constraints import pets" in fix_code(unknown, "", Outline())
