"""Opening and closing sandboxes: from threads, many times, and when the worker is killed."""

import dataclasses
import json
import operator
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

import workers
from sandbox_image.uac import protocol
from tests.integration.sandbox.conftest import (
    NOW,
    PROJECT,
    WITHOUT_NAMESPACES,
    sandbox_error,
    value_of,
)
from tests.processes import Process, gone, me, mine
from tests.steps import not_none
from tests.waiting import eventually, scaled
from workers.sandbox import process
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits
from workers.sandbox.process import ProcessChannel, image_digest
from workers.sandbox.results import SandboxError
from workers.sandbox.runner import open_sandbox

ROOT = Path(workers.__file__).parent.parent
DOCKERFILE = ROOT / "sandbox_image" / "Dockerfile"
(ENTRYPOINT,) = map(
    json.loads, re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE.read_text(), re.MULTILINE)
)


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    """Keep the process from which sandboxes are forked, whoever has started it."""
    with process.start():
        pass


@contextmanager
def watched() -> Iterator[tuple[Sandbox, Process, Process]]:
    """A sandbox with the watcher and the runner; the third process is the waiting child."""
    with process.start() as sandbox:
        assert isinstance(sandbox._frames.channel, ProcessChannel)
        watcher = Process.of(sandbox._frames.channel.pid)
        assert eventually(lambda: len(watcher.descendants()) == 2)
        (runner,) = (one for one in watcher.descendants() if one.descendants())
        yield sandbox, watcher, runner


def test_the_setting_names_the_runner() -> None:
    with (
        override_settings(UAC_SANDBOX_RUNNER="process"),
        open_sandbox(hash_seed=3) as sandbox,
    ):
        assert sandbox.runner_name == "process"
        assert sandbox.image_digest == image_digest()
        assert value_of(sandbox, "1 + 1") == 2
    with (
        override_settings(UAC_SANDBOX_RUNNER="abacus"),
        pytest.raises(ImproperlyConfigured, match=r"'abacus': set it to one of .*process"),
    ):
        open_sandbox()


def test_a_closed_sandbox_leaves_no_process_and_answers_nobody() -> None:
    channel = ProcessChannel(0)
    watcher = Process.of(channel.pid)
    assert eventually(lambda: len(watcher.descendants()) == 2)  # the runner, and its child
    processes = [watcher, *watcher.descendants()]
    channel.close()
    channel.close()
    assert gone(processes)
    with pytest.raises(ValueError, match="closed"):
        channel.send(b"x", time.monotonic() + 1)


def test_leaving_the_context_by_an_exception_closes_too() -> None:
    before = mine()
    with pytest.raises(ZeroDivisionError), process.start():
        raise ZeroDivisionError
    assert mine() == before


def test_nothing_leaks_over_many_evaluations() -> None:
    def held() -> tuple[int, int, int]:
        return me().descriptors(), threading.active_count(), len(mine())

    with watched() as (sandbox, _, _):
        sandbox.load(PROJECT)
        assert value_of(sandbox, "1") == 1
        before = held()  # with the process that is ready for the next one
        evaluate_many(sandbox)
        # The number may shrink as processes of earlier tests end.
        assert eventually(lambda: all(map(operator.le, held(), before)))


def evaluate_many(sandbox: Sandbox) -> None:
    for number in range(50):
        assert value_of(sandbox, f"{number}") == number
        if number % 10 == 0:
            with pytest.raises(SandboxError):
                sandbox.evaluate("import os\nos._exit(1)", now=NOW, time_zone="UTC")


def test_threads_of_a_pool_use_sandboxes_side_by_side() -> None:
    def work(number: int) -> object:
        with process.start() as sandbox:
            sandbox.load({**PROJECT, "domains/travel/trips_0002.py": "trips = []"})
            return value_of(sandbox, f"len(trips) + {number}")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [number + 2 for number in range(8)]


