"""Documents to index for each log entry, and the text to display for it."""

import datetime
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from memory.log.models.entries import EntryKind, LogEntry
from memory.project.names import DEFAULT_DOMAIN, key_of_entry, spaced
from memory.recall.search.passages import cut
from memory.recall.search.segments import SPEAKER_PREFIX, Document
from memory.recall.search.words import (
    characters_of,
    identity,
    terms,
    terms_by_language,
    terms_of_day,
)


class CorpusName(StrEnum):
    """The corpora: groups of entries that are ranked together."""

    FACTS = "facts"
    ARCHIVE = "archive"


CORPUS_OF = {
    **dict.fromkeys((EntryKind.FACT, EntryKind.CORRECTION, EntryKind.RECORD), CorpusName.FACTS),
    EntryKind.MESSAGE: CorpusName.ARCHIVE,
}
_NAME = re.compile(r"\w+")
# Matches values that may be another record's key. Numbers and times are never keys, and a key that
# contains spaces is found by its words.
_KEY = re.compile(r"(?![0-9T:.+-]{1,200}\Z)\S{1,200}")
# Entries with one of these roles or none (such as facts and records) are by or about the user;
# entries with any other role are answers.
OWN_ROLES = ("user", "", None)
# The numbers that identify the corpora in an index.
NUMBERS = {CorpusName.ARCHIVE: 0, CorpusName.FACTS: 1}

# The columns that the functions below read.
READ = (
    *("seq", "kind", "occurred_at", "session_id", "speaker", "role"),
    *("content", "data", "redacted_at", "user_id"),
)


def text_of(entry: LogEntry) -> str:
    """Return an entry's text; for a typed record, this is its class, key and fields."""
    if entry.kind != EntryKind.RECORD:
        return entry.content or ""
    data = entry.data or {}
    name = " ".join(str(data[part]) for part in ("type", "key") if part in data)
    if data.get("retired"):
        return f"{name}: retired"
    fields = "; ".join(
        f"{field}: {', '.join(_plain(value))}" for field, value in data.get("data", {}).items()
    )
    return f"{name}: {fields}"


def key_of(entry: LogEntry) -> str:
    """Return the key of a typed entry's record, or the key that was probably generated for it."""
    data = entry.data or {}
    return str(data.get("key") or key_of_entry(data["type"], entry.seq))


def class_mark(domain: str, name: str) -> str:
    """Return the index mark for a class's records; its prefix can't be the start of a term."""
    return f"%{domain}.{name}"


def value_mark(value: str) -> str:
    """Return the index mark for records that contain this value, possibly another record's key."""
    return f"={value}"


def documents_of(entry: LogEntry, zone: ZoneInfo) -> Iterator[Document]:
    """Yield an entry's documents to index, one per passage; some kinds of entries have none."""
    corpus = CORPUS_OF.get(EntryKind(entry.kind))
    if corpus is None or entry.redacted_at is not None:
        return
    day = day_of(entry.occurred_at, zone)
    names = terms(entry.speaker or "")
    marks = {*(SPEAKER_PREFIX + name for name in names), *_marks_of(entry)}
    session = _session(entry, day)
    for start, end, text in passages_of(entry):
        own_terms, other_terms = terms_by_language(text)
        counts = Counter([*own_terms, *names, *terms_of_day(day)])
        alternatives = {*other_terms, *characters_of(text)} - counts.keys()
        yield Document(
            seq=entry.seq,
            corpus=NUMBERS[corpus],
            session=session,
            terms={identity(term): count for term, count in counts.items()},
            marks=[identity(mark) for mark in marks | alternatives],
            start=start,
            end=end,
            is_users=entry.role in OWN_ROLES,
            text=text,
        )


def passages_of(entry: LogEntry) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and text of each passage in an entry.

    For typed records, each passage repeats the class and the domain, because these identify what
    the record is. Compound names are also split into words: `drugClass` is about drugs.
    """
    text = text_of(entry)
    data = (entry.data or {}) if entry.kind == EntryKind.RECORD else {}
    about = [str(data[part]) for part in ("type", "domain") if part in data]
    for start, end in cut(text):
        content = text[start:end]
        if entry.kind == EntryKind.RECORD:
            content = _NAME.sub(_taken_apart, " ".join([*about, content]))
        yield start, end, content


def _marks_of(entry: LogEntry) -> Iterator[str]:
    """Yield a typed record's marks: its class, and values that may be other records' keys."""
    if entry.kind == EntryKind.RECORD and (data := entry.data):
        yield class_mark(data.get("domain", DEFAULT_DOMAIN), str(data.get("type")))
        yield from map(value_mark, filter(_KEY.fullmatch, _texts(data.get("data"))))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() | list():
            for inner in value.values() if isinstance(value, dict) else value:
                yield from _texts(inner)


def _taken_apart(name: re.Match[str]) -> str:
    words = spaced(name[0])
    return name[0] if words == name[0] else f"{name[0]} {words}"


def day_of(moment: datetime.datetime, zone: ZoneInfo) -> datetime.date:
    """Return a datetime's date in the given zone or, at the calendar's limits, in its own zone."""
    try:
        return moment.astimezone(zone).date()
    except OverflowError:  # before year 1 or after year 9999
        return moment.date()


def _session(entry: LogEntry, day: datetime.date) -> int:
    """Return a number that identifies the session; entries without a session are grouped by day."""
    name = f"session {entry.session_id}" if entry.session_id is not None else f"day {day}"
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Iterator[str]:
    """Yield the scalars in a JSON value, at any depth, as text."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from (f"{name} {text}" for text in _plain(inner))
        case list():
            for inner in value:
                yield from _plain(inner)
        case None | bool():
            yield {None: "none", True: "yes", False: "no"}[value]
        case _:
            yield str(value)
