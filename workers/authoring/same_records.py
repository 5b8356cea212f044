"""Whether an `add` says the same as a record that exists.

Records of one class are compared by the words in the fields that both have, and by their dates.
About one that is equal or alike the model is asked, since what happened twice may have been told in
the same words: a likeness that is missed costs a duplicate, and one that is imagined costs a call.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from memory.project import Record, RecordId
from memory.project.values import EnumMember, PartialDate, Value
from memory.recall.search.words import terms
from workers.authoring.related_records import text_of
from workers.authoring.taken_over import DAY_FIELD, TEXT_FIELDS

# The share of the words, weighted by rarity, that two records must have in common: of the one with
# fewer words, and of the other one. If their dates differ, they must have nearly all in common.
ALIKE, ALIKE_LONGER, NEARLY_EQUAL = 0.7, 0.5, 0.95
# A field with at most so many words is a name or label: those of the same thing share a word.
MAX_LABEL = 3
_TIME = re.compile(r"T[0-9:.+-]+$")
_YEAR = re.compile(r"\d{4}")

Bounds: TypeAlias = tuple[datetime.date, datetime.date]


class Candidates:
    """The records of a class with which new ones are compared."""

    def __init__(self, records: Iterable[tuple[RecordId, Record]]) -> None:
        self._records = dict(records)
        values = [one.fields.items() for one in self._records.values()]
        # In these fields, four digits are a year.
        self._date_fields = {name for of_one in values for name, value in of_one if _is_date(value)}
        texts = {record_id: _texts(record) for record_id, record in self._records.items()}
        self._words = {record_id: self._words_in(of_one) for record_id, of_one in texts.items()}
        self._days = {record_id: self._days_in(of_one) for record_id, of_one in texts.items()}
        self._uses = Counter(word for words in self._words.values() for word in {*_all(words)})

    def find_alike(self, fields: Mapping[str, Any]) -> RecordId | None:
        """Return the record that says the same as these fields, if any does.

        Records that are alike except for their dates are those of a journal if there are several:
        then another one is nothing unusual.
        """
        words, days = self._words_in(fields), self._days_in(fields)
        same: list[tuple[float, RecordId]] = []
        on_other_days: list[RecordId] = []
        for record_id in self._records:
            likeness = self._likeness(words, self._words[record_id])
            if _days_differ(days, self._days[record_id]):
                on_other_days += [record_id] if likeness >= NEARLY_EQUAL else []
            elif likeness >= ALIKE:
                same.append((likeness, record_id))
        if same:
            return max(same)[1]
        return on_other_days[0] if len(on_other_days) == 1 else None

    def _words_in(self, fields: Mapping[str, Any]) -> dict[str, set[str]]:
        """Return the words in each field with a text, a number or a list of them."""
        return {
            name: {*terms(" ".join(map(str, value)) if isinstance(value, list) else str(value))}
            for name, value in fields.items()
            if value is not None and not isinstance(value, bool) and not self._day(name, value)
        }

    def _days_in(self, fields: Mapping[str, Any]) -> dict[str, Bounds]:
        """Return the first and last day of each field with a date, except the day of the entry."""
        found = {
            name: self._day(name, value) for name, value in fields.items() if name != DAY_FIELD
        }
        return {name: bounds for name, bounds in found.items() if bounds}

    def _day(self, name: str, value: object) -> Bounds | None:
        if not isinstance(value, str):
            return None
        if _YEAR.fullmatch(value) and name not in self._date_fields:
            return None
        try:
            return PartialDate(_TIME.sub("", value)).bounds
        except ValueError:
            return None

    def _likeness(self, new: Mapping[str, set[str]], old: Mapping[str, set[str]]) -> float:
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
        weight, *both = map(self._weight, (shared, ours, theirs))
        return weight / min(both) if weight >= ALIKE_LONGER * max(both) else 0.0

    def _weight(self, words: Iterable[str]) -> float:
        """Return the weight of words: the more records have a word, the less it says."""
        return sum(1 / math.sqrt(self._uses.get(word) or 1) for word in words)


def _is_date(value: Value) -> bool:
    return isinstance(value, datetime.date | PartialDate)


def _texts(record: Record) -> dict[str, str]:
    """Return a record's values as text, without those that are one of a few, or yes or no."""
    return {
        name: text_of(value)
        for name, value in record.fields.items()
        if value is not None and not isinstance(value, EnumMember | bool)
    }


def _all(texts: Mapping[str, set[str]]) -> set[str]:
    return set[str]().union(*texts.values())


def _are_other_labels(new: set[str], old: set[str]) -> bool:
    """Return whether both are names or labels, of different things."""
    return max(len(new), len(old)) <= MAX_LABEL and new.isdisjoint(old)


def _days_differ(new: Mapping[str, Bounds], old: Mapping[str, Bounds]) -> bool:
    """Return whether a field's dates exclude each other; a month includes its days."""
    return any(
        new[name][1] < old[name][0] or old[name][1] < new[name][0]
        for name in new.keys() & old.keys()
    )
