"""An engine that is restarted under load, with one of our own: the machine's belongs to others."""

import gc
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import docker as engine
import pytest
from docker.errors import DockerException

from tests.integration.sandbox.conftest import NOW
from tests.integration.sandbox.engine import end_shims, engine_at
from tests.integration.sandbox.processes import Process, eventually, gone, me
from workers.sandbox import docker
from workers.sandbox import pool as pools
from workers.sandbox.client import ChannelSandbox
from workers.sandbox.docker import ContainerChannel
from workers.sandbox.interface import Sandbox, SandboxError
from workers.sandbox.pool import Pool, PoolLimits

pytestmark = pytest.mark.docker


class Engine:
    """A dockerd and a containerd with folders, sockets and a network namespace of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/engine.sock"
        containerd = f"{folder}/containerd"
        self.containerd = self._run(
            *("containerd", "--root", f"{containerd}/root", "--state", f"{containerd}/state"),
            *("--address", f"{containerd}.sock"),
        )
        self.start()

    def start(self) -> None:
        """Start the engine, and wait until it answers."""
        self.engine = self._run(
            *("unshare", "--net", "dockerd", "--host", self.url, "--bridge", "none"),
            *("--iptables=false", "--ip6tables=false", "--ip-masq=false"),
            *("--containerd", f"{self.folder}/containerd.sock", "--pidfile", f"{self.folder}/pid"),
            *("--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/run"),
        )
        assert eventually(self.answers), (self.folder / "log").read_text()[-2000:]

    def end(self, number: signal.Signals) -> None:
        """Send the engine a signal and wait for its end."""
        self.engine.send_signal(number)
        self.engine.wait(60)

    def remove(self) -> None:
        """End it all."""
        self.end(signal.SIGTERM)
        self.containerd.terminate()
        self.containerd.wait(60)
        end_shims(f"{self.folder}/containerd.sock")
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if f" {self.folder}/" in line:
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        shutil.rmtree(self.folder)

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def answers(self) -> bool:
        """Whether it does."""
        with suppress(DockerException), closing(engine.DockerClient(self.url)) as client:
            return bool(client.ping())
        return False

    def containers(self) -> set[str]:
        """The ids of all that exist."""
        with closing(engine.DockerClient(self.url)) as client:
            return {one["Id"] for one in client.api.containers(all=True)}

    def runners(self) -> list[Process]:
        """The first processes of those that run."""
        found = []
        with closing(engine.DockerClient(self.url)) as client:
            for one in client.containers.list(ignore_removed=True):
                with suppress(FileNotFoundError):  # it has ended meanwhile
                    found.append(Process.of(one.attrs["State"]["Pid"]))
        return found


@pytest.fixture(scope="module")
def own_engine(docker_image: str) -> Iterator[Engine]:
    """An engine with the image, which sandboxes are started on."""
    if os.geteuid() != 0:
        reason = "needs root, to start an engine"
        (pytest.fail if os.environ.get("REQUIRE_DOCKER") else pytest.skip)(reason)
    own = Engine(Path(tempfile.mkdtemp(prefix="uac-engine-")))  # the path of a socket is short
    try:
        with closing(engine.from_env()) as theirs, closing(engine.DockerClient(own.url)) as ours:
            ours.images.load(b"".join(theirs.images.get(docker_image).save(named=True)))
        with engine_at(own.url):
            yield own
    finally:
        own.remove()


def held() -> tuple[int, int]:
    docker._thread.__dict__.clear()
    gc.collect()  # the clients of other threads, which have ended
    return me().descriptors(), threading.active_count()


def container_of(sandbox: Sandbox) -> str:
    assert isinstance(sandbox, ChannelSandbox)
    assert isinstance(sandbox._channel, ContainerChannel)
    return sandbox._channel.container


OWNER = "from domains.a.state import owner\nowner"


class Load:
    """Users who work as long as it is entered, those with a lease and those without."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.served: dict[str, set[str]] = defaultdict(set)  # container → users
        self.answers: Counter[str] = Counter()
        self.blamed: dict[str, list[bool]] = defaultdict(list)  # for each error, the user or not
        self._done = threading.Event()
        self._executor = ThreadPoolExecutor()

    def __enter__(self) -> "Load":
        users = ["ada", "bob", "strict cleo", "strict dan"]
        self._futures = [self._executor.submit(self._work, user) for user in users]
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        for future in self._futures:
            future.result(120)  # nobody is stuck, and nobody saw anything but SandboxErrors
        self._executor.shutdown()

    def all_went_on(self) -> bool:
        """Whether every user got two more answers than when this was asked first."""
        return all(self.answers[user] >= 2 for user in ("ada", "bob", "strict cleo", "strict dan"))

    def all_failed(self) -> bool:
        """Whether every user was told of a failure."""
        return len(self.blamed) == 4

    def _work(self, user: str) -> None:
        while not self._done.is_set():
            try:
                self._use(user)
                self.answers[user] += 1
            except SandboxError as error:
                self.blamed[user].append(not error.infrastructure)
                self._done.wait(0.05)

    def _use(self, user: str) -> None:
        state = {"domains/a/state.py": f"owner = {user!r}"}
        if user.startswith("strict"):
            with self.pool.virgin() as sandbox:
                self.served[container_of(sandbox)].add(user)
                sandbox.load(state)
                assert sandbox.evaluate(OWNER, now=NOW, time_zone="UTC").value == user
            return
        with self.pool.lease(user) as lease:
            self.served[container_of(lease.sandbox)].add(user)
            if not lease.tree:
                lease.sandbox.load(state)
                lease.tree = state
            assert lease.sandbox.evaluate(OWNER, now=NOW, time_zone="UTC").value == user


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_everybody_is_told_and_then_served_again(
    way: signal.Signals, own_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "REAP_SECONDS", 0.5)
    monkeypatch.setattr(docker, "LONGEST_START_SECONDS", 5)
    at_first = held()
    limits = PoolLimits(least=2, most=3, lease_seconds=60, leases=4)
    with closing(Pool(docker, limits)) as pool:
        with Load(pool) as load:
            assert eventually(load.all_went_on)
            left = own_engine.runners()
            assert left
            own_engine.end(way)
            assert eventually(load.all_failed)

            own_engine.start()
            load.answers.clear()
            assert eventually(load.all_went_on)
            assert eventually(lambda: gone(left))  # whatever ran without an engine
            before = sum(map(len, load.blamed.values()))
            load.answers.clear()
            assert eventually(load.all_went_on)
            assert sum(map(len, load.blamed.values())) == before  # it is as it was
        assert not any(itertools.chain(*load.blamed.values()))
        assert all(len(users) == 1 for users in load.served.values())

        # What the engine has left of before is found, and what is kept is ready.
        assert eventually(
            lambda: pool.settled and len(own_engine.containers()) == sum(pool.size.values())
        )
        with pool.virgin() as sandbox:
            assert sandbox.evaluate("1 + 1", now=NOW, time_zone="UTC").value == 2
    assert own_engine.containers() == set()
    assert eventually(lambda: held() == at_first)
