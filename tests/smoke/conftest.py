"""One whole server for all smoke tests: two sandbox workers, on a Docker engine of the tests' own.

Starting it takes most of the time, so each test leaves it running. The machine's engine, which
belongs to others, only provides the images.
"""

from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.browser import browser, page, staff
from tests.docker_engine import Engine, missing, running_engine, skip_or_fail
from tests.sandbox_hosts import create_people, find_home, list_hosts
from tests.system import (
    EVERYTHING,
    LATE,
    LOCAL_WEBHOOKS,
    Person,
    create_person,
    new_client,
    pytest_runtest_makereport,
    running_system,
    task,
)
from tests.waiting import polled
from workers.sandbox.build import ensure_image, ensure_typecheck_image

# Fixtures, and a hook that adds the server's state to the report of a failed test.
__all__ = ["browser", "page", "pytest_runtest_makereport", "staff"]

# Seconds after which work of a killed worker is given to another. They must outlast a pause of a
# busy machine, in which a living worker cannot renew its leases.
LEASE_SECONDS = 5


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker engine that may be crashed, with this release's images."""
    skip_or_fail(missing())
    image = ensure_image()
    with running_engine(image, ensure_typecheck_image(image)) as engine:
        yield engine
        engine.crash()  # to stop it in order takes long, and nobody needs anything of it


@pytest.fixture(scope="session")
def system(engine: Engine) -> Iterator[System]:
    """A server with two sandbox hosts, which is quick to notice a killed worker."""
    environment = {
        "DOCKER_HOST": engine.host,
        "UAC_SANDBOX_RUNNER": "docker",
        "UAC_SANDBOX_POOL_LEAST": "1",
        "UAC_SANDBOX_POOL_MOST": "2",
        "UAC_LEASE_SECONDS": str(LEASE_SECONDS),
        "UAC_DISPATCH_SECONDS": "0.5",
        # A worker is killed while it waits for a lock, and must not have timed out before.
        "UAC_WORKER_LOCK_SECONDS": "120",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        **LOCAL_WEBHOOKS,
        # On a busy machine, no call must fail that would be answered, and so be repeated.
        "UAC_WEBHOOK_TIMEOUT_SECONDS": "60",
        "UAC_WEBHOOK_RETRY_SECONDS": ",".join(["0.5"] * 200),
    }
    with running_system(sandbox_workers=2, environment=environment) as system:
        polled(lambda: list_hosts(system), lambda there: len(there) == 2)
        yield system
        assert system.manage("verify").rstrip().endswith(" 0 problems")
        system.check()


@pytest.fixture(scope="session")
def client(system: System) -> Client:
    return new_client(system, "smoke", *EVERYTHING)


@pytest.fixture(scope="session")
def person(client: Client) -> Person:
    """A user with a constraint that fires for every late task."""
    person = create_person(client, "sam")  # rows are found by this name; README has an ada as well
    person.log(task("rent", days=0))
    person.write_constraint("late", LATE)
    return person


@pytest.fixture(scope="session")
def travellers(system: System, client: Client) -> list[Person]:
    """Users with a project, two or more at home on each of the two hosts."""
    found: dict[str, list[Person]] = {host: [] for host in list_hosts(system)}
    while any(len(people) < 2 for people in found.values()):
        [new] = create_people(client, 1)
        found[find_home(system, new)].append(new)
    return [person for people in found.values() for person in people]


@pytest.fixture(scope="session")
def costs(travellers: list[Person]) -> dict[str, list[int]]:
    """The cost of each person's trips, to which each test adds what it sends."""
    return {person.user_id: [840] for person in travellers}
