"""Checks from outside a sandbox: container limits, isolation between containers, and leftovers."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import docker as engine
from docker.errors import NotFound

from workers.sandbox import ownership
from workers.sandbox.container_template import container_config, is_gvisor
from workers.sandbox.doctor_probes import (
    RUNNER,
    Failed,
    connect_engine,
    default_shape,
    image_name,
    open_empty,
    value_of,
)
from workers.sandbox.limits import MEBIBYTE

# Memory limit of a test container, in MiB: enough for the container to start, but less than its
# program tries to fill.
SMALL_MIB = 64
FORKS = 600
# Exit statuses of a program that could not fork, and of a program that was killed.
REFUSED_TO_FORK = 3
KILLED = 128 + signal.SIGKILL
# gVisor's exit status if the process limit leaves no thread for gVisor itself.
GVISOR_FAILED = 2
ENGINE_WAIT_SECONDS = 60


def _memory_of_a_container() -> str:
    code = f"x = bytearray({4 * SMALL_MIB * MEBIBYTE})\nfor n in range(0, len(x), 4096): x[n] = 1"
    if (status := _run(code, SMALL_MIB)) != KILLED:
        raise Failed(
            f"a container of {SMALL_MIB} MiB took {4 * SMALL_MIB} MiB and exited with {status}",
            "make the engine enforce memory limits (gVisor: never --ignore-cgroups)",
        )
    return "a container that exceeds its memory limit is killed"


def _processes_of_a_container() -> str:
    code = (
        f"import os, sys, time\nfor n in range({FORKS}):\n"
        f"    try: pid = os.fork()\n    except OSError: sys.exit({REFUSED_TO_FORK})\n"
        "    if pid == 0: time.sleep(30); os._exit(0)"
    )
    ends = {REFUSED_TO_FORK, KILLED} | ({GVISOR_FAILED} if is_gvisor() else set())
    if (status := _run(code, default_shape().memory_mib)) not in ends:
        raise Failed(
            f"a container forked {FORKS} times and exited with {status}",
            "make the engine enforce process limits (gVisor: never --ignore-cgroups)",
        )
    return f"a container cannot start {FORKS} processes"


def _run(code: str, memory_mib: int) -> int:
    """Run this program in a container, in place of the runner; return the program's exit status."""
    config = container_config(image_name(), 0, default_shape())
    config["Entrypoint"] = ["python3", "-S", "-c", code]
    config["HostConfig"]["Memory"] = config["HostConfig"]["MemorySwap"] = memory_mib * MEBIBYTE
    with connect_engine() as client, _created(client, config) as container:
        client.api.start(container)
        return int(client.api.wait(container, timeout=ENGINE_WAIT_SECONDS)["StatusCode"])


@contextmanager
def _created(client: engine.DockerClient, config: dict[str, Any]) -> Iterator[str]:
    """Create a container, yield its id, and remove it afterwards if it still exists."""
    created = client.api.create_container_from_config(config)  # type: ignore[no-untyped-call]
    try:
        yield created["Id"]
    finally:
        with suppress(NotFound):
            client.api.remove_container(created["Id"], force=True)


def _strangers() -> str:
    """Check that sandboxes run as different users, and that their hash seeds take effect."""
    code = "import os\n[os.getuid(), hash('a string')]"
    with open_empty() as one, open_empty() as same, open_empty(hash_seed=1) as other:
        users, hashes = zip(
            *(value_of(sandbox, code) for sandbox in (one, same, other)), strict=True
        )
    if len(set(users)) == 1:  # user ids are random, so two of the three may coincide
        raise Failed(
            f"all containers run as user {users[0]}",
            "make the engine and its runtime run each container as the user specified at container"
            " creation",
        )
    if hashes[0] != hashes[1] or hashes[0] == hashes[2]:
        raise Failed(
            "hash seeds have no effect",
            "make the engine pass environment variables to containers, and rebuild the image",
        )
    return f"users {', '.join(map(str, users))}; hash seeds take effect"


def _leftovers() -> str:
    with subprocess.Popen([sys.executable, "-c", ""]) as worker:  # nosec B603 # a constant
        worker.wait()
    config = container_config(image_name(), 0, default_shape())
    config["Labels"] = {ownership.LABEL: ownership.owner(worker.pid)}
    with connect_engine() as client, _created(client, config) as container:
        RUNNER.reap()
        # The container is gone, or soon will be if another worker's `reap` found it first.
        with suppress(NotFound):
            if client.api.inspect_container(container)["State"]["Status"] != "removing":
                raise Failed(
                    "a killed worker's containers are not found by their label",
                    "run the sandbox workers in a PID namespace of the engine's machine, and find"
                    " out why the engine loses labels",
                )
    return "a killed worker's containers are found and removed"


CHECKS_OUTSIDE: dict[str, Callable[[], str]] = {
    "container's memory": _memory_of_a_container,
    "container's processes": _processes_of_a_container,
    "users and seeds": _strangers,
    "leftovers": _leftovers,
}
