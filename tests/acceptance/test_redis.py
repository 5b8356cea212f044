"""Redis hangs, is full, refuses writes or comes back: requests are answered, work is done."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from deploy.embedded.system import System
from tests.system import Person, create_person, new_client, record, running_system
from tests.waiting import polled, scaled

# Maximum duration of a request, whatever Redis does: two seconds for the first that notices, and
# more on a busy machine. Later requests do not ask Redis for a while.
BOUND = scaled(30.0)


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """A server of its own, since its Redis is broken on purpose."""
    with running_system(environment={"UAC_DISPATCH_SECONDS": "0.5"}) as system:
        yield system
        system.check()


@pytest.fixture(scope="module")
def ada(system: System) -> Person:
    return create_person(new_client(system, "redis"))


@pytest.fixture
def server(system: System) -> Iterator[redis.Redis]:
    """The server's Redis, which is repaired afterwards."""
    with redis.Redis.from_url(system.services.redis.url, socket_timeout=5) as client:
        yield client
        repair(system, client)


def repair(system: System, server: redis.Redis) -> None:
    os.kill(system.processes["redis"].pid, signal.SIGCONT)
    server.replicaof("NO", "ONE")
    server.config_set("maxmemory", "0")


def appended(ada: Person, number: int) -> list[float]:
    """Append from so many concurrent threads; return how many seconds each took."""

    def append(key: str) -> float:
        began = time.monotonic()
        trip = record("Trip", key, domain="travel", to="Rome")
        ada.post("entries/", {"entries": [trip]}, status=202)
        return time.monotonic() - began

    names = [f"t{time.monotonic_ns()}-{index}" for index in range(number)]
    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(append, names))


def is_settled(ada: Person) -> bool:
    counts: dict[str, int] = ada.get()["entries"]
    return counts["pending"] == 0


def stopped(system: System, server: redis.Redis) -> None:
    os.kill(system.processes["redis"].pid, signal.SIGSTOP)


def full(system: System, server: redis.Redis) -> None:
    server.config_set("maxmemory", "1")


def read_only(system: System, server: redis.Redis) -> None:
    server.replicaof("127.0.0.1", "1")


@pytest.mark.parametrize("misuse", [stopped, full, read_only])
def test_appends_are_answered_and_done_when_it_is_over(
    system: System,
    ada: Person,
    server: redis.Redis,
    misuse: Callable[[System, redis.Redis], None],
) -> None:
    appended(ada, 2)
    polled(lambda: is_settled(ada), bool)

    misuse(system, server)
    at_first = appended(ada, 16)
    then = appended(ada, 16)

    assert max(at_first) < BOUND
    assert max(then) < BOUND / 2
    repair(system, server)
    polled(lambda: is_settled(ada), bool, seconds=90)
    system.check()


def test_wait_ends_when_redis_hangs(system: System, ada: Person, server: redis.Redis) -> None:
    appended(ada, 1)
    polled(lambda: is_settled(ada), bool)
    stopped(system, server)

    began = time.monotonic()
    status, answer = ada.client.post("users/ada/query/?wait=3", {"code": "len(trips) + 1000"})

    assert time.monotonic() - began < 3 + BOUND
    assert status == 202
    os.kill(system.processes["redis"].pid, signal.SIGCONT)
    assert ada.client.finished(answer["id"])["outcome"] == "ok"


def test_ended_connections_fail_no_request(
    system: System, ada: Person, server: redis.Redis
) -> None:
    appended(ada, 4)
    for kind in ("normal", "pubsub"):
        server.client_kill_filter(_type=kind, skipme=True)

    assert max(appended(ada, 4)) < BOUND / 2
    polled(lambda: is_settled(ada), bool)
