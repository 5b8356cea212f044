"""Code whose last statement has no value is refused, with what it printed and how to end it.

What a statement assigns or returns is a value; what surrounds the code is no reason to refuse it.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from tests.integration.admin.conftest import shown
from tests.integration.commits.conftest import trip

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/query/"
SUM = "sum(trip.cost for trip in trips)"
Query = Callable[[str], Any]


@pytest.fixture
def trips(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> None:
    entries = [
        {"kind": "record", **trip("Rome", key="a", cost=840, on="2026-05-02")},
        {"kind": "record", **trip("Oslo", key="b", cost=1260, on="2026-09-11")},
    ]
    assert api.post("/v1/users/ada/entries/", {"entries": entries}).status_code == 202
    work()


@pytest.fixture
def query(api: APIClient, trips: None, request_worker: None) -> Query:
    """Send code, have it run at once, and return the response."""
    return lambda code: api.post(URL, {"code": code})


@pytest.mark.parametrize(
    "code",
    [
        SUM,
        f"total = {SUM}",
        f"first = total = {SUM}",
        f"total: int = {SUM}",
        f"total = 0\ntotal += {SUM}",
        "total = 0\nfor trip in trips:\n    total += trip.cost\ntotal",
        f"(total := {SUM})",
        f"return {SUM}",
        f"total = {SUM}\nreturn total",
        f"def total():\n    return {SUM}\ntotal()",
        f"```python\ntotal = {SUM}\n```",
        f"\ufeff{SUM}",
        f"“{SUM}”",
        f"print('adding')\n{SUM}",
    ],
)
def test_the_value_is_that_of_the_last_statement(query: Query, code: str) -> None:
    answer = query(code)

    assert answer.status_code == 200, answer.data
    assert (answer.data["value"], answer.data["type"]) == (2100, "int")
    assert answer.data["evidence"]["count"] == 2


def test_several_names_get_all_values(query: Query) -> None:
    answer = query("low, high = sorted(trip.cost for trip in trips)")

    assert answer.data["value"] == [840, 1260]


def test_none_is_a_value_if_the_code_computes_it(query: Query) -> None:
    """Such as the trip to Paris, of which there is none."""
    for code in (
        "next((trip for trip in trips if trip.to == 'Paris'), None)",
        "found = {trip.to: trip for trip in trips}.get('Paris')",
        "def find(to):\n    return next((t for t in trips if t.to == to), None)\nfind('Paris')",
    ):
        answer = query(code)
        assert (answer.status_code, answer.data["value"]) == (200, None)


@pytest.mark.parametrize(
    ("code", "printed", "fix"),
    [
        (f"print({SUM})", "2100\n", "trip.cost for trip in trips"),
        (f"total = {SUM}\nprint('Total:', total)", "Total: 2100\n", "`total`"),
        (f"total = {SUM}\nprint(f'Total: {{total:,}} euros')", "Total: 2,100 euros\n", "`total`"),
        ("print('trips', 'costs')", "trips costs\n", "the printed value"),
        (f"def main():\n    print({SUM})\n\nmain()", "2100\n", "Let main return"),
        (f"def main():\n    return {SUM}", "", "main()"),
        ("for trip in trips:\n    print(trip.to)", "Rome\nOslo\n", "an expression"),
        ("total = 0\nfor trip in trips:\n    total += trip.cost", "", "`total`"),
        ("if trips:\n    total = 1\nelse:\n    total = 0", "", "`total`"),
        ("costs = [trip.cost for trip in trips]\ncosts.sort()", "", "`costs`"),
        ("total: int", "", "an expression"),
        ("costs = {}\ncosts['all'] = 1\ndel costs['all']", "", "`costs`"),
        ("import math", "", "an expression"),
        ("pass", "", "an expression"),
        ("return", "", "an expression"),
        ("```python\n```", "", "an expression"),
        ("# sum the costs", "", "an expression"),
    ],
)
def test_code_without_a_value_says_so(query: Query, code: str, printed: str, fix: str) -> None:
    answer = query(code)

    assert answer.status_code == 422, answer.data
    assert answer.data["type"] == "urn:uac:problem:no-value"
    assert answer.data["error"]["type"] == "NoValueError"
    assert fix in answer.data["detail"]
    assert answer.data["stdout"] == printed


def test_an_early_return_is_refused_with_its_line(query: Query) -> None:
    answer = query(f"if not trips:\n    return 0\nreturn {SUM}")

    assert answer.data["type"] == "urn:uac:problem:no-value"
    assert (answer.data["error"]["path"], answer.data["error"]["line"]) == ("<query>", 2)


def test_output_is_bounded_and_returned_with_the_value(query: Query) -> None:
    answer = query(f"print('x' * 100_000)\n{SUM}")

    assert answer.data["value"] == 2100
    assert set(answer.data["stdout"]) == {"x", "\n"}
    assert len(answer.data["stdout"]) == 8 * 1024


def test_the_same_code_in_a_fence_is_the_same_query(query: Query) -> None:
    first, again = query(SUM), query(f"```python\n{SUM}\n```")

    assert (again.data["cached"], again.data["id"], again.data["code"]) == (
        *(True, first.data["id"]),
        SUM,
    )


def test_the_console_of_the_admin_says_it_too(
    admin_client: Client, admin_user: User, trips: None, user: MemoryUser, work: Callable[[], None]
) -> None:
    url = f"/admin/memory/memoryuser/{user.pk}/console/"

    def ask(code: str) -> str:
        answer = admin_client.post(url, {"code": code})
        assert answer.status_code == 302
        work()
        return shown(admin_client.get(answer["Location"]))

    assert "2100" in ask(f"```python\ntotal = {SUM}\n```")
    page = ask(f"total = {SUM}\nprint('Total:', total)")
    assert "Total: 2100" in page
    assert "has no value" in page
