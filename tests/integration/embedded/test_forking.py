"""What becomes of a command that the forker runs, if the forker or the caller ends before it."""

import signal
import subprocess
from collections.abc import Iterator

import pytest

from deploy.embedded import forking
from deploy.embedded.forking import Forker
from deploy.embedded.process import ProcessFailed


class OneFork(Forker):
    """A forker that has forked one process, and ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def ask(self, request: object) -> int:
        if isinstance(request, dict) and "reap" in request:
            raise ProcessFailed("the forker has ended")
        return self.pid


@pytest.fixture
def sleep() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def test_a_command_that_ended_with_the_forker_has_failed(sleep: subprocess.Popen[bytes]) -> None:
    sleep.kill()
    sleep.wait()

    assert OneFork(sleep.pid).run("command").returncode == -signal.SIGTERM


def test_an_interrupt_ends_the_command(
    sleep: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(forking, "has_ended", interrupt)

    with pytest.raises(KeyboardInterrupt):
        OneFork(sleep.pid).run("command")

    assert sleep.wait() == -signal.SIGKILL
