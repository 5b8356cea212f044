"""Parse the responses from a sandbox; raise ProtocolError if a field is invalid."""

import datetime
from types import NoneType
from typing import Any, TypeVar

from memory.project.errors import RunError
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
    NamedRecords,
    RestsOn,
    SetAside,
    Usage,
)

Value = TypeVar("Value")


def take_field(value: dict[str, Any], name: str, kind: type[Value]) -> Value:
    """Return a response's field `name`, whose type must be exactly `kind`."""
    item = value.get(name)
    if type(item) is not kind:
        raise ProtocolError(f"{name} is not a {kind.__name__}")
    return item


def read_pair(value: Any) -> tuple[str, str] | None:
    """Return the value as a pair of strings, or None if the value is null."""
    if value is None:
        return None
    if not (isinstance(value, list) and [type(item) for item in value] == [str, str]):
        raise ProtocolError("not a pair of strings")
    return value[0], value[1]


def take_objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a response's field `name`, which must be a list of objects."""
    items: list[Any] = take_field(value, name, list)
    if not all(isinstance(item, dict) for item in items):
        raise ProtocolError(f"{name} is not a list of objects")
    return items


def _number(value: dict[str, Any], name: str) -> float:
    number = value.get(name)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ProtocolError(f"{name} is not a number")
    if not 0 <= number <= protocol.MAX_INTEGER:  # also rejects infinity and NaN
        raise ProtocolError(f"{name} is not a number from 0 to {protocol.MAX_INTEGER}")
    return float(number)


def take_integer(value: dict[str, Any], name: str) -> int:
    """Return a response's field `name`, which must be a non-negative integer."""
    number = take_field(value, name, int)
    if not 0 <= number <= protocol.MAX_INTEGER:
        raise ProtocolError(f"{name} is not an integer from 0 to {protocol.MAX_INTEGER}")
    return number


def read_usage(answer: dict[str, Any]) -> Usage:
    """Return the resources used by a request, and the output that it printed."""
    return Usage(
        stdout=take_field(answer, "stdout", str),
        load_seconds=_number(answer, "load_seconds"),
        seconds=_number(answer, "seconds"),
        cpu_seconds=_number(answer, "cpu_seconds"),
        memory_bytes=take_integer(answer, "memory_bytes"),
    )


def read_error(value: Any) -> RunError | None:
    """Return the error raised by the user's code, or None if there was no error."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ProtocolError("error is not an object")
    return RunError(
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
        raise ProtocolError("the changes are missing or out of order")
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
        raise ProtocolError("a finding has neither a key nor records")
    if not all(
        isinstance(record, list) and [*map(type, record)] == [str, str, str] for record in records
    ):
        raise ProtocolError("a finding has invalid records")
    return ForeseenFinding(key, tuple(map(tuple, records)), take_field(value, "wording", str))


def _foreseen_change(value: dict[str, Any], findings: int) -> ForeseenChange:
    error: Any = value.get("error")
    if type(error) not in (str, NoneType):
        raise ProtocolError("error is not a str")
    pairs = []
    for one in take_field(value, "found", list):
        if not isinstance(one, list) or [*map(type, one)] != [int, str]:
            raise ProtocolError("not a list of findings")
        if not 0 <= one[0] < findings or one[1] not in protocol.SEVERITIES:
            raise ProtocolError("the finding does not exist, or the severity is invalid")
        pairs.append((one[0], one[1]))
    return ForeseenChange(_moment(take_field(value, "at", str)), error, tuple(pairs))


def _is_earlier(one: str, other: str) -> bool:
    """Return whether `one` is before `other`; False if one is a date and the other a timestamp."""
    if (len(one) == len("2026-01-01")) != (len(other) == len("2026-01-01")):
        return False
    return datetime.datetime.fromisoformat(one) < datetime.datetime.fromisoformat(other)


def _moment(text: str) -> str:
    """Return the text; raise ProtocolError unless it is an ISO date or an ISO timestamp in UTC."""
    try:
        if len(text) == len("2026-01-01"):
            datetime.date.fromisoformat(text)
        elif datetime.datetime.fromisoformat(text).utcoffset() != datetime.timedelta():
            raise ProtocolError("a timestamp is not in UTC")
    except ValueError:
        raise ProtocolError("neither a date nor a timestamp") from None
    return text


def _alert(value: dict[str, Any]) -> FoundAlert:
    severity, message, key = value.get("severity"), value.get("message"), value.get("key")
    if severity not in protocol.SEVERITIES:
        raise ProtocolError("no severity")
    if type(message) is not str or type(key) not in (str, NoneType):
        raise ProtocolError("message or key is not a str")
    evidence = tuple(map(_evidence, take_objects(value, "evidence")))
    if not evidence and not key:
        raise ProtocolError("an alert has neither evidence nor a key")
    return FoundAlert(severity, message, key, evidence)


def read_rests_on(value: dict[str, Any]) -> RestsOn:
    """Return the records and collections that are the evidence for a query's answer."""
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
    if scope not in protocol.SCOPES or count < sum(one.total for one in records):
        raise ProtocolError("the scope is invalid, or the counts do not add up")
    return RestsOn(
        scope=scope,
        count=count,
        records=records,
        collections=tuple(collections),
        set_aside=tuple(
            SetAside(*_named(one), field=take_field(one, "field", str))
            for one in take_objects(value, "set_aside")
        ),
        lapsed=tuple(NamedRecords(*_named(one)) for one in take_objects(value, "lapsed")),
    )


def _named(value: dict[str, Any]) -> tuple[str, str, int, list[str]]:
    """Return the domain, the collection, and the number and first keys of records in it."""
    keys = take_field(value, "keys", list)
    count = take_integer(value, "count")
    if len(keys) > count or not all(type(key) is str for key in keys):
        raise ProtocolError("keys are not all str, or more than are counted")
    domain, collection = take_field(value, "domain", str), take_field(value, "collection", str)
    return domain, collection, count, keys


def _columns(value: dict[str, Any]) -> EvidenceColumns:
    keys, sources = take_field(value, "keys", list), take_field(value, "sources", list)
    if len(keys) != len(sources) or not all(type(key) is str for key in keys):
        raise ProtocolError("keys are not all str, or do not match the sources in number")
    if not all(map(protocol.are_sources, sources)):
        raise ProtocolError("sources are not entry numbers, or there are too many")
    class_name, domain = take_field(value, "class", str), take_field(value, "domain", str)
    collection, total = take_field(value, "collection", str), take_integer(value, "count")
    if total < len(keys):
        raise ProtocolError("more records are named than counted")
    return EvidenceColumns(class_name, domain, collection, total, keys, sources)


def _evidence(value: dict[str, Any]) -> Evidence:
    # Build the Evidence tuple by position rather than by keyword, which is faster: a request may be
    # waiting for thousands of records to be parsed.
    texts: list[Any] = [value.get(name) for name in ("class", "domain", "collection", "key")]
    if not all(type(text) is str for text in texts):
        raise ProtocolError("class, domain, collection or key is not a str")
    sources: Any = value.get("sources")
    if not protocol.are_sources(sources):
        raise ProtocolError("sources are not entry numbers, or there are too many")
    return Evidence._make([*texts, tuple(sources)])
