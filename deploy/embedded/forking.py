"""Processes forked from one that has imported the server's code, the forker.

They start without importing it again, and share the memory of the modules.
`python -m deploy.embedded.forking DESCRIPTOR` is the forker. It has no threads and no connections,
except the socket on which it is asked to fork, so that nothing of it can break in its children.
"""

import gc
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import IO, Any

from deploy.embedded.process import ManagedProcess, ProcessFailed, die_with_parent, has_ended

# What is imported before forking, besides the tasks and what they do.
_MODULES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "granian.cli",
    "granian.server.mp",
    "kombu.transport.redis",
    "uac_site.urls",
)


class Forker:
    """The supervisor's side: starts the forker, and asks it to fork."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        log_path: Path,
        folder: Path,
        inherited: tuple[int, ...],
        modules: tuple[str, ...] = (),
    ) -> None:
        self._socket, its_end = socket.socketpair()
        self._answers = self._socket.makefile()
        self._asking = threading.Lock()
        with its_end:
            self.process = ManagedProcess(
                name="forker",
                command=[sys.executable, "-m", __name__, str(its_end.fileno()), *modules],
                log_path=log_path,
                ready=lambda process: True,
                environment=environment,
                folder=folder,
                inherited=(*inherited, its_end.fileno()),
            )
            self.process.launch()

    def fork(
        self, process: ManagedProcess, log: IO[bytes], settings: Mapping[str, object] | None = None
    ) -> "ForkedChild":
        """Start a process, whose command has to be `python -m ...`; `settings` are its own."""
        assert process.command[:2] == [sys.executable, "-m"]
        path = str(process.log_path)
        return self._fork(process.command[2:], log=path, errors=path, settings=dict(settings or {}))

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -m` with these arguments, as subprocess.run does; `environment` adds."""
        with TemporaryDirectory() as folder:
            log, errors = Path(folder) / "output", Path(folder) / "errors"
            log.touch()
            errors.touch()
            child = self._fork(
                arguments, log=str(log), errors=str(errors), environment=dict(environment or {})
            )
            try:
                # Only then is the forker asked, which waits for nobody meanwhile.
                _wait_for(child.pid)
            except BaseException:  # such as an interrupt
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                raise
            finally:
                code = child.wait()
            return subprocess.CompletedProcess(arguments, code, log.read_text(), errors.read_text())

    def _fork(self, arguments: Sequence[str], **request: object) -> "ForkedChild":
        return ForkedChild(self, self.ask({"arguments": list(arguments), **request}))

    def ask(self, request: Mapping[str, object]) -> int:
        """Send a request, and return the answer; raise ProcessFailed if the forker has ended."""
        try:
            with self._asking:
                self._socket.sendall(f"{json.dumps(request)}\n".encode())
                return int(self._answers.readline())
        except (OSError, ValueError):
            raise ProcessFailed(f"the forker has ended.\n{self.process.log_tail()}") from None

    def stop(self) -> None:
        """End the forker, and with it the processes that it has forked."""
        self.process.stop()
        self._answers.close()
        self._socket.close()


@dataclass
class ForkedChild:
    """A forked process, with what ManagedProcess uses of a Popen."""

    forker: Forker
    pid: int
    returncode: int | None = field(default=None, init=False)

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        if self.returncode is None:
            try:
                self.returncode = self.forker.ask({"reap": self.pid})
            except ProcessFailed:  # it has ended with the forker, and nobody knows how
                self.returncode = -signal.SIGTERM
        return self.returncode


def _wait_for(pid: int) -> None:
    """Wait for the end of a process, unless it has ended and nobody will ask how."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:  # it ended with the forker
        return
    try:
        has_ended(descriptor, wait=True)
    finally:
        os.close(descriptor)


def main() -> None:
    """Import the code, then fork on request; the children return from `_fork_on_request`."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _import_code(*sys.argv[2:])
    request = _fork_on_request(channel)
    channel.close()
    from django.conf import settings

    for setting, value in request.get("settings", {}).items():
        setattr(settings, setting, value)
    os.environ.update(request.get("environment", {}))
    name, *arguments = request["arguments"]
    sys.argv[1:] = arguments
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _import_code(*modules: str) -> None:
    gc.disable()
    import django

    django.setup()
    from django.db.migrations.loader import MigrationLoader

    from memory.kernel.work.kinds import KINDS
    from uac_site.celery import app

    app.loader.import_default_modules()
    for kind in KINDS.values():
        resolve_name(kind.does)
    for name in (*_MODULES, *modules):
        import_module(name)
    # Imports the migrations: each process looks for missing ones.
    MigrationLoader(None)
    # The web server has to fork its worker, too.
    multiprocessing.set_start_method("fork")
    # A garbage collection writes to every object that it visits, which would copy shared memory.
    gc.enable()
    gc.collect()
    gc.freeze()


def _fork_on_request(channel: socket.socket) -> dict[str, Any]:
    """Answer requests until the supervisor ends; in a new process, return the request for it."""
    limit = die_with_parent(signal.SIGTERM)
    with channel.makefile() as requests:
        for line in requests:
            request: dict[str, Any] = json.loads(line)
            if "reap" in request:
                _answer(channel, os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1]))
            elif (pid := _fork(request, limit)) is None:
                return request
            else:
                _answer(channel, pid)
    sys.exit()


def _fork(request: Mapping[str, Any], limit: Callable[[], None]) -> int | None:
    """Fork a process; return its pid, or None in the new process.

    The pid is returned once the process leads its own session, since from then on the supervisor
    may kill that session, or once the process has ended before that.
    """
    ready, making_ready = os.pipe()
    if pid := os.fork():
        os.close(making_ready)
        os.read(ready, 1)  # nothing is written: it ends when the other end is closed
        os.close(ready)
        return pid
    os.setsid()
    limit()
    for descriptor, path in ((1, request["log"]), (2, request["errors"])):
        with Path(path).open("ab") as file:
            os.dup2(file.fileno(), descriptor)
    os.close(ready)
    os.close(making_ready)
    return None


def _answer(channel: socket.socket, number: int) -> None:
    channel.sendall(f"{number}\n".encode())


if __name__ == "__main__":
    main()
