"""Read a sandbox's answers; raise ProtocolError for an invalid field."""

import datetime
from types import NoneType
from typing import Any, TypeVar

from sandbox_image.uac import protocol
from sandbox_image.uac.protocol import ProtocolError
from workers.sandbox.results import (
    ConstraintForecast,
    ConstraintResult,
    Evidence,
    EvidenceColumns,
    ForeseenChange,
    ForeseenFinding,
    FoundAlert,
    RestsOn,
    Usage,
    UserError,
)

Value = TypeVar("Value")


def take_field(value: dict[str, Any], name: str, kind: type[Value]) -> Value:
    """Return a field of an answer, which must be of exactly this type."""
    found = value.get(name)
    if type(found) is not kind:
        raise ProtocolError(f"{name} is not a {kind.__name__}")
    return found


def read_pair(value: Any) -> tuple[str, str] | None:
    """Return a pair of texts, or None."""
    if value is None:
        return None
    if not (isinstance(value, list) and [type(item) for item in value] == [str, str]):
        raise ProtocolError("not a pair of texts")
    return value[0], value[1]


def take_objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a field of an answer, which must be a list of objects."""
    found: list[Any] = take_field(value, name, list)
    if not all(isinstance(item, dict) for item in found):
        raise ProtocolError(f"{name} is not a list of objects")
    return found


def _number(value: dict[str, Any], name: str) -> float:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ProtocolError(f"{name} is not a number")
    if not 0 <= found <= protocol.MAX_INTEGER:  # false for numbers that are not finite
        raise ProtocolError(f"{name} is not a number from 0 to {protocol.MAX_INTEGER}")
    return float(found)


def take_integer(value: dict[str, Any], name: str) -> int:
    """Return a field of an answer, which must be a non-negative integer."""
    found = take_field(value, name, int)
    if not 0 <= found <= protocol.MAX_INTEGER:
        raise ProtocolError(f"{name} is not an integer from 0 to {protocol.MAX_INTEGER}")
    return found


def read_usage(answer: dict[str, Any]) -> Usage:
    """Return what a request used and printed."""
    return Usage(
        stdout=take_field(answer, "stdout", str),
        load_seconds=_number(answer, "load_seconds"),
        seconds=_number(answer, "seconds"),
        cpu_seconds=_number(answer, "cpu_seconds"),
        memory_bytes=take_integer(answer, "memory_bytes"),
    )


def read_error(value: Any) -> UserError | None:
    """Return the error of user code, or None."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ProtocolError("error is not an object")
    return UserError(
        type=take_field(value, "type", str),
        message=take_field(value, "message", str),
        path=None if value.get("path") is None else take_field(value, "path", str),
        line=None if value.get("line") is None else take_integer(value, "line"),
        traceback=take_field(value, "traceback", str),
    )


def read_constraint_result(value: dict[str, Any]) -> ConstraintResult:
    """Return the result of one constraint."""
    return ConstraintResult(
        path=take_field(value, "path", str),
        alerts=tuple(_alert(alert) for alert in take_objects(value, "alerts")),
        error=read_error(value.get("error")),
        seconds=_number(value, "seconds"),
        left_out=take_integer(value, "left_out"),
        takes_now=take_field(value, "takes_now", bool),
    )


def read_forecast(value: dict[str, Any]) -> ConstraintForecast:
    """Return the forecast of one constraint."""
    path, error = take_field(value, "path", str), read_error(value.get("error"))
    if error is not None:
        return ConstraintForecast(path=path, error=error)
    findings = tuple(map(_foreseen_finding, take_objects(value, "findings")))
    changes = tuple(_foreseen_change(one, len(findings)) for one in take_objects(value, "changes"))
    moments = [one.at for one in changes]
    until = None if value.get("until") is None else _moment(take_field(value, "until", str))
    if not moments or not all(map(_is_earlier, moments, moments[1:])):
        raise ProtocolError("changes that are out of order, or none")
    return ConstraintForecast(
        path=path,
        error=None,
        takes_now=take_field(value, "takes_now", bool),
        findings=findings,
        changes=changes,
        until=until,
        calls=take_integer(value, "calls"),
    )


