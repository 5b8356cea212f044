"""The stream of events: sent at once, resumed without loss, ended when its key expires."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.mcp.conftest import HEARTBEAT_SECONDS, STREAMS, with_alerts
from tests.system import Person, create_person, new_client, ok
from tests.waiting import polled, scaled


@dataclass
class Stream:
    """An open stream."""

    response: http.client.HTTPResponse

    def next(self) -> dict[str, str]:
        """Return the fields of the next message, or the next comment, which is a line by itself."""
        found: dict[str, str] = {}
        while line := self.response.readline().decode().rstrip("\n"):
            name, _, value = line.partition(":")
            found[name or "comment"] = value.removeprefix(" ")
            if not name:
                break
        return found

    def event(self) -> dict[str, str]:
        while "data" not in (found := self.next()):
            assert found, "the stream has ended"
        return found


@contextmanager
def stream(system: System, client: Client, path: str = "/events/", **headers: str) -> Iterator[Any]:
    """Open a stream; yields it, or the answer's status and problem."""
    connection = http.client.HTTPConnection(urlsplit(system.mcp_url).netloc, timeout=scaled(60))
    connection.request("GET", path, headers={"Authorization": f"Bearer {client.key}", **headers})
    response = connection.getresponse()
    try:
        if response.status == 200:
            assert response.getheader("content-type") == "text/event-stream"
            opened = Stream(response)
            first = opened.next()
            position = json.loads(first["data"])["data"]["after"]
            assert (first["event"], first["id"]) == ("connected", str(position))
            assert first["retry"] == "2000"
            yield opened
        else:
            yield response.status, json.load(response)
    finally:
        # The response, too, holds the socket.
        response.close()
        connection.close()


@pytest.fixture
def client(system: System, request: pytest.FixtureRequest) -> Client:
    """A caller with its own workspace, and so its own feed."""
    return new_client(system, request.node.name)


@pytest.fixture
def alert(person: Person) -> dict[str, Any]:
    """An open alert of the person: event number 1."""
    with_alerts(person, 3)
    [alert] = polled(lambda: person.alerts("open"), bool)
    return alert


def happen(client: Client, alert: dict[str, Any], *steps: str) -> None:
    """Cause events by actions on the alert."""
    for step in steps:
        ok(client.post(f"alerts/{alert['id']}/{step}/", {}))


def test_an_event_is_told_at_once_as_webhooks_tell_it(
    system: System, client: Client, person: Person, alert: dict[str, Any]
) -> None:
    with stream(system, client) as opened:
        times = []
        for number, step in enumerate(("snooze", "reopen", "snooze", "reopen", "snooze"), 2):
            begun = time.monotonic()
            happen(client, alert, step)
            event = opened.event()
            times.append(time.monotonic() - begun)
            assert event["id"] == str(number)

    # Sooner than by polling every two seconds, by which only one of them might arrive early.
    assert sorted(times)[1] < 1, times
    assert event["event"] == "alert.snoozed"
    told = json.loads(event["data"])
    assert told["type"] == event["event"]
    assert told["data"]["user_id"] == person.user_id
    assert (told["data"]["event"]["seq"], told["data"]["alert"]["id"]) == (6, alert["id"])


