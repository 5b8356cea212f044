"""Whether an `add` says the same as a record that exists, so that the model is asked about it.

Records of one class are compared by the words in the fields that both have, and by their dates.
Only an answer of the model decides; so a likeness that is missed costs a duplicate, and one that is
imagined costs a question.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from memory.project import Record, RecordId
from memory.project.values import EnumMember, PartialDate
from memory.recall.search.words import terms
from workers.authoring.related_records import text_of
from workers.authoring.taken_over import DAY_FIELD, TEXT_FIELDS

# The share of the words, weighted by rarity, that two records must have in common. If their dates
# differ, they must have nearly all in common.
ALIKE, NEARLY_EQUAL = 0.7, 0.95
# A field with at most so many words is a name or label: those of the same thing share a word.
MAX_LABEL = 3
_TIME = re.compile(r"T[0-9:.+-]+$")

Bounds: TypeAlias = tuple[datetime.date, datetime.date]


def find_same(
    fields: Mapping[str, Any], records: Iterable[tuple[RecordId, Record]]
) -> RecordId | None:
    """Return which of these records, of one class, says the same as these fields, if any does.

    Records that are alike except for their dates are those of a journal if there are several: then
    another one is nothing unusual.
    """
    new_words, new_days = _words(fields), _days(fields)
    known = [(record_id, _values(record)) for record_id, record in records]
    words = {record_id: _words(values) for record_id, values in known}
    uses = Counter(word for texts in words.values() for word in {*_all(texts)})
    same: list[tuple[float, RecordId]] = []
    on_other_days: list[RecordId] = []
    for record_id, values in known:
        likeness = _likeness(new_words, words[record_id], uses)
        if _days_differ(new_days, _days(values)):
            on_other_days += [record_id] if likeness >= NEARLY_EQUAL else []
        elif likeness >= ALIKE:
            same.append((likeness, record_id))
    if same:
        return max(same)[1]
    return on_other_days[0] if len(on_other_days) == 1 else None


def _values(record: Record) -> dict[str, str]:
    """Return a record's values as text, without those that are one of a few, or yes or no."""
    return {
        name: text_of(value)
        for name, value in record.fields.items()
        if not isinstance(value, EnumMember | bool)
    }


def _words(fields: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the words in each field with a text, a number or a list of them."""
    return {
        name: {*terms(" ".join(map(str, value)) if isinstance(value, list) else str(value))}
        for name, value in fields.items()
        if value is not None and not isinstance(value, bool) and not _day(value)
    }


def _all(texts: Mapping[str, set[str]]) -> set[str]:
    return set[str]().union(*texts.values())


def _likeness(
    new: Mapping[str, set[str]], old: Mapping[str, set[str]], uses: Mapping[str, int]
) -> float:
    """Return the share of words in common, of the record with fewer of them."""
    names = {name for name in new.keys() & old.keys() if new[name] and old[name]}
    # A whole statement, taken over from an entry, counts only where there is nothing else.
    names = names - {*TEXT_FIELDS} or names
    if any(_are_other_labels(new[name], old[name]) for name in names):
        return 0.0
    ours = _all({name: new[name] for name in names})
    theirs = _all({name: old[name] for name in names})
    shared = ours & theirs
    if not shared or (len(shared) == 1 and ours != theirs):
        return 0.0
    return _weight(shared, uses) / min(_weight(ours, uses), _weight(theirs, uses))


def _are_other_labels(new: set[str], old: set[str]) -> bool:
    """Return whether both are names or labels, of different things."""
    return max(len(new), len(old)) <= MAX_LABEL and new.isdisjoint(old)


def _weight(words: Iterable[str], uses: Mapping[str, int]) -> float:
    """Return the weight of words: the more records have a word, the less it says."""
    return sum(1 / math.sqrt(uses.get(word) or 1) for word in words)


def _days(fields: Mapping[str, Any]) -> dict[str, Bounds]:
    """Return the first and last day of each field with a date, except the day of the entry."""
    found = {name: _day(value) for name, value in fields.items() if name != DAY_FIELD}
    return {name: bounds for name, bounds in found.items() if bounds}


def _day(value: object) -> Bounds | None:
    if not isinstance(value, str):
        return None
    try:
        return PartialDate(_TIME.sub("", value)).bounds
    except ValueError:
        return None


def _days_differ(new: Mapping[str, Bounds], old: Mapping[str, Bounds]) -> bool:
    """Return whether a field's dates exclude each other; a month includes its days."""
    return any(
        new[name][1] < old[name][0] or old[name][1] < new[name][0]
        for name in new.keys() & old.keys()
    )
