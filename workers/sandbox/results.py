"""Arguments and results of requests to a sandbox, and the errors that end a request."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from memory.project.errors import RunError

JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None

# Maps a workspace constraint's path and then each of its parameters to the collections whose
# records are passed as that parameter, as returned by `memory.project.shapes.match`.
Bindings = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Output and resource usage of a request."""

    stdout: str = ""  # only the end of the output
    load_seconds: float = 0.0  # the part of `seconds` that loading took
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # peak resident set size


class SandboxError(Exception):
    """A request to a sandbox failed.

    `outcome` is one of protocol.OUTCOMES other than "ok"; `error` is set if the user's code is to
    blame; `usage` is the output printed and the resources used before the failure, if known.
    `infrastructure` is set if the sandbox or its machine failed, not the user's code: the sandbox
    did not start, died, was too slow or sent an invalid response. The same request may then succeed
    in another sandbox. The sandbox stays usable unless its `alive` is False.
    """

    def __init__(
        self,
        outcome: str,
        message: str,
        error: RunError | None = None,
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

    @property
    def run_error(self) -> RunError:
        """The error of a run that this request was part of."""
        if self.error is not None:
            return self.error
        return RunError(type=self.outcome, message=self.message, infrastructure=self.infrastructure)

    @classmethod
    def unavailable(cls, message: str) -> "SandboxError":
        """Return the error for a sandbox that cannot be used, whatever the user's code is."""
        return cls("killed", message, infrastructure=True)

    def at_start(self, last_words: str) -> "SandboxError":
        """Return this error for a sandbox that didn't start: user code can't be the cause."""
        suffix = f"; it said: {last_words}" if last_words else ""
        return SandboxError(self.outcome, f"{self.message}{suffix}", infrastructure=True)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A resident project: how many domain `modules` it has, and how many the load `executed`."""

    modules: int
    executed: int
    usage: Usage


class Evidence(NamedTuple):
    """A record that is part of the evidence for an alert or an answer."""

    class_name: str
    domain: str
    collection: str
    key: str
    sources: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return this evidence as JSON, in the form that is stored and shown."""
        class_name, domain, collection, key, sources = self
        return {
            "class": class_name,
            "domain": domain,
            "collection": collection,
            "key": key,
            "sources": list(sources),
        }


class EvidenceColumns(NamedTuple):
    """Evidence from one class and collection: how many records, and the first ones as two columns.

    The columns are the records' keys and sources.
    """

    class_name: str
    domain: str
    collection: str
    total: int
    keys: list[str]
    sources: list[list[int]]

    def to_json(self) -> dict[str, Any]:
        """Return this evidence as JSON, in the form that is stored and shown."""
        class_name, domain, collection, total, keys, sources = self
        return {
            "class": class_name,
            "domain": domain,
            "collection": collection,
            "count": total,
            "keys": keys,
            "sources": sources,
        }


@dataclass(frozen=True)
class NamedRecords:
    """`count` records of a collection; `keys` names the first."""

    domain: str
    collection: str
    count: int
    keys: list[str]


@dataclass(frozen=True)
class SetAside(NamedRecords):
    """A field that code read, with values set aside in these records."""

    field: str


@dataclass(frozen=True, kw_only=True)
class RestsOn:
    """The evidence for an answer: records, and the collections that the code read.

    `scope` says which records these are: those contained in the "value", those "selected" by a
    comprehension, or all those "read" by the code. `count` is the number of these records; there
    may be hundreds, so `records` names only the first few, as columns. Each collection is given as
    its domain, name and number of records. `set_aside` are the fields that the code reads of these
    records and that hold no value in some of them, because the value didn't fit. `lapsed` are the
    records of these collections that had lapsed, unless the code got these as well.
    """

    scope: str
    count: int
    records: tuple[EvidenceColumns, ...]
    collections: tuple[tuple[str, str, int], ...]
    set_aside: tuple[SetAside, ...]
    lapsed: tuple[NamedRecords, ...]

    def to_json(self) -> dict[str, Any]:
        """Return this evidence as JSON, in the form that is stored and shown."""
        return {
            "scope": self.scope,
            "count": self.count,
            "records": [record.to_json() for record in self.records],
            "collections": [
                {"domain": domain, "collection": name, "count": count}
                for domain, name, count in self.collections
            ],
            "set_aside": [asdict(one) for one in self.set_aside],
            "lapsed": [asdict(one) for one in self.lapsed],
        }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A query's value as typed JSON, with the name of the value's class and the evidence for it.

    `ties` says of each choice in the code which elements it left out that are just as good.
    """

    value: JsonValue
    type: str
    evidence: RestsOn
    ties: tuple[str, ...]
    usage: Usage


class FoundAlert(NamedTuple):
    """An alert that a constraint raised."""

    severity: str  # "info", "warning" or "critical"
    message: str
    key: str | None
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, kw_only=True)
class ConstraintResult:
    """The alerts that one constraint raised, or the error it failed with.

    A failed constraint has no alerts, since results are never partial. The exception is a
    constraint that exceeded its alert limit: a few of its alerts are kept, most severe first, so
    that they can be quoted. `left_out` is the number of records that a workspace constraint was not
    given because they lack a value that it needs. `takes_now` is set if the constraint takes the
    current time instead of the current day as its argument, so that its findings may differ a few
    minutes later.
    """

    path: str
    alerts: tuple[FoundAlert, ...]
    error: RunError | None
    seconds: float
    left_out: int = 0
    takes_now: bool = False


@dataclass(frozen=True, kw_only=True)
class ConstraintRun:
    """Results of the requested constraints; `usage` is the total for all of them."""

    results: tuple[ConstraintResult, ...]
    usage: Usage


class ForeseenFinding(NamedTuple):
    """A finding's identity: its key, plus its records or, if it has none, a hash of its message.

    Each record is given as (domain, collection, key).
    """

    key: str | None
    records: tuple[tuple[str, str, str], ...]
    wording: str


class ForeseenChange(NamedTuple):
    """A constraint's findings from `at` (an ISO date or timestamp) onward.

    Each item in `findings` pairs the index of one of the forecast's findings with the severity of
    that finding. If the constraint fails from then on, `error` is the error that it raises.
    """

    at: str
    error: str | None
    findings: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class ConstraintForecast:
    """The times at which a constraint's findings will change.

    The changes are known up to `until`, or for all time if that is None. If `error` is set, no
    changes are known.
    """

    path: str
    error: RunError | None
    takes_now: bool = False
    findings: tuple[ForeseenFinding, ...] = ()
    changes: tuple[ForeseenChange, ...] = ()
    until: str | None = None
    calls: int = 0


@dataclass(frozen=True, kw_only=True)
class ForecastRun:
    """Forecasts for the requested constraints; `usage` is the total for all of them."""

    results: tuple[ConstraintForecast, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """The result of a test, or of a test file that could not run.

    `name` is "tests/test_x.py::test_y" for a test, "tests/test_x.py" for a file. `same_evidence`
    holds the messages of two alerts from the same constraint in the test that count as one because
    they have the same evidence.
    """

    __test__ = False  # keep pytest from collecting this class

    name: str
    error: RunError | None
    same_evidence: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """Results of the requested tests; `usage` is the total for all of them."""

    __test__ = False

    results: tuple[TestResult, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class Dump:
    """The content of the loaded project.

    `counts[domain][collection]` is the number of records in each collection (1 for a singleton,
    which is listed under its own name). `records[path][collection]` contains, as typed JSON, the
    records that the requested state or shard file at `path` itself contributes (a one-item list for
    a singleton).
    """

    counts: dict[str, dict[str, int]]
    records: dict[str, dict[str, list[dict[str, Any]]]]
    usage: Usage