def test_a_key_for_certain_users_hears_of_them_alone(
    system: System,
    client: Client,
    person: Person,
    alert: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    create_person(client, "another")
    made = system.manage(
        *("create_key", request.node.name, "--scope", "read", "--user", person.user_id)
    )
    certain = Client(system.base_url, json.loads(made)["api_key"])

    with stream(system, certain, f"/users/{person.user_id}/events/?after=0") as opened:
        assert opened.event()["event"] == "alert.opened"
    for path in ("/events/", "/users/another/events/"):
        with stream(system, certain, path) as (status, _):
            assert status == 404, path


def test_a_stream_that_was_cut_goes_on_where_it_was(
    system: System, client: Client, alert: dict[str, Any]
) -> None:
    # Given one that has read some of the events, when the process is killed
    happen(client, alert, "snooze", "reopen", "snooze")
    with stream(system, client, "/events/?after=0") as opened:
        seen = [int(opened.event()["id"]) for _ in range(2)]
        system.kill("mcp")
    happen(client, alert, "reopen")
    system.start("mcp")

    # Then the next one, which knows the last number, is told the rest, and each event once
    with stream(system, client, "/events/?after=0", **{"Last-Event-ID": str(seen[-1])}) as opened:
        seen += [int(opened.event()["id"]) for _ in range(3)]
        happen(client, alert, "snooze")
        seen.append(int(opened.event()["id"]))
    assert seen == [1, 2, 3, 4, 5, 6]


def test_without_redis_it_is_told_a_little_later(
    system: System, client: Client, alert: dict[str, Any]
) -> None:
    with stream(system, client) as opened:
        system.kill("redis")
        try:
            happen(client, alert, "snooze")
            begun = time.monotonic()
            assert opened.event()["event"] == "alert.snoozed"
            assert time.monotonic() - begun < scaled(30)
        finally:
            system.start("redis")
        happen(client, alert, "reopen")
        assert opened.event()["event"] == "alert.reopened"


def test_idle_stream_sends_heartbeats(system: System, client: Client) -> None:
    begun = time.monotonic()
    with stream(system, client) as opened:
        assert [opened.next(), opened.next()] == [{"comment": "nothing new"}] * 2
        assert HEARTBEAT_SECONDS < time.monotonic() - begun < HEARTBEAT_SECONDS * 2 + scaled(30)


def test_a_stream_of_a_user_tells_of_nobody_else(
    system: System, client: Client, person: Person, alert: dict[str, Any]
) -> None:
    other = create_person(client, f"{person.user_id}-other").user_id
    stranger = new_client(system, "strangers")

    with (
        stream(system, client, f"/users/{person.user_id}/events/?after=0") as own,
        stream(system, client, f"/users/{other}/events/?after=0") as others,
        stream(system, stranger, "/events/?after=0") as foreign,
    ):
        assert json.loads(own.event()["data"])["data"]["user_id"] == person.user_id
        for silent in (others, foreign):
            assert silent.next() == {"comment": "nothing new"}
    with stream(system, stranger, f"/users/{person.user_id}/events/") as (status, problem):
        assert (status, problem["title"]) == (404, "Not Found")


def test_a_revoked_key_ends_its_streams(system: System, client: Client) -> None:
    with stream(system, client) as opened:
        prefix = client.key.split("_")[1]
        system.manage(
            "shell",
            "-c",
            "from django.utils import timezone; from memory.kernel.models.workspaces import ApiKey;"
            f"ApiKey.objects.filter(prefix='{prefix}').update(revoked_at=timezone.now())",
        )
        last = opened.event()
        assert (last["event"], "is no longer valid" in last["data"]) == ("closed", True)
        assert opened.response.read() == b""
    with stream(system, client) as (status, _):
        assert status == 401


def test_streams_are_bounded_and_a_closed_one_makes_room(system: System, client: Client) -> None:
    def full() -> bool:
        with stream(system, client) as opened:
            if isinstance(opened, Stream):
                return False
            status, problem = opened
            return status == 503 and "try again" in problem["detail"]

    opened = [stream(system, client) for _ in range(STREAMS // 2)]
    for one in opened:
        assert isinstance(one.__enter__(), Stream)
    assert full()
    with stream(system, new_client(system, "neighbours")) as other:
        assert isinstance(other, Stream)

    # When one is left without a word
    opened.pop().__exit__(None, None, None)
    polled(full, lambda is_full: not is_full)
    for one in opened:
        one.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("path", "headers", "said"),
    [
        ("/events/?after=x", {}, "`after` or Last-Event-ID: Give"),
        ("/events/?after=1", {}, "the newest event is number 0"),
        ("/events/", {"Last-Event-ID": "-1"}, "`after` or Last-Event-ID"),
        ("/events/?afer=0", {}, "Unknown parameter 'afer'"),
        ("/users/nobody/events/", {}, "no such user"),
        ("/users/%00/events/", {}, "no such user"),
    ],
)
def test_invalid_stream_request_is_refused(
    system: System, client: Client, path: str, headers: dict[str, str], said: str
) -> None:
    with stream(system, client, path, **headers) as (status, problem):
        assert status in (400, 404)
        assert said in problem["detail"]
