"""Translation of mem0's filters into our search's: the users, and a condition on their memories.

In a filter, None, "", [] and {} mean "not given", and ids may be integers.
"""

import ast
import json
from collections.abc import Callable, Mapping
from typing import Any

from django.db.models.expressions import RawSQL
from rest_framework.exceptions import ValidationError

from memory.integrations.mem0.errors import CannotBeMapped
from memory.integrations.mem0.memories import APP, FILTERED
from memory.kernel.texts import parse_expression
from memory.recall.search.filters import MAX_DEPTH, METADATA, BadFilter, condition

MAX_QUERY = 4000
USER = "user_id"
ENTITIES = (USER, "agent_id", "run_id", APP)
_APP = f"{METADATA}{APP}"
_NOT_MAPPED: Mapping[str, str] = {
    "categories": "Memories have no categories here; filter by metadata.",
    "expiration_date": "Memories do not expire here.",
    "feedback": "Memories have no feedback here.",
    "memory_ids": "Get memories by their ids one by one: GET /v1/memories/{id}/.",
}


def is_given(value: Any) -> bool:
    """Return whether a client has given this value, or sent it because it sends every field."""
    return value not in (None, "", [], {})


def make_id(value: Any) -> Any:
    """Return an id as text; anything else is returned as it is, to be refused by its type."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def split(
    filters: Mapping[str, Any], also: Mapping[str, Any]
) -> tuple[frozenset[str] | None, dict[str, Any]]:
    """Return the users that the filters name and the remaining conditions.

    None means that they name no user at the top, where a client names one. `also` contains further
    conditions. The result has the form of our search's filters. Raises ValidationError for
    malformed filters, and CannotBeMapped for filters that have no equivalent here.
    """
    rest = dict(filters)
    names = _pop_names(rest)
    if isinstance(parts := rest.get("AND"), list):
        kept = []
        for part in parts:
            if isinstance(part, dict):
                part = dict(part)
                more = _pop_names(part)
                names = more if names is None else names if more is None else names & more
            if part:
                kept.append(part)
        rest["AND"] = kept
    nodes = [one for given in (rest, also) if (one := _translated(given, "filters", 1))]
    return names, nodes[0] if len(nodes) == 1 else {"AND": nodes} if nodes else {}


def _pop_names(conditions: dict[str, Any]) -> frozenset[str] | None:
    """Remove the condition that names users, if there is one, and return the users' ids."""
    value = conditions.get(USER)
    if isinstance(value, dict) and value.keys() <= {"eq", "in"} and len(value) == 1:
        ((operator, value),) = value.items()
    else:
        operator = "in" if isinstance(value, list) else "eq"
    listed = value if operator == "in" and isinstance(value, list) else [value]
    ids = [make_id(one) for one in listed if is_given(one)]
    if "*" in ids or isinstance(value, dict):
        return None  # a condition like any other
    conditions.pop(USER, None)
    if wrong := [one for one in ids if not isinstance(one, str)]:
        raise _wrong(f"filters.user_id: send strings, not {str(wrong[0])[:100]!r}.")
    return frozenset(ids) or None


def names_entity(conditions: Mapping[str, Any]) -> bool:
    """Return whether translated filters name a user, an agent, a run or an app anywhere."""
    return any(
        key in (*ENTITIES, _APP)
        or any(names_entity(one) for one in (value if isinstance(value, list) else [value]))
        for key, value in conditions.items()
        if key in (*ENTITIES, _APP, "AND", "OR", "NOT")
    )


def _is_open(value: Any) -> bool:
    """Return whether a condition on an id is true for any id, or for all but some."""
    return isinstance(value, dict) and ("ne" in value or "" in value.values())


def users_in_question(
    conditions: Mapping[str, Any], find: Callable[[dict[str, Any]], set[int]]
) -> set[int] | None:
    """Return the users that translated filters can match; None if they do not limit the users.

    `find` returns the users that a condition on an id matches.
    """
    users: set[int] | None = None
    for key, value in conditions.items():
        here: set[int] | None = None
        if key in ("AND", "OR"):
            parts = [users_in_question(one, find) for one in value]
            narrowed = [one for one in parts if one is not None]
            if key == "AND" and narrowed:
                here = set.intersection(*narrowed)
            elif len(narrowed) == len(parts):
                here = set().union(*narrowed)
        elif key in (*ENTITIES, _APP) and not _is_open(value):
            here = find({key: value})
        users = here if users is None else users if here is None else users & here
    return users


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


def parse_query(text: str) -> dict[str, Any]:
    """Parse filters from a URL, where mem0's client writes them as a Python literal."""
    try:
        read = _literal(text.strip()) if len(text) <= MAX_QUERY else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise _wrong(f"filters: send an object of at most {MAX_QUERY} characters.")
    return read


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(parse_expression(text))


def _translated(node: Any, path: str, depth: int) -> dict[str, Any]:
    if not isinstance(node, dict):
        raise _wrong(f"{path}: send an object.")
    if depth > MAX_DEPTH:
        raise _wrong(f"{path[:200]}: groups may be nested at most {MAX_DEPTH} levels deep.")
    parts: list[dict[str, Any]] = []
    for key, value in node.items():
        here = f"{path}.{key[:100]}"
        if not is_given(value):
            continue
        if key in _NOT_MAPPED:
            raise CannotBeMapped(f"{here}: {_NOT_MAPPED[key]}")
        if key in ("AND", "OR", "NOT"):
            listed = value if isinstance(value, list) else [value]
            translated = [
                _translated(one, f"{here}[{n}]", depth + 1) for n, one in enumerate(listed)
            ]
            if inner := [one for one in translated if one]:
                parts.append({"NOT": {"OR": inner}} if key == "NOT" else {key: inner})
        elif key == "metadata":
            if not isinstance(value, dict):
                raise _wrong(f"{here}: send an object.")
            parts += [{f"{METADATA}{name}": _operators(one)} for name, one in value.items()]
        elif key in ENTITIES:
            if (entity := _entity(value)) is not None:
                parts.append({_APP if key == APP else key: entity})
        else:
            parts.append({key: _operators(value)})
    return parts[0] if len(parts) == 1 else {"AND": parts} if parts else {}


def _entity(value: Any) -> Any:
    """Return the condition on an id, or None if nothing is given."""
    if isinstance(value, list):
        value = {"in": value}
    if not isinstance(value, dict):
        value = {"eq": value}
    operators = {}
    for operator, given in _operators(value).items():
        if isinstance(given, list):
            given = [make_id(one) for one in given if is_given(one)]
            if "*" in given:
                operator, given = "eq", "*"
        if given == "*":
            operator, given = "contains", ""  # matches any text
        elif not is_given(given):
            continue
        operators[operator] = make_id(given)
    if not operators:
        return None
    return operators["eq"] if operators.keys() == {"eq"} else operators


def _operators(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {{"icontains": "contains"}.get(name, name): one for name, one in value.items()}


def _wrong(message: str) -> ValidationError:
    return ValidationError({"filters": [message]})
