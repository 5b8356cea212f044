"""Search filters: conditions on entries, written as JSON.

    {"AND": [{"speaker": "Ada"},
             {"occurred_at": {"gte": "2026-03-01", "lt": "2026-04-01"}},
             {"NOT": {"metadata.channel": {"in": ["mail", "chat"]}}}]}

If an object has several keys, all of them must match. A value without an operator means `eq`. If an
entry lacks a condition's key, the condition is true only for `ne`.

A day stands for all of its time in the user's time zone: `lte` includes its evening, `gt` begins
after it, and `eq` matches any time within it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL

from memory.kernel.instants import MOMENT_FORMS, BadMoment, Span, is_day, span_in
from memory.log.models.entries import EntryKind, Trust

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
# A metadata value, but the day of a time, in the user's time zone, instead of the time.
_DAY = (
    """(SELECT CASE WHEN jsonb_typeof("value") <> 'string'"""  # noqa: S608
    r""" OR "text" !~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d' THEN "value" """
    r""" WHEN "text" !~ '(Z|[+-]\d\d(:?\d\d)?)$' THEN to_jsonb(left("text", 10))"""
    """ WHEN NOT pg_input_is_valid("text", 'timestamptz') THEN "value" """
    """ ELSE to_jsonb(to_char("text"::timestamptz AT TIME ZONE %s, 'YYYY-MM-DD')) END"""
    f' FROM (SELECT {_HELD} #> %s AS "value", {_HELD} #>> %s AS "text") AS "found")'  # nosec B608
)
_TEXT_OPERATORS = ("eq", "ne", "in", "contains")
_ORDERED_OPERATORS = ("eq", "ne", *COMPARISONS, "in")


Holds = Literal["text", "kind", "trust", "number", "time"]


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
    holds: Holds


def column(name: str, holds: Holds = "text") -> Column:
    """Return the log's column with this name."""
    return Column(f'"memory_logentry"."{name}"', holds)


COLUMNS: Mapping[str, Column] = {
    "kind": column("kind", "kind"),
    "trust": column("trust", "trust"),
    **{name: column(name) for name in ("speaker", "role", "agent_id", "session_id", "source")},
    "seq": column("seq", "number"),
    **{name: column(name, "time") for name in ("occurred_at", "recorded_at")},
}


def operators_of(column: Column) -> Sequence[str]:
    """Return the operators that a column's values can be compared with."""
    return _ORDERED_OPERATORS if column.holds in ("number", "time") else _TEXT_OPERATORS


KEYS = (*COLUMNS, f"{METADATA}<name>")


def condition(filters: Any, time_zone: str, columns: Mapping[str, Column] = COLUMNS) -> RawSQL:
    """Return the filter as a condition on a queryset of entries; raises BadFilter if it is invalid.

    Days, and times without a UTC offset, are interpreted in `time_zone`, the user's time zone.
    `columns` defines which keys can be used in addition to metadata keys.
    """
    compiler = _Compiler(time_zone, columns)
    compiled = compiler.object(filters, "filters", 1)
    text = _ONCE.replace("%s", compiled.text) if _HELD in compiled.text else compiled.text
    # The SQL consists only of constants; everything the caller sent is passed as a parameter.
    return RawSQL(text, compiled.parameters, BooleanField())  # noqa: S611  # nosec B611


