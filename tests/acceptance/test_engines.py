"""Two sandbox hosts with a Docker engine each: they share the work, and either may be lost.

Each has an engine of the tests' own; the machine's is left alone.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.acceptance.conftest import Person, polled, record, running_system
from tests.acceptance.test_hosts import hosts, name_of, people, select
from tests.docker_engine import Engine, missing, running_engine, skip_or_fail
from uac_site.embedded.system import System
from workers.sandbox.build import ensure_image, ensure_typecheck_image

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

_numbers = itertools.count()
WORKERS = ("sandbox-1", "sandbox-2")


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    """Worker → its engine, which has the images of this release."""
    skip_or_fail(missing())
    image = ensure_image()
    images = (image, ensure_typecheck_image(image))
    with ExitStack() as stack:
        yield {worker: stack.enter_context(running_engine(*images)) for worker in WORKERS}


@pytest.fixture(scope="module")
def system(engines: dict[str, Engine]) -> Iterator[System]:
    """A server with a sandbox worker on each engine, and a dispatcher: what is killed is redone."""
    with running_system(
        sandbox_workers=len(WORKERS),
        environment={"UAC_SANDBOX_RUNNER": "docker", "UAC_LEASE_SECONDS": "6"},
        environment_of={worker: {"DOCKER_HOST": one.host} for worker, one in engines.items()},
    ) as system:
        polled(lambda: hosts(system), lambda there: len(there) == 2)
        yield system


@pytest.fixture
def everybody(system: System) -> list[Person]:
    """Users with a project each, some of whom go to one host and some to the other."""
    return people(system, 8)


class Work:
    """Records and questions for all users, sent while whatever happens happens."""

    def __init__(self, system: System, everybody: list[Person]) -> None:
        self.system = system
        self.everybody = everybody
        self.runs: list[str] = []
        self.costs = {person.user_id: [840] for person in everybody}

    def send(self) -> None:
        """One record and one question for each; nobody waits for the answer."""
        for person in self.everybody:
            number = next(_numbers)
            person.log(record("Trip", f"t-{number}", domain="travel", cost=number), wait=0)
            self.costs[person.user_id].append(number)
            code = f"sum(trip.cost for trip in trips)  # {number}"
            run = person.post("query/?wait=0", {"code": code}, status=202)
            self.runs.append(run["id"])

    def send_until(self, name: str) -> None:
        """Send on until this host has done some of it, which has to make sandboxes first."""

        def done() -> Counter[str]:
            self.send()
            return self.hosts()

        polled(done, lambda found: name in found, seconds=180)

    def hosts(self) -> Counter[str]:
        """Wait until every question is answered; return by which hosts, and how many each."""
        statement = "SELECT host, status, outcome FROM memory_run WHERE id = ANY(%s)"
        rows = polled(
            lambda: select(self.system, statement, self.runs),
            lambda rows: all(status == "done" for _, status, _ in rows),
            seconds=120,
        )
        assert len(rows) == len(self.runs)
        assert {outcome for _, _, outcome in rows} == {"ok"}
        return Counter(host for host, _, _ in rows)

    def all_is_there_once(self) -> None:
        """Every record is in its user's project, once, and nothing is left to be done."""
        for person in self.everybody:
            polled(lambda: person.get()["entries"]["pending"], lambda left: not left, 120)  # noqa: B023
            code = f"sorted(trip.cost for trip in trips)  # {next(_numbers)}"
            asked = person.post("query/?wait=0", {"code": code}, status=202)
            answered = person.client.finished(asked["id"])
            assert answered["output"]["value"] == sorted(self.costs[person.user_id])
            versions = select(
                self.system,
                "SELECT count(*), count(DISTINCT version), max(version) FROM memory_checkpoint c"
                " JOIN memory_memoryuser u ON u.id = c.user_id WHERE u.user_id = %s",
                person.user_id,
            )
            ((there, different, newest),) = versions
            assert there == different == newest


def problem_of(system: System, worker: str) -> Any:
    name = name_of(system, worker)
    ((report,),) = select(system, "SELECT report FROM memory_sandboxhost WHERE name = %s", name)
    return report.get("problem", "")


def test_both_do_the_work(system: System, everybody: list[Person]) -> None:
    work = Work(system, everybody)
    for _ in range(3):
        work.send()

    assert work.hosts().keys() == hosts(system).keys()
    work.all_is_there_once()


def test_while_an_engine_is_gone_its_worker_says_so_and_the_other_host_does_all(
    system: System, everybody: list[Person], engines: dict[str, Engine]
) -> None:
    # Given work for all
    lame, left = name_of(system, "sandbox-2"), name_of(system, "sandbox-1")
    work = Work(system, everybody)
    work.send()
    # When the engine of one host is killed, and the worker is not
    engines["sandbox-2"].kill()
    work.send()
    said = polled(lambda: problem_of(system, "sandbox-2"), bool)
    # Then the worker says why it takes no work, and whatever comes is done by the other
    assert "does not answer" in said
    work.hosts()
    later = Work(system, everybody)
    later.costs = work.costs
    later.send()
    assert later.hosts().keys() == {left}
    later.all_is_there_once()

    # And when the engine is back, its host works again
    engines["sandbox-2"].start()
    polled(lambda: problem_of(system, "sandbox-2"), lambda said: not said)
    again = Work(system, everybody)
    again.costs = later.costs
    again.send_until(lame)
    again.all_is_there_once()


def test_when_a_machine_is_lost_the_other_takes_over_and_nothing_is_left_behind(
    system: System, everybody: list[Person], engines: dict[str, Engine]
) -> None:
    # Given work for all
    lost, left = name_of(system, "sandbox-2"), name_of(system, "sandbox-1")
    work = Work(system, everybody)
    work.send()
    # When worker, engine and containers of one host are gone at once
    system.kill("sandbox-2")
    engines["sandbox-2"].crash()
    work.send()
    # Then everything is done, from now on by the other one
    work.hosts()
    later = Work(system, everybody)
    later.costs = work.costs
    later.send()
    assert later.hosts().keys() == {left}
    later.all_is_there_once()

    # And when the machine is back, it works again and finds nothing of before
    engines["sandbox-2"].start()
    before = engines["sandbox-2"].containers()
    system.start("sandbox-2")
    again = Work(system, everybody)
    again.costs = later.costs
    again.send_until(lost)
    again.all_is_there_once()
    polled(lambda: before & engines["sandbox-2"].containers(), lambda there: not there)
    for worker in WORKERS:
        system.stop(worker)
        assert engines[worker].containers() == set()
