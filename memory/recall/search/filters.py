"""Search filters: conditions on entries, written as JSON.

    {"AND": [{"speaker": "Ada"},
             {"occurred_at": {"gte": "2026-03-01", "lt": "2026-04-01"}},
             {"NOT": {"metadata.channel": {"in": ["mail", "chat"]}}}]}

If an object has several keys, all of them must match. A value without an operator means `eq`. If an
entry lacks a condition's key, the condition is true only for `ne`.
"""

import datetime
import json
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL

from memory.models.log import EntryKind

COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
OPERATORS = ("eq", "ne", *COMPARISONS, "in", "contains")
METADATA = "metadata."
MAX_DEPTH = 8
MAX_CONDITIONS = 100
# The maximum total number of values in a filter's lists: all of these values are sent to the
# database again with each group of entries.
MAX_LISTED = 2000
MAX_TEXT = 1000

_GROUPS = {"AND": " AND ", "OR": " OR "}
# Values that `json` accepts but `jsonb` doesn't, such as lone surrogates, are treated as absent.
_PARSED = (
    '(CASE WHEN pg_input_is_valid("memory_logentry"."metadata"::text, \'jsonb\')'
    ' THEN "memory_logentry"."metadata"::jsonb END)'
)
# Metadata is parsed only once per entry, no matter how many conditions use it (OFFSET keeps the
# planner from inlining the expression into each condition).
_HELD = '"parsed"."metadata"'
_ONCE = f'(SELECT %s FROM (SELECT {_PARSED} AS "metadata" OFFSET 0) AS "parsed")'  # noqa: S608  # nosec B608
_TEXT_OPERATORS = ("eq", "ne", "in", "contains")
_ORDERED_OPERATORS = ("eq", "ne", *COMPARISONS, "in")


class BadFilter(ValueError):
    """An invalid filter; the message says where and why it is invalid, and how to fix it."""


@dataclass(frozen=True)
class _Sql:
    text: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Column:
    """The SQL expression on "memory_logentry" that a filter key stands for, and its type."""

    sql: str
    holds: Literal["text", "kind", "number", "time"]


def column(name: str, holds: Literal["text", "kind", "number", "time"] = "text") -> Column:
    """Return the log's column with this name."""
    return Column(f'"memory_logentry"."{name}"', holds)


COLUMNS: Mapping[str, Column] = {
    "kind": column("kind", "kind"),
    **{name: column(name) for name in ("speaker", "role", "agent_id", "session_id", "source")},
    "seq": column("seq", "number"),
    **{name: column(name, "time") for name in ("occurred_at", "recorded_at")},
}
KEYS = (*COLUMNS, f"{METADATA}<name>")


def condition(filters: Any, time_zone: str, columns: Mapping[str, Column] = COLUMNS) -> RawSQL:
    """Return the filter as a condition on a queryset of entries; raises BadFilter if it is invalid.

    Dates are interpreted in `time_zone`, the user's time zone. `columns` defines which keys can be
    used in addition to metadata keys.
    """
    compiler = _Compiler(zoneinfo.ZoneInfo(time_zone), columns)
    compiled = compiler.object(filters, "filters", 1)
    text = _ONCE.replace("%s", compiled.text) if _HELD in compiled.text else compiled.text
    # The SQL consists only of constants; everything the caller sent is passed as a parameter.
    return RawSQL(text, compiled.parameters, BooleanField())  # noqa: S611  # nosec B611


