"""Questions about invented people in thirteen languages, and the entries that answer them.

`paraphrases.txt` contains records and messages of invented people, and a question about each of
these entries, which should share no word with its answer. Ten of them speak English. Each of the
others speaks another language, and has the entries and questions of one of those, translated.
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
_TITLE = re.compile(r"(?P<name>[^(]+?)(?: \((?P<language>\w+), as (?P<original>.+)\))?")
_RECORD = re.compile(r"(?P<domain>\w+) (?P<type>\w+) (?P<fields>.+)")


@dataclass(frozen=True)
class Person:
    """A person's entries, and a question about each of them.

    `original` names the person whose entries and questions are translated here, if any.
    """

    name: str
    entries: Sequence[LogEntry]
    questions: Sequence[str]
    language: str = "en"
    original: str | None = None


def read_people(text: str) -> list[Person]:
    """Parse the people, their entries (each dated to a day of its own) and their questions."""
    people = []
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        title, *lines = part.strip().splitlines()
        if (match := _TITLE.fullmatch(title)) is None:
            raise ValueError(f"not a person: {title}")
        told = [line for line in lines if line]
        entries = list(_entries(told[::2]))
        questions = [line.removeprefix("? ") for line in told[1::2]]
        language = match["language"] or "en"
        people.append(Person(match["name"], entries, questions, language, match["original"]))
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
