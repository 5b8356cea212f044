"""Processes in /proc, by id and start time, so that a reused id is another process."""

import os
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ENDED = ("Z", "X")  # states: a zombie, and dead


@dataclass(frozen=True)
class Process:
    """One process, which may have ended."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Process":
        return cls(pid, _stat(pid)[19])

    @property
    def runs(self) -> bool:
        """True while the process runs; a zombie does not."""
        try:
            fields = _stat(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return fields[19] == self.started and fields[0] not in ENDED

    def descendants(self, but: Collection[int] = ()) -> list["Process"]:
        """Return its children, their children, and so on.

        Those of these ids, and all their descendants, are left out.
        """
        children: dict[int, list[Process]] = defaultdict(list)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in but:
                try:
                    fields = _stat(int(entry.name))
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if fields[0] not in ENDED:
                    children[int(fields[1])].append(Process(int(entry.name), fields[19]))

        def below(pid: int) -> Iterator[Process]:
            for child in children[pid]:
                yield child
                yield from below(child.pid)

        return list(below(self.pid))

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


def me() -> Process:
    return Process.of(os.getpid())


def mine() -> list[Process]:
    """Return the descendants of this process, except its services.

    PostgreSQL starts and ends processes of its own at any time.
    """
    from tests.services import SERVICES  # here: without pytest, its import would start them

    return me().descendants(but=(SERVICES.postgres.process.pid, SERVICES.redis.process.pid))


def with_argument(argument: str) -> list[Process]:
    """Return the processes that were started with this argument."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                if argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(Process.of(int(entry.name)))
    return found


def alive(pid: int) -> bool:
    """Return whether a process with this id is running."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Process.of(pid).runs
    return False


def gone(processes: Iterable[Process]) -> bool:
    return not any(process.runs for process in processes)


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's stat after its name: state, parent, … start at index 19."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
