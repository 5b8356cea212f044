"""Bad code: queries and constraints that fail, run away, or return an invalid value.

All tests share one person with one trip, and each must leave the state usable for the next one.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test.utils import override_settings
from pytest_django.plugin import DjangoDbBlocker
from rest_framework.test import APIClient

from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.versions.models.runs import Run, RunStatus
from tests.conftest import ENDLESS_ALONE, cloned_database, new_client
from tests.constraints import make_rule
from tests.integration.api.bad_input.conftest import stored
from workers import tasks

pytestmark = pytest.mark.usefixtures("request_worker")

USER = "/v1/users/ada/"
TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "key": "a", "data": {"days": 3}}


@pytest.fixture(scope="module")
def api(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[APIClient]:
    """A client in a database of this module, with a user who has a trip."""
    with cloned_database(django_db_blocker):
        workspace = Workspace.objects.create(name="bad code")
        user = create_user(workspace, "ada", metadata=None)
        client = new_client(workspace)
        client.raise_request_exception = False
        client.post(f"{USER}entries/", TRIP)
        tasks.work("records", user.pk)
        yield client


def everything_but_runs() -> dict[str, list[str]]:
    return {name: rows for name, rows in stored().items() if name != "Run"}


def answered(api: APIClient) -> None:
    """A good query must still be answered, on the earlier version."""
    good = api.post(f"{USER}query/", {"code": "[trip.days for trip in trips]"})
    assert (good.status_code, good.data["value"]) == (200, [3])
    assert good.data["checkpoint"] == 1


QUERIES: dict[str, tuple[str, list[str]]] = {
    # code → outcome, words of the error
    "(" * 5000 + ")" * 5000: ("user_error", ["SyntaxError", "nested"]),
    "import os": ("user_error", ["PolicyError", "import os is not allowed"]),
    "raise SystemExit(3)": ("killed", ["exited its process"]),
    "x": ("user_error", ["NameError", "'x' is not defined"]),
    "raise Exception('x' * 10_000_000)": ("user_error", ["Exception", "xxx"]),
    "range(10 ** 12)": ("result_limit", ["1 MiB"]),
    "print('x' * 5_000_000)": ("output_limit", ["printed more than 1 MiB"]),
    # A text of that size is never printed, since it cannot be created.
    "print('x' * 2 ** 30)": ("out_of_memory", ["more than 256 MiB of memory"]),
    "while True: pass": ("timeout", ["took longer than 0.5 s"]),
}


@pytest.mark.parametrize("code", QUERIES, ids=lambda code: repr(code)[:40])
def test_a_query_that_fails_says_why(api: APIClient, code: str) -> None:
    outcome, words = QUERIES[code]
    before = everything_but_runs()

    with override_settings(**(ENDLESS_ALONE if outcome == "timeout" else {})):
        response = api.post(f"{USER}query/", {"code": code})

    assert response.status_code == 422, response.data
    assert response.data["outcome"] == outcome, response.data["error"]
    told = f"{response.data['error']['type']}: {response.data['error']['message']}"
    for word in words:
        assert word in told
    assert response.data["value"] is None
    assert response["Content-Type"] == "application/problem+json"
    assert response.data["type"] == "urn:uac:problem:code-failed"
    assert response.data["error"]["message"] in response.data["detail"]
    assert len(response.content) < 60_000
    run = Run.objects.get(pk=response.data["id"])
    assert (run.status, run.outcome, run.output) == (RunStatus.DONE, outcome, None)
    assert everything_but_runs() == before
    answered(api)


RULE = make_rule(
    "rule", "travel.Trip", "trip.days > 30", "that is long", fires="days=31", silent="days=30"
)


def check_gate_refuses(
    api: APIClient, words: list[str], method: str, path: str, body: dict[str, Any]
) -> None:
    before = everything_but_runs()

    response = getattr(api, method)(f"{USER}{path}", body)

    assert response.status_code == 422, response.data
    assert (response.data["accepted"], response.data["version"]) == (False, None)
    for word in words:
        assert word in response.data["error"]["message"]
    assert everything_but_runs() == before
    answered(api)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": "def ("}, ["rule.source, line 1", "invalid syntax"]),
        (
            {"tests": RULE["tests"].replace("== []", "!= []")},
            ["tests/test_rule.py:", "AssertionError"],
        ),
        ({"sources": [99]}, ["edits[0].sources cites entry 99", "entries 1 to 1"]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_constraint_that_the_gate_refuses(
    api: APIClient, change: dict[str, Any], words: list[str]
) -> None:
    check_gate_refuses(api, words, "put", "constraints/rule/", {**RULE, **change})
