"""The interface to a sandbox, by which the gate, constraints and queries run a user's code.

A sandbox serves one user. It is opened, loaded with the user's project and asked any number of
questions; each question, and each of several constraints or test files, runs in its own fork of the
loaded project, which is discarded afterwards. The runner named by the setting UAC_SANDBOX_RUNNER
decides how the sandbox is isolated.
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
    """Limits of one request; exceeding a limit ends it with the outcome named for that limit."""

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
        """Return the limits of a request under these settings."""
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
# Size of the files compiled, or read back, per request, since an answer is read in one go. One file
# may be as large as the largest record that a request can hold.
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
    """Split files into parts of at most `most` bytes each; a larger file is a part of its own."""
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
    """Properties that a sandbox keeps for life; sandboxes that are processes have none."""

    memory_mib: int = 1024  # swap included
    pids: int = 32
    tmpfs_mib: int = 0  # size of a /tmp; without one, nothing can be written

    @classmethod
    def of(cls, limits: SandboxLimits) -> "Shape":
        """Return the shape of sandboxes under these settings."""
        return cls(memory_mib=limits.memory_mib, pids=limits.pids, tmpfs_mib=limits.tmpfs_mib)

    @property
    def process_memory_bytes(self) -> int:
        """Return the memory limit of one process in the sandbox, in bytes."""
        return process_memory_most(self.memory_mib, self.tmpfs_mib) * MEBIBYTE


DEFAULT_SHAPE = Shape()


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What a user's code may use: limits for each request, and the shape of its sandbox.

    With `single_use`, every use gets a fresh sandbox.
    """

    limits: Limits = DEFAULT_LIMITS
    shape: Shape = DEFAULT_SHAPE
    single_use: bool = False


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Output and resource usage of a request."""

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
    """A resident project: `modules` of its domains are loaded, of which `executed` just now."""

    modules: int
    executed: int
    usage: Usage


class Evidence(NamedTuple):
    """A record in the evidence of an alert or an answer."""

    class_name: str
    domain: str
    collection: str
    key: str
    sources: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored and shown."""
        class_name, domain, collection, key, sources = self
        return {
            "class": class_name,
            "domain": domain,
            "collection": collection,
            "key": key,
            "sources": list(sources),
        }


class EvidenceColumns(NamedTuple):
    """Evidence of one class and collection, by columns: keys, and the sources of each."""

    class_name: str
    domain: str
    collection: str
    keys: list[str]
    sources: list[list[int]]

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored and shown."""
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
    """The evidence for an answer: its records and the collections that it reads.

    `scope` tells which records: those in the "value", those that a comprehension "selected", or all
    that the code "read". There may be hundreds, so only the first are named, by columns. Each
    collection is given as domain, name and number of records.
    """

    scope: str
    count: int
    records: tuple[EvidenceColumns, ...]
    collections: tuple[tuple[str, str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored and shown."""
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
    """The value of a query as typed JSON, with the name of its class and its evidence."""

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
    """The result of one constraint. With an error it has no alerts: a partial result is none.

    The exception is a constraint that exceeded its alert limit: it keeps a few alerts, most severe
    first, to be quoted. `left_out` counts the records that a workspace constraint was not given
    because they lack a value that it needs. A constraint that takes the moment (`takes_now`), not
    the day, may have different findings some minutes later.
    """

    path: str
    alerts: tuple[FoundAlert, ...]
    error: UserError | None
    seconds: float
    left_out: int = 0
    takes_now: bool = False


@dataclass(frozen=True, kw_only=True)
class ConstraintRun:
    """Results of the requested constraints, by path; the usage is their total."""

    results: tuple[ConstraintResult, ...]
    usage: Usage


class ForeseenFinding(NamedTuple):
    """The identity of a finding: key, records, and a hash of the wording if there are no records.

    Each record is (domain, collection, key).
    """

    key: str | None
    records: tuple[tuple[str, str, str], ...]
    wording: str


class ForeseenChange(NamedTuple):
    """The findings of a constraint from a day or moment (ISO) on.

    Each is an index into the forecast's findings, with its severity; or `error` is what it fails
    with.
    """

    at: str
    error: str | None
    found: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class ConstraintForecast:
    """When the findings of a constraint change; known until a day or moment, or for good (None).

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
    """Forecasts of the requested constraints; the usage is their total."""

    results: tuple[ConstraintForecast, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """The result of a test ("tests/test_x.py::test_y"), or of a file that could not run.

    The name of the latter is "tests/test_x.py". `same_evidence` are the messages of two alerts of
    one constraint in the test that count as one.
    """

    __test__ = False  # not a test case of ours

    name: str
    error: UserError | None
    same_evidence: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """Results of the requested tests; the usage is their total."""

    __test__ = False

    results: tuple[TestResult, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class Dump:
    """The content of the loaded project.

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
        """Return an error of a sandbox that did not start: nobody's code is at fault."""
        said = f"; it said: {last_words}" if last_words else ""
        return SandboxError(self.outcome, f"{self.message}{said}", infrastructure=True)


class Sandbox(Protocol):
    """A sandbox of one user. Every method raises SandboxError; one thread at a time may use it."""

    runner_name: str  # "process", "docker"
    image_digest: str  # bytecode of this sandbox loads in sandboxes of the same digest

    @property
    def alive(self) -> bool:
        """False once the sandbox broke (killed, protocol error) or was closed: open another one."""
        ...

    @property
    def spent(self) -> bool:
        """True if user code had to be stopped: the sandbox may go on, but is not kept."""
        ...

    def close(self) -> None:
        """Destroy the sandbox with everything in it; may be called again."""
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

        Changed files, and modules that import them, are executed again. When a domain's module
        fails, "user_error" is raised and the earlier content stays. Constraints and tests run only
        when asked for, so that their errors are found in the results of those calls.
        """
        ...

    def prepare(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
    ) -> None:
        """Have the next request that runs something load this first, as `load` does.

        One combined request takes half the time of two. A request that cannot load it raises the
        error, and the next one tries again.
        """
        ...

    @property
    def prepared(self) -> bool:
        """True if what was prepared is not known to be loaded."""
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

        The default is those of the project and, after them, those of the workspace that have
        bindings: which records each of their parameters gets. A constraint that fails, even one
        that is killed or takes too long, has its error in its own result and does not stop the
        others.
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
        """Find where the findings of these constraints change if nothing changes but the clock.

        Each is called as often as needed, but for no longer than half of its wall_seconds.
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
        """Execute files of a foreign project; see `sandbox_image.foreign`.

        The answer is JSON that their code may have forged: the caller must check its content.
        """
        ...

    def dump(self, paths: Sequence[str] | None = None, *, limits: Limits = DUMP_LIMITS) -> Dump:
        """Read the loaded records back: those of these state and shard files (None: all).

        Ask for files of DUMPED_BYTES at a time: an answer has at most a million values.
        """
        ...


class Runner(Protocol):
    """A module that starts sandboxes of one kind."""

    def start(self, *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
        """Start a fresh sandbox; raise SandboxError."""
        ...

    def image_digest(self) -> str:
        """Return the digest of what its sandboxes are made of; raise SandboxError."""
        ...

    def reap(self) -> int:
        """Remove what killed processes left behind, and return how many; raise SandboxError."""
        ...
