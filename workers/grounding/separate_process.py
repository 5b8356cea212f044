"""Check whether entries support a change's claims; long checks run in a separate process.

How long a check takes depends on both the claims and the citations: a thousand edits may each cite
the same megabyte. In the worker's own process, a long check would slow down all other tasks, and a
faulty regular expression would bring the worker to a halt. The separate process has a lower
priority than everything else, its own memory limit, and a limit on CPU time, which, unlike elapsed
time, doesn't run out sooner on a busy machine.
"""

import json
import os
import pickle  # nosec B403 # data that this server has just written
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memory.project.values import Record, RecordId, Value
from workers.findings import Finding
from workers.grounding.changed_values import MAX_RESTED, RecordUpdate, ungrounded_updates
from workers.grounding.retired_records import Retirement, ungrounded_retirements
from workers.grounding.values_in_entries import Claim, Source, ungrounded
from workers.grounding.wording_in_entries import texts_of, unsaid_texts

# A check that reads at most this many characters, counting repetitions, is fast and so runs in the
# worker's own process.
QUICK_CHARACTERS = 200_000
CPU_SECONDS = 30
# Maximum wait for the separate process, in seconds; only an overloaded machine takes this long.
WALL_SECONDS = 600.0
MEMORY_BYTES = 768 * 1024 * 1024
# The oom_score_adj value that makes the kernel kill the separate process first if memory runs out.
# A process may raise its own oom_score_adj without privileges.
FIRST_TO_GO = "1000"
NO_MEMORY = 3  # exit status of the separate process if it runs out of memory
TOO_MUCH = "too_much_to_read"
FIX = "propose fewer edits at a time, or cite fewer or shorter entries"


class ReadingFailed(Exception):
    """The check failed for a reason unrelated to the texts that it reads."""


@dataclass(frozen=True, kw_only=True)
class Cited:
    """A change's claims, and the entries that the change cites or relies on (`sources`, by seq).

    The other fields have the same meaning as in `ungrounded`, `ungrounded_updates` and
    `ungrounded_retirements`.
    """

    claims: Sequence[Claim]
    updates: Sequence[RecordUpdate]
    retirements: Sequence[Retirement]
    added: Sequence[Record]
    sources: Mapping[int, Source]
    read: frozenset[str]
    time_zone: str
    is_of_model: bool

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for each claim that no entry supports."""
        sources, zone = self.sources, self.time_zone
        yield from ungrounded_retirements(self.retirements, sources, self.added)
        yield from ungrounded_updates(
            self.updates, sources, self.read, zone, is_of_model=self.is_of_model
        )
        yield from ungrounded(self.claims, sources, zone)
        if self.is_of_model:
            yield from unsaid_texts(self.claims, sources, zone)

    def characters(self) -> int:
        """Return approximately how many characters have to be read, counting repetitions."""
        sizes = {seq: len(source.whole) for seq, source in self.sources.items()}

        def count(*seqs: Iterable[int]) -> int:
            return sum(sizes.get(seq, 0) for some in seqs for seq in some)

        return (
            sum(count(one.sources) + _length(one.fields) for one in self.claims)
            + sum(
                count(cited, newest(one.rested_on)) + _length({name: one.after.fields.get(name)})
                for one in self.updates
                for name, cited in one.cited.items()
            )
            + sum(count(one.sources, newest(one.rested_on)) for one in self.retirements)
        )


def newest(seqs: Iterable[int]) -> list[int]:
    """Return the newest of a record's entries: only these are compared with cited entries."""
    return sorted(seqs)[-MAX_RESTED:]


def _length(fields: Mapping[str, Value]) -> int:
    return sum(len(text) for value in fields.values() for text in texts_of(value))


def unfounded(cited: Cited) -> list[Finding]:
    """Return findings for the claims that no entry supports; raise ReadingFailed on failure.

    If the check exceeds its CPU time or memory limit, a single finding reports this.
    """
    if cited.characters() <= QUICK_CHARACTERS:
        return list(cited.findings())
    process = subprocess.Popen(  # noqa: S603  # nosec B603 # our own program
        [sys.executable, "-s", "-m", __name__, str(CPU_SECONDS), str(MEMORY_BYTES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},  # without the worker's secrets
    )
    with process:
        try:
            answer, _ = process.communicate(pickle.dumps(cited), WALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise ReadingFailed(f"no result within {WALL_SECONDS:g} s") from None
        finally:
            process.kill()
    if process.returncode in (-signal.SIGXCPU, NO_MEMORY):
        is_full = process.returncode == NO_MEMORY
        what = "too much memory" if is_full else f"more than {CPU_SECONDS} s"
        return [
            Finding(
                code=TOO_MUCH,
                message=f"reading the entries that the edits cite takes {what}",
                fix=FIX,
            )
        ]
    if process.returncode != 0:
        raise ReadingFailed(f"the separate process exited with {process.returncode}")
    return [_finding(one) for one in json.loads(answer)]


def _finding(data: dict[str, Any]) -> Finding:
    if data["record"] is not None:
        data["record"] = RecordId(*data["record"])
    return Finding(**data)


def main(cpu_seconds: int, memory_bytes: int) -> None:
    """Read a pickled Cited from standard input and write its findings to standard output."""
    os.nice(10)
    with suppress(OSError):  # this file doesn't exist on every system
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        cited: Cited = pickle.load(sys.stdin.buffer)  # noqa: S301  # nosec B301 # our own data
        answer = json.dumps([asdict(one) for one in cited.findings()])
    except MemoryError:
        os._exit(NO_MEMORY)
    sys.stdout.write(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
