"""What a search may be narrowed by: conditions over entries, written as JSON.

    {"AND": [{"speaker": "Ada"},
             {"occurred_at": {"gte": "2026-03-01", "lt": "2026-04-01"}},
             {"NOT": {"metadata.channel": {"in": ["mail", "chat"]}}}]}

An object with several keys means all of them. A value without an operator means `eq`. Of what an
entry does not have, only `ne` is true.
"""

import datetime
import json
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL

from memory.models.log import EntryKind

COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
OPERATORS = ("eq", "ne", *COMPARISONS, "in", "contains")
TEXTS = ("kind", "speaker", "role", "agent_id", "session_id", "source")
TIMES = ("occurred_at", "recorded_at")
METADATA = "metadata."
KEYS = (*TEXTS, "seq", *TIMES, f"{METADATA}<name>")

MAX_DEPTH = 8
MAX_CONDITIONS = 100
MAX_LISTED = 1000
MAX_TEXT = 1000

_GROUPS = {"AND": " AND ", "OR": " OR "}
# What `json` keeps and `jsonb` cannot hold, such as half a character, is as if it were not there.
_HELD = (
    '(CASE WHEN pg_input_is_valid("memory_logentry"."metadata"::text, \'jsonb\')'
    ' THEN "memory_logentry"."metadata"::jsonb END)'
)
_TEXT_OPERATORS = ("eq", "ne", "in", "contains")
_ORDERED_OPERATORS = ("eq", "ne", *COMPARISONS, "in")


class BadFilter(ValueError):
    """A filter that cannot be meant; the message names the place, the fault and what is right."""


@dataclass(frozen=True)
class _Sql:
    text: str
    parameters: tuple[Any, ...] = ()


def condition(filters: Any, time_zone: str) -> RawSQL:
    """Return what a query set of entries is filtered by; raises BadFilter.

    Days are the user's, in this time zone.
    """
    compiler = _Compiler(zoneinfo.ZoneInfo(time_zone))
    compiled = compiler.object(filters, "filters", 1)
    # Made of constants alone; whatever the caller sent is a parameter.
    return RawSQL(compiled.text, compiled.parameters, BooleanField())  # noqa: S611


class _Compiler:
    def __init__(self, zone: zoneinfo.ZoneInfo) -> None:
        self._zone = zone
        self._conditions = 0

    def object(self, given: Any, place: str, depth: int) -> _Sql:
        if not isinstance(given, dict) or not given:
            raise BadFilter(f"{place}: give an object with at least one key.")
        if depth > MAX_DEPTH:
            raise BadFilter(f"{place[:200]}: groups may be {MAX_DEPTH} deep at most.")
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
            raise BadFilter(f"filters: there may be {MAX_CONDITIONS} conditions at most.")
        if operator not in OPERATORS:
            raise BadFilter(
                f"{here}: unknown operator {operator[:100]!r}; there are {', '.join(OPERATORS)}."
            )
        if operator == "in" and not (isinstance(value, list) and 1 <= len(value) <= MAX_LISTED):
            raise BadFilter(f"{here}: `in` takes a list of 1 to {MAX_LISTED} values.")
        if key.startswith(METADATA):
            return _metadata(key.removeprefix(METADATA), operator, value, here)
        if key in TEXTS:
            return _column(
                key, operator, value, here, _TEXT_OPERATORS, _kind if key == "kind" else _text
            )
        if key == "seq":
            return _column(key, operator, value, here, _ORDERED_OPERATORS, _number)
        if key in TIMES:
            return _column(key, operator, value, here, _ORDERED_OPERATORS, self._time)
        raise BadFilter(f"{here}: unknown key {key[:100]!r}; there are {', '.join(KEYS)}.")

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
            f"{here}: give a day (2026-03-01), or a moment with its offset"
            " (2026-03-01T09:00:00+01:00)."
        )


def _joined(word: str, parts: Sequence[_Sql]) -> _Sql:
    return _Sql(
        word.join(f"({part.text})" for part in parts),
        tuple(parameter for part in parts for parameter in part.parameters),
    )


def _column(
    key: str, operator: str, value: Any, here: str, allowed: Sequence[str], read: Any
) -> _Sql:
    if operator not in allowed:
        raise BadFilter(f"{here}: {key} takes {', '.join(allowed)}, not {operator}.")
    column = f'"memory_logentry"."{key}"'
    if operator == "in":
        return _true(f"{column} = ANY(%s)", [read(one, here) for one in value])
    value = read(value, here)
    if operator == "ne":
        return _Sql(f"{column} IS DISTINCT FROM %s", (value,))
    if operator == "contains":
        return _true(f"strpos(lower({column}), lower(%s)) > 0", value)
    return _true(f"{column} {COMPARISONS.get(operator, '=')} %s", value)


def _metadata(path: str, operator: str, value: Any, here: str) -> _Sql:
    """Compare as JSON: what has another type is neither equal, nor more, nor less."""
    names = path.split(".")
    if not all(names):
        raise BadFilter(f"{here}: name a key of the metadata, such as {METADATA}channel.")
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
        raise BadFilter(f"{here}: {operator} compares numbers or texts.")
    return _true(
        f"jsonb_typeof({held}) = jsonb_typeof(%s::jsonb)"
        f" AND {held} {COMPARISONS[operator]} %s::jsonb",
        names,
        given,
        names,
        given,
    )


def _true(text: str, *parameters: Any) -> _Sql:
    """Of what is missing SQL says neither true nor false, which NOT would leave so."""
    return _Sql(f"coalesce({text}, false)", parameters)


def _json(value: Any, here: str) -> str:
    if isinstance(value, Mapping | list) or (isinstance(value, str) and len(value) > MAX_TEXT):
        raise BadFilter(
            f"{here}: give a text of {MAX_TEXT} characters at most, a number, a boolean or null."
        )
    if isinstance(value, str):
        _text(value, here)
    return json.dumps(value, allow_nan=False)


def _text(value: Any, here: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\x00" in value:
        raise BadFilter(f"{here}: give a text of {MAX_TEXT} characters at most.")
    return value


def _kind(value: Any, here: str) -> str:
    if value not in EntryKind.values:
        raise BadFilter(f"{here}: the kinds are {', '.join(EntryKind.values)}.")
    return str(value)


def _number(value: Any, here: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**62:
        raise BadFilter(f"{here}: give a whole number.")
    return value
