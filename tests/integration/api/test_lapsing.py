"""`valid_until`: from the day after, a statement has lapsed, and is left out unless asked for."""

import datetime
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from tests.integration.commits.conftest import BUDGET, BUDGET_TESTS, trip
from tests.integration.time.test_as_of import ask
from workers import tasks
from workers.service import dispatching

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"
Work = Callable[[], None]
Append = Callable[..., list[dict[str, Any]]]
NAMES = "sorted(trip.to for trip in trips)"


@pytest.fixture
def append(api: APIClient, user: MemoryUser, work: Work) -> Append:
    """Append entries, settle the typed ones, and return all."""

    def do(*entries: dict[str, Any]) -> list[dict[str, Any]]:
        response = api.post(f"{USER}entries/", {"entries": list(entries)})
        assert response.status_code == 202, response.data
        work()
        appended: list[dict[str, Any]] = response.json()["entries"]
        return appended

    return do


def trip_to(city: str, **more: Any) -> dict[str, Any]:
    statement = trip(city, key=city.lower(), cost=100, on="2026-05-02")
    return {"kind": "record", "session_id": city, **statement, **more}


def search(api: APIClient, query: str, **more: Any) -> dict[str, Any]:
    response = api.post(f"{USER}search/", {"query": query, **more})
    assert response.status_code == 200, response.data
    found: dict[str, Any] = response.json()
    return found


class TestEntries:
    def test_an_entry_says_until_when_it_holds(self, append: Append) -> None:
        fact = {"kind": "fact", "content": "The code is 4711.", "valid_until": "2026-05-01"}
        without = {"kind": "fact", "content": "Ada is tall."}

        entries = append(fact, trip_to("Rome", valid_until="2026-06-01"), without)

        assert [entry["valid_until"] for entry in entries] == ["2026-05-01", "2026-06-01", None]
        assert entries[1]["data"]["data"]["lapses_after"] == "2026-06-01"
        assert [entries[0]["data"], entries[2]["data"]] == [None, None]

    def test_an_entry_with_a_key_is_logged_once(self, append: Append) -> None:
        fact = {"kind": "fact", "content": "x", "valid_until": "2026-05-01", "idempotency_key": "k"}
        append(fact)
        append(fact)

        assert LogEntry.objects.count() == 1

    def test_another_day_under_the_same_key_is_refused(
        self, api: APIClient, append: Append
    ) -> None:
        fact = {"kind": "fact", "content": "x", "valid_until": "2026-05-01", "idempotency_key": "k"}
        append(fact)

        response = api.post(f"{USER}entries/", {**fact, "valid_until": "2026-05-02"})

        assert response.status_code == 422

    @pytest.mark.parametrize(
        "entry",
        [
            {"kind": "message", "content": "Until May.", "valid_until": "2026-05-01"},
            {"kind": "fact", "content": "x", "valid_until": "2026-05-01T10:00:00Z"},
            {"kind": "fact", "content": "x", "valid_until": "2026-02-30"},
            {"kind": "fact", "content": "x", "valid_until": "soon"},
            {"kind": "fact", "content": "x", "valid_until": 20260501},
            trip_to("Rome", valid_until="2026-05-01", data={"lapses_after": "2026-06-01"}),
            {
                "kind": "record",
                "type": "Trip",
                "key": "a",
                "retired": True,
                "valid_until": "2026-05-01",
            },
        ],
    )
    def test_bad_input_is_refused(
        self, api: APIClient, user: MemoryUser, entry: dict[str, Any]
    ) -> None:
        response = api.post(f"{USER}entries/", entry)

        assert response.status_code == 400
        assert list(response.data["errors"]) == ["valid_until"]
        assert not LogEntry.objects.exists()


class TestQueries:
    def test_a_lapsed_record_is_left_out_and_named(
        self, api: APIClient, append: Append, work: Work
    ) -> None:
        append(trip_to("Rome", valid_until="2026-06-01"), trip_to("Oslo"))

        assert ask(api, work, NAMES, at="2026-06-01") == ["Oslo", "Rome"]
        assert ask(api, work, NAMES, at="2026-06-02") == ["Oslo"]
        answer = api.post(f"{USER}query/", {"code": NAMES, "at": "2026-06-02"}).data
        assert answer["cached"] is True
        lapsed = {"domain": "travel", "collection": "trips", "count": 1, "keys": ["rome"]}
        assert answer["lapsed"] == [lapsed]
        assert "lapsed" not in answer["evidence"]

    def test_as_of_an_earlier_day_it_holds_again(
        self, api: APIClient, append: Append, work: Work
    ) -> None:
        now = "2026-01-01T10:00:00Z"
        append(trip_to("Rome", valid_until="2026-02-01", occurred_at=now))

        assert ask(api, work, NAMES, by="occurred", at="2026-03-01") == []
        assert ask(api, work, NAMES, by="occurred", as_of="2026-01-15") == ["Rome"]

    def test_a_later_entry_moves_the_last_day(
        self, api: APIClient, append: Append, work: Work
    ) -> None:
        append(trip_to("Rome", valid_until="2026-06-01"))
        append(trip_to("Rome", valid_until="2026-07-01", data={}))
        assert ask(api, work, NAMES, at="2026-06-15") == ["Rome"]

        append(trip_to("Rome", data={"lapses_after": None}))
        assert ask(api, work, NAMES, at="2027-06-15") == ["Rome"]


