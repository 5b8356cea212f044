"""The first constraint of an author who only follows the advice in each refusal."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.constraints.api.workspace_constraint_serializers import NewVersionSerializer
from memory.kernel.models.users import MemoryUser
from memory.versions.models.runs import Run, RunTrigger
from tests.integration.commits.conftest import (
    BUDGET,
    BUDGET_TESTS,
    Append,
    Propose,
    constraint,
    findings,
    repairs,
    trip,
)
from tests.steps import not_none

pytestmark = pytest.mark.django_db

IMPORTS = "import datetime\nfrom collections.abc import Iterator\nfrom uac import Alert, warning\n"
TEST_IMPORTS = "import datetime\nfrom uac.testing import run_check\n"


def test_recommended_code_needs_no_imports(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=10))
    source, tests = BUDGET.replace(IMPORTS, ""), BUDGET_TESTS.replace(TEST_IMPORTS, "")
    bare = source.replace("today: datetime.date) -> Iterator[Alert]", "today)")

    refused = propose(constraint(bare, tests))
    assert "write -> Iterator[Alert]" in not_none(refused.error)["message"]
    assert "today: datetime.date" in str(findings(refused))
    run = propose(constraint(source, tests))

    assert run.outcome == "ok", run.error
    assert [(path, name) for path, _, name in repairs(run)] == [
        ("constraints/budget.py", "missing_imports"),
        ("tests/test_budget.py", "missing_imports"),
    ]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (
            constraint(tests=BUDGET_TESTS.replace(" -> None", "")),
            "types: tests/test_budget.py:9: Function is missing a return type annotation:"
            " write -> None",
        ),
        (
            constraint(BUDGET.replace("trip.cost >", "trip.ends_on < today or trip.cost >")),
            'types: constraints/budget.py:10: Unsupported operand types for > ("date" and "None"):'
            " trip.ends_on may be None: test for it first, as in if trip.ends_on is not None and …",
        ),
        (
            constraint(BUDGET.replace("from domains.travel.state import trips\n", "")),
            'types: constraints/budget.py:8: Name "trips" is not defined; did you mean "trip"?:'
            " write from domains.travel.state import trips at the top of the file",
        ),
    ],
)
def test_an_error_of_types_names_its_fix(
    checkpoint: Append, propose: Propose, edit: dict[str, Any], says: str
) -> None:
    checkpoint(trip(key="a", cost=10, ends_on="2026-05-02"), trip("Oslo", key="b", cost=10))

    run = propose(edit)

    assert run.outcome == "rejected"
    assert not_none(run.error)["message"] == says


def test_tests_of_another_constraint_name_the_import(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=10))
    assert propose(constraint()).outcome == "ok"

    run = propose(constraint(name="costs"))

    assert run.outcome == "rejected"
    assert not_none(run.error)["message"] == (
        "mutants: tests/test_costs.py:1: the tests also pass if constraints/costs.py never alerts,"
        " since they do not import it: write from constraints import costs in the tests, and call"
        " run_check(costs, …) with a state for which it fires, and with a state for which it does"
        " not"
    )


@pytest.mark.parametrize(
    "imports", ["from constraints.budget import check", "import constraints.budget"]
)
def test_tests_must_see_an_alert(checkpoint: Append, propose: Propose, imports: str) -> None:
    checkpoint(trip(key="a", cost=10))

    run = propose(constraint(tests=f"{imports}\n\n\ndef test_x() -> None:\n    assert True\n"))

    assert run.outcome == "rejected"
    assert not_none(run.error)["message"].endswith(
        "never alerts: add a test with a state for which it fires, and assert the alert"
    )


TWO = (
    BUDGET
    + """\
        if trip.cost < 0:
            yield warning(f"{trip.to} pays {trip.cost}", evidence=[trip])
"""
)
BOTH_TESTS = (
    BUDGET_TESTS
    + """

def test_speaks_of_gains() -> None:
    assert run_check(budget, today=TODAY, trips=[Trip(key="a", to="Rome", cost=-1)])
"""
)


def unreached(run: Run) -> list[tuple[int, str, bool]]:
    found = findings(run, "alert_unreached")
    return [(one["line"], one["message"], one["blocking"]) for one in found]


def test_an_alert_that_no_test_reaches_is_noted(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=10))

    noted = propose(constraint(TWO))
    tested = propose(constraint(TWO, BOTH_TESTS))

    assert noted.outcome == "ok", noted.error
    assert unreached(noted) == [(13, "no test reaches the alert on line 13", False)]
    assert (tested.outcome, unreached(tested)) == ("ok", [])


def test_unreached_alert_refuses_model_once(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=10))
    rule = {**constraint(TWO), "sources": [1]}

    refused = propose(rule, trigger=RunTrigger.MODEL, dry_run=True)
    again = propose(rule, trigger=RunTrigger.MODEL)

    assert refused.outcome == "rejected"
    assert [blocking for *_, blocking in unreached(refused)] == [True]
    assert again.outcome == "ok", again.error
    assert [blocking for *_, blocking in unreached(again)] == [False]


@pytest.mark.parametrize("body", [{}, {"tests": "", "source": ""}])
def test_a_constraint_without_text_is_told_what_belongs_there(
    api: APIClient, user: MemoryUser, body: dict[str, Any]
) -> None:
    errors = api.put("/v1/users/ada/constraints/budget/", body).data["errors"]

    assert "functions named test_…" in errors["tests"][0]
    assert "function named check" in errors["source"][0]
    assert not Run.objects.exists()


def test_empty_workspace_constraint_is_told_what_belongs_there() -> None:
    body = NewVersionSerializer(data={"source": "", "tests": ""})

    assert not body.is_valid()
    assert "functions named test_…" in body.errors["tests"][0]
    assert "function named check" in body.errors["source"][0]
