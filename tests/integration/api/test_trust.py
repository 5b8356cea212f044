"""`trust`: where an entry comes from, in the log, queries, constraints, searches and contexts."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from tests.integration.commits.conftest import BUDGET, BUDGET_TESTS, trip
from tests.integration.time.test_as_of import ask

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"
Work = Callable[[], None]
# Counts only what the person said.
SAID = BUDGET.replace("from uac import", "from uac import trust_of,").replace(
    "if trip.cost > 1000", 'if trust_of(trip) == "user" and trip.cost > 1000'
)
SAID_TESTS = (
    BUDGET_TESTS
    + """

def test_is_silent_about_what_a_document_says() -> None:
    trips = [Trip(key="rome", to="Rome", cost=1001, sources=(1, 2))]
    assert run_check(budget, today=TODAY, trust={2: "document"}, trips=trips) == []
"""
)
CLASSES = "{trip.to: trust_of(trip) for trip in trips}"


def append(api: APIClient, *entries: dict[str, Any]) -> list[str]:
    """Append entries; return their classes as the answer has them."""
    response = api.post(f"{USER}entries/", {"entries": list(entries)})
    assert response.status_code == 202, response.data
    return [entry["trust"] for entry in response.json()["entries"]]


def found(api: APIClient, query: str, **more: Any) -> dict[str, str]:
    """Return the class of each hit by the hit's text."""
    response = api.post(f"{USER}search/", {"query": query, **more})
    assert response.status_code == 200, response.data
    return {hit["text"]: hit["trust"] for hit in response.json()["hits"]}


def test_an_entry_says_where_it_comes_from(api: APIClient, user: MemoryUser) -> None:
    entries: list[dict[str, Any]] = [
        {"kind": "message", "content": "I like Rome.", "role": "user"},
        {"kind": "message", "content": "Rome is warm.", "role": "assistant"},
        {"kind": "fact", "content": "The lease is for Rome.", "trust": "document"},
        {"kind": "record", "type": "Trip", "data": {"to": "Rome"}, "trust": "tool"},
    ]

    assert append(api, *entries) == ["user", "model", "document", "tool"]
    assert [entry["trust"] for entry in api.get(f"{USER}entries/").json()["results"]] == [
        *("user", "model", "document", "tool")
    ]


def test_an_unknown_class_is_refused(api: APIClient, user: MemoryUser) -> None:
    entry = {"kind": "fact", "content": "Rome.", "trust": "hearsay"}

    response = api.post(f"{USER}entries/", entry)

    assert response.status_code == 400
    assert list(response.data["errors"]) == ["trust"]


def test_a_search_finds_by_class(api: APIClient, user: MemoryUser) -> None:
    append(
        api,
        {"kind": "message", "content": "Rome by train.", "role": "user"},
        {"kind": "message", "content": "Rome by plane.", "role": "assistant"},
        {"kind": "fact", "content": "Rome by ship.", "trust": "document"},
    )

    assert found(api, "Rome", filters={"trust": "user"}) == {"Rome by train.": "user"}
    assert found(api, "Rome", filters={"trust": {"in": ["model", "document"]}}) == {
        "Rome by plane.": "model",
        "Rome by ship.": "document",
    }
    response = api.post(f"{USER}search/", {"query": "Rome", "filters": {"trust": "hearsay"}})
    assert response.status_code == 400


def trip_to(city: str, **more: Any) -> dict[str, Any]:
    return {"kind": "record", **trip(city, key=city.lower(), cost=2000), **more}


def test_a_record_has_the_class_of_the_least_trusted_of_its_entries(
    api: APIClient, user: MemoryUser, work: Work
) -> None:
    append(
        api,
        trip_to("Rome", trust="user"),
        trip_to("Oslo", trust="tool"),
        trip_to("Bonn", trust="user"),
        trip_to("Bonn", trust="document", data={"cost": 3000}),
    )
    work()

    assert ask(api, work, CLASSES) == {"Rome": "user", "Oslo": "tool", "Bonn": "document"}

    # Later entries are known in the same sandbox, too.
    append(api, trip_to("Lima", trust="model"), trip_to("Oslo", trust="user"))
    work()

    assert ask(api, work, CLASSES) == {
        "Rome": "user",
        "Oslo": "tool",
        "Bonn": "document",
        "Lima": "model",
    }
    assert ask(api, work, CLASSES, as_of=1) == {"Rome": "user"}


def test_a_constraint_may_count_only_what_the_person_said(
    api: APIClient, user: MemoryUser, work: Work
) -> None:
    append(api, trip_to("Rome", trust="document"), trip_to("Oslo", trust="user"))
    work()

    body = {"source": SAID, "tests": SAID_TESTS}
    assert api.put(f"{USER}constraints/budget/?wait=0", body).status_code == 202
    work()
    assert [alert.message for alert in Alert.objects.all()] == ["Oslo costs 2000"]

    append(api, trip_to("Bonn", trust="tool"), trip_to("Lima"))
    work()
    assert sorted(alert.message for alert in Alert.objects.all()) == [
        *("Lima costs 2000", "Oslo costs 2000")
    ]


def context(api: APIClient, **more: Any) -> list[str]:
    """Return the lines of a context that are about trips, without the manifest's."""
    response = api.post(f"{USER}context/", {"query": "Which trips?", **more})
    assert response.status_code == 200, response.data
    lines = [line for line in response.json()["text"].split("\n") if line.startswith("- ")]
    return sorted(line for line in lines if line.endswith("]"))


def test_a_context_marks_what_the_person_did_not_say(
    api: APIClient, user: MemoryUser, work: Work
) -> None:
    day = "2026-05-02T10:00:00Z"
    append(
        api,
        trip_to("Rome", trust="tool"),
        trip_to("Oslo"),
        {"kind": "fact", "content": "A trip to Bonn.", "trust": "document", "occurred_at": day},
        {"kind": "fact", "content": "A trip to Lima.", "trust": "model", "occurred_at": day},
        {"kind": "message", "content": "A trip to Bern.", "role": "assistant", "occurred_at": day},
        {"kind": "message", "content": "A trip to Paris.", "role": "user", "occurred_at": day},
    )
    work()

    assert context(api) == [
        "- (2026-05-02, assistant) A trip to Bern. [5]",
        "- (2026-05-02, from a document) A trip to Bonn. [3]",
        "- (2026-05-02, from a model) A trip to Lima. [4]",
        "- (2026-05-02, user) A trip to Paris. [6]",
        "- travel.trips 'oslo': to: Oslo; cost: 2000 [2]",
        "- travel.trips 'rome': (from a tool) to: Rome; cost: 2000 [1]",
    ]
    assert context(api, trust=["user", "document"]) == [
        "- (2026-05-02, from a document) A trip to Bonn. [3]",
        "- (2026-05-02, user) A trip to Paris. [6]",
        "- travel.trips 'oslo': to: Oslo; cost: 2000 [2]",
    ]


@pytest.mark.parametrize("trust", [["hearsay"], ["user", "hearsay"], "user"])
def test_a_context_refuses_what_is_no_list_of_classes(
    api: APIClient, user: MemoryUser, trust: object
) -> None:
    response = api.post(f"{USER}context/", {"query": "Which trips?", "trust": trust})

    assert response.status_code == 400
    assert list(response.data["errors"]) == ["trust"]
