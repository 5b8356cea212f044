"""A sandbox worker keeps containers ready: they exist before the work, and end with the worker."""

from collections.abc import Iterator
from contextlib import closing

import docker
import pytest

from deploy.embedded.system import System
from tests.system import running_system
from tests.waiting import polled
from workers.sandbox.ownership import LABEL, owner

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def worker() -> Iterator[System]:
    """One sandbox worker, without any work for it."""
    with running_system(
        web=False, beats=0, default_workers=0, environment={"UAC_SANDBOX_POOL_LEAST": "3"}
    ) as system:
        yield system


def containers(worker: System) -> dict[str, str]:
    """Return id → state of the containers of this worker, now or when they were last seen."""
    pid = worker.processes["sandbox-1"].pid
    with closing(docker.from_env()) as engine:
        listed = engine.api.containers(all=True, filters={"label": f"{LABEL}={owner(pid)}"})
    return {one["Id"]: one["State"] for one in listed}


def test_they_are_kept_while_it_runs_and_gone_when_it_is_told_to_stop(worker: System) -> None:
    polled(lambda: containers(worker), lambda kept: list(kept.values()) == ["running"] * 3)

    worker.stop("sandbox-1")
    assert containers(worker) == {}


def test_after_a_kill_none_runs_and_the_next_worker_removes_them(worker: System) -> None:
    worker.start("sandbox-1")
    polled(lambda: containers(worker), lambda kept: list(kept.values()) == ["running"] * 3)
    pid = worker.processes["sandbox-1"].pid

    worker.kill("sandbox-1")
    left = polled(lambda: containers(worker), lambda kept: "running" not in kept.values())

    worker.start("sandbox-1")
    assert worker.processes["sandbox-1"].pid != pid
    with closing(docker.from_env()) as engine:
        polled(
            lambda: {one["Id"] for one in engine.api.containers(all=True)} & left.keys(),
            lambda still: not still,
        )
