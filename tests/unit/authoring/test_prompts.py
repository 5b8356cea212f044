"""How entries are shown to a model."""

import datetime
import zoneinfo

from memory.log.models.entries import EntryKind, LogEntry
from workers.authoring import prompts

ROME = zoneinfo.ZoneInfo("Europe/Rome")


def said(seq: int, moment: str, **fields: str) -> tuple[LogEntry, str]:
    at = datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC)
    return LogEntry(seq=seq, kind=EntryKind.MESSAGE, occurred_at=at, **fields), "Hello.\nBye."


def test_each_entry_shows_what_is_new_of_the_time() -> None:
    entries = [
        said(1, "2026-05-01T21:50:10", speaker="Ada"),
        said(2, "2026-05-01T21:50:40", speaker="Ben"),
        said(3, "2026-05-01T21:55", role="user"),
        said(4, "2026-05-01T22:05"),
        said(5, "2026-05-01T21:50:40"),
        said(6, "2026-05-01T21:50:50"),
    ]
    lines = prompts.lines(entries, ROME).splitlines()
    assert lines[::2] == [
        "[1] (2026-05-01 Friday 23:50, Ada) Hello.",
        "[2] (Ben) Hello.",
        "[3] (23:55, user) Hello.",
        "[4] (2026-05-02 Saturday 00:05) Hello.",
        "[5] (2026-05-01 Friday 23:50) Hello.",
        "[6] (message) Hello.",
    ]
    assert set(lines[1::2]) == {"    Bye."}


def test_an_entry_shows_until_when_it_holds() -> None:
    at = datetime.datetime(2026, 5, 1, 10, tzinfo=datetime.UTC)
    data = {"valid_until": "2026-06-01"}
    fact = LogEntry(seq=7, kind=EntryKind.FACT, occurred_at=at, data=data)

    assert prompts.entry(fact, ROME, "The code is 4711.") == (
        "[7] (fact, 2026-05-01 Friday 12:00, valid until 2026-06-01, the record's lapses_after)"
        " The code is 4711."
    )
