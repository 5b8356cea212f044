"""The interface to a sandbox: what the gate, constraints and queries call to run a user's code.

A sandbox serves one user. It is opened, loaded with the user's project and asked any number of
questions; each question, and each of several constraints or test files, runs in a fork of the
loaded project of its own, which is gone afterwards. How the sandbox is isolated is the business
of the runner that the setting UAC_SANDBOX_RUNNER names.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from memory.workspace_settings.sandbox_limits import SandboxLimits, process_memory_most

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE

# Path of a workspace constraint → parameter → the collections whose records it gets, as
# `memory.project.shapes.match` returns them.
Bindings = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]

JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may use; what exceeds a limit ends with the outcome named for it."""

    wall_seconds: float = 5.0  # of an evaluation, of each constraint, of each test file
    total_seconds: float = 30.0  # of a whole request: all its constraints or all its test files
    cpu_seconds: int = 5  # of the same unit as wall_seconds
    memory_bytes: int = 256 * MEBIBYTE  # address space, the loaded project included
    stdout_kept_bytes: int = 8 * 1024
    stdout_produced_bytes: int = MEBIBYTE
    result_bytes: int = MEBIBYTE
    result_depth: int = 32
    alerts: int = 100  # of each constraint

    @classmethod
    def of(cls, limits: SandboxLimits, *, alerts: int) -> "Limits":
        """Return what a request may use where these limits hold."""
        return cls(
            wall_seconds=limits.wall_seconds,
            total_seconds=limits.total_seconds,
            cpu_seconds=limits.cpu_seconds,
            memory_bytes=limits.process_memory_mib * MEBIBYTE,
            stdout_produced_bytes=limits.output_kib * KIBIBYTE,
            result_bytes=limits.result_kib * KIBIBYTE,
            result_depth=limits.result_depth,
            alerts=alerts,
        )


DEFAULT_LIMITS = Limits()
# Of files that are compiled, or read back, together: an answer is read in one go in the end. One
# file may be as large as the largest record that a request can hold.
COMPILED_BYTES = 2 * MEBIBYTE
DUMPED_BYTES = MEBIBYTE // 2
COMPILE_LIMITS = Limits(
    wall_seconds=30, cpu_seconds=30, memory_bytes=1024 * MEBIBYTE, result_bytes=24 * MEBIBYTE
)
LOAD_LIMITS = Limits(wall_seconds=30, cpu_seconds=30, memory_bytes=1024 * MEBIBYTE)
DUMP_LIMITS = Limits(
    wall_seconds=30, cpu_seconds=30, memory_bytes=1024 * MEBIBYTE, result_bytes=24 * MEBIBYTE
)

FOREIGN_LIMITS = Limits(
    wall_seconds=10,
    cpu_seconds=10,
    memory_bytes=512 * MEBIBYTE,
    result_bytes=16 * MEBIBYTE,
)


