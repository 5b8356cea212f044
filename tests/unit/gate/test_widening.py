"""The advice given when a value does not fit the type of its field."""

import pytest

from memory.project import Outline
from tests.unit.project.support import define, project_with
from workers.gate.type_errors import widening

FIELDS = {"to": "str", "cost": "int", "ends_on": "datetime.date", "rating": "int | None"}


@pytest.fixture(scope="module")
def outline() -> Outline:
    return project_with(
        define("travel", "Trip", FIELDS),
        define("travel", "Stay", {"cost": "int"}),
        define("home", "Stay", {"cost": "int"}),
    ).outline


def said(field: str, given: str, class_name: str = "Trip") -> str:
    return f'Argument "{field}" to "{class_name}" has incompatible type "{given}"; expected "int"'


@pytest.mark.parametrize(
    ("field", "given", "wider"),
    [
        ("cost", "float", "float"),
        ("cost", "None", "int | None"),
        ("cost", "float | None", "float | None"),
        ("ends_on", "None", "datetime.date | None"),
        ("rating", "float", "float | None"),
        ("cost", "Decimal", "int | decimal.Decimal"),
    ],
)
def test_the_edit_that_widens_the_field_is_told(
    outline: Outline, field: str, given: str, wider: str
) -> None:
    told = widening(said(field, given), outline)
    call = f'widen_field(domain="travel", class_name="Trip", name="{field}", type="{wider}")'
    assert call in told


@pytest.mark.parametrize(
    "message",
    [
        said("cost", "str"),  # which is a slip, and no wider number
        said("nights", "float"),
        said("cost", "float", "Stay"),  # of which domain, nobody says
        said("cost", "list[int]"),
        said("cost", "Any?[", "Trip"),
        'Incompatible types in assignment (expression has type "int", variable has type "str")',
    ],
)
def test_message_about_no_field_gives_no_advice(outline: Outline, message: str) -> None:
    assert widening(message, outline) == ""