class _Compiler:
    def __init__(self, zone: zoneinfo.ZoneInfo, columns: Mapping[str, Column]) -> None:
        self._zone = zone
        self._columns = columns
        self._conditions = 0
        self._listed = 0

    def object(self, given: Any, place: str, depth: int) -> _Sql:
        if not isinstance(given, dict) or not given:
            raise BadFilter(f"{place}: give an object with at least one key.")
        if depth > MAX_DEPTH:
            raise BadFilter(f"{place[:200]}: groups may be nested at most {MAX_DEPTH} levels deep.")
        return _joined(
            " AND ", [self._key(key, value, place, depth) for key, value in given.items()]
        )

    def _key(self, key: str, value: Any, place: str, depth: int) -> _Sql:
        here = f"{place}.{key[:100]}"
        if key in _GROUPS:
            if not isinstance(value, list) or not value:
                raise BadFilter(f"{here}: give a list of at least one object.")
            parts = [
                self.object(one, f"{here}[{index}]", depth + 1) for index, one in enumerate(value)
            ]
            return _joined(_GROUPS[key], parts)
        if key == "NOT":
            inner = self.object(value, here, depth + 1)
            return _Sql(f"NOT ({inner.text})", inner.parameters)
        if isinstance(value, dict):
            if not value:
                raise BadFilter(f"{here}: give one of the operators {', '.join(OPERATORS)}.")
            return _joined(
                " AND ", [self._leaf(key, name, one, here) for name, one in value.items()]
            )
        return self._leaf(key, "eq", value, here)

    def _leaf(self, key: str, operator: str, value: Any, here: str) -> _Sql:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise BadFilter(f"filters: at most {MAX_CONDITIONS} conditions are allowed.")
        if operator not in OPERATORS:
            raise BadFilter(
                f"{here}: unknown operator {operator[:100]!r}; use one of {', '.join(OPERATORS)}."
            )
        if operator == "in":
            if not isinstance(value, list) or not value:
                raise BadFilter(f"{here}: `in` takes a list of at least one value.")
            self._listed += len(value)
            if self._listed > MAX_LISTED:
                raise BadFilter(
                    f"filters: all `in` lists together may have at most {MAX_LISTED} values."
                )
        if key.startswith(METADATA):
            return _metadata(key.removeprefix(METADATA), operator, value, here)
        if key in self._columns:
            return self._compared(key, operator, value, here)
        keys = ", ".join([*self._columns, f"{METADATA}<name>"])
        raise BadFilter(f"{here}: unknown key {key[:100]!r}; use one of {keys}.")

    def _compared(self, key: str, operator: str, value: Any, here: str) -> _Sql:
        column = self._columns[key]
        read: Callable[[Any, str], Any] = {
            "text": _text,
            "kind": _kind,
            "number": _number,
            "time": self._time,
        }[column.holds]
        allowed = _ORDERED_OPERATORS if column.holds in ("number", "time") else _TEXT_OPERATORS
        if operator not in allowed:
            raise BadFilter(f"{here}: {key} supports {', '.join(allowed)}, not {operator}.")
        if operator == "in":
            return _true(f"{column.sql} = ANY(%s)", [read(one, here) for one in value])
        value = read(value, here)
        if operator == "ne":
            return _Sql(f"{column.sql} IS DISTINCT FROM %s", (value,))
        if operator == "contains":
            return _true(f"strpos(lower({column.sql}), lower(%s)) > 0", value)
        return _true(f"{column.sql} {COMPARISONS.get(operator, '=')} %s", value)

    def _time(self, value: Any, here: str) -> datetime.datetime:
        try:
            if isinstance(value, str) and len(value) == len("2026-01-01"):
                day = datetime.date.fromisoformat(value)
                moment = datetime.datetime.combine(day, datetime.time(), self._zone)
            else:
                moment = datetime.datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return moment.astimezone(datetime.UTC)
        except (ValueError, TypeError, OverflowError):
            pass
        raise BadFilter(
            f"{here}: give a date (2026-03-01), or a date and time with a UTC offset"
            " (2026-03-01T09:00:00+01:00)."
        )


def _joined(word: str, parts: Sequence[_Sql]) -> _Sql:
    return _Sql(
        word.join(f"({part.text})" for part in parts),
        tuple(parameter for part in parts for parameter in part.parameters),
    )


def _metadata(path: str, operator: str, value: Any, here: str) -> _Sql:
    """Compare metadata as JSON: values of different types are never equal, greater or less."""
    names = path.split(".")
    if not all(names):
        raise BadFilter(f"{here}: give a metadata key, such as {METADATA}channel.")
    held = f"({_HELD} #> %s)"
    if operator == "in":
        return _true(f"{held} = ANY(%s::jsonb[])", names, [_json(one, here) for one in value])
    if operator == "contains":
        text = _text(value, here) if isinstance(value, str) else None
        element = _true(
            f"jsonb_typeof({held}) = 'array' AND {held} @> %s::jsonb",
            names,
            names,
            _json(value, here),
        )
        if text is None:
            return element
        part = _true(
            f"jsonb_typeof({held}) = 'string' AND strpos(lower({held} #>> '{{}}'), lower(%s)) > 0",
            names,
            names,
            text,
        )
        return _joined(" OR ", [element, part])
    given = _json(value, here)
    if operator == "ne":
        return _Sql(f"{held} IS DISTINCT FROM %s::jsonb", (names, given))
    if operator == "eq":
        return _true(f"{held} = %s::jsonb", names, given)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadFilter(f"{here}: {operator} compares numbers or strings.")
    return _true(
        f"jsonb_typeof({held}) = jsonb_typeof(%s::jsonb)"
        f" AND {held} {COMPARISONS[operator]} %s::jsonb",
        names,
        given,
        names,
        given,
    )


def _true(text: str, *parameters: Any) -> _Sql:
    """Turn NULL into false, because applying NOT to NULL yields NULL rather than true."""
    return _Sql(f"coalesce({text}, false)", parameters)


def _json(value: Any, here: str) -> str:
    if isinstance(value, Mapping | list) or (isinstance(value, str) and len(value) > MAX_TEXT):
        raise BadFilter(
            f"{here}: give a string of at most {MAX_TEXT} characters, a number, a boolean or null."
        )
    if isinstance(value, str):
        _text(value, here)
    return json.dumps(value, allow_nan=False)


def _text(value: Any, here: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\x00" in value:
        raise BadFilter(f"{here}: give a string of at most {MAX_TEXT} characters.")
    return value


def _kind(value: Any, here: str) -> str:
    if value not in EntryKind.values:
        raise BadFilter(f"{here}: give one of the kinds {', '.join(EntryKind.values)}.")
    return str(value)


def _number(value: Any, here: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**62:
        raise BadFilter(f"{here}: give a whole number.")
    return value
