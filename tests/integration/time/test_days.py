"""A day as a bound is the whole day where the user lives, wherever a time is accepted.

The user lives in Berlin, where 31 March 2035 lasts from 22:00 UTC of the 30th to 22:00 UTC. It lies
in the future so that work is due by the clock of the database, too.
"""

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.log import entry_log
from memory.log.models.entries import EntryKind, EntryOutcome, Outcome
from tests.conftest import new_client
from tests.integration.alerts.test_life import finding, record, run_finds

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"
DAY = "2035-03-31"
TIMES = {
    "the evening before": "2035-03-30T23:59:59.999999+02:00",
    "midnight": "2035-03-31T00:00:00+02:00",
    "afternoon": "2035-03-31T15:00:00+02:00",
    "the last moment": "2035-03-31T23:59:59.999999+02:00",
    "the next day": "2035-04-01T00:00:00+02:00",
}
BEFORE, WITHIN, AFTER = (
    {"the evening before"},
    {"midnight", "afternoon", "the last moment"},
    {"the next day"},
)
OPERATORS = [
    ({"eq": DAY}, WITHIN),
    ({"ne": DAY}, BEFORE | AFTER),
    ({"gt": DAY}, AFTER),
    ({"gte": DAY}, WITHIN | AFTER),
    ({"lt": DAY}, BEFORE),
    ({"lte": DAY}, BEFORE | WITHIN),
    ({"in": [DAY]}, WITHIN),
    ({"in": ["2035-03-30", "2035-04-01"]}, BEFORE | AFTER),
    ({"gte": DAY, "lte": DAY}, WITHIN),
    ({"gte": "0001-01-01", "lte": "9999-12-31"}, BEFORE | WITHIN | AFTER),
    # A time is a single moment; without an offset, it is where the user lives.
    ({"gt": "2035-03-31T15:00"}, {"the last moment"} | AFTER),
    ({"lte": "2035-03-31T13:00Z"}, BEFORE | {"midnight", "afternoon"}),
]
each_operator = pytest.mark.parametrize(
    ("condition", "expected"), OPERATORS, ids=[json.dumps(condition) for condition, _ in OPERATORS]
)


def tell(user: MemoryUser, times: Mapping[str, str]) -> None:
    """Append a fact for each of the times, at which it occurred, and which its metadata names."""
    facts = [
        entry_log.Draft(
            kind=EntryKind.FACT,
            content=f"puppy {name}",
            occurred_at=datetime.datetime.fromisoformat(moment),
            metadata={"at": moment},
        )
        for name, moment in times.items()
    ]
    entry_log.append(user, facts, source="test")


@pytest.fixture
def facts(user: MemoryUser) -> None:
    """A fact for each of the times."""
    tell(user, TIMES)


def found(api: APIClient, filters: Any) -> set[str]:
    answer = api.post(f"{USER}search/", {"query": "puppy", "top_k": 50, "filters": filters})
    assert answer.status_code == 200, answer.data
    return {hit["text"].removeprefix("puppy ") for hit in answer.data["hits"]}


@each_operator
def test_filters_of_a_search(
    api: APIClient, facts: None, condition: Any, expected: set[str]
) -> None:
    everything = set(TIMES)

    assert found(api, {"occurred_at": condition}) == expected
    assert found(api, {"NOT": {"occurred_at": condition}}) == everything - expected


def test_a_day_without_an_operator_is_the_day(api: APIClient, facts: None) -> None:
    assert found(api, {"occurred_at": DAY}) == WITHIN
    assert found(api, {"metadata.at": DAY}) == WITHIN


# A time compared with another time is compared as text.
@pytest.mark.parametrize(
    ("condition", "expected"),
    [pytest.param(*one, id=json.dumps(one[0])) for one in OPERATORS if "T" not in str(one[0])],
)
def test_times_in_metadata(api: APIClient, facts: None, condition: Any, expected: set[str]) -> None:
    assert found(api, {"metadata.at": condition}) == expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("2035-03-31T15:00", True),  # without an offset: as written
        ("2035-03-31 23:30:00", True),
        ("2035-03-30T22:00:00Z", True),
        ("2035-03-31T22:00:00Z", False),
        ("2035-03-31T01:00:00-0500", True),
        ("2035-03-31", True),
        ("2035-03-31T99:99:99Z", False),  # no time: compared as text
        ("2035-03-31, perhaps", False),
        (20350331, False),
        (None, False),
        (["2035-03-31"], False),
    ],
)
def test_metadata_that_reads_as_a_time_is_compared_as_one(
    api: APIClient, user: MemoryUser, held: Any, expected: bool
) -> None:
    entry_log.append(
        user,
        [entry_log.Draft(kind=EntryKind.FACT, content="puppy", metadata={"at": held})],
        source="test",
    )

    assert bool(found(api, {"metadata.at": DAY})) is expected
    assert bool(found(api, {"metadata.at": {"in": ["x", DAY]}})) is expected
    assert bool(found(api, {"metadata.at": {"ne": DAY}})) is not expected


