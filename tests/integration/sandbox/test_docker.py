"""The life of containers: limits, ends, hostile runners, and an engine that fails."""

import gc
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from django.test import override_settings
from docker.api import APIClient
from docker.errors import APIError

import workers
from tests.integration.sandbox.conftest import PROJECT, sandbox_error, value_of
from tests.integration.sandbox.containers import Containers, reconfigure
from tests.integration.sandbox.engine import Runtime
from tests.processes import me
from tests.steps import not_none
from tests.waiting import eventually
from workers.sandbox import client, container_template, docker, ownership, runner
from workers.sandbox.client import Sandbox
from workers.sandbox.container_template import container_config
from workers.sandbox.limits import MEBIBYTE, Limits, Shape
from workers.sandbox.results import SandboxError
from workers.sandbox.runner import open_sandbox

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_image")]

ROOT = Path(workers.__file__).parent.parent
GIGABYTE = 1024 * MEBIBYTE
SMALL = Shape(memory_mib=256)
FORGED = b'{"outcome":"ok","result":{"value":{"$x":1},"type":"x"}}\n'


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Forget what this process knows of the engine, before the test and after it."""

    def forget() -> None:
        docker._thread.__dict__.clear()
        docker._image.cache_clear()
        runner._found_runner.cache_clear()
        runner.close_pool()  # or its threads would be there in the tests of all that follow
        runner._pools.clear()

    forget()
    yield
    forget()


def assert_usable(sandbox: Sandbox) -> None:
    assert sandbox.alive
    assert value_of(sandbox, "[len(trips), 1 + 1]") == [3, 2]


# --- limits


@pytest.mark.parametrize(
    ("code", "limits", "outcome", "message"),
    [
        ("import time\ntime.sleep(99)", {"wall_seconds": 0.2}, "timeout", "longer"),
        # In C code, which only a kill can stop.
        ("sum(range(10 ** 12))", {"wall_seconds": 0.2}, "timeout", "longer"),
        ("import os, signal\nos.kill(os.getpid(), 19)", {"wall_seconds": 0.2}, "timeout", "longer"),
        ("import os\nos.closerange(0, 99)\nos.kill(os.getpid(), 19)", {"wall_seconds": 0.2},
         "timeout", "longer"),
        ("b'x' * 10 ** 9", {}, "out_of_memory", "more than 112 MiB"),
        # However much it may take, it is less than half of the container's memory.
        ("b'x' * 2 ** 27", {"memory_bytes": GIGABYTE}, "out_of_memory", "more than 112 MiB"),
        ("x = 'x' * 10 ** 6\nfor n in range(1000): print(x)", {}, "output_limit", "1 MiB"),
        ("import os\nwhile True: os.write(3, b'x' * 65536)", {}, "result_limit", "larger than"),
        ("import os\nos.abort()", {}, "killed", "SIGABRT"),
        ("import os\nos.write(3, b'{}\\n')\nos._exit(0)", {}, "protocol_error", "no outcome"),
        (f"import os\nos.write(3, {FORGED!r})", {}, "protocol_error", "not a form of typed JSON"),
    ],
)  # fmt: skip
def test_each_limit_has_its_outcome_and_harms_nothing_else(
    small: Sandbox, code: str, limits: dict[str, Any], outcome: str, message: str
) -> None:
    with sandbox_error(outcome, message, infrastructure=False):
        value_of(small, code, **limits)
    assert_usable(small)


@pytest.fixture(scope="module")
def small(docker_image: str, runtime: Runtime) -> Iterator[Sandbox]:
    """A sandbox with a project and 256 MB, less than one of its processes may be allowed."""
    with runtime.chosen():
        sandbox = docker.start(shape=SMALL)
    sandbox.load(PROJECT)
    yield sandbox
    with runtime.chosen():
        sandbox.close()


def test_a_project_that_outgrows_its_share_is_told_so() -> None:
    source = {"domains/a/state.py": "x = b'x' * 2 ** 27"}
    with docker.start(shape=SMALL) as sandbox:
        with sandbox_error("out_of_memory") as raised:
            sandbox.load(source)
        assert not raised.value.infrastructure  # another sandbox would not help
        assert sandbox.alive
        sandbox.load(PROJECT)
        assert_usable(sandbox)
    with docker.start() as sandbox:  # of ordinary size
        sandbox.load(source)
        assert sandbox.alive


def test_a_project_and_a_query_that_take_all_they_may_fit_into_the_container() -> None:
    with docker.start(shape=SMALL) as sandbox:
        sandbox.load({"domains/a/state.py": "x = bytearray(70 * 2 ** 20)"})
        # The fork has its own copy of the pages that it writes to.
        code = "from domains.a.state import x\nfor n in range(0, len(x), 4096): x[n] = 1\nlen(x)"
        assert value_of(sandbox, code, memory_bytes=GIGABYTE) == 70 * 2**20
        assert sandbox.alive


FILL = "x = b'x' * 2 ** 28"


@pytest.mark.parametrize(
    "do",
    [
        lambda sandbox: sandbox.load({"domains/a/state.py": FILL}),
        lambda sandbox: value_of(sandbox, FILL, memory_bytes=GIGABYTE),
    ],
    ids=["load", "evaluate"],
)
def test_a_machine_without_memory_is_no_fault_of_the_user(
    do: Callable[[Sandbox], object], mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the container has too little memory: no process was given a lower limit."""
    monkeypatch.setattr(Shape, "process_memory_bytes", GIGABYTE)
    with docker.start(shape=Shape(memory_mib=64)) as sandbox:
        with sandbox_error("killed", infrastructure=True):
            do(sandbox)
        assert not sandbox.alive
    assert mine.all() == []


