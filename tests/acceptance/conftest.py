"""One whole server for the acceptance tests: real processes, used only over HTTP."""

import itertools
from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet

from benchmarks.harness import Client
from deploy.embedded.process import free_port
from deploy.embedded.system import System
from tests.browser import browser, page, staff
from tests.mail_server import MailServer, mail_server
from tests.system import (
    LOCAL_WEBHOOKS,
    Person,
    create_person,
    new_client,
    pytest_runtest_makereport,
    running_system,
)
from tests.webhook_receiver import Receiver, answers, receiver

# Fixtures, and a hook that adds the server's state to the report of a failed test.
__all__ = ["browser", "page", "pytest_runtest_makereport", "staff"]

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def metrics_port() -> int:
    """The port at which the sandbox worker of that server answers Prometheus."""
    return free_port()


@pytest.fixture(scope="module")
def port() -> int:
    """The first port at which the workers of a module's own server answer Prometheus."""
    return free_port()


@pytest.fixture(scope="module")
def mails() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture(scope="package")
def collector() -> Iterator[Receiver]:
    """The collector that the server sends its traces to."""
    with receiver(answers(200)) as server:
        yield server


@pytest.fixture(scope="package")
def system(metrics_port: int, collector: Receiver) -> Iterator[System]:
    """A running server, for tests that leave its processes alone."""
    environment = {
        "UAC_METRICS_PORT": str(metrics_port),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        **LOCAL_WEBHOOKS,
    }
    with running_system(environment=environment) as system:
        yield system
        system.check()


@pytest.fixture(scope="package")
def client(system: System) -> Client:
    return new_client(system, "acceptance")


@pytest.fixture
def person(client: Client) -> Person:
    """A user with an empty log, not used by any other test."""
    return create_person(client, f"person-{next(_numbers)}", time_zone="Europe/Berlin")
