"""Typed records are found by their class name and content, and by what they refer to."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from tests.integration.search.conftest import index_all, redact

pytestmark = pytest.mark.django_db

SCHEMA = [
    {
        "op": "define_class",
        "domain": "travel",
        "name": "Journey",
        "doc": "A voyage that the agency Wanderlust has booked.",
        "collection": "city_breaks",
        "fields": [{"name": "destination", "type": "str"}],
    },
    {
        "op": "define_class",
        "domain": "travel",
        "name": "Cost",
        "fields": [
            {"name": "amount", "type": "int"},
            {"name": "trip", "type": "Ref[Journey] | None"},
        ],
    },
]
Search = Callable[..., list[str]]


@pytest.fixture
def search(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> Search:
    """Append two journeys and their costs; return the keys of the records that are found."""
    assert api.post("/v1/users/ada/checkpoints/?wait=0", {"edits": SCHEMA}).status_code == 202
    work()
    told = [
        record("Journey", "t-1", destination="Bangkok"),
        record("Journey", "t-2", destination="Oslo"),
        *(record("Cost", f"c-{n}", amount=n, trip=f"t-{1 + n % 2}") for n in range(4)),
    ]
    assert api.post("/v1/users/ada/entries/", {"entries": told}).status_code == 202
    work()

    def do(query: str, **more: Any) -> list[str]:
        body = {"query": query, **more}
        hits = api.post("/v1/users/ada/search/", body, format="json").json()["hits"]
        return [hit["text"].split()[1].rstrip(":") for hit in hits]

    return do


def record(type_: str, key: str, **fields: Any) -> dict[str, Any]:
    # Each has its own session, so that none is found because of its neighbour.
    place = {"kind": "record", "domain": "travel", "type": type_, "key": key}
    return {**place, "session_id": key, "data": fields}


@pytest.mark.parametrize("query", ["a city break", "breaks", "voyages", "Who is Wanderlust?"])
def test_record_is_found_by_collection_and_class(
    user: MemoryUser, search: Search, query: str
) -> None:
    assert search(query) == ["t-2", "t-1"]
    index_all(user)
    assert search(query) == ["t-2", "t-1"]
    assert search(query, **{"in": ["archive"]}) == []


def test_record_is_found_after_its_reference(user: MemoryUser, search: Search) -> None:
    assert search("Bangkok") == ["t-1", "c-2", "c-0"]
    assert search("the costs of Oslo")[:2] == ["c-3", "c-1"]
    index_all(user)
    assert search("Bangkok") == ["t-1", "c-2", "c-0"]
    # At the earlier moment, nobody referred to it yet.
    assert search("Bangkok", as_of="3") == ["t-1", "c-0"]


def test_redacted_record_is_not_found_by_references(user: MemoryUser, search: Search) -> None:
    index_all(user)
    redact(LogEntry.objects.get(user=user, seq=1))

    assert search("Bangkok") == []
