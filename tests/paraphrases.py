"""Questions about ten invented people, and the entries that answer them.

`paraphrases.txt` contains records and messages of ten invented people, and a question about each of
these entries, which should share no word with its answer.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory.log.models.entries import EntryKind, LogEntry

TEXT = Path(__file__).with_suffix(".txt")
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
_RECORD = re.compile(r"(?P<domain>\w+) (?P<type>\w+) (?P<fields>.+)")


@dataclass(frozen=True)
class Person:
    """A person's entries, and a question about each of them."""

    name: str
    entries: Sequence[LogEntry]
    questions: Sequence[str]


def read_people(text: str) -> list[Person]:
    """Parse the people, their entries (each dated to a day of its own) and their questions."""
    people = []
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.strip().splitlines()
        told = [line for line in lines if line]
        entries = list(_entries(told[::2]))
        people.append(Person(name, entries, [line.removeprefix("? ") for line in told[1::2]]))
    return people


def _entries(lines: Sequence[str]) -> Iterator[LogEntry]:
    for seq, line in enumerate(lines, 1):
        at = NOON + seq * DAY
        if line.startswith("> "):
            yield LogEntry(
                seq=seq, kind=EntryKind.MESSAGE, content=line[2:], role="user", occurred_at=at
            )
            continue
        if (match := _RECORD.fullmatch(line)) is None:
            raise ValueError(f"neither a message nor a record: {line}")
        fields = dict(field.split("=", 1) for field in match["fields"].split("; "))
        data = {"domain": match["domain"], "type": match["type"], "data": fields}
        yield LogEntry(seq=seq, kind=EntryKind.RECORD, data=data, occurred_at=at)