@each_operator
def test_filters_of_mem0(
    workspace: Workspace, facts: None, condition: Any, expected: set[str]
) -> None:
    client = new_client(workspace, scheme="Token")

    def memories(path: str, body: Any) -> set[str]:
        answer = client.post(f"/mem0/v3/memories/{path}", body)
        assert answer.status_code == 200, answer.content
        return {one["memory"].removeprefix("puppy ") for one in answer.json()["results"]}

    filters = {"user_id": "ada", "created_at": condition}
    assert memories("", {"filters": filters}) == expected
    assert memories("search/", {"query": "puppy", "top_k": 50, "filters": filters}) == expected


def test_dates_of_a_mem0_list(workspace: Workspace, facts: None) -> None:
    client = new_client(workspace, scheme="Token")

    def number(**dates: str) -> int:
        body = {"filters": {"user_id": "ada"}, **dates}
        return int(client.post("/mem0/v3/memories/", body).json()["count"])

    assert number(start_date=DAY, end_date=DAY) == len(WITHIN)
    assert number(start_date="2035-04-01") == len(AFTER)
    assert number(end_date="9999-12-31") == len(TIMES)


# -- The past --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def any_clock(settings: Settings) -> None:
    """Let workers work although this process's clock is not the database's."""
    settings.UAC_CLOCK_SECONDS = 0


@contextmanager
def at(moment: str) -> Iterator[None]:
    with time_machine.travel(datetime.datetime.fromisoformat(moment), tick=False):
        yield