def test_endless_load_ends_without_a_host(
    mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends the loop, whatever it does about signals and limits."""
    monkeypatch.setattr(container_template, "LIFETIME_CPU_SECONDS", 1)
    loop = (
        "import resource, signal\nfor n in range(1, 65):\n"
        "    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "try: resource.setrlimit(resource.RLIMIT_CPU, (99, 99))\nexcept ValueError: pass\n"
        "while True: pass"
    )
    with docker.start() as sandbox:
        with pytest.raises(SandboxError) as raised:
            sandbox.load({"domains/a/state.py": loop})
        assert raised.value.outcome == "killed"  # before the thirty seconds of a load
        assert not sandbox.alive


# --- ends


@pytest.mark.parametrize("way", ["kill", "stop", "remove", "pause"])
def test_a_container_that_others_end_is_no_fault_of_the_user(
    way: str, mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, Any] = {}
    if way == "pause":  # of the others, the engine tells
        monkeypatch.setattr(client, "GRACE_SECONDS", 0.2)
        limits = {"wall_seconds": 0.5}
    options: dict[str, dict[str, Any]] = {"stop": {"timeout": 0}, "remove": {"force": True}}
    with docker.start() as sandbox:
        (container,) = mine.all()
        getattr(container, way)(**options.get(way, {}))
        with sandbox_error("timeout" if way == "pause" else "killed", infrastructure=True):
            value_of(sandbox, "1", **limits)
        assert not sandbox.alive
        with pytest.raises(SandboxError, match="open another one"):
            value_of(sandbox, "1")
    assert mine.all() == []


def test_every_sandbox_is_a_new_container_that_is_gone_afterwards(mine: Containers) -> None:
    seen: set[str] = set()
    for _ in range(3):
        with docker.start() as sandbox:
            assert value_of(sandbox, "1") == 1
            (container,) = mine.running()
            assert container.id not in seen
            seen.add(str(container.id))
        assert mine.all() == []
    with docker.start(), docker.start():
        assert len(mine.running()) == 2


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_exception_removes_the_container(error: type[BaseException], mine: Containers) -> None:
    def leave() -> None:
        with docker.start():
            assert len(mine.running()) == 1
            raise error

    with pytest.raises(error):
        leave()
    assert mine.all() == []


def test_interrupted_start_leaves_nothing(
    mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker, "Sandbox", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), docker.start():
        pass
    assert mine.all() == []


def test_threads_use_containers_side_by_side_and_leak_nothing(mine: Containers) -> None:
    def work(number: int) -> object:
        with docker.start() as sandbox:
            sandbox.load({**PROJECT, "domains/travel/trips_0002.py": "trips = []"})
            return value_of(sandbox, f"len(trips) + {number}")

    def held() -> tuple[int, int]:
        gc.collect()
        return me().descriptors(), threading.active_count()

    work(0)
    mine.all()
    before = held()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [number + 2 for number in range(8)]
    assert mine.all() == []
    assert eventually(lambda: held() == before)


def test_a_forked_process_has_a_connection_of_its_own() -> None:
    docker.image_digest()
    assert hasattr(docker._thread, "client")
    pid = os.fork()
    if pid == 0:
        os._exit(hasattr(docker._thread, "client"))
    assert os.waitpid(pid, 0)[1] == 0
    assert hasattr(docker._thread, "client")  # the parent keeps its own


# --- a runner that is not to be trusted


def runs(code: str) -> Callable[[dict[str, Any]], None]:
    """Change a container to run this instead of the runner."""
    return lambda config: config.update(
        Entrypoint=["python3", "-S", "-c", f"import os, sys, time\n{code}"]
    )


@pytest.mark.parametrize(
    ("code", "outcome", "message"),
    [
        ("print('hello')", "protocol_error", "at most 4096 are allowed"),
        ("os.write(1, b'\\xff' * 4); time.sleep(99)", "protocol_error", "4294967295 bytes"),
        ("while True: os.write(1, b'\\xff' * 65536)", "protocol_error", "at most 4096"),
        ("os.write(1, b'\\0\\0\\0\\5{}')", "protocol_error", "ended within a frame"),
        ("os.write(1, b'\\0\\0\\0\\2[]')", "protocol_error", "not a JSON object"),
        ("os.write(1, b'\\0\\0\\0\\2{}')", "protocol_error", "rebuild its image"),
        ("pass", "killed", "exited without a response"),
        ("sys.exit('no library')", "killed", "it said: no library"),
        ("time.sleep(99)", "timeout", "no response within"),
        ("os.closerange(0, 3); time.sleep(99)", "timeout", "no response within 1 s"),
        # It always sends something new, but never an answer.
        ("while True: os.write(2, b'x' * 65536)", "timeout", "it said: xxxx"),
        ("os.write(1, b'\\0\\0\\x0f\\xff')\nwhile True: os.write(1, b' '); time.sleep(0.01)",
         "timeout", "no response within"),
    ],
)  # fmt: skip
def test_a_runner_that_says_nonsense_is_not_believed(
    code: str,
    outcome: str,
    message: str,
    mine: Containers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if outcome == "timeout":
        monkeypatch.setattr(client, "START_SECONDS", 1.0)
    with monkeypatch.context() as patch:
        reconfigure(patch, runs(code))
        with pytest.raises(SandboxError) as raised:
            docker.start()
    assert raised.value.outcome == outcome
    assert message in raised.value.message
    assert len(raised.value.message) < 2_000
    assert raised.value.infrastructure
    assert mine.all() == []


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        ("b'\\xff' * 8", "protocol_error"),  # a length that nobody would read
        ("b'\\0\\0\\0\\2{}'", "protocol_error"),
        ("b'\\0\\x10\\0\\0' + b'x' * 1000", "timeout"),  # the rest never comes
        ("b'\\0\\0\\0\\2{}' * 10 ** 6", "protocol_error"),
    ],
)
def test_hijacked_runner_does_not_reach_host(what: str, outcome: str, mine: Containers) -> None:
    """Loading runs in the runner itself, so nothing that comes out of it is trusted."""
    code = (
        f"import os, time\ndata = {what}\n"
        "for n in range(4, 128):\n    try: os.write(n, data)\n    except OSError: pass\n"
        "while True: time.sleep(1)"
    )
    with docker.start() as sandbox:
        # The test waits for an answer that never comes; other answers may be late on a busy
        # machine.
        limits = Limits(wall_seconds=1 if outcome == "timeout" else 30)
        with sandbox_error(outcome, infrastructure=True):
            sandbox.load({"domains/a/state.py": code}, limits=limits)
        assert not sandbox.alive
    assert mine.all() == []


# --- a container that is not confined


def without(*options: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        kept = [
            option
            for option in config["HostConfig"]["SecurityOpt"]
            if not option.startswith(options)
        ]
        config["HostConfig"]["SecurityOpt"] = kept

    return change


def unconfined(config: dict[str, Any]) -> None:
    without("seccomp")(config)
    config["HostConfig"]["SecurityOpt"].append("seccomp=unconfined")


def with_capabilities(config: dict[str, Any]) -> None:
    del config["HostConfig"]["CapDrop"]


def with_privileges(config: dict[str, Any]) -> None:
    unconfined(config)
    without("no-new-privileges")(config)


def test_a_profile_that_the_engine_cannot_read_is_noticed(
    tmp_path: Path, mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine reports nothing, and runs the container without any filter."""
    profile = tmp_path / "seccomp.json"
    profile.write_text('{"x": 1}')
    monkeypatch.setattr(container_template, "SECCOMP_PROFILE", profile)
    with sandbox_error(None, "the container is not confined", "'seccomp': 0", infrastructure=True):
        docker.start()
    assert mine.all() == []


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (unconfined, "'seccomp': 0"),
        (with_privileges, "'no_new_privileges': 0"),
        (with_capabilities, "'capabilities': 2"),
    ],
)
def test_a_container_that_is_not_confined_is_not_used(
    change: Callable[[dict[str, Any]], None],
    shown: str,
    mine: Containers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconfigure(monkeypatch, change)
    with sandbox_error(None, "the container is not confined", infrastructure=True) as raised:
        docker.start()
    assert shown in raised.value.message.partition("instead of")[0]
    assert mine.all() == []


# --- an engine that fails


@pytest.fixture
def deaf_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine that accepts connections and never answers."""
    monkeypatch.setattr(docker, "ENGINE_SECONDS", 0.3)
    folder = tempfile.mkdtemp()  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/engine.sock")
        server.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/engine.sock")
        yield
    shutil.rmtree(folder)


def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/engine.sock")
    docker._thread.__dict__.clear()


def assert_unavailable(message: str) -> None:
    for attempt in (lambda: docker.start(), docker.image_digest, docker.reap):
        with sandbox_error("killed", message, infrastructure=True):
            attempt()


@pytest.mark.usefixtures("forgetful")
def test_no_engine_is_no_fault_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    no_engine(monkeypatch)
    assert_unavailable("the Docker engine does not answer")


@pytest.mark.usefixtures("forgetful", "deaf_engine")
def test_an_engine_that_hangs_is_given_up() -> None:
    assert_unavailable("the Docker engine does not answer")


def test_no_proxy_is_looked_for_in_front_of_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    docker.reap()  # by now this thread has its client
    monkeypatch.setattr("requests.sessions.get_environ_proxies", Mock(side_effect=AssertionError))
    docker.reap()


@pytest.mark.usefixtures("forgetful")
@override_settings(UAC_SANDBOX_IMAGE="uac-no-such-image:1")
def test_an_image_that_is_missing_is_named_with_the_command_that_makes_it() -> None:
    with sandbox_error(
        None, "no image uac-no-such-image:1", "python -m workers.sandbox.build", infrastructure=True
    ):
        docker.start()


@pytest.mark.usefixtures("forgetful")
def test_an_image_that_was_replaced_is_found_again(docker_image: str, mine: Containers) -> None:
    name = f"uac-test:{uuid.uuid4().hex}"
    source = io.BytesIO(f"FROM {docker_image}\nLABEL uac.test={name}\n".encode())
    images = mine.client.images
    images.build(fileobj=source, tag=name, rm=True, forcerm=True)
    with override_settings(UAC_SANDBOX_IMAGE=name):
        old = docker.image_digest()
        images.remove(name)
        images.get(docker_image).tag(name)
        try:
            with pytest.raises(SandboxError, match="No such image") as raised:
                docker.start()
            assert raised.value.infrastructure  # so that it is tried again
            with docker.start() as sandbox:
                assert sandbox.image_digest != old
        finally:
            images.remove(name)


@pytest.mark.usefixtures("forgetful")
def test_failing_engine_hides_no_result(mine: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        structlog.testing.capture_logs() as logs,
        monkeypatch.context() as patch,
        docker.start() as sandbox,
    ):
        no_engine(patch)
        assert value_of(sandbox, "1 + 1") == 2
    assert [log["event"] for log in logs] == ["sandbox_not_removed"]
    assert eventually(lambda: not mine.running())  # it ended with its connection
    docker._thread.__dict__.clear()
    assert docker.reap() == 1  # whose it is, it lives, but has given it up
    assert mine.all() == []


def test_dropped_limit_is_noticed(mine: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    create = APIClient.create_container_from_config
    dropped = "Your kernel does not support swap limit capabilities. Limitation discarded."

    def warn(self: APIClient, *arguments: Any, **options: Any) -> Any:
        created = create(self, *arguments, **options)  # type: ignore[no-untyped-call]
        return {**created, "Warnings": [dropped]}

    monkeypatch.setattr(APIClient, "create_container_from_config", warn)
    with pytest.raises(SandboxError, match="swap limit capabilities") as raised:
        docker.start()
    assert raised.value.infrastructure
    assert mine.all() == []


def of_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all containers belong to unknown workers, which may or may not be alive."""
    monkeypatch.setattr(ownership, "_namespace", lambda: "boot/pid:[1]")


def test_stuck_container_blocks_no_other(mine: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = APIClient.remove_container
    for _ in range(3):
        mine.client.api.create_container_from_config(  # type: ignore[no-untyped-call]
            container_config(docker._image(), 0)
        )
    of_another_machine(monkeypatch)
    stubborn = str(mine.all()[0].id)

    def refuse(self: APIClient, container: str, **options: Any) -> None:
        if container == stubborn:
            raise APIError("removal is already in progress")
        remove(self, container, **options)

    monkeypatch.setattr(ownership, "LONGEST_START_SECONDS", -1)
    with monkeypatch.context() as patch:
        patch.setattr(APIClient, "remove_container", refuse)
        docker.reap()
        assert [one.id for one in mine.all()] == [stubborn]
    docker.reap()
    assert mine.all() == []


@pytest.mark.usefixtures("forgetful")
@override_settings(UAC_SANDBOX_RUNNER="auto")
def test_auto_is_docker_where_it_can_be_and_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_sandbox() as sandbox:
        assert sandbox.runner_name == "docker"
    no_engine(monkeypatch)
    assert runner.runner_name() == "docker"
    with pytest.raises(SandboxError, match="does not answer"):  # and no weaker one instead
        open_sandbox().__enter__()


@pytest.mark.usefixtures("forgetful")
@override_settings(UAC_SANDBOX_RUNNER="auto")
def test_auto_is_a_process_otherwise_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with structlog.testing.capture_logs() as logs, monkeypatch.context() as patch:
        no_engine(patch)
        with open_sandbox() as sandbox:
            assert sandbox.runner_name == "process"
        runner.image_digest()
    (warning,) = (log for log in logs if log["event"] == "process_runner_for_lack_of_docker")
    assert "the Docker engine does not answer" in warning["reason"]
    docker._thread.__dict__.clear()
    docker.start().close()
    assert runner.runner_name() == "process"


# --- what a killed worker leaves

WORKER = """
import datetime, os, sys, threading
sys.path.insert(0, {root!r})
from django.conf import settings
settings.configure(UAC_SANDBOX_IMAGE="", UAC_SANDBOX_RUNTIME={runtime!r})
from workers.sandbox import container_template, docker, ownership
from workers.sandbox.limits import Limits
from workers.sandbox.pool import Pool
from workers.sandbox.pool_stock import PoolLimits

ownership.LABEL = {label!r}
container_template.LIFETIME_CPU_SECONDS = 2
now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
limits = Limits(wall_seconds=600, total_seconds=600, cpu_seconds=600)
pool = Pool(docker, PoolLimits(least=1, most=2, lease_seconds=600, leases=4))

def say_ready():
    os.write(1, b"ready\\n")  # at once: print() of several threads runs together

def load():
    with pool.fresh() as sandbox:
        say_ready()
        sandbox.load({{"domains/a/state.py": "while True: pass"}}, limits=limits)

def evaluate():
    with pool.lease("ada") as lease:
        lease.sandbox.load({{}})
        say_ready()
        code = "import time\\ntime.sleep(600)"
        lease.sandbox.evaluate(code, now=now, time_zone="UTC", limits=limits)

def wait():
    with pool.lease("bob") as lease:
        lease.sandbox.load({{"domains/a/state.py": "x = 1"}})
        lease.tree = {{"domains/a/state.py": "hash"}}
    say_ready()

def claim():
    while True:
        with pool.fresh() as sandbox:
            sandbox.evaluate("1", now=now, time_zone="UTC")
        say_ready()

for act in (load, evaluate, wait, claim):
    threading.Thread(target=act).start()
"""


@contextmanager
def worker_at_work(label: str, runtime: str = "") -> Iterator[None]:
    """It loads, evaluates, keeps a lease, and claims, starts and removes others; then it dies."""
    code = WORKER.format(root=str(ROOT), label=label, runtime=runtime)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        try:
            assert [not_none(worker.stdout).readline() for _ in range(6)] == [b"ready\n"] * 6
            yield
        finally:
            worker.send_signal(signal.SIGKILL)


def test_a_killed_worker_leaves_nothing_that_runs(mine: Containers) -> None:
    with worker_at_work(mine.label):
        assert len(mine.running()) >= 3

    assert eventually(lambda: not mine.running())

    assert len(mine.all()) >= 3  # nobody was there to remove them
    # Although they are young, their worker is known to be dead. One more may have been in progress.
    assert docker.reap() >= 3
    assert eventually(lambda: docker.reap() == 0 and mine.all() == [])


def test_working_container_is_reaped_if_old(
    mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = docker.ContainerChannel(docker._image(), 0)
    monkeypatch.setattr(ownership, "LONGEST_START_SECONDS", -1)
    with docker.start() as sandbox:
        with monkeypatch.context() as patch:
            patch.setattr(ownership, "LONGEST_LIFE_SECONDS", -1)
            assert docker.reap() == 0  # whatever the clocks say: its worker lives
        of_another_machine(monkeypatch)
        assert docker.reap() == 0
        assert value_of(sandbox, "1") == 1
        monkeypatch.setattr(ownership, "LONGEST_LIFE_SECONDS", -1)
        assert docker.reap() == 1
        assert mine.all() == []
        with sandbox_error("killed", infrastructure=True):
            value_of(sandbox, "1")
    assert docker.reap() == 0
    channel.close()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_container_never_started_is_reaped(
    elsewhere: bool, mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was killed, or its engine before it could answer the worker."""
    api = mine.client.api
    api.create_container_from_config(container_config(docker._image(), 0))  # type: ignore[no-untyped-call]
    foreign = mine.client.containers.create(docker._image(), labels={"other": mine.label})
    if elsewhere:
        of_another_machine(monkeypatch)
    try:
        assert docker.reap() == 0
        monkeypatch.setattr(ownership, "LONGEST_START_SECONDS", -1)
        assert docker.reap() == 1
        assert mine.all() == []
        foreign.reload()  # somebody else's is still there
    finally:
        foreign.remove()
