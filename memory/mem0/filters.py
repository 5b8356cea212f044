"""Translation of mem0's filters into our search's: the user, and a condition."""

import ast
from collections.abc import Mapping
from typing import Any

from django.db.models.expressions import RawSQL
from rest_framework.exceptions import ValidationError

from memory.mem0.errors import CannotBeMapped
from memory.mem0.memories import APP, FILTERED
from memory.recall.search.filters import MAX_DEPTH, METADATA, BadFilter, condition
from memory.texts import parse_expression

MAX_QUERY = 4000
USER = "user_id"
ONE_USER = (
    "Every memory belongs to one user: send filters.user_id as a string, at the top level or in a"
    " top-level AND; make one request per user."
)
_ENTITIES = ("agent_id", "run_id", APP)
_NOT_MAPPED: Mapping[str, str] = {
    "categories": "Memories have no categories here; filter by metadata.",
    "expiration_date": "Memories do not expire here.",
    "feedback": "Memories have no feedback here.",
    "memory_ids": "Get memories by their ids one by one: GET /v1/memories/{id}/.",
    USER: ONE_USER,
}


def split(filters: Mapping[str, Any], also: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the user named by the filters (None if there is none) and the remaining conditions.

    `also` contains further conditions to combine with the remaining ones. The result has the form
    of our search's filters. Raises ValidationError for malformed filters, and CannotBeMapped for
    filters that have no equivalent here.
    """
    rest = dict(filters)
    named = [rest.pop(USER)] if USER in rest else []
    if isinstance(parts := rest.get("AND"), list):
        kept = []
        for part in parts:
            if isinstance(part, dict) and USER in part:
                part = dict(part)
                named.append(part.pop(USER))
                if not part:
                    continue
            kept.append(part)
        rest["AND"] = kept
        if parts and not kept:
            del rest["AND"]
    names = {_user(value) for value in named}
    if len(names) > 1:
        raise CannotBeMapped(ONE_USER)
    asked = [_translated(one, "filters", 1) for one in (rest, also) if one]
    return next(iter(names), None), asked[0] if len(asked) == 1 else {"AND": asked} if asked else {}


def compiled(filters: dict[str, Any], time_zone: str) -> RawSQL | None:
    """Return the condition for translated filters, or None if there are none.

    Raises ValidationError for filters that our search rejects.
    """
    if not filters:
        return None
    try:
        return condition(filters, time_zone, FILTERED)
    except BadFilter as error:
        raise _wrong(str(error)) from None


def from_query(text: str) -> dict[str, Any]:
    """Parse filters from a URL, where mem0's client writes them as a Python literal."""
    try:
        read = ast.literal_eval(parse_expression(text.strip())) if len(text) <= MAX_QUERY else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise _wrong(f"filters: send an object of at most {MAX_QUERY} characters.")
    return read


def _user(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        ((operator, value),) = value.items()
        if operator == "in" and isinstance(value, list) and len(value) == 1:
            (value,) = value
        elif operator != "eq":
            raise CannotBeMapped(ONE_USER)
    if not isinstance(value, str):
        raise _wrong("filters.user_id: send a string.")
    if value == "*":
        raise CannotBeMapped(ONE_USER)
    return value


def _translated(node: Any, place: str, depth: int) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise _wrong(f"{place}: send an object.")
    if depth > MAX_DEPTH:
        raise _wrong(f"{place[:200]}: groups may be nested at most {MAX_DEPTH} levels deep.")
    parts: list[dict[str, Any]] = []
    for key, value in node.items():
        here = f"{place}.{key[:100]}"
        if key in _NOT_MAPPED:
            raise CannotBeMapped(f"{here}: {_NOT_MAPPED[key]}")
        if key in ("AND", "OR", "NOT"):
            listed = value if isinstance(value, list) else [value]
            inner = [_translated(one, f"{here}[{n}]", depth + 1) for n, one in enumerate(listed)]
            parts.append({"NOT": {"OR": inner}} if key == "NOT" else {key: inner})
        elif key == "metadata":
            if not isinstance(value, dict):
                raise _wrong(f"{here}: send an object.")
            parts += [{f"{METADATA}{name}": _operators(one)} for name, one in value.items()]
        elif key == APP:
            parts.append({f"{METADATA}{APP}": {"gte": ""} if value == "*" else _operators(value)})
        elif key in _ENTITIES and value == "*":
            parts.append({key: {"contains": ""}})  # matches any text
        else:
            parts.append({key: _operators(value)})
    return parts[0] if len(parts) == 1 else {"AND": parts} if parts else {}


def _operators(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {{"icontains": "contains"}.get(name, name): one for name, one in value.items()}


def _wrong(message: str) -> ValidationError:
    return ValidationError({"filters": [message]})