class TestRecall:
    def test_a_search_leaves_lapsed_statements_out_and_says_so(
        self, api: APIClient, append: Append
    ) -> None:
        rome, oslo, fact = append(
            trip_to("Rome", valid_until="2020-06-01"),
            trip_to("Oslo", valid_until="2999-06-01"),
            {"kind": "fact", "content": "Trip to Bonn is on.", "valid_until": "2020-01-01"},
        )

        found = search(api, "Which trip?")
        assert [(hit["seq"], hit["status"]) for hit in found["hits"]] == [(oslo["seq"], "current")]
        assert sorted(found["lapsed"]) == [rome["seq"], fact["seq"]]

        whole = search(api, "Which trip?", include="history")
        assert {hit["seq"]: hit["status"] for hit in whole["hits"]} == {
            oslo["seq"]: "current",
            rome["seq"]: "lapsed",
            fact["seq"]: "lapsed",
        }
        assert whole["lapsed"] == []

    def test_a_replaced_entry_of_a_lapsed_record_stays_replaced(
        self, api: APIClient, append: Append
    ) -> None:
        append(trip_to("Rome", valid_until="2020-06-01"))
        append(
            trip_to("Rome", valid_until="2020-07-01", data={"to": "Pisa", "cost": 1, "on": None})
        )

        whole = search(api, "Which trip?", include="history")

        assert {hit["seq"]: hit["status"] for hit in whole["hits"]} == {1: "replaced", 2: "lapsed"}

    def test_a_correction_may_lapse(self, api: APIClient, append: Append) -> None:
        correction = {"kind": "correction", "content": "Ada lives in Bern, not in Bonn."}
        append({**correction, "valid_until": "2020-01-01"})

        found = search(api, "Where does Ada live?")

        assert (found["hits"], found["lapsed"]) == ([], [1])

    def test_a_context_leaves_them_out_and_counts_them(
        self, api: APIClient, append: Append
    ) -> None:
        append(
            trip_to("Rome", valid_until="2020-06-01"),
            trip_to("Oslo"),
            {"kind": "fact", "content": "Trip to Bonn is on.", "valid_until": "2020-01-01"},
        )

        context = api.post(f"{USER}context/", {"query": "Which trips?"}).data

        assert context["lapsed"] == 2
        assert "Oslo" in context["text"]
        assert not any(city in context["text"] for city in ("Rome", "Bonn"))


def test_an_alert_resolves_when_its_record_lapses_and_the_forecast_says_so(
    api: APIClient, user: MemoryUser, append: Append, work: Work
) -> None:
    zone = ZoneInfo(user.time_zone)
    last_day = timezone.now().astimezone(zone).date() + datetime.timedelta(days=10)
    day_after = last_day + datetime.timedelta(days=1)
    data = {"to": "Rome", "cost": 2000}
    append(trip_to("Rome", data=data, valid_until=last_day.isoformat()))
    body = {"source": BUDGET, "tests": BUDGET_TESTS}
    assert api.put(f"{USER}constraints/budget/?wait=0", body).status_code == 202
    work()
    assert Alert.objects.get().state == "open"

    tasks.work("forecasts", user.pk)
    forecast = api.get(f"{USER}forecast/").json()
    assert forecast["lapses"] == [{"day": day_after.isoformat(), "record": "travel.trips:rome"}]
    assert [(event["day"], event["kind"]) for event in forecast["events"]] == [
        (day_after.isoformat(), "resolves")
    ]

    noon = datetime.datetime.combine(day_after, datetime.time(12), zone)
    with time_machine.travel(noon, tick=False):
        dispatching.queue_runs_by_the_clock()
        work()
    assert Alert.objects.get().state == "resolved"


def test_without_constraints_a_forecast_names_the_records_that_will_lapse(
    api: APIClient, user: MemoryUser, append: Append
) -> None:
    today = timezone.now().astimezone(ZoneInfo(user.time_zone)).date()
    tomorrow, in_ten_years = (today + datetime.timedelta(days=days) for days in (1, 3650))
    append(
        trip_to("Oslo", valid_until="2020-06-01"),
        trip_to("Rome", valid_until=today.isoformat()),
        trip_to("Bonn", valid_until=in_ten_years.isoformat()),
    )

    forecast = api.get(f"{USER}forecast/").json()

    assert (forecast["version"], forecast["horizon_days"]) == (None, 365)
    assert forecast["lapses"] == [{"day": tomorrow.isoformat(), "record": "travel.trips:rome"}]

    user.refresh_from_db()
    user.redacting_since = timezone.now()
    user.save()
    assert api.get(f"{USER}forecast/").json()["lapses"] == []
