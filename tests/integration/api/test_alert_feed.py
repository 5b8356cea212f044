"""`GET /v1/events/`: events since a number, and waiting for the next ones."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils.dateparse import parse_datetime
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.alerts import alert_actions, alert_events
from memory.alerts.models.alerts import Alert, AlertEvent, Severity
from memory.kernel.admission import slots
from memory.kernel.admission.slots import Slots
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope
from memory.kernel.users import create_user
from memory.kernel.work import hints
from memory.log import fixes
from memory.log.models.entries import EntryOutcome
from tests.conftest import new_client
from tests.factories import reject
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.steps import settle_records
from tests.waiting import scaled


def feed(api: APIClient, query: str, path: str = "events/") -> dict[str, Any]:
    response = api.get(f"/v1/{path}?{query}")
    assert response.status_code == 200, response.data
    found: dict[str, Any] = response.data
    return found


def told(answer: dict[str, Any]) -> list[tuple[str, list[tuple[int, str]]]]:
    """Return for each alert the record it is about, and its events with their numbers."""
    return [
        (alert["evidence"][0]["key"], [(event["seq"], event["kind"]) for event in alert["events"]])
        for alert in answer["results"]
    ]


def nothing(*, next: int, waited: bool = True) -> dict[str, Any]:
    """Return the answer that tells of no event."""
    empty: dict[str, Any] = {"results": [], "rejected": [], "set_aside": []}
    return {**empty, "next": next, "waited": waited}


@pytest.mark.django_db
def test_the_feed_tells_what_happened_since_in_order(api: APIClient, user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")), finding(record("m-2")))
    alert_actions.acknowledge(Alert.objects.get(evidence__0__key="m-1"), actor="key:x")

    beginning = feed(api, "after=0")
    assert told(beginning) == [
        ("m-2", [(2, "opened")]),
        ("m-1", [(1, "opened"), (3, "acknowledged")]),
    ]
    assert beginning["results"][1]["state"] == "acknowledged"
    assert beginning["next"] == 3

    alert_actions.resolve(Alert.objects.get(evidence__0__key="m-2"), actor="key:x", reason="done")
    since = feed(api, "after=3")
    assert told(since) == [("m-2", [(4, "resolved")])]
    for start in (since["next"], "now", ""):
        assert feed(api, f"after={start}") == nothing(next=4)


@pytest.mark.django_db
def test_filters_narrow_the_feed_and_its_cursor_goes_on(api: APIClient, user: MemoryUser) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)
    run_finds(user, finding(record("m-1"), severity=Severity.INFO))
    run_finds(user, finding(record("m-1"), severity=Severity.INFO), finding(record("m-2")))
    run_finds(bob, finding(record("m-3"), severity=Severity.INFO))

    assert told(feed(api, "after=0&severity=critical")) == [("m-2", [(2, "opened")])]
    assert feed(api, "after=0&severity=critical")["next"] == 3
    assert told(feed(api, "after=0", "users/bob/events/")) == [("m-3", [(3, "opened")])]


# -- Rejected entries --------------------------------------------------------------------------


@pytest.mark.django_db
def test_feed_has_rejected_entries_with_reason_and_fix(api: APIClient, user: MemoryUser) -> None:
    (seq,) = reject(user)
    run_finds(user, finding(record("m-1")))

    answer = feed(api, "after=0")

    (rejected,) = answer["rejected"]
    entry = api.get(f"/v1/users/ada/entries/{seq}/").data
    assert entry["state"] == "rejected"
    assert "missing-0" in entry["reason"]
    assert rejected["entries"] == [{"seq": seq, "reason": entry["reason"], "fix": fixes.FIX}]
    event = AlertEvent.objects.get(user=user)
    assert {name: rejected[name] for name in ("seq", "user_id", "count", "more")} == {
        "seq": 1,
        "user_id": "ada",
        "count": 1,
        "more": 0,
    }
    assert parse_datetime(rejected["at"]) == event.at
    assert told(answer) == [("m-1", [(2, "opened")])]
    assert answer["next"] == 2
    assert feed(api, "after=2")["rejected"] == []


@pytest.mark.django_db
def test_feed_has_values_set_aside_with_fix(api: APIClient, user: MemoryUser) -> None:
    task = {"domain": "work", "type": "Task"}
    settle_records(user, {**task, "data": {"due": "2026-05-31"}})
    (seq,) = settle_records(user, {**task, "data": {"due": "TBD"}})

    answer = feed(api, "after=0")

    (event,) = answer["set_aside"]
    assert event["entries"] == [{"seq": seq, "fields": ["due"], "fix": fixes.FIX_SET_ASIDE}]
    assert (event["user_id"], event["count"], event["more"]) == ("ada", 1, 0)
    assert answer["rejected"] == []


@pytest.mark.django_db
def test_reopened_entry_is_not_named_as_rejected(api: APIClient, user: MemoryUser) -> None:
    first, second = reject(user, 2)
    EntryOutcome.objects.filter(user=user, seq=first).delete()

    (rejected,) = feed(api, "after=0")["rejected"]

    assert [entry["seq"] for entry in rejected["entries"]] == [second]
    assert (rejected["count"], rejected["more"]) == (2, 1)


@pytest.mark.django_db
def test_restricted_feed_has_own_entries_alone(api: APIClient, user: MemoryUser) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)
    reject(user)
    reject(bob)
    certain = new_client(user.workspace, *Scope, user_pks=[bob.pk])

    def whose(client: APIClient, path: str = "events/") -> list[tuple[int, str]]:
        rejected = feed(client, "after=0", path)["rejected"]
        return [(event["seq"], event["user_id"]) for event in rejected]

    assert whose(api) == [(1, "ada"), (2, "bob")]
    assert whose(api, "users/ada/events/") == [(1, "ada")]
    assert whose(certain) == whose(certain, "users/bob/events/") == [(2, "bob")]
    assert certain.get("/v1/users/ada/events/?after=0").status_code == 404


@pytest.mark.django_db
@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_page_by_page_each_event_is_told_once(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(alert_events, "PAGE", size)
    for number in range(3):
        reject(user, key=f"task-{number}")
        run_finds(user, finding(record("m-1")))
        run_finds(user)

    read: list[int] = []
    after, last = 0, -1
    while after != last:
        answer = feed(api, f"after={after}")
        page = [event["seq"] for event in answer["rejected"]]
        page += [event["seq"] for alert in answer["results"] for event in alert["events"]]
        read += sorted(page)
        assert len(page) <= size
        after, last = answer["next"], after

    assert read == list(range(1, 10))


@pytest.mark.django_db
def test_rejected_entries_answer_a_waiting_request(api: APIClient, user: MemoryUser) -> None:
    reject(user)

    assert len(feed(api, "after=0&wait=1")["rejected"]) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("after=1", "after"),
        ("after=-1", "after"),
        ("after=x", "after"),
        ("after=0&wait=soon", "wait"),
        ("after=0&pages=3", "pages"),
        ("after=0&state=gone", "state"),
    ],
)
def test_invalid_parameter_is_refused_by_name(api: APIClient, query: str, field: str) -> None:
    response = api.get(f"/v1/events/?{query}")

    assert response.status_code == 400
    assert field in str(response.data)


@pytest.mark.django_db
def test_feed_tells_nothing_of_another_workspace(user: MemoryUser, stranger: APIClient) -> None:
    run_finds(user, finding(record("m-1")))

    assert feed(stranger, "after=0") == nothing(next=0)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set when a request listens for signals, has found nothing, and waits."""
    waits = threading.Event()
    signalled = hints.events_signalled

    @contextmanager
    def listening(workspace_pk: int) -> Iterator[Callable[[float], None]]:
        with signalled(workspace_pk) as wait:

            def noted(seconds: float) -> None:
                waits.set()
                wait(seconds)

            yield noted

    monkeypatch.setattr(hints, "events_signalled", listening)
    return waits


