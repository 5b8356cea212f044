"""Several sandbox hosts share the work: each user keeps to one, and nobody waits for a host that
cannot.

There is no dispatcher here that would find what a hint did not reach: where a machine is so busy
that a hint expires, it is asked again.
"""

import collections
import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from memory.hosts import choose
from tests.acceptance.conftest import Person, new_client, polled, record, running_system
from uac_site.embedded.system import System

_numbers = itertools.count()


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """A server with two sandbox hosts, which nobody occupies for as long as a hint lasts."""
    limits = {"UAC_SANDBOX_WALL_SECONDS": "8", "UAC_SANDBOX_CPU_SECONDS": "8"}
    with running_system(
        sandbox_workers=2, default_workers=0, beats=0, environment=limits
    ) as system:
        polled(lambda: hosts(system), lambda there: len(there) == 2)
        yield system


def select(system: System, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(system.environment["DATABASE_URL"]) as database:
        return database.execute(statement, parameters).fetchall()


def hosts(system: System) -> dict[str, int]:
    """Name → threads of the hosts that are there."""
    return dict(select(system, "SELECT name, threads FROM memory_sandboxhost ORDER BY name"))


def people(system: System, number: int) -> list[Person]:
    """So many new users with a project."""
    client = new_client(system, f"hosts-{next(_numbers)}")
    made = []
    for index in range(number):
        user_id = f"person-{next(_numbers)}-{index}"
        status, body = client.post("users/", {"user_id": user_id})
        assert status == 201, body
        person = Person(client, user_id)
        trip = record("Trip", "rome", domain="travel", cost=840)
        polled(
            lambda: person.log(trip, wait=20)[0]["state"],  # noqa: B023 - called at once
            lambda state: state == "checkpointed",
        )
        made.append(person)
    return made


def home(system: System, person: Person) -> str:
    """The host that the person goes to."""
    ((key,),) = select(
        system, "SELECT id FROM memory_memoryuser WHERE user_id = %s", person.user_id
    )
    return choose(hosts(system), key)


def ask(person: Person) -> Any:
    """Return the run of a question that was answered."""

    def answered() -> Any:
        status, run = begin(person, "trips[0].cost", wait=20)
        assert status in (200, 202), run
        return run if status == 200 else None

    return polled(answered, bool)


def begin(person: Person, code: str, *, wait: int = 0) -> tuple[int, Any]:
    """Ask what nobody has asked, which would be answered without a host."""
    asked = {"code": f"{code}  # {next(_numbers)}"}
    return person.client.post(f"users/{person.user_id}/query/?wait={wait}", asked)


def host_of(system: System, run: Any) -> str:
    ((name,),) = select(system, "SELECT host FROM memory_run WHERE id = %s", run["id"])
    return str(name)


def test_a_users_runs_stay_on_one_host_and_users_are_spread_over_all(system: System) -> None:
    everybody = people(system, 12)

    def at_home() -> collections.Counter[str]:
        """How many of four questions of everybody went to the person's host, by host."""
        asked = [
            (home(system, one), host_of(system, ask(one))) for one in everybody for _ in "1234"
        ]
        return collections.Counter(host for host, asked_host in asked if host == asked_host)

    # Without affinity it would be half of the 48, and never so many. A machine that is busy at the
    # moment leaves some to the other host.
    found = polled(at_home, lambda found: found.total() > 36)
    assert found.keys() == hosts(system).keys()


def test_work_for_a_host_that_is_busy_is_done_by_another(system: System) -> None:
    everybody = people(system, 12)
    slow, busy = occupy_a_host(system, everybody)
    waiting = next(person for person in everybody if home(system, person) == busy)

    answered = ask(waiting)

    assert answered["value"] == 840
    assert host_of(system, answered) != busy
    for run in slow:
        assert waiting.client.get(f"runs/{run['id']}/")[1]["status"] == "running"


def occupy_a_host(system: System, everybody: list[Person]) -> tuple[list[Any], str]:
    """Give work until a host has no free thread; return that work, and the host."""
    where: dict[str, list[Any]] = collections.defaultdict(list)
    while True:
        _, run = begin(everybody[0], "sum(1 for _ in range(10**10))")
        host = polled(lambda: host_of(system, run), bool)  # noqa: B023 - called at once
        where[host].append(run)
        if len(where[host]) == hosts(system)[host]:
            return where[host], host


def test_a_host_that_is_told_to_stop_leaves_its_work_to_the_other(system: System) -> None:
    everybody = people(system, 6)
    stopped = name_of(system, "sandbox-2")
    (left,) = hosts(system).keys() - {stopped}

    system.stop("sandbox-2")

    assert hosts(system).keys() == {left}
    for person in everybody:
        assert host_of(system, ask(person)) == left
    system.start("sandbox-2")
    polled(lambda: hosts(system), lambda there: len(there) == 2)


def test_when_a_host_is_killed_its_users_are_served_by_the_other(system: System) -> None:
    everybody = people(system, 12)
    killed = name_of(system, "sandbox-2")
    (left,) = hosts(system).keys() - {killed}
    bereft = [person for person in everybody if home(system, person) == killed]
    assert bereft

    system.kill("sandbox-2")

    for person in bereft:
        status, answered = begin(person, "trips[0].cost", wait=100)
        assert status == 200, answered  # or it would have been left to a dispatcher
        assert host_of(system, answered) == left
        assert person.client.get(f"runs/{answered['id']}/")[1]["attempts"] == 1
    assert killed in hosts(system), "it is not known yet that it is gone"


def name_of(system: System, process: str) -> str:
    (name,) = (name for name in hosts(system) if name.startswith(f"{process}@"))
    return name
