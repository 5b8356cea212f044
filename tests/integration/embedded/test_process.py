"""One managed child process: readiness, death, and an end that includes its own children."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.embedded.process import ManagedProcess, ProcessFailed
from tests.processes import alive
from tests.waiting import eventually

Make = Callable[..., ManagedProcess]
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS
HAS_A_CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', {IGNORES_SIGTERM!r}])
print('child', child.pid, flush=True)
{SLEEPS}
"""


def says_up(process: ManagedProcess) -> bool:
    return "up" in process.output()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made = []

    def make(program: str, ready: Callable[[ManagedProcess], bool] = says_up) -> ManagedProcess:
        process = ManagedProcess(
            name="sample",
            command=[sys.executable, "-c", program],
            log_path=tmp_path / "sample.log",
            ready=ready,
            environment=dict(os.environ),
            folder=tmp_path,
        )
        made.append(process)
        return process

    yield make
    for process in made:
        process.kill()


def test_stop_ends_it_by_its_signal(make: Make) -> None:
    process = make(
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye')))\n"
        + SLEEPS
    )
    process.start()

    process.stop()

    assert "bye" in process.output()
    assert not alive(process.pid)
    assert not process.running
    assert not process.died


def test_stop_kills_what_ignores_its_signal(make: Make) -> None:
    process = make(IGNORES_SIGTERM)
    process.start()

    process.stop(patience=0.2)

    assert not alive(process.pid)


@pytest.mark.parametrize("end", ["stop", "kill", "by itself"])
def test_children_of_a_process_end_with_it(make: Make, end: str) -> None:
    process = make(HAS_A_CHILD, ready=lambda process: process.output().count("up") == 2)
    process.start()
    child = int(process.output().split("child ")[1].split()[0])

    if end == "by itself":
        os.kill(process.pid, signal.SIGKILL)
        assert eventually(lambda: process.died)
        process.stop()
    else:
        getattr(process, end)()

    assert eventually(lambda: not alive(child))


def test_a_death_is_noticed(make: Make) -> None:
    process = make(SLEEPS)
    process.start()
    assert not process.died

    os.kill(process.pid, signal.SIGKILL)

    assert eventually(lambda: process.died)


def test_ending_while_starting_is_an_error_with_the_end_of_the_log(make: Make) -> None:
    process = make("import sys; sys.exit('no such port')")

    with pytest.raises(ProcessFailed, match=r"sample exited during startup(.|\n)*no such port"):
        process.start()

    assert not process.died


def test_not_getting_ready_is_an_error_with_the_end_of_the_log(make: Make) -> None:
    process = make("print('still thinking', flush=True)\n" + SLEEPS, ready=lambda _: False)
    process.launch()
    assert eventually(lambda: "up" in process.output())

    with pytest.raises(ProcessFailed, match=r"not ready within(.|\n)*still thinking"):
        process.wait_until_ready(seconds=0.2)


def test_a_start_that_fails_leaves_no_process(make: Make) -> None:
    def interrupted(process: ManagedProcess) -> bool:
        raise KeyboardInterrupt

    process = make(SLEEPS, ready=interrupted)

    with pytest.raises(KeyboardInterrupt):
        process.start()

    assert not alive(process.pid)


def test_a_restart_reads_only_its_own_output(make: Make) -> None:
    process = make("import time; print('first', flush=True); time.sleep(600)", lambda _: True)
    process.start()
    assert eventually(lambda: "first" in process.output())
    process.stop()

    process.command = [sys.executable, "-c", SLEEPS]
    process.start()

    assert "first" not in process.output()
    assert "first" in process.log_path.read_text()


def test_starting_from_a_thread_is_refused(make: Make) -> None:
    process = make(SLEEPS)

    with ThreadPoolExecutor() as threads, pytest.raises(RuntimeError, match="main thread"):
        threads.submit(process.launch).result()

    assert not process.running