def test_a_waiting_request_is_woken_by_what_happens(
    live_database: str,
    api: APIClient,
    user: MemoryUser,
    settings: Settings,
    waits: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a wait whose own polling of the database is far too slow.
    settings.UAC_MAX_WAIT_SECONDS = 3600.0
    monkeypatch.setattr(alert_events, "LOOK_SECONDS", 3600.0)
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        answers.append(feed(api, "after=now&wait=3600"))
        connection.close()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert waits.wait(scaled(200))

    with transaction.atomic():
        run_finds(user, finding(record("m-1")))
    asking.join(scaled(200))

    assert answers, "it was not woken"
    assert told(answers[0]) == [("m-1", [(1, "opened")])]


@pytest.mark.django_db
def test_wait_without_events_ends(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_events, "LOOK_SECONDS", 3600.0)
    began = time.monotonic()

    assert feed(api, "after=now&wait=0.4") == nothing(next=0)

    assert 0.4 <= time.monotonic() - began < scaled(200)


@pytest.mark.django_db
def test_without_redis_the_wait_goes_on(
    api: APIClient, user: MemoryUser, settings: Settings
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    hints.redis_client.cache_clear()
    try:
        assert feed(api, "after=now&wait=0.3")["waited"] is True
    finally:
        hints.redis_client.cache_clear()


@pytest.mark.django_db
def test_waiting_request_past_the_limit_is_answered_at_once(
    api: APIClient, user: MemoryUser, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.UAC_MAX_WAIT_SECONDS = 3600.0
    monkeypatch.setattr(slots, "WAITING", Slots(1))
    began = time.monotonic()

    with slots.WAITING.take(user.workspace_id):
        answer = feed(api, "after=now&wait=3600")

    assert answer == nothing(next=0, waited=False)
    assert time.monotonic() - began < scaled(200)
