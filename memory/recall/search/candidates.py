"""Candidates: ranked passages, best first, with their entries read from the log."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Left
from numpy.typing import NDArray

from memory.kernel.database import timeouts
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from memory.project import RecordId
from memory.recall.search.documents import CorpusName
from memory.recall.search.excerpts import MAX_TEXT_READ
from memory.recall.search.passages import Passage
from memory.recall.search.ranking import Corpus, Ranking
from memory.recall.search.statuses import EntryStatus, Status, Statuses

# Candidates are read from the log in groups, best first. The first group has FIRST_READ of them,
# and each group is GROWTH times as large as the previous one.
FIRST_READ = 16
GROWTH = 4
# The maximum size of a group.
MAX_READ = 5000
# Look up entries one by one: with an IN list, the planner might scan the user's whole log.
_WANTED = """
SELECT e.id FROM unnest(%s::bigint[]) AS wanted (seq)
JOIN memory_logentry e ON e.user_id = %s AND e.seq = wanted.seq
"""
COLUMNS = (
    *("user_id", "seq", "kind", "occurred_at", "recorded_at", "derived_from", "trust"),
    *("data", "metadata", "session_id", "role", "speaker"),
)


@dataclass(frozen=True)
class RankedCorpus:
    """A corpus's passages, their scores, and the number of the last entry a search may return."""

    corpus: Corpus
    up_to: int | None
    ranking: Ranking

    @cached_property
    def size(self) -> int:
        """The number of entries in the corpus that a search may return."""
        return len(np.unique(self.corpus.seqs[self._counts]))

    def passage(self, index: int) -> Passage:
        """Return the start and end of a passage in its entry's text."""
        return int(self.corpus.begins[index]), int(self.corpus.ends[index])

    def rank_of(self, index: int) -> int:
        """Return the rank of a passage's score among the best scores of all entries."""
        better = np.searchsorted(self._best, self.ranking.scores[index], side="right")
        return 1 + len(self._best) - int(better)

    @cached_property
    def _counts(self) -> NDArray[np.bool_]:
        """A mask that selects the passages whose entries a search may return."""
        if self.up_to is None:
            return np.ones(len(self.corpus.seqs), np.bool_)
        return self.corpus.seqs <= self.up_to

    @cached_property
    def _best(self) -> NDArray[np.float64]:
        """The best score of each entry that a search may return, in ascending order."""
        seqs, scores = self.corpus.seqs[self._counts], self.ranking.scores[self._counts]
        order = np.lexsort((scores, seqs))
        is_last = np.diff(seqs[order], append=0) != 0
        return np.sort(scores[order][is_last])


_Candidate = tuple[CorpusName, int, int]


def list_candidates(
    rankings: Mapping[CorpusName, RankedCorpus], threshold: float, size: int
) -> Iterator[list[_Candidate]]:
    """Yield groups of passages (corpus, place, seq), highest score first, then newest first.

    `size` is the first group's size.
    """
    corpora = list(rankings)
    places = [
        np.flatnonzero((one.ranking.scores > 0) & (one.ranking.scores >= threshold))
        for one in rankings.values()
    ]
    if not corpora:
        return
    pairs = list(zip(places, rankings.values(), strict=True))
    scores = np.concatenate([one.ranking.scores[here] for here, one in pairs])
    seqs = np.concatenate([one.corpus.seqs[here] for here, one in pairs])
    numbers = np.repeat(np.arange(len(corpora)), [len(here) for here in places])
    everywhere = np.concatenate(places)
    for group in _best_first(scores, seqs, size):
        yield [
            (corpora[number], index, seq)
            for number, index, seq in zip(
                numbers[group].tolist(),
                everywhere[group].tolist(),
                seqs[group].tolist(),
                strict=True,
            )
        ]


def _best_first(
    scores: NDArray[np.float64], seqs: NDArray[np.int64], size: int
) -> Iterator[NDArray[np.int64]]:
    """Yield groups of indices, best score first; most of them are sorted only if needed."""
    least = np.partition(scores, -size)[-size] if len(scores) > size else 0.0
    for part in (np.flatnonzero(scores >= least), np.flatnonzero(scores < least)):
        order = part[np.lexsort((-seqs[part], -scores[part]))]
        start = 0
        while start < len(order):
            yield order[start : start + size]
            start, size = start + size, max(size, min(size * GROWTH, MAX_READ))


def read_candidates(
    user: MemoryUser,
    candidates: Iterator[list[_Candidate]],
    where: RawSQL | Q | None,
    up_to: int | None,
    statuses: Statuses | None = None,
    *,
    history: bool = False,
    lapsed: dict[int, None] | None = None,
) -> Iterator[tuple[CorpusName, int, LogEntry, EntryStatus | None]]:
    """Yield the candidates whose entries pass the filter and aren't redacted, with these entries.

    With `statuses`, the entries' statuses are yielded, too, and entries that no longer hold are
    left out. With `history`, they are kept: in each group, after the candidates about the same
    record or fact that still hold. To `lapsed`, the numbers of the entries are added that are left
    out because they have lapsed.

    A filter that excludes nearly everything makes this read the whole log. If that takes longer
    than a single statement may take, it raises an error that `database.took_too_long` recognises.
    """
    allowed = (
        LogEntry.objects.filter(redacted_at=None)
        .order_by()
        .only(*COLUMNS)
        .annotate(beginning=Left("content", MAX_TEXT_READ))
    )
    if up_to is not None:
        allowed = allowed.filter(seq__lte=up_to)
    if where is not None:
        allowed = allowed.filter(where)
    entries: dict[int, LogEntry | None] = {}
    status: dict[int, EntryStatus] = {}
    began = time.monotonic()
    for group in candidates:
        if unknown := [seq for seq in {seq for _, _, seq in group} if seq not in entries]:
            if entries:
                timeouts.refuse_after(began)
            wanted = RawSQL(_WANTED, [unknown, user.pk])  # noqa: S611  # nosec B611 # a constant
            readable = {entry.seq: entry for entry in allowed.filter(pk__in=wanted)}
            for entry in readable.values():
                entry.content = entry.beginning
            if statuses is not None:
                status |= statuses.compute(readable.values())
            if not history:
                readable = {seq: one for seq, one in readable.items() if _holds(status.get(seq))}
            entries |= {seq: readable.get(seq) for seq in unknown}
        for name, index, seq in _current_first(group, status) if history else group:
            if (wanted_entry := entries[seq]) is not None:
                yield name, index, wanted_entry, status.get(seq)
            elif lapsed is not None and seq in status and status[seq].status == Status.LAPSED:
                lapsed[seq] = None


def _holds(status: EntryStatus | None) -> bool:
    return status is None or status.holds


def _current_first(
    group: Sequence[_Candidate], status: Mapping[int, EntryStatus]
) -> list[_Candidate]:
    """Return the group with the candidates about each record or fact reordered among themselves.

    Those that hold come first; otherwise, the order stays.
    """
    ranks = defaultdict[RecordId | int, list[int]](list)
    for rank, (_, _, seq) in enumerate(group):
        if seq in status:
            ranks[status[seq].about].append(rank)
    ordered = list(group)
    for of_one in ranks.values():
        best = sorted(of_one, key=lambda rank: not status[group[rank][2]].holds)
        for rank, taken in zip(of_one, best, strict=True):
            ordered[rank] = group[taken]
    return ordered
