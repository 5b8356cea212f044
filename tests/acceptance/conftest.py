"""One whole server for the acceptance tests: real processes, used only over HTTP."""

import itertools
from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet

from benchmarks.harness import Client
from tests.browser import browser, page, staff
from tests.system import Person, new_client, pytest_runtest_makereport, running_system
from tests.webhook_receiver import Receiver, answers, receiver
from uac_site.embedded.process import free_port
from uac_site.embedded.system import System

# Fixtures, and a hook that adds the server's state to the report of a failed test.
__all__ = ["browser", "page", "pytest_runtest_makereport", "staff"]

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def metrics_port() -> int:
    """The port at which the sandbox worker of that server answers Prometheus."""
    return free_port()


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
        "UAC_WEBHOOK_ALLOW_HTTP": "true",
        "UAC_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    }
    with running_system(environment=environment) as system:
        yield system
        system.check()


@pytest.fixture(scope="package")
def client(system: System) -> Client:
    """A caller with a key of a workspace of that server."""
    return new_client(system, "acceptance")


@pytest.fixture
def person(client: Client) -> Person:
    """A user with an empty log, not used by any other test."""
    user_id = f"person-{next(_numbers)}"
    status, body = client.post("users/", {"user_id": user_id, "time_zone": "Europe/Berlin"})
    assert status == 201, body
    return Person(client, user_id)