def test_a_sandbox_outlives_the_thread_that_opened_it() -> None:
    opened = []

    def open_one() -> None:
        context = process.start()
        opened.append((context, context.__enter__()))

    thread = threading.Thread(target=open_one)
    thread.start()
    thread.join()
    # Python ends the thread a moment before the kernel does, which then sends death signals.
    assert eventually(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
    ((context, sandbox),) = opened
    try:
        for number in range(3):
            assert value_of(sandbox, f"{number}") == number
    finally:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("victim", ["watcher", "runner"])
def test_a_sandbox_that_is_killed_says_so_and_is_cleaned_up(victim: str) -> None:
    with watched() as (sandbox, watcher, runner):
        (watcher if victim == "watcher" else runner).send(signal.SIGKILL)
        assert eventually(lambda: gone([watcher, runner]))
        with sandbox_error("killed", infrastructure=True):
            sandbox.evaluate("1", now=NOW, time_zone="UTC")
        assert not sandbox.alive


def test_a_child_that_is_killed_while_it_waits_is_replaced() -> None:
    with watched() as (sandbox, _, runner):
        (child,) = runner.descendants()
        child.send(signal.SIGKILL)
        assert eventually(lambda: gone([child]))

        assert value_of(sandbox, "1") == 1
        assert value_of(sandbox, "2") == 2


@pytest.mark.parametrize("victims", [["runner"], ["runner", "watcher"]])
def test_a_sandbox_that_hangs_is_given_up_and_killed(
    victims: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CLOSE_SECONDS", 0.2)
    with watched() as (sandbox, watcher, runner):
        for name in victims:
            {"watcher": watcher, "runner": runner}[name].send(signal.SIGSTOP)
        with sandbox_error("timeout", infrastructure=True):
            sandbox.load({}, limits=Limits(wall_seconds=0.2))
        assert not sandbox.alive
        assert eventually(lambda: gone([watcher, runner]))


def test_the_runner_speaks_on_its_standard_streams_as_in_its_image() -> None:
    request = {"id": 9, "op": "evaluate", "code": "import sys\nsys.path", "now": NOW.isoformat(),
               "time_zone": "UTC", "limits": dataclasses.asdict(Limits())}  # fmt: skip
    unknown = {"id": 10, "op": "dance"}
    runner = subprocess.Popen(
        [sys.executable, *ENTRYPOINT[1:]],
        cwd=ROOT,
        env={"PYTHONHASHSEED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with runner:
        stdin, stdout = not_none(runner.stdin), not_none(runner.stdout)
        stdin.write(protocol.encode_frame(request) + protocol.encode_frame(unknown))
        stdin.flush()
        hello, answer, refusal = (not_none(protocol.read_frame(stdout.read)) for _ in range(3))
        stdin.close()  # at which it ends
        assert runner.wait(scaled(60)) == 0
        assert stdout.read() == not_none(runner.stderr).read() == b""
    assert (hello["hello"], hello["hash_seed"]) == (protocol.VERSION, "0")
    assert (answer["id"], answer["outcome"]) == (9, "ok")
    assert str(ROOT) not in answer["result"]["value"]
    assert (refusal["id"], refusal["outcome"]) == (10, "protocol_error")


def test_ended_template_is_replaced_by_another() -> None:
    with process.start() as sandbox:
        starter = process._starters[0]
        forks = Process.of(starter._process.pid)
        forks.send(signal.SIGKILL)
        assert eventually(lambda: gone([forks]))
        # Sandboxes that were forked before stay.
        assert value_of(sandbox, "1 + 1") == 2
        with process.start() as another:
            assert value_of(another, "1 + 2") == 3
    assert process._starters[0] is not starter


def test_a_runner_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_starters", {})
    monkeypatch.setattr(process, "PACKAGE", Path("/nonexistent/sandbox_image"))
    with pytest.raises(SandboxError, match="No module named 'sandbox_image'") as raised:
        process.start()
    assert raised.value.outcome == "killed"
    assert raised.value.infrastructure


def test_silent_end_of_runner_has_a_clean_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_starters", {})
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with sandbox_error(None, "has exited", infrastructure=True) as raised:
        process.start()
    assert "it said" not in raised.value.message


@pytest.mark.parametrize(
    "refusal", [BlockingIOError("no more processes"), OSError("no more processes")]
)
def test_refused_process_is_our_fault(refusal: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    before = me().descriptors()
    monkeypatch.setattr(process, "_starters", {})
    monkeypatch.setattr(subprocess, "Popen", Mock(side_effect=refusal))
    with pytest.raises(SandboxError, match="did not start: no more processes") as raised:
        process.start()
    assert raised.value.outcome == "killed"
    assert raised.value.infrastructure
    assert me().descriptors() == before


WORKER = """
import datetime, os, sys, threading
sys.path.insert(0, {root!r})
{first}
from workers.sandbox import process
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits

now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
limits = Limits(wall_seconds=600, total_seconds=600, cpu_seconds=600)

def work(act):
    with process.start() as sandbox:
        act(sandbox)

def load(sandbox):
    sandbox.load({{"domains/a/state.py": "while True: pass"}}, limits=limits)

def evaluate(sandbox):
    sandbox.evaluate("while True: pass", now=now, time_zone="UTC", limits=limits)

def wait(sandbox):
    if {forked}:  # a sibling that keeps our ends of all pipes
        if os.fork() == 0:
            os.setsid()
            print(os.getpid(), flush=True)
            threading.Event().wait()
    threading.Event().wait()

for act in (load, evaluate, wait):
    threading.Thread(target=work, args=(act,)).start()
"""


@pytest.mark.parametrize("first", ["", WITHOUT_NAMESPACES], ids=["namespaces", "none"])
@pytest.mark.parametrize("forked", [False, True])
def test_a_killed_worker_leaves_no_process(forked: bool, first: str) -> None:
    """One sandbox loads without end, one evaluates without end, and one is idle."""
    code = WORKER.format(root=str(ROOT), forked=forked, first=first)
    worker = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
    )
    sibling = None
    try:
        if forked:
            sibling = int(not_none(worker.stdout).readline())
        processes: list[Process] = []

        def are_settled() -> bool:
            """Each runner has a waiting child at first; that of the load ends."""
            nonlocal processes
            before = processes
            processes = [one for one in Process.of(worker.pid).descendants() if one.pid != sibling]
            return len(processes) == 9 and processes == before

        # The forking process, three watchers, three runners, a child that evaluates, one that
        # waits.
        assert eventually(are_settled)

        worker.send_signal(signal.SIGKILL)
        worker.wait()

        assert eventually(lambda: gone(processes))
    finally:
        worker.kill()
        worker.wait()
        if worker.stdout:
            worker.stdout.close()
        if sibling is not None:
            os.kill(sibling, signal.SIGKILL)
