"""Excerpts: the text of an entry's matching passages."""

from collections.abc import Iterator, Sequence

from django.db.models.functions import Substr

from memory.log.models.entries import EntryKind, LogEntry
from memory.recall.search.documents import text_of
from memory.recall.search.passages import Passage
from memory.recall.search.words import best_part

# The separator between passages that are not consecutive.
GAP = "… "
# Maximum number of characters of a text to return, and number to read from the text's start.
MAX_TEXT = 10_000
MAX_TEXT_READ = 20_000
# Only a passage's first MAX_PASSAGE characters are searched for its best part. A passage can be
# longer only if it contains long runs of spaces.
MAX_PASSAGE = 4 * MAX_TEXT
# Text between two passages is treated as empty if it is no longer than this.
SHORT_GAP = 2


def read_passage(entry: LogEntry, passage: Passage) -> str:
    """Return a passage's text; a passage far into a very long text is read from the log."""
    start, end = passage
    if entry.kind == EntryKind.RECORD or end <= MAX_TEXT_READ:
        return text_of(entry)[start:end]
    rows = LogEntry.objects.filter(pk=entry.pk).annotate(
        passage=Substr("content", start + 1, end - start)
    )
    # The user may have been erased in the meantime.
    return rows.values_list("passage", flat=True).first() or ""


def excerpt_of(
    entry: LogEntry, passages: Sequence[Passage], query_terms: Sequence[str]
) -> tuple[str, bool]:
    """Return (text, is_cut): the text of an entry's passages, and whether the entry has more text.

    `passages` are sorted by relevance, and used as long as they fit into 10,000 characters.
    """
    parts: list[Passage] = []
    for start, end in sorted(_fitting(passages)):
        # Consecutive passages have only spaces between them.
        if parts and _is_empty(entry, (parts[-1][1], start)):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    text = GAP.join(read_passage(entry, part) for part in parts)
    given = best_part(text, query_terms, MAX_TEXT)
    whole = len(parts) == 1 and parts[0][0] == 0 and len(text_of(entry)) <= parts[0][1]
    return given, given != text or not whole


def _fitting(passages: Sequence[Passage]) -> Iterator[Passage]:
    """Yield the first passage, truncated if it is very long, then further passages while they fit.

    The first passage is truncated because finding a text's best part takes time proportional to its
    length.
    """
    (start, end), *others = passages
    end = min(end, start + MAX_PASSAGE)
    yield start, end
    room = MAX_TEXT - (end - start)
    for start, end in others:
        room -= end - start
        if room < 0:
            return
        yield start, end


def _is_empty(entry: LogEntry, gap: Passage) -> bool:
    """Return whether the text between two passages is blank or very short."""
    return gap[1] - gap[0] <= SHORT_GAP or not read_passage(entry, gap).strip()
