"""Docker engines of the tests' own, besides the machine's, which belongs to others."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import NotFound

from deploy.embedded.process import ManagedProcess
from tests.processes import Process, gone, with_argument
from tests.waiting import eventually, scaled

# It needs its own network namespace: it would remove another engine's bridge.
COMMAND = ("unshare", "--net", "dockerd")


class Engine:
    """A dockerd and its children, with folders, sockets and a network namespace of their own.

    Start it from the main thread: it exits when the thread that started it exits.
    """

    def __init__(
        self,
        folder: Path,
        *,
        command: tuple[str, ...] = COMMAND,
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        """`folder` is its own, with a short path, as sockets require."""
        self.folder = folder
        self.host = f"unix://{folder}/sock"  # its DOCKER_HOST
        (folder / "daemon.json").write_text(json.dumps(dict(configuration or {})))
        self.process = ManagedProcess(
            name="dockerd",
            command=[
                *command,
                *("--config-file", f"{folder}/daemon.json", "--pidfile", f"{folder}/pid"),
                *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
                *("--host", self.host, "--bridge", "none", "--ip-forward=false"),
                *("--iptables=false", "--ip6tables=false", "--ip-masq=false"),
            ],
            log_path=folder / "log",
            ready=lambda process: self._answers(),
            environment=dict(os.environ),
            folder=folder,
        )

    def start(self) -> None:
        """Start it, also after `stop`, `kill` or `crash`, and wait until it answers."""
        self.process.start()

    def stop(self) -> None:
        """Stop it as an operator would, including the containers."""
        self.process.stop(patience=scaled(60))

    def kill(self) -> None:
        """Kill the engine by SIGKILL, but not its containers and their supervisors."""
        self.process.kill()
        _kill(self._containerd())  # it ends with its parent, but not at once
        # Until it is reaped, the next start would take the dead one for a running one.
        (self.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def crash(self) -> None:
        """Kill everything by SIGKILL, containers included, as in a power failure."""
        self.kill()
        _kill(self._of_containers())

    def load(self, *images: str) -> None:
        """Load images of the machine's engine into it, by their names."""
        with closing(docker.from_env(timeout=int(scaled(300)))) as theirs, self.client() as ours:
            for image in images:
                ours.images.load(b"".join(theirs.images.get(image).save(named=True)))

    @contextmanager
    def client(self) -> Iterator[docker.DockerClient]:
        """Return a client of this engine."""
        with closing(docker.DockerClient(base_url=self.host, timeout=int(scaled(60)))) as client:
            yield client

    def containers(self) -> set[str]:
        """Return the ids of all its containers, running or not."""
        with self.client() as client:
            return {one["Id"] for one in client.api.containers(all=True)}

    def runners(self) -> list[Process]:
        """Return the first processes of the running containers."""
        found = []
        with self.client() as client:
            for container in self.containers():
                with suppress(NotFound, FileNotFoundError):  # it has ended meanwhile
                    state = client.api.inspect_container(container)["State"]
                    if state["Running"]:
                        found.append(Process.of(state["Pid"]))
        return found

    def remove(self) -> None:
        """Stop it, and delete all its data."""
        self.stop()
        _kill([*self._containerd(), *self._of_containers()])
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if f" {self.folder}/" in line:
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        with self.client() as client:
            return bool(client.ping())

    def _containerd(self) -> list[Process]:
        return with_argument(f"{self.folder}/exec/containerd/containerd.toml")

    def _of_containers(self) -> list[Process]:
        """Return the processes that supervise containers, and those in them, engine or not."""
        watchers = with_argument(f"{self.folder}/exec/containerd/containerd.sock")
        return [process for one in watchers for process in (*one.descendants(), one)]


def _kill(processes: Iterable[Process]) -> None:
    processes = list(processes)
    for process in processes:
        with suppress(ProcessLookupError):
            process.send(signal.SIGKILL)
    assert eventually(lambda: gone(processes))


def missing(*programs: str) -> str:
    """Return what prevents starting an engine here; "" if nothing does."""
    if os.geteuid() != 0:
        return "only root can start a Docker engine"
    needed = ("dockerd", "containerd", "unshare", *programs)
    absent = [name for name in needed if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def gateway_of(network: Mapping[str, Any]) -> str:
    """Return the address of this machine in a network that was inspected.

    An engine that has found its bridge already there does not name it. A network may have a second
    subnet, for IPv6.
    """
    config = network["IPAM"]["Config"][0]
    return str(config.get("Gateway") or next(ip_network(config["Subnet"]).hosts()))


def everything_must_run() -> bool:
    """Return whether a test that lacks a requirement fails: under REQUIRE_DOCKER and CI."""
    return bool(os.environ.get("REQUIRE_DOCKER") or os.environ.get("CI"))


def skip_or_fail(reason: str) -> None:
    """End the test if there is a reason, such as a missing engine or program.

    It fails where everything must run, and is skipped elsewhere.
    """
    if reason:
        (pytest.fail if everything_must_run() else pytest.skip)(reason)


@contextmanager
def running_engine(
    *images: str,
    command: tuple[str, ...] = COMMAND,
    configuration: Mapping[str, Any] | None = None,
) -> Iterator[Engine]:
    """Run an engine that has these images of the machine's, until the context ends."""
    folder = Path(tempfile.mkdtemp(prefix="uac-engine-"))
    engine = Engine(folder, command=command, configuration=configuration)
    try:
        engine.start()
        engine.load(*images)
        yield engine
    finally:
        engine.remove()
