"""Excerpts: the text of an entry's matching passages."""

from collections.abc import Iterator, Sequence

from django.db.models.functions import Substr

from memory.models import LogEntry
from memory.models.log import EntryKind
from memory.recall.search.documents import text_of
from memory.recall.search.passages import Passage
from memory.recall.search.words import best_part

# The separator between passages that are not consecutive.
GAP = "… "
# The number of characters of a long text that are returned, and that are read from its beginning.
MAX_TEXT = 10_000
MAX_TEXT_READ = 100_000
# The number of characters of a passage in which its best part is sought. Only spaces make a passage
# longer than that.
MAX_PASSAGE = 4 * MAX_TEXT
# The length up to which the text between two passages counts as empty.
SHORT_GAP = 2


def read_passage(entry: LogEntry, passage: Passage) -> str:
    """Return the text of a passage; one far into a very long text is read from the log."""
    start, end = passage
    if entry.kind == EntryKind.RECORD or end <= MAX_TEXT_READ:
        return text_of(entry)[start:end]
    said = LogEntry.objects.filter(pk=entry.pk).annotate(
        passage=Substr("content", start + 1, end - start)
    )
    # The user may have been erased meanwhile.
    return said.values_list("passage", flat=True).first() or ""


def excerpt_of(
    entry: LogEntry, passages: Sequence[Passage], asked: Sequence[str]
) -> tuple[str, bool]:
    """Return the text of an entry's passages, in order, and whether that is only a part of it.

    `passages` are sorted by relevance: of many, the first that fit in 10,000 characters are used.
    """
    parts: list[Passage] = []
    for start, end in sorted(_fitting(passages)):
        # Consecutive passages have only spaces between them.
        if parts and _is_empty(entry, (parts[-1][1], start)):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    text = GAP.join(read_passage(entry, part) for part in parts)
    given = best_part(text, asked, MAX_TEXT)
    whole = len(parts) == 1 and parts[0][0] == 0 and len(text_of(entry)) <= parts[0][1]
    return given, given != text or not whole


def _fitting(passages: Sequence[Passage]) -> Iterator[Passage]:
    """Yield the first passage, or its beginning if it is very long, and those that fit beside it.

    To find the best part of a text takes time in proportion to its length.
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
    """Return whether the text between two passages is empty; a very short text counts as empty."""
    return gap[1] - gap[0] <= SHORT_GAP or not read_passage(entry, gap).strip()
