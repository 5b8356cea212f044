"""Edits that take over facts by reference, so that the model need not write the same text twice.

`"from": 12` in an edit cites entry 12. The text becomes a note's text, or goes into the field
`details` (or `text`) of a new record, and the day on which it was said into `said_on`, if the class
has such a field and the edit doesn't set it. `{"from": 12}` as a value stands for the text itself,
`{"from": [12, 13]}` for the texts one after the other.
"""

import datetime
import zoneinfo
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from memory.project import Add, Note, Outline
from memory.project.types import format_type
from memory.project.values import Value

# Fields of a new record that hold the text and the day of the facts that it is made from.
TEXT_FIELDS = ("details", "text")
DAY_FIELD = "said_on"

NO_DRAFTS: Mapping[int, LogEntry] = MappingProxyType({})


def take_over(
    data: Mapping[str, Any],
    user: MemoryUser,
    outline: Outline,
    drafts: Mapping[int, LogEntry] = NO_DRAFTS,
) -> dict[str, Any]:
    """Return the edit with texts, day and sources in place of its references, if it has any.

    `drafts` are facts, by number, that are not in the log yet.
    """
    cited = _numbers(data.get("from"))
    inside = set(_inside({name: value for name, value in data.items() if name != "from"}))
    if not cited and not inside:
        return dict(data)
    entries = LogEntry.objects.filter(user=user, seq__in={*cited, *inside}, redacted_at=None)
    by_seq = {**drafts, **{entry.seq: entry for entry in entries}}
    texts = {seq: entry.content or "" for seq, entry in by_seq.items()}
    edit = {name: _filled(value, texts) for name, value in data.items() if name != "from"}
    sources = edit.get("sources", [])
    if isinstance(sources, list) and all(type(seq) is int for seq in sources):
        edit["sources"] = sorted({*sources, *cited, *inside})
    text = " ".join(texts[seq] for seq in cited if seq in texts)
    if not text:
        return edit
    if edit.get("op") == Note.op:
        edit.setdefault("text", text)
    elif edit.get("op") == Add.op and isinstance(edit.get("fields", {}), dict):
        zone = zoneinfo.ZoneInfo(user.time_zone)
        days = [by_seq[seq].occurred_at.astimezone(zone).date() for seq in cited if seq in by_seq]
        edit["fields"] = {**_defaults(edit, outline, text, max(days)), **edit.get("fields", {})}
    return edit


def _defaults(
    edit: Mapping[str, Any], outline: Outline, text: str, day: datetime.date
) -> dict[str, Any]:
    """Return values for the fields of the edit's class that hold a fact's text and day."""
    domain = outline.domains.get(str(edit.get("domain")))
    class_ = domain.classes.get(str(edit.get("class_name"))) if domain else None
    if class_ is None:
        return {}
    types = {field.name: format_type(field.type).partition(" | None")[0] for field in class_.fields}
    holder = next((name for name in TEXT_FIELDS if types.get(name) == "str"), None)
    values = {holder: text} if holder else {}
    if types.get(DAY_FIELD) == "datetime.date":
        values[DAY_FIELD] = day.isoformat()
    return values


def _numbers(cited: object) -> list[int]:
    numbers = cited if isinstance(cited, list) else [cited]
    return [seq for seq in numbers if type(seq) is int]


def refer(value: Value, shown: Mapping[str, int]) -> dict[str, int | list[int]] | None:
    """Return a text as a reference to the entries with these texts that it consists of, if any."""
    seqs: list[int] = []
    rest = value if isinstance(value, str) else ""
    while rest:
        text = max((one for one in shown if f"{rest} ".startswith(f"{one} ")), key=len, default="")
        if not text:
            return None
        seqs.append(shown[text])
        rest = rest[len(text) + 1 :]
    return {"from": seqs if len(seqs) > 1 else seqs[0]} if seqs else None


def _is_reference(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"from"}
        and (numbers := value["from"])
        and all(type(seq) is int for seq in (numbers if isinstance(numbers, list) else [numbers]))
    )


def _inside(value: Any) -> Iterator[int]:
    """Yield the numbers of the entries that values refer to."""
    if _is_reference(value):
        yield from _numbers(value["from"])
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inside(item)


def _filled(value: Any, texts: Mapping[int, str]) -> Any:
    if _is_reference(value):
        return " ".join(texts[seq] for seq in _numbers(value["from"]) if seq in texts)
    if isinstance(value, dict):
        return {name: _filled(item, texts) for name, item in value.items()}
    return [_filled(item, texts) for item in value] if isinstance(value, list) else value
