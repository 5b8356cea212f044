"""What an index is told of an entry, and what is shown of it as text."""

import datetime
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from memory.models import LogEntry
from memory.models.log import EntryKind
from memory.search.segments import SPEAKER_PREFIX, Document
from memory.search.words import identity, terms, terms_of_day


class CorpusName(StrEnum):
    """What is ranked together."""

    FACTS = "facts"
    ARCHIVE = "archive"


KINDS: Mapping[CorpusName, tuple[EntryKind, ...]] = {
    CorpusName.FACTS: (EntryKind.FACT, EntryKind.CORRECTION, EntryKind.RECORD),
    CorpusName.ARCHIVE: (EntryKind.MESSAGE,),
}
# As an index numbers them.
NUMBERS = {CorpusName.ARCHIVE: 0, CorpusName.FACTS: 1}
CORPUS_OF = {kind: corpus for corpus, kinds in KINDS.items() for kind in kinds}

# The columns that the two below read.
READ = (
    *("seq", "kind", "occurred_at", "session_id", "speaker"),
    *("content", "data", "redacted_at", "user_id"),
)


def text_of(entry: LogEntry) -> str:
    """Return the text of an entry; of a typed record its class, key and fields."""
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


def document_of(entry: LogEntry, zone: ZoneInfo) -> Document | None:
    """Return what an index is told of an entry; None for one that is not searched."""
    corpus = CORPUS_OF.get(EntryKind(entry.kind))
    if corpus is None or entry.redacted_at is not None:
        return None
    day = day_of(entry.occurred_at, zone)
    names = terms(entry.speaker or "")
    found = Counter([*terms(text_of(entry)), *names, *terms_of_day(day)])
    return Document(
        seq=entry.seq,
        corpus=NUMBERS[corpus],
        session=_session(entry, day),
        terms={identity(term): count for term, count in found.items()},
        names=[identity(SPEAKER_PREFIX + name) for name in set(names)],
    )


def day_of(moment: datetime.datetime, zone: ZoneInfo) -> datetime.date:
    """Return the day on which a moment is in a zone, at the ends of the calendar in its own."""
    try:
        return moment.astimezone(zone).date()
    except OverflowError:  # at the ends of the calendar
        return moment.date()


def _session(entry: LogEntry, day: datetime.date) -> int:
    """Return a number of the session; entries without one belong together if they are of a day."""
    name = f"session {entry.session_id}" if entry.session_id is not None else f"day {day}"
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Iterator[str]:
    """The texts in a JSON value, however deep."""
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
