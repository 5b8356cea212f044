"""A receiver fails, hangs, restarts and lies, while workers are killed: no event is lost.

Every event of the feed must arrive at least once, verified, and those of one alert in order.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.fernet import Fernet

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.system import (
    EVERYTHING,
    LATE,
    LOCAL_WEBHOOKS,
    create_person,
    log_tasks,
    new_client,
    ok,
    running_system,
)
from tests.waiting import polled, scaled
from tests.webhook_receiver import Behaviour, Call, Received, answers, receiver, says

TASKS = 6


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """A server of its own, since its workers are killed; it notices and retries quickly."""
    environment = {
        "UAC_LEASE_SECONDS": "3",
        "UAC_DISPATCH_SECONDS": "0.5",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        **LOCAL_WEBHOOKS,
        "UAC_WEBHOOK_TIMEOUT_SECONDS": "1",
        "UAC_WEBHOOK_RETRY_SECONDS": ",".join(["0.2"] * 60),
    }
    with running_system(environment=environment) as system:
        yield system


@pytest.fixture
def manager(system: System) -> Client:
    return new_client(system, "webhooks", *EVERYTHING)


def feed(manager: Client) -> dict[str, list[int]]:
    """Return the numbers of all events, by alert, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    after = 0
    while True:
        page = ok(manager.get(f"events/?after={after}"))
        if not page["results"]:
            return dict(found)
        for alert in page["results"]:
            found[alert["id"]] += [event["seq"] for event in alert["events"]]
        after = page["next"]


def test_no_event_is_lost_by_a_receiver_that_misbehaves_and_workers_that_are_killed(
    system: System, manager: Client
) -> None:
    # Given a receiver that takes, of every nine calls, four.
    asleep = threading.Semaphore(0)

    def hangs(call: Call) -> None:
        asleep.release()
        call.wait(30)

    takes = answers(200)
    behaviours: tuple[Behaviour, ...] = (
        *(takes, answers(500), takes, hangs, takes),
        says(b""),
        answers(302, location="http://127.0.0.1:1999/"),
        takes,
        answers(503, b"taken, in truth"),
    ) * 200
    person = create_person(manager)
    log_tasks(person, *[0] * TASKS)
    person.write_constraint("late", LATE)
    received: list[Received] = []
    secrets: list[str] = []

    with receiver(*behaviours) as server:
        port = server.port
        endpoint = ok(manager.post("webhooks/", {"url": server.url}))
        secrets.append(endpoint["secret"])

        # When alerts open, change and are acknowledged, and the worker is killed while it waits.
        log_tasks(person, *[1] * TASKS)
        opened = polled(lambda: person.alerts("open"), lambda found: len(found) == TASKS)
        assert asleep.acquire(timeout=scaled(120))
        system.kill("default-1")
        for alert in opened[: TASKS // 2]:
            ok(manager.post(f"alerts/{alert['id']}/acknowledge/", {}))
        system.start("default-1")
        log_tasks(person, *[2] * TASKS)
        polled(lambda: len(server.received), lambda number: number > 10)
        received += server.received

    # And the receiver is gone for a while, and so is the worker.
    log_tasks(person, *[3] * TASKS)
    system.kill("default-1")
    for alert in opened[TASKS // 2 :]:
        ok(manager.post(f"alerts/{alert['id']}/resolve/", {"reason": "done"}))
    rotated = ok(manager.post(f"webhooks/{endpoint['id']}/rotate-secret/", {}))
    secrets.append(rotated["secret"])
    system.start("default-1")
    with receiver(*behaviours[2:], port=port) as server:
        log_tasks(person, *[0] * TASKS)
        polled(lambda: person.alerts("open"), lambda found: not found)
        path = f"webhooks/{endpoint['id']}/"
        settled: Callable[[Any], bool] = lambda found: found["pending"] == 0  # noqa: E731
        polled(lambda: ok(manager.get(path)), settled, seconds=240)
        received += server.received

    # Then every event has arrived, verified, and those of each alert in their order.
    arrived: dict[str, list[int]] = defaultdict(list)
    ids: dict[str, int] = {}
    for call in received:
        secret = secrets[0] if call.verifies(secrets[0]) else secrets[1]
        message = call.verified(secret)
        seq = message["data"]["event"]["seq"]
        assert ids.setdefault(call.id, seq) == seq
        arrived[message["data"]["alert"]["id"]].append(seq)
    expected = feed(manager)
    assert sum(map(len, expected.values())) >= 3 * TASKS
    assert {alert: sorted(set(seqs)) for alert, seqs in arrived.items()} == expected
    for seqs in arrived.values():
        assert seqs == sorted(seqs)
    assert len(received) > len(ids)
    state = ok(manager.get(path))
    assert (state["enabled"], state["given_up"]) == (True, 0)
    system.check()