def parts_of(sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """Part files of these sizes so that those of a part have so much together, or are one file."""
    parts: list[list[str]] = [[]]
    room = most
    for path, size in sizes.items():
        if size > room and parts[-1]:
            parts.append([])
            room = most
        parts[-1].append(path)
        room -= size
    return parts


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a sandbox is created with and keeps for its life. A process has nothing of the kind."""

    memory_mib: int = 1024  # swap included
    pids: int = 32
    tmpfs_mib: int = 0  # of a /tmp; without one, nothing can be written

    @classmethod
    def of(cls, limits: SandboxLimits) -> "Shape":
        """Return the shape of the sandboxes in which these limits hold."""
        return cls(memory_mib=limits.memory_mib, pids=limits.pids, tmpfs_mib=limits.tmpfs_mib)

    @property
    def process_memory_bytes(self) -> int:
        """How much memory one of its processes may take."""
        return process_memory_most(self.memory_mib, self.tmpfs_mib) * MEBIBYTE


DEFAULT_SHAPE = Shape()


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What a user's code is given: of a sandbox of this shape, so much for each request.

    With `single_use`, every use has a sandbox of its own.
    """

    limits: Limits = DEFAULT_LIMITS
    shape: Shape = DEFAULT_SHAPE
    single_use: bool = False


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a request printed and consumed."""

    stdout: str = ""  # its tail
    load_seconds: float = 0.0  # of these, what loading took
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # resident, at the peak


@dataclass(frozen=True, kw_only=True)
class UserError:
    """An error in the user's code, in the user's own terms.

    `type` is the exception's class, or an outcome code ("timeout", "out_of_memory" …) when one
    constraint or test file of several exceeded a limit.
    """

    type: str
    message: str
    path: str | None = None  # "constraints/x.py"; "<query>" for a query
    line: int | None = None
    traceback: str = ""  # the user's own frames, at most 4 KB


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The project is resident: `modules` of its domains are loaded, of which `executed` now."""

    modules: int
    executed: int
    usage: Usage


class Evidence(NamedTuple):
    """A record that an alert or an answer rests on."""

    class_name: str
    domain: str
    collection: str
    key: str
    sources: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored and shown."""
        class_name, domain, collection, key, sources = self
        return {
            "class": class_name,
            "domain": domain,
            "collection": collection,
            "key": key,
            "sources": list(sources),
        }


class EvidenceColumns(NamedTuple):
    """Records of one class and collection that an answer rests on: keys, and sources of each."""

    class_name: str
    domain: str
    collection: str
    keys: list[str]
    sources: list[list[int]]

    def to_json(self) -> dict[str, Any]:
        """Return them as they are stored and shown."""
        class_name, domain, collection, keys, sources = self
        return {
            "class": class_name,
            "domain": domain,
            "collection": collection,
            "keys": keys,
            "sources": sources,
        }


@dataclass(frozen=True, kw_only=True)
class RestsOn:
    """What an answer rests on: the records in the "value", those that a comprehension "selected",
    or all that the code "read", of which the first are named, by columns, because there may be
    hundreds; and the collections it reads, as domain, name and number of records."""

    scope: str
    count: int
    records: tuple[EvidenceColumns, ...]
    collections: tuple[tuple[str, str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored and shown."""
        return {
            "scope": self.scope,
            "count": self.count,
            "records": [record.to_json() for record in self.records],
            "collections": [
                {"domain": domain, "collection": name, "count": count}
                for domain, name, count in self.collections
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The value of a query as typed JSON, with the name of its class and what it rests on."""

    value: JsonValue
    type: str
    evidence: RestsOn
    usage: Usage


class FoundAlert(NamedTuple):
    """An alert that a constraint raised."""

    severity: str  # "info", "warning" or "critical"
    message: str
    key: str | None
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, kw_only=True)
class ConstraintResult:
    """What one constraint found. With an error, its alerts are none: a part is no answer.

    Only of one that found too much (alert_limit) they are a few, the gravest first, to be quoted.
    A workspace's was not given the records that lack a value which it needs: `left_out` of them.
    One that ran and takes the moment, not the day, may find another thing some minutes later.
    """

    path: str
    alerts: tuple[FoundAlert, ...]
    error: UserError | None
    seconds: float
    left_out: int = 0
    takes_now: bool = False


@dataclass(frozen=True, kw_only=True)
class ConstraintRun:
    """The results of all constraints asked for, by path; usage is that of all together."""

    results: tuple[ConstraintResult, ...]
    usage: Usage


class ForeseenFinding(NamedTuple):
    """What tells a finding from others: key, records (domain, collection, key), and for want of
    records a hash of its wording."""

    key: str | None
    records: tuple[tuple[str, str, str], ...]
    wording: str


class ForeseenChange(NamedTuple):
    """From a day or a moment on (ISO), a constraint finds these, by their place, each with its
    severity; or it fails with this error."""

    at: str
    error: str | None
    found: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class ConstraintForecast:
    """Where the findings of a constraint change; known until a day or moment, or all along (None).

    With an error, nothing is known.
    """

    path: str
    error: UserError | None
    takes_now: bool = False
    findings: tuple[ForeseenFinding, ...] = ()
    changes: tuple[ForeseenChange, ...] = ()
    until: str | None = None
    calls: int = 0


@dataclass(frozen=True, kw_only=True)
class ForecastRun:
    """What is foreseen of all constraints asked for; usage is that of all together."""

    results: tuple[ConstraintForecast, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """One test ("tests/test_x.py::test_y"), or a file that could not run ("tests/test_x.py").

    `same_evidence` are the messages of two alerts of one check in it that count as one.
    """

    __test__ = False  # not a test case of ours

    name: str
    error: UserError | None
    same_evidence: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """The results of all tests asked for; usage is that of all together."""

    __test__ = False

    results: tuple[TestResult, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class Dump:
    """What the loaded project holds.

    `counts[domain][collection]` counts every collection (a singleton counts 1, under its name);
    `records[path][collection]` are the records, as typed JSON, that the asked state and shard
    files themselves contribute (a singleton is a list of one).
    """

    counts: dict[str, dict[str, int]]
    records: dict[str, dict[str, list[dict[str, Any]]]]
    usage: Usage


class SandboxError(Exception):
    """A request did not succeed.

    `outcome` is one of protocol.OUTCOMES other than "ok"; `error` is set where the user's code is
    at fault; `usage` is what was printed and consumed until then, where known. `infrastructure`
    tells that the sandbox or its machine failed, not the user's code: it did not start, died, was
    too slow or answered nonsense, and the same request may well succeed in another sandbox. The
    sandbox stays usable unless `alive` is False.
    """

    def __init__(
        self,
        outcome: str,
        message: str,
        error: UserError | None = None,
        usage: Usage | None = None,
        *,
        infrastructure: bool = False,
    ) -> None:
        super().__init__(f"{outcome}: {message}")
        self.outcome = outcome
        self.message = message
        self.error = error
        self.usage = usage or Usage()
        self.infrastructure = infrastructure

    def at_start(self, last_words: str) -> "SandboxError":
        """Return the same of a sandbox that did not start: nobody's code is at fault."""
        said = f"; it said: {last_words}" if last_words else ""
        return SandboxError(self.outcome, f"{self.message}{said}", infrastructure=True)


class Sandbox(Protocol):
    """One user's sandbox. Every method raises SandboxError; one thread at a time may use it."""

    runner_name: str  # "process", "docker"
    image_digest: str  # bytecode of this sandbox loads in sandboxes of the same digest

    @property
    def alive(self) -> bool:
        """False once the sandbox broke (killed, protocol error) or was closed: open another one."""
        ...

    @property
    def spent(self) -> bool:
        """Whether user code had to be stopped in it: it may go on, and is not kept afterwards."""
        ...

    def close(self) -> None:
        """Destroy it with everything in it; may be called again."""
        ...

    def compile(
        self, files: Mapping[str, str], *, limits: Limits = COMPILE_LIMITS
    ) -> dict[str, str]:
        """Compile sources by path, executing nothing; return opaque bytecode that load accepts.

        A file that does not compile raises "user_error" with its path and line.
        """
        ...

    def load(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
        limits: Limits = LOAD_LIMITS,
    ) -> Loaded:
        """Make the project resident: everything at first, later only what changed.

        Modules of changed files and what imports them are executed again. When a domain's module
        fails, "user_error" is raised and what was loaded before stays. Constraints and tests run
        only when asked for, so that their errors are found in the results of those calls.
        """
        ...

    def prepare(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
    ) -> None:
        """Have this loaded by the next request that runs something, as `load` does.

        In one go it takes half the time of two. A request that cannot load it raises the error,
        and the next one tries again.
        """
        ...

    @property
    def prepared(self) -> bool:
        """Whether what was prepared is not known to be loaded."""
        ...

    def evaluate(
        self,
        code: str,
        *,
        now: datetime.datetime,
        time_zone: str,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Evaluation:
        """Run an expression or a block whose last statement is the value (else null)."""
        ...

    def run_constraints(
        self,
        paths: Sequence[str] | None = None,
        *,
        now: datetime.datetime,
        time_zone: str,
        bindings: Bindings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ConstraintRun:
        """Run the constraints (all of them by default), each on the project as it was loaded.

        All are those of the project and, after them, those of the workspace for which there are
        bindings: which records each of their parameters gets.
        A constraint that fails, even one that is killed or takes too long, has its error in its
        own result and does not stop the others.
        """
        ...

    def forecast(
        self,
        paths: Sequence[str],
        *,
        now: datetime.datetime,
        until: datetime.datetime,
        time_zone: str,
        bindings: Bindings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ForecastRun:
        """Find where the findings of these constraints change if nothing does but the clock.

        Each is called as often as it takes, but no longer than half of its wall_seconds.
        """
        ...

    def run_tests(
        self,
        paths: Sequence[str] | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> TestRun:
        """Run the tests of these files (all of them by default); failures are in the results.

        Each file runs on the project as it was loaded.
        """
        ...

    def run_foreign(
        self,
        task: str,
        files: Mapping[str, str],
        entries: Sequence[str],
        *,
        now: datetime.datetime,
        time_zone: str,
        limits: Limits = FOREIGN_LIMITS,
    ) -> dict[str, Any]:
        """Execute files that are no project of ours; see `sandbox_image.foreign`.

        The answer is JSON that their code may have forged: whoever asks checks what is in it.
        """
        ...

    def dump(self, paths: Sequence[str] | None = None, *, limits: Limits = DUMP_LIMITS) -> Dump:
        """Read the loaded records back: those of these state and shard files (None: all).

        Ask for files of DUMPED_BYTES at a time: an answer has a million values at the most.
        """
        ...


class Runner(Protocol):
    """A module that starts sandboxes of one kind."""

    def start(self, *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
        """Start a sandbox that was never used; raises SandboxError."""
        ...

    def image_digest(self) -> str:
        """Return the digest of what its sandboxes are made of; raises SandboxError."""
        ...

    def reap(self) -> int:
        """Remove what killed processes left behind, return how many; raises SandboxError."""
        ...