@pytest.fixture
def trips(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> None:
    """A trip for each of the times, told and settled then."""
    for name, moment in TIMES.items():
        with at(moment):
            entry = {
                "kind": "record",
                "domain": "travel",
                "type": "Trip",
                "data": {"to": name, "at": moment},
            }
            assert api.post(f"{USER}entries/", {"entries": [entry]}).status_code == 202
            work()


def state(api: APIClient, **asked: str) -> set[str]:
    answer = api.get(f"{USER}state/travel/trips/", asked)
    assert answer.status_code == 200, answer.data
    return {one["fields"]["to"] for one in answer.data["records"]}


@pytest.mark.parametrize("by", ["recorded", "occurred"])
def test_as_of_a_day_is_as_of_its_end(api: APIClient, trips: None, by: str) -> None:
    with at("2035-05-01T12:00:00Z"):
        assert state(api, as_of="2035-03-30", by=by) == BEFORE
        assert state(api, as_of=DAY, by=by) == BEFORE | WITHIN
        assert state(api, as_of="2035-04-01", by=by) == set(TIMES)
        assert state(api, as_of="2035-03-31T12:00", by=by) == BEFORE | {"midnight"}


@pytest.mark.parametrize("by", ["recorded", "occurred"])
def test_as_of_today_is_now(api: APIClient, trips: None, by: str) -> None:
    """The day has not ended; tomorrow is the future, although it has begun in Tokyo."""
    with at("2035-03-31T16:00:00+02:00"):
        answer = api.get(f"{USER}state/", {"as_of": DAY, "by": by})
        assert answer.status_code == 200, answer.data
        assert answer.data["as_of"]["moment"] == "2035-03-31T14:00:00+00:00"
        tomorrow = api.get(f"{USER}state/", {"as_of": "2035-04-01", "by": by})
        assert (tomorrow.status_code, list(tomorrow.data["errors"])) == (404, ["as_of"])


@pytest.mark.parametrize("by", ["recorded", "occurred"])
def test_changes_of_a_day_are_between_it_and_itself(api: APIClient, trips: None, by: str) -> None:
    def added(since: str, until: str) -> set[str]:
        asked = {"since": since, "until": until, "by": by}
        answer = api.get(f"{USER}diff/", asked)
        assert answer.status_code == 200, answer.data
        return {one["after"]["fields"]["to"] for one in answer.data["added"]}

    with at("2035-05-01T12:00:00Z"):
        assert added(DAY, DAY) == WITHIN
        assert added("2035-03-30", DAY) == BEFORE | WITHIN  # the first day of this memory
        assert added("2035-01-01", "2035-05-01") == set(TIMES)
        assert added("2035-04-01", "2035-05-01") == AFTER


def test_searches_and_contexts_of_a_day(api: APIClient, trips: None) -> None:
    with at("2035-05-01T12:00:00Z"):
        answer = api.post(f"{USER}search/", {"query": "trip", "top_k": 50, "as_of": DAY})
        assert {hit["seq"] for hit in answer.data["hits"]} == {1, 2, 3, 4}
        context = api.post(f"{USER}context/", {"query": "trip", "as_of": DAY})
        assert context.data["as_of"]["seq"] == 4


def test_code_at_a_day_has_that_day_behind_it(
    api: APIClient, trips: None, work: Callable[[], None]
) -> None:
    """What the day brought is past when the code asks for `now`."""
    code = "sorted(trip.to for trip in trips if trip.at <= now), str(today)"
    with at("2035-05-01T12:00:00Z"):
        run = api.post(f"{USER}query/?wait=0", {"code": code, "at": DAY}).data
        work()
        answer = api.get(f"/v1/runs/{run['id']}/").data

    assert answer["outcome"] == "ok", answer["error"]
    past, today = answer["output"]["value"]["$tuple"]
    assert (set(past), today) == (BEFORE | WITHIN, DAY)


# -- Lists -----------------------------------------------------------------------------------------


def test_alerts_of_a_day_are_those_live_at_its_end(api: APIClient, user: MemoryUser) -> None:
    with at(TIMES["afternoon"]):
        run_finds(user, finding(record("m-1", 1)))
    with at(TIMES["the next day"]):
        run_finds(user)

    def live(path: str, as_of: str) -> int:
        return len(api.get(path, {"as_of": as_of}).data["results"])

    assert [live(f"{USER}alerts/", day) for day in ("2035-03-30", DAY, "2035-04-01")] == [0, 1, 0]


def test_a_period_to_reopen_includes_its_days(
    workspace: Workspace, user: MemoryUser, facts: None
) -> None:
    manager = new_client(workspace, Scope.MANAGE)

    def reopened(**selection: str) -> set[int]:
        EntryOutcome.objects.filter(user=user).delete()
        for seq, moment in enumerate(TIMES.values(), 1):
            EntryOutcome.objects.create(
                user=user, seq=seq, outcome=Outcome.DISMISSED, decided_at=moment
            )
        answer = manager.post(f"{USER}outcomes/reopen/", selection)
        assert answer.status_code == 200, answer.data
        return set(answer.data["entries"])

    assert reopened(since=DAY, until=DAY) == {2, 3, 4}
    assert reopened(until=DAY) == {1, 2, 3, 4}
    assert reopened(since="2035-04-01") == {5}
    assert reopened(until="2035-03-31T15:00") == {1, 2}


def test_day_without_midnight_includes_its_entries(api: APIClient, user: MemoryUser) -> None:
    """In Cairo, the clocks go from midnight to one o'clock."""
    user.time_zone = "Africa/Cairo"
    user.save()
    day = "2026-04-24"
    fact = {"kind": "fact", "content": "puppy", "occurred_at": day}

    answer = api.post(f"{USER}entries/", {"entries": [fact]})

    assert answer.status_code == 202, answer.data
    assert found(api, {"occurred_at": day}) == {"puppy"}
    assert found(api, {"occurred_at": {"lt": day}}) == set()


# -- The admin -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lookup", "expected"),
    [
        ("occurred_at", WITHIN),
        ("occurred_at__exact", WITHIN),
        ("occurred_at__gt", AFTER),
        ("occurred_at__gte", WITHIN | AFTER),
        ("occurred_at__lt", BEFORE),
        ("occurred_at__lte", BEFORE | WITHIN),
        ("occurred_at__date", WITHIN),
    ],
)
def test_lists_of_the_admin(
    admin_client: Client, user: MemoryUser, lookup: str, expected: set[str]
) -> None:
    """They show times in UTC, so a day in their addresses is one in UTC."""
    tell(user, {name: moment.replace("+02:00", "+00:00") for name, moment in TIMES.items()})
    url = reverse("admin:memory_logentry_changelist")

    answer = admin_client.get(url, {lookup: DAY})

    assert answer.status_code == 200
    shown = {entry.content.removeprefix("puppy ") for entry in answer.context["cl"].queryset}
    assert shown == expected
