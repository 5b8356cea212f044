"""Results of requests to a sandbox, and the errors of user code."""

from dataclasses import dataclass
from typing import Any, NamedTuple

JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Output and resource usage of a request."""

    stdout: str = ""  # its tail
    load_seconds: float = 0.0  # the part of `seconds` that loading took
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # peak resident size


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
    """A resident project: how many domain `modules` it has, and how many were `executed` now."""

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

    `scope` says which records: those in the "value", those that a comprehension "selected", or all
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
    """The result of one constraint. If it has an error, it has no alerts: no result is partial.

    The exception is a constraint that exceeded its alert limit: it keeps a few alerts, most severe
    first, to be quoted. `left_out` is the number of records that a workspace constraint was not
    given because they lack a value that it needs. A constraint that takes the moment instead of the
    day (`takes_now`) may have different findings some minutes later.
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

    Each is an index into the forecast's findings, with its severity. If the constraint fails,
    `error` is what it fails with.
    """

    at: str
    error: str | None
    found: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class ConstraintForecast:
    """The times at which a constraint's findings change.

    They are known up to `until`, or forever if that is None. With an `error`, nothing is known.
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

    __test__ = False  # not a test case for pytest

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
    `records[path][collection]` are the records, as typed JSON, that the requested state and shard
    files themselves contribute (a singleton is a list of one).
    """

    counts: dict[str, dict[str, int]]
    records: dict[str, dict[str, list[dict[str, Any]]]]
    usage: Usage