def _foreseen_finding(value: dict[str, Any]) -> ForeseenFinding:
    key: Any = value.get("key")
    records: list[Any] = take_field(value, "records", list)
    if type(key) not in (str, NoneType) or not (records or key):
        raise ProtocolError("a finding without key and records")
    if not all(
        isinstance(record, list) and [*map(type, record)] == [str, str, str] for record in records
    ):
        raise ProtocolError("a finding with invalid records")
    return ForeseenFinding(key, tuple(map(tuple, records)), take_field(value, "wording", str))


def _foreseen_change(value: dict[str, Any], findings: int) -> ForeseenChange:
    error: Any = value.get("error")
    if type(error) not in (str, NoneType):
        raise ProtocolError("error is not a str")
    found = []
    for one in take_field(value, "found", list):
        if not isinstance(one, list) or [*map(type, one)] != [int, str]:
            raise ProtocolError("not a list of findings")
        if not 0 <= one[0] < findings or one[1] not in protocol.SEVERITIES:
            raise ProtocolError("no such finding, or no severity")
        found.append((one[0], one[1]))
    return ForeseenChange(_moment(take_field(value, "at", str)), error, tuple(found))


def _is_earlier(one: str, other: str) -> bool:
    """Return whether one day or moment is before another; False if only one of them is a day."""
    if (len(one) == len("2026-01-01")) != (len(other) == len("2026-01-01")):
        return False
    return datetime.datetime.fromisoformat(one) < datetime.datetime.fromisoformat(other)


def _moment(text: str) -> str:
    """Return the text; raise ProtocolError unless it is a day, or a moment in UTC (ISO)."""
    try:
        if len(text) == len("2026-01-01"):
            datetime.date.fromisoformat(text)
        elif datetime.datetime.fromisoformat(text).utcoffset() != datetime.timedelta():
            raise ProtocolError("a moment that is not in UTC")
    except ValueError:
        raise ProtocolError("no moment") from None
    return text


def _alert(value: dict[str, Any]) -> FoundAlert:
    severity, message, key = value.get("severity"), value.get("message"), value.get("key")
    if severity not in protocol.SEVERITIES:
        raise ProtocolError("no severity")
    if type(message) is not str or type(key) not in (str, NoneType):
        raise ProtocolError("message or key is not a str")
    evidence = tuple(map(_evidence, take_objects(value, "evidence")))
    if not evidence and not key:
        raise ProtocolError("an alert without evidence and key")
    return FoundAlert(severity, message, key, evidence)


def read_rests_on(value: dict[str, Any]) -> RestsOn:
    """Return the records and collections that are the evidence for an answer."""
    records = tuple(map(_columns, take_objects(value, "records")))
    collections = [
        (
            take_field(one, "domain", str),
            take_field(one, "collection", str),
            take_integer(one, "count"),
        )
        for one in take_objects(value, "collections")
    ]
    scope, count = take_field(value, "scope", str), take_integer(value, "count")
    if scope not in protocol.SCOPES or count < sum(len(one.keys) for one in records):
        raise ProtocolError("no scope, or fewer records than are named")
    return RestsOn(scope=scope, count=count, records=records, collections=tuple(collections))


def _columns(value: dict[str, Any]) -> EvidenceColumns:
    keys, sources = take_field(value, "keys", list), take_field(value, "sources", list)
    if len(keys) != len(sources) or not all(type(key) is str for key in keys):
        raise ProtocolError("keys are not str, or not as many as sources")
    if not all(map(protocol.are_sources, sources)):
        raise ProtocolError("sources are not entry numbers, or too many")
    class_name, domain = take_field(value, "class", str), take_field(value, "domain", str)
    collection = take_field(value, "collection", str)
    return EvidenceColumns(class_name, domain, collection, keys, sources)


def _evidence(value: dict[str, Any]) -> Evidence:
    # There may be thousands, and a request waits for them, so fields are read by position.
    texts: list[Any] = [value.get(name) for name in ("class", "domain", "collection", "key")]
    if not all(type(text) is str for text in texts):
        raise ProtocolError("class, domain, collection or key is not a str")
    sources: Any = value.get("sources")
    if not protocol.are_sources(sources):
        raise ProtocolError("sources are not entry numbers, or too many")
    return Evidence._make([*texts, tuple(sources)])
