"""What the gate advises where a constraint was written for another project than there is."""

import pytest

from memory.project import Outline, Project, apply, edit_from_json
from workers.checkpointing.type_check import suggest_fix
from workers.typecheck.checker import TypeFault


@pytest.fixture
def outline() -> Outline:
    """A project with one class, of which one field may be left out."""
    project = Project.empty()
    fields = [
        {"name": "allergen", "type": "str"},
        {"name": "noted_on", "type": "datetime.date | None", "default": None},
    ]
    define = {"op": "define_class", "domain": "health", "name": "Allergy", "fields": fields}
    apply(project, edit_from_json({**define, "collection": "allergies"}))
    return project.change().outline


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (
            'Cannot find implementation or library stub for module named "domains.travel.state"',
            "This project has no domain 'travel': log a record of it first. It has health.",
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
def test_a_project_that_is_another_is_told_as_it_is(
    outline: Outline, message: str, fix: str
) -> None:
    fault = TypeFault(path="constraints/a.py", line=6, code="any", message=message)

    assert suggest_fix(fault, outline) == fix


def test_an_empty_project_says_that_it_has_nothing_yet() -> None:
    message = 'Cannot find implementation or library stub for module named "domains.health.state"'
    fault = TypeFault(path="constraints/a.py", line=6, code="any", message=message)

    assert suggest_fix(fault, Outline()).endswith("It has none yet.")
