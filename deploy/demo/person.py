"""The sample person: half a year of their life as log entries, and questions about it.

The entries are in `life`, one a line. Their dates are relative to the day on which the person is
loaded, so that the alerts are the same whichever day that is: `{date:+45}` is 45 days later, as
2026-05-02, and `{day:+45}` is the same as 2 May 2026.
"""

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "Maya Lindqvist"
USER_ID = "maya.lindqvist"
TIME_ZONE = "Europe/Berlin"
PROJECT = Path(__file__).parent / "project"
LIFE = Path(__file__).parent / "life"
_DATE = re.compile(r"\{(date|day):([+-]\d+)\}")
# Session ids of the two conversations. Without a real language model, recorded responses to these
# conversations are replayed (`recorded_model`).
LEASE = "pottery-lease"
WORKSHOP = "pottery-workshop"

# Each question, and the code that answers it from the state.
QUESTIONS = {
    "What has Maya spent on groceries, in euros?": """\
cents = sum(e.amount_cents for e in expenses if e.category == 'groceries')
Decimal(cents) / 100""",
    "How many nights away, by country, including the booked trip?": """\
nights = Counter()
for trip in trips:
    nights[trip.country] += (trip.returns_on - trip.departs_on).days
dict(nights)""",
    "What did each trip cost per night, in whole cents (expenses joined with trips)?": """\
cents = Counter()
for expense in expenses:
    if expense.trip:
        cents[expense.trip] += expense.amount_cents
{t.key: cents[t.key] // (t.returns_on - t.departs_on).days for t in trips if t.key in cents}""",
}
# Each search shares no word with the entry that it has to find; that entry begins with these words.
SEARCHES = {
    "Which medicine does she take?": "Medication amoxicillin",
    "Is there a vacation in Asia?": "Trip bangkok",
    "Is she an aunt?": "My sister Elin had her baby",
}

Entry = dict[str, Any]


@dataclass(frozen=True)
class Constraint:
    """A constraint in the person's project, with its tests."""

    name: str
    source: str
    tests: str


@dataclass(frozen=True)
class Life:
    """The person's log: several months of entries and a conversation, followed by new entries.

    `lease` and `workshop` are conversations made up of plain messages.
    """

    months: list[Entry]
    lease: list[Entry]
    prescription: Entry
    booking: Entry
    workshop: list[Entry]


def constraints() -> list[Constraint]:
    """Return the constraints for the sample person's project."""
    return [
        Constraint(
            name=path.stem,
            source=path.read_text(),
            tests=(PROJECT / "tests" / f"test_{path.stem}.py").read_text(),
        )
        for path in sorted((PROJECT / "constraints").glob("*.py"))
    ]


def life(loaded_on: datetime.date) -> Life:
    """Return the person's log for the six months before `loaded_on`."""
    (prescription,), (booking,) = (
        _entries("prescription", loaded_on),
        _entries("booking", loaded_on),
    )
    return Life(
        months=_entries("months", loaded_on),
        lease=_entries("lease", loaded_on),
        prescription=prescription,
        booking=booking,
        workshop=_entries("workshop", loaded_on),
    )


def _entries(stage: str, loaded_on: datetime.date) -> list[Entry]:
    """Return the entries of a stage of the story, with their dates filled in."""
    text = _DATE.sub(
        lambda match: _date(match[1], loaded_on + datetime.timedelta(days=int(match[2]))),
        (LIFE / f"{stage}.jsonl").read_text(encoding="utf-8"),
    )
    return [json.loads(line) for line in text.splitlines()]


def _date(form: str, day: datetime.date) -> str:
    return str(day) if form == "date" else f"{day.day} {day:%B %Y}"


def is_logged_by_demo(idempotency_key: str | None) -> bool:
    """Return whether the demo logged the entry with this idempotency key."""
    return idempotency_key is not None and idempotency_key.startswith("demo-")


def described(entry: Mapping[str, Any]) -> str:
    """Return a log entry as one line of text."""
    day = str(entry["occurred_at"])[:10]
    if entry["kind"] != "record":
        return f"{day}  {entry['content']}"
    record = entry["data"]
    return f"{day}  {record['type']} {record['key']}: {fields_in_words(record['data'])}"


def fields_in_words(fields: Mapping[str, Any]) -> str:
    """Return a record's fields as one line of text."""
    return ", ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
