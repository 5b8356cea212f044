"""Bad code: queries and constraints that fail, run away, or return an invalid value.

All tests share one person with one trip, and each must leave the state usable for the next one.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test.utils import override_settings
from pytest_django.plugin import DjangoDbBlocker
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.versions.models.runs import Run, RunStatus
from tests.conftest import ENDLESS_ALONE, cloned_database, new_client
from tests.integration.api.bad_input.conftest import check_problem, stored
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
    "1 +": ("user_error", ["SyntaxError", "invalid syntax"]),
    "(" * 5000 + ")" * 5000: ("user_error", ["SyntaxError", "nested"]),
    "import os": ("user_error", ["PolicyError", "import os is not allowed"]),
    "__import__('os')": ("user_error", ["PolicyError", "__import__ is not allowed"]),
    "open('/etc/passwd')": ("user_error", ["PolicyError", "open"]),
    "().__class__.__bases__": ("user_error", ["PolicyError", "__bases__"]),
    "await x": ("user_error", ["PolicyError", "async"]),
    "raise SystemExit(3)": ("killed", ["exited its process"]),
    "x": ("user_error", ["NameError", "'x' is not defined"]),
    "trips[0].price": ("user_error", ["AttributeError", "price"]),
    "today.replace(day=32)": ("user_error", ["ValueError", "day"]),
    "def f():\n    return f()\nf()": ("user_error", ["RecursionError"]),
    "raise Exception('x' * 10_000_000)": ("user_error", ["Exception", "xxx"]),
    "(t for t in trips)": ("user_error", ["a generator is not a value", "list(...)"]),
    "lambda: 1": ("user_error", ["a function is not a value", "call it"]),
    "math": ("user_error", ["the module math is used as a value"]),
    "Trip": ("user_error", ["the class Trip is not a value"]),
    "'\\ud800'": ("user_error", ["half a surrogate pair"]),
    "'\\0'": ("user_error", ["null character"]),
    "10 ** 5000": ("result_limit", ["too long to print"]),
    "'x' * 5_000_000": ("result_limit", ["1 MiB", "return a part of it"]),
    "range(10 ** 12)": ("result_limit", ["1 MiB"]),
    "a = []\na.append(a)\na": ("result_limit", ["contains itself"]),
    "a = []\nfor _ in range(100):\n    a = [a]\na": ("result_limit", ["more than 32 levels deep"]),
    "print('x' * 5_000_000)": ("output_limit", ["printed more than 1 MiB"]),
    # A text of that size is never printed, since it cannot be created.
    "print('x' * 2 ** 30)": ("out_of_memory", ["more than 256 MiB of memory"]),
    "[0] * 10 ** 10": ("out_of_memory", ["more than 256 MiB of memory"]),
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


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"code": "1\\u0000"}', ["code has a NUL character"]),
        (b'{"code": "\'\\ud800\'"}', ["code has a lone surrogate"]),
        (b'{"code": "\xff"}', ["UTF-8"]),
    ],
)
def test_code_that_is_no_text(api: APIClient, body: bytes, words: list[str]) -> None:
    before = stored()

    response = api.post(f"{USER}query/", body, content_type="application/json")

    check_problem(response, 400, *words)
    assert stored() == before


RULE = {
    "source": """\
import datetime
from collections.abc import Iterator

from domains.travel.state import trips
from uac import Alert, info


def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        if trip.days > 30:
            yield info("that is long", evidence=[trip])
""",
    "tests": """\
import datetime

from constraints import rule
from domains.travel.schema import Trip
from uac.testing import run_check

TODAY = datetime.date(2026, 1, 1)


def test_speaks() -> None:
    assert len(run_check(rule, today=TODAY, trips=[Trip(key="t", days=31)])) == 1


def test_is_silent() -> None:
    assert run_check(rule, today=TODAY, trips=[Trip(key="t", days=30)]) == []
""",
}


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
        ({"source": "import os\n" + RULE["source"]}, ["constraints/rule.py:1", "import os"]),
        ({"tests": "import os\n"}, ["tests/test_rule.py:1", "import os"]),
        (
            {"tests": RULE["tests"].replace("== []", "!= []")},
            ["tests/test_rule.py:15", "AssertionError"],
        ),
        (
            {"source": RULE["source"].replace("info(", "len(").replace(", evidence=[trip]", "")},
            ["types: constraints/rule.py:11", 'expected type "Alert"'],
        ),
        (
            {"tests": "def test_nothing() -> None:\n    assert True\n"},
            ["mutants: tests/test_rule.py", "never alerts", "a state for which it fires"],
        ),
        ({"sources": [99]}, ["edits[0].sources cites entry 99", "entries 1 to 1"]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_constraint_that_the_gate_refuses(
    api: APIClient, change: dict[str, Any], words: list[str]
) -> None:
    check_gate_refuses(api, words, "put", "constraints/rule/", {**RULE, **change})


ADD = {"op": "add", "domain": "travel", "class_name": "Trip", "fields": {"days": 1}, "sources": [1]}


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({**ADD, "fields": {"price": 1}}, ["travel.Trip has no field 'price'", "add_field"]),
        ({**ADD, "fields": {"days": "x"}}, ["travel.Trip.days has type int", "'x'"]),
        ({**ADD, "sources": [7]}, ["edits[0].sources cites entry 7", "entries 1 to 1"]),
        ({**ADD, "key": "a"}, ["travel.trips.a already exists", "update"]),
        (
            {
                "op": "widen_field",
                "domain": "travel",
                "class_name": "Trip",
                "name": "days",
                "type": "__import__('os')",
            },
            ["is not a valid field type"],
        ),
        (
            {"op": "retire", "domain": "travel", "collection": "trips", "key": "z", "sources": [1]},
            ["travel.trips has no record 'z'"],
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_an_edit_that_the_gate_refuses(
    api: APIClient, edit: dict[str, Any], words: list[str]
) -> None:
    check_gate_refuses(api, words, "post", "checkpoints/", {"edits": [edit]})
    assert MemoryUser.objects.get().head is not None
