"""Other OCI runtimes than runc: the same sandbox, or none."""

from collections.abc import Iterator

import pytest

from tests.integration.sandbox.conftest import NOW, PROJECT, sandbox_error, value_of
from tests.integration.sandbox.containers import Containers
from tests.integration.sandbox.engine import Runtime
from tests.integration.sandbox.test_docker import FILL, GIGABYTE, worker_at_work
from tests.waiting import eventually
from workers.sandbox import container_template, docker
from workers.sandbox.limits import Limits, Shape
from workers.sandbox.results import SandboxError

pytestmark = [pytest.mark.docker]

ENDLESS = (
    "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass\nwhile True: pass"
)


@pytest.fixture
def mine(chosen: None) -> Iterator[Containers]:
    """The containers that this test creates, in the engine that has the runtime."""
    with Containers() as containers:
        yield containers


def test_every_operation_does_the_same(mine: Containers, docker_image: str) -> None:
    with docker.start() as sandbox:
        bytecode = sandbox.compile(PROJECT)
        assert sandbox.load(bytecode=bytecode).modules > 0
        assert value_of(sandbox, "[len(trips), passport.number]") == [3, "X1"]
        assert value_of(sandbox, "[trips.clear()]") == [None]
        assert value_of(sandbox, "len(trips)") == 3
        (result,) = sandbox.run_constraints(now=NOW, time_zone="Europe/Berlin").results
        assert result.error is None
        tests = sandbox.run_tests().results
        assert [test.error for test in tests] == [None, None]
        assert sandbox.dump().counts["travel"]["trips"] == 3
        sandbox.load({"domains/notes/state.py": PROJECT["domains/notes/state.py"]})
        assert sandbox.alive
    assert mine.all() == []


def test_bytecode_serves_whatever_the_runtime(other_engine: str) -> None:
    """An operator may change the runtime; existing bytecode stays valid."""
    with Runtime("", other_engine).chosen(), docker.start() as sandbox:
        digest, bytecode = sandbox.image_digest, sandbox.compile(PROJECT)
    for name in ("crun", "runsc"):
        with Runtime(name, other_engine).chosen(), docker.start() as sandbox:
            assert sandbox.image_digest == digest
            sandbox.load(bytecode=bytecode)
            assert value_of(sandbox, "len(trips)") == 3


def test_memory_has_an_end(mine: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container's own limit, where no process was given a lower one."""
    monkeypatch.setattr(Shape, "process_memory_bytes", GIGABYTE)
    with docker.start(shape=Shape(memory_mib=64)) as sandbox:
        with sandbox_error("killed", infrastructure=True):
            value_of(sandbox, FILL, memory_bytes=GIGABYTE)
        assert not sandbox.alive
    assert mine.all() == []


def test_endless_code_is_ended(mine: Containers) -> None:
    with docker.start() as sandbox:
        with sandbox_error("timeout"):
            sandbox.load({"domains/a/state.py": ENDLESS}, limits=Limits(wall_seconds=0.5))
        assert not sandbox.alive
    assert mine.all() == []


def test_no_process_can_be_started_and_none_outlives_an_evaluation(mine: Containers) -> None:
    fork = (
        "import os\nstarted = 0\ntry:\n    while True:\n        if os.fork() == 0: os._exit(0)\n"
        "        started += 1\nexcept OSError: pass\nstarted"
    )
    with docker.start() as sandbox:
        assert value_of(sandbox, fork) == 0
        with pytest.raises(SandboxError, match="temporarily unavailable"):
            sandbox.load({"domains/a/state.py": "import os\nos.fork()"})
        assert value_of(sandbox, "1") == 1


def test_containers_of_a_killed_worker_are_reaped(mine: Containers, runtime: Runtime) -> None:
    with worker_at_work(mine.label, runtime.name):
        assert len(mine.running()) >= 3
    # Although they are young, running or not: their worker is known to be dead.
    assert docker.reap() >= 3
    assert eventually(lambda: docker.reap() == 0 and mine.all() == [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("runsc-without-filter", "'seccomp': 0"),
        ("runsc-in-name-only", "'kernel': 'linux'"),
        ("anonymous", "'kernel': 'gvisor'"),
        ("no-such-runtime", "nknown runtime"),
    ],
)
def test_false_runtime_is_refused(
    other_engine: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_template, "PIDS", 256)  # tasks enough for any to start
    with Runtime(name, other_engine).chosen(), Containers() as mine:
        with sandbox_error(infrastructure=True) as raised:
            docker.start()
        assert message in raised.value.message.partition("instead of")[0]
        assert mine.all() == []