class _Compiler:
    def __init__(self, time_zone: str, columns: Mapping[str, Column]) -> None:
        self._time_zone = time_zone
        self._columns = columns
        self._conditions = 0
        self._listed = 0

    def object(self, given: Any, path: str, depth: int) -> _Sql:
        if not isinstance(given, dict) or not given:
            raise BadFilter(f"{path}: give an object with at least one key.")
        if depth > MAX_DEPTH:
            raise BadFilter(f"{path[:200]}: groups may be nested at most {MAX_DEPTH} levels deep.")
        return _joined(
            " AND ", [self._key(key, value, path, depth) for key, value in given.items()]
        )

    def _key(self, key: str, value: Any, path: str, depth: int) -> _Sql:
        here = f"{path}.{key[:100]}"
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
            return self._metadata(key.removeprefix(METADATA), operator, value, here)
        if key in self._columns:
            return self._compared(key, operator, value, here)
        keys = ", ".join([*self._columns, f"{METADATA}<name>"])
        raise BadFilter(f"{here}: unknown key {key[:100]!r}; use one of {keys}.")

    def _compared(self, key: str, operator: str, value: Any, here: str) -> _Sql:
        column = self._columns[key]
        allowed = operators_of(column)
        if operator not in allowed:
            raise BadFilter(f"{here}: {key} supports {', '.join(allowed)}, not {operator}.")
        if column.holds == "time":
            return self._timed(column.sql, operator, value, here)
        readers: Mapping[str, Callable[[Any, str], Any]] = {
            "text": _text,
            "kind": _kind,
            "trust": _trust,
            "number": _number,
        }
        read = readers[column.holds]
        if operator == "in":
            return _true(f"{column.sql} = ANY(%s)", [read(one, here) for one in value])
        value = read(value, here)
        if operator == "ne":
            return _Sql(f"{column.sql} IS DISTINCT FROM %s", (value,))
        if operator == "contains":
            return _true(f"strpos(lower({column.sql}), lower(%s)) > 0", value)
        return _true(f"{column.sql} {COMPARISONS.get(operator, '=')} %s", value)

    def _timed(self, sql: str, operator: str, value: Any, here: str) -> _Sql:
        if operator == "in":
            spans = [self._span(one, here) for one in value]
            return _true(
                "EXISTS (SELECT 1 FROM unnest(%s::timestamptz[], %s::timestamptz[])"  # noqa: S608
                f' AS "span" ("first", "last") WHERE {sql} BETWEEN "first" AND "last")',  # nosec B608
                [span.first for span in spans],
                [span.last for span in spans],
            )
        span = self._span(value, here)
        if operator in COMPARISONS:
            bound = span.first if operator in ("gte", "lt") else span.last
            return _true(f"{sql} {COMPARISONS[operator]} %s", bound)
        within = _true(f"{sql} BETWEEN %s AND %s", span.first, span.last)
        return _Sql(f"NOT {within.text}", within.parameters) if operator == "ne" else within

    def _span(self, value: Any, here: str) -> Span:
        try:
            return span_in(self._time_zone, value if isinstance(value, str) else "")
        except BadMoment:
            raise BadFilter(f"{here}: {MOMENT_FORMS}") from None

    def _metadata(self, path: str, operator: str, value: Any, here: str) -> _Sql:
        """Compare metadata as JSON: values of different types are never equal, greater or less.

        A time compared with a day counts as the day on which it was in the user's time zone.
        """
        names = path.split(".")
        if not all(names):
            raise BadFilter(f"{here}: give a metadata key, such as {METADATA}channel.")
        if operator == "contains":
            return _contains(names, value, here)
        held = _Sql(f"({_HELD} #> %s)", (names,))
        day = _Sql(_DAY, (self._time_zone, names, names))
        if operator == "in":
            days = [one for one in value if _is_day(one)]
            among = [_any_of(held, value, here), *([_any_of(day, days, here)] if days else [])]
            return _joined(" OR ", among)
        if _is_day(value):
            held = day
        given = _json(value, here)
        if operator in ("eq", "ne"):
            equal = _true(f"{held.text} = %s::jsonb", *held.parameters, given)
            return _Sql(f"NOT {equal.text}", equal.parameters) if operator == "ne" else equal
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise BadFilter(f"{here}: {operator} compares numbers or strings.")
        return _true(
            f"jsonb_typeof({_HELD} #> %s) = jsonb_typeof(%s::jsonb)"
            f" AND {held.text} {COMPARISONS[operator]} %s::jsonb",
            names,
            given,
            *held.parameters,
            given,
        )


def _joined(word: str, parts: Sequence[_Sql]) -> _Sql:
    return _Sql(
        word.join(f"({part.text})" for part in parts),
        tuple(parameter for part in parts for parameter in part.parameters),
    )


def _is_day(value: Any) -> bool:
    return isinstance(value, str) and is_day(value)


def _any_of(held: _Sql, values: Sequence[Any], here: str) -> _Sql:
    listed = [_json(one, here) for one in values]
    return _true(f"{held.text} = ANY(%s::jsonb[])", *held.parameters, listed)


def _contains(names: list[str], value: Any, here: str) -> _Sql:
    held = f"({_HELD} #> %s)"
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


def _trust(value: Any, here: str) -> str:
    if value not in Trust.values:
        raise BadFilter(f"{here}: give one of the classes {', '.join(Trust.values)}.")
    return str(value)


def _number(value: Any, here: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**62:
        raise BadFilter(f"{here}: give a whole number.")
    return value
