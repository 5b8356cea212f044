"""Two sandbox hosts with a Docker engine each share the work, and either may be lost.

Each has an engine of the tests' own; the machine's engine is left alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from deploy.embedded.system import System
from tests.docker_engine import Engine, missing, running_engine, skip_or_fail
from tests.sandbox_hosts import Work, create_people, find_host, find_problem, list_hosts
from tests.system import Person, new_client, running_system
from tests.waiting import polled
from workers.sandbox.build import ensure_image, ensure_typecheck_image

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

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
    """A server with a sandbox worker on each engine, and a dispatcher, which redoes lost work."""
    with running_system(
        sandbox_workers=len(WORKERS),
        environment={"UAC_SANDBOX_RUNNER": "docker", "UAC_LEASE_SECONDS": "6"},
        environment_of={worker: {"DOCKER_HOST": one.host} for worker, one in engines.items()},
    ) as system:
        polled(lambda: list_hosts(system), lambda there: len(there) == 2)
        yield system


@pytest.fixture
def everybody(system: System) -> list[Person]:
    """Users with a project each, some at home on one host and some on the other."""
    return create_people(new_client(system, "hosts"), 8)


def test_while_an_engine_is_gone_its_worker_says_so_and_the_other_host_does_all(
    system: System, everybody: list[Person], engines: dict[str, Engine]
) -> None:
    # Given work for all
    lame = find_host(system, "sandbox-2")
    work = Work(system, everybody)
    work.send()
    # When the engine of one host is killed, and the worker is not
    engines["sandbox-2"].kill()
    work.send()
    said = polled(lambda: find_problem(system, "sandbox-2"), bool)
    # Then the worker says why it takes no work, and whatever comes is done by the other
    assert "does not answer" in said
    assert_the_other_does_all(system, work)

    # And when the engine is back, its host works again
    engines["sandbox-2"].start()
    polled(lambda: find_problem(system, "sandbox-2"), lambda said: not said)
    assert_works_again(system, work, lame)


def assert_the_other_does_all(system: System, work: Work) -> None:
    left = find_host(system, "sandbox-1")
    work.hosts()
    later = Work(system, work.everybody, work.costs)
    later.send()
    assert later.hosts().keys() == {left}
    later.all_is_there_once()


def assert_works_again(system: System, work: Work, host: str) -> None:
    again = Work(system, work.everybody, work.costs)
    again.send_until(host)
    again.all_is_there_once()


def test_when_a_machine_is_lost_the_other_takes_over_and_nothing_is_left_behind(
    system: System, everybody: list[Person], engines: dict[str, Engine]
) -> None:
    # Given work for all
    lost = find_host(system, "sandbox-2")
    work = Work(system, everybody)
    work.send()
    # When worker, engine and containers of one host are gone at once
    system.kill("sandbox-2")
    engines["sandbox-2"].crash()
    work.send()
    # Then everything is done, from now on by the other one
    assert_the_other_does_all(system, work)

    # And when the machine is back, it works again and finds nothing of before
    engines["sandbox-2"].start()
    before = engines["sandbox-2"].containers()
    system.start("sandbox-2")
    assert_works_again(system, work, lost)
    polled(lambda: before & engines["sandbox-2"].containers(), lambda there: not there)
    for worker in WORKERS:
        system.stop(worker)
        assert engines[worker].containers() == set()
