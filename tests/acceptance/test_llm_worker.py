"""A worker for language models takes due work, serves metrics, and ends when it is told to."""

import time
from collections.abc import Iterator

import pytest

from deploy.embedded.system import System
from tests.acceptance.test_metrics import Metrics
from tests.llm_server import LlmServer, hangs, llm_server
from tests.system import Person, message, new_client, running_system
from tests.waiting import polled
from workers.service.lifecycle import LEAVING_SECONDS


@pytest.fixture(scope="module")
def llm() -> Iterator[LlmServer]:
    """A model that never answers."""
    with llm_server(script=lambda request: hangs()) as server:
        yield server


@pytest.fixture(scope="module")
def system(llm: LlmServer, port: int) -> Iterator[System]:
    """A server without sandboxes, whose model works after one second of silence of a user."""
    environment = {
        **llm.environment,
        "UAC_STRUCTURE_IDLE_SECONDS": "1",
        "UAC_DISPATCH_SECONDS": "0.5",
        "UAC_METRICS_PORT": str(port),
        "UAC_STOP_SECONDS": "2",
    }
    with running_system(sandbox_workers=0, llm_workers=1, environment=environment) as system:
        yield system


def test_stopped_worker_does_not_wait_for_model(system: System, llm: LlmServer, port: int) -> None:
    client = new_client(system, "model")
    status, user = client.post("users/", {"user_id": "ada"})
    assert (status, user["structure"]["state"]) == (201, "idle")
    ada = Person(client, "ada")

    ada.log(message("My dog is called Rex."))

    assert ada.get()["structure"]["waiting"] == 1
    polled(lambda: len(llm.requests), bool)
    assert ada.get()["structure"]["state"] == "working"
    metrics = Metrics(port)
    assert metrics.total("uac_llm_calls_under_way") == 1
    assert metrics.total("process_open_fds") > 0
    assert not [sample for sample in metrics.samples if sample.name.startswith("uac_sandbox_pool")]

    worker = system.processes["llm-1"]
    asked = time.monotonic()
    worker.ask_to_stop()
    polled(lambda: worker.running, lambda running: not running)
    assert time.monotonic() - asked < 2 + LEAVING_SECONDS + 30  # the model would take a minute
    assert "work_given_back" in worker.output()
    # The work is released at once, and the attempt does not count.
    assert ada.get()["structure"]["state"] == "due"
