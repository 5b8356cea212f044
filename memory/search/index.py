"""The index as rows: read for a question, and kept up by workers.

What no segment covers is made into one in memory whenever it is searched, so an index may be
behind, incomplete or gone, and no search notices but by its speed; of a long tail the newest part
has vectors. Segments with vectors of another model are found by words until a worker has embedded
them anew, which the first search that meets them asks for. Segments are merged so that each
has at least twice the postings of the next: few are read, and an entry is merged a few times.
"""

import threading
import zoneinfo
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import structlog
from django.db import connection, transaction
from django.db.models import Max, Q, Sum
from django.db.models.functions import Length

from memory import leases
from memory.models import LogEntry, MemoryUser, SearchBlock, SearchIndex, SearchSegment
from memory.search import announcing, segments, vectors
from memory.search.announcing import TAIL, TAIL_CHARACTERS, waiting
from memory.search.documents import CORPUS_OF, READ, documents_of, passages_of
from memory.search.embeddings import Embedder, EmbeddingFailed, embedder
from memory.search.segments import VERSION, Document, Segment
from memory.search.vectors import Vectors

logger = structlog.get_logger(__name__)

# A segment is built of so many entries or characters at most; and merged up to so many postings.
BUILD_ENTRIES = 2048
BUILD_CHARACTERS = 4_000_000
MERGE_POSTINGS = 4_000_000
# Of what is not indexed, so many characters are embedded during a search, the newest.
LIVE_CHARACTERS = 60_000
# Vectors that a process keeps, of the users that were searched last.
CACHED_BYTES = 64 * 1024 * 1024

# Vectors are the last block. They are by far the largest: those at hand are not read again.
_READ = """
SELECT s.id, s.first_seq, s.last_seq, b.number > s.blocks, b.data
FROM memory_searchsegment s JOIN memory_searchblock b ON b.segment_id = s.id
WHERE s.user_id = %s AND s.version = %s
  AND (b.number = 0
    OR b.number IN (SELECT 1 + t.id %% s.blocks FROM unnest(%s::bigint[]) AS t (id))
    OR b.number = s.blocks + 1 AND %s AND s.id <> ALL(%s::bigint[]))
ORDER BY s.first_seq, b.number
"""
_MODELS = """
SELECT s.id, substring(b.data FOR %s)
FROM memory_searchsegment s JOIN memory_searchblock b
    ON b.segment_id = s.id AND b.number = s.blocks + 1
WHERE s.user_id = %s AND s.version = %s
"""

Range = tuple[int, int]


# -- Reading --------------------------------------------------------------------------------------


def read(user: MemoryUser, terms: Sequence[int], embedder: Embedder | None = None) -> list[Segment]:
    """Return segments of the whole log, in its order, that have the postings of these terms.

    With a model they have its vectors, too, as far as these are there. What the user's index does
    not cover is read from the log, up to the newest entry.
    """
    cached = _cache.of(user.pk) if embedder else {}
    # One statement, one snapshot: a merge that commits meanwhile is seen whole or not at all.
    with connection.cursor() as cursor:
        parameters: list[Any] = [user.pk, VERSION, list(terms), embedder is not None, list(cached)]
        cursor.execute(_READ, parameters)
        rows = cursor.fetchall()
    blocks: dict[tuple[int, int, int], list[bytes]] = {}
    read_vectors: dict[int, bytes] = {}
    for segment, first, last, has_vectors, data in rows:
        if has_vectors:
            read_vectors[segment] = bytes(data)
        else:
            blocks.setdefault((segment, first, last), []).append(bytes(data))
    found: dict[Range, Segment] = {}
    known: dict[int, Vectors | None] = {}
    for (segment, first, last), (documents, *postings) in blocks.items():
        try:
            decoded = segments.decode(documents, postings)
            if embedder:
                known[segment] = _vectors(cached, segment, read_vectors, len(decoded.seqs))
        except ValueError as error:
            logger.error("search_segment_unreadable", segment=segment, error=str(error))
            continue
        found[first, last] = replace(decoded, vectors=_of_model(known.get(segment), embedder))
    if embedder:
        _cache.keep(user.pk, known)
    is_behind = any(one.vectors is None for one in found.values()) if embedder else False
    for missing in _uncovered(list(found), None):
        found[missing] = _live(user, missing, embedder)
        is_behind |= _is_behind(found[missing])
    if is_behind:
        announcing.want(user.pk, user.workspace_id)
    return [found[covered] for covered in sorted(found)]


def _is_behind(tail: Segment) -> bool:
    """Tell whether what no segment has is more than a tail: an older server has indexed the log."""
    has_all = tail.vectors is None or bool(np.isfinite(tail.vectors.factors).all())
    return not has_all or len(np.unique(tail.seqs)) > TAIL


def _vectors(
    cached: Mapping[int, Vectors | None], segment: int, read: Mapping[int, bytes], number: int
) -> Vectors | None:
    """The vectors of a segment; raises ValueError if they are not those of its documents."""
    found = cached[segment] if segment in cached else vectors.decode(read.get(segment, b""))
    if found is not None and len(found.values) != number:
        raise ValueError(f"{len(found.values)} vectors of {number} documents")
    return found


def _of_model(found: Vectors | None, embedder: Embedder | None) -> Vectors | None:
    return found if found is not None and embedder and found.model == embedder.name else None


class _Cache:
    """The vectors of the segments that were read last, which never change.

    A segment that is gone is not asked for again, and goes with the next search of its user.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: OrderedDict[int, Mapping[int, Vectors | None]] = OrderedDict()
        self._bytes = 0

    def of(self, user_pk: int) -> Mapping[int, Vectors | None]:
        """Return what is at hand of a user: segment → vectors."""
        with self._lock:
            return self._users.get(user_pk, {})

    def keep(self, user_pk: int, found: Mapping[int, Vectors | None]) -> None:
        """Keep what was found of a user instead of what was there before."""
        size = _size(found)
        with self._lock:
            self._bytes -= _size(self._users.pop(user_pk, {}))
            if size:
                self._users[user_pk] = found
                self._bytes += size
            while self._bytes > CACHED_BYTES:
                _, gone = self._users.popitem(last=False)
                self._bytes -= _size(gone)


def _size(found: Mapping[int, Vectors | None]) -> int:
    return sum(one.bytes for one in found.values() if one is not None)


_cache = _Cache()


def _live(user: MemoryUser, covered: Range, embedder: Embedder | None) -> Segment:
    zone = zoneinfo.ZoneInfo(user.time_zone)
    entries = LogEntry.objects.filter(user=user, seq__range=covered).order_by("seq").only(*READ)
    documents = [one for entry in entries.iterator() for one in documents_of(entry, zone)]
    built = segments.build(documents)
    if not embedder or not documents:
        return built
    try:
        return replace(built, vectors=_embedded_live(documents, embedder))
    except EmbeddingFailed as error:
        logger.warning("search_tail_without_vectors", user=user.pk, error=str(error))
        return built


def _embedded_live(documents: Sequence[Document], embedder: Embedder) -> Vectors:
    """The vectors of the newest of these documents; how close the others are cannot be told."""
    room = LIVE_CHARACTERS
    first = len(documents)
    while first and room >= len(documents[first - 1].text):
        first -= 1
        room -= len(documents[first].text)
    made = embedder.embed([one.text for one in documents[first:]])
    found = np.zeros((len(documents), made.shape[1]), np.float32)
    found[first:] = made
    quantised = vectors.quantised(embedder.name, found)
    quantised.factors[:first] = np.nan
    return quantised


def _uncovered(covered: Sequence[Range], last: int | None) -> list[Range]:
    """Return the ranges of the log between those that are covered, and after them, up to `last`.

    Without `last` the log has no end.
    """
    missing = []
    expected = 1
    for first, end in covered:
        if first > expected:
            missing.append((expected, first - 1))
        expected = end + 1
    if last is None or expected <= last:
        missing.append((expected, _ENDLESS if last is None else last))
    return missing


_ENDLESS = 2**63 - 1


# -- Keeping up -----------------------------------------------------------------------------------


def keep_up(user_pk: int) -> None:
    """Index what is due of a user's log, and merge, unless somebody else does.

    Each step commits by itself, and only under a lease that nobody has taken since: whoever is
    killed leaves what he has done, and doing it twice does no harm.
    """
    index = leases.claim(waiting().filter(user_id=user_pk))
    if index is None:
        return
    with leases.kept(index):
        try:
            while _step(index):
                pass
        except leases.LeaseLost:
            logger.warning("lease_lost")
        except Exception as error:
            leases.fail(index, f"{type(error).__name__}: {error}")
            raise


@dataclass(frozen=True)
class _Plan:
    """A segment to be made: of the entries of a range, or of these segments; of a single segment
    the same with vectors of the model."""

    covers: Range
    merged: Sequence[SearchSegment] = ()


def _step(index: SearchIndex) -> bool:
    """Make one segment; False when there was nothing to do, and the index was given back."""
    plan = _plan(index)
    if plan is None:
        with transaction.atomic():
            leases.check(index)  # whoever appends now waits, or has and is seen
            if _plan(index) is None:
                leases.write(
                    index,
                    due_at=None,
                    lease_owner="",
                    lease_expires_at=None,
                    attempts=0,
                    last_error="",
                )
                return False
        return True
    if not plan.merged:
        _write(index, *_built(index, plan.covers))
        return True
    try:
        stored = [_stored(one) for one in plan.merged]
        if len(stored) > 1:
            merged = segments.merge(stored)
        else:
            merged = replace(stored[0], vectors=_embedded_anew(index, plan.covers, stored[0]))
    except ValueError as error:
        logger.error("search_segments_unreadable", user=index.user_id, error=str(error))
        with transaction.atomic():
            leases.check(index)
            _remove([one.pk for one in plan.merged])  # they are built anew
    else:
        _write(index, plan.covers, merged)
    return True


def _plan(index: SearchIndex) -> _Plan | None:
    """Decide what to make next: a segment where one is missing, then of several one, and last the
    vectors that are missing."""
    rows = list(
        SearchSegment.objects.filter(user_id=index.user_id, version=VERSION).order_by("first_seq")
    )
    last = LogEntry.objects.filter(user_id=index.user_id).aggregate(last=Max("seq"))["last"] or 0
    for missing in _uncovered([(row.first_seq, row.last_seq) for row in rows], last):
        if missing[1] < last or _is_long(index, missing):
            return _Plan(missing)
    for end in range(len(rows), 1, -1):
        size = max(1, rows[end - 1].postings)
        start = end - 1
        while start and rows[start - 1].postings < 2 * size and _follow(rows, start):
            if size + rows[start - 1].postings > MERGE_POSTINGS:
                break
            start -= 1
            size += rows[start].postings
        if start < end - 1:
            merged = rows[start:end]
            return _Plan((merged[0].first_seq, merged[-1].last_seq), merged)
    return _plan_of_vectors(index, rows)


def _plan_of_vectors(index: SearchIndex, rows: Sequence[SearchSegment]) -> _Plan | None:
    """Decide which segment gets vectors of the model that is used now."""
    made_by = embedder()
    if made_by is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_MODELS, [vectors.BEGINNING, index.user_id, VERSION])
        models = {segment: _model_of(bytes(beginning)) for segment, beginning in cursor.fetchall()}
    for row in reversed(rows):  # the newest are asked for most
        if models.get(row.pk) != made_by.name:
            return _Plan((row.first_seq, row.last_seq), [row])
    return None


def _model_of(block: bytes) -> str:
    try:
        return vectors.model_of(block)
    except ValueError:
        return ""


def _follow(rows: Sequence[SearchSegment], place: int) -> bool:
    return rows[place - 1].last_seq + 1 == rows[place].first_seq


def _is_long(index: SearchIndex, tail: Range) -> bool:
    """Whether the newest entries are worth a segment."""
    if tail[1] - tail[0] + 1 >= TAIL:
        return True
    entries = LogEntry.objects.filter(user_id=index.user_id, seq__range=tail)
    characters = entries.aggregate(sum=Sum(Length("content")))["sum"] or 0
    return bool(characters >= TAIL_CHARACTERS)


def _built(index: SearchIndex, missing: Range) -> tuple[Range, Segment]:
    """Return a segment of the first entries of the range, and what it covers of it.

    If the model fails it has no vectors: they are made in a step of their own.
    """
    user = MemoryUser.objects.only("time_zone").get(pk=index.user_id)
    zone = zoneinfo.ZoneInfo(user.time_zone)
    entries = LogEntry.objects.filter(user=user, seq__range=missing).order_by("seq").only(*READ)
    documents: list[Document] = []
    characters = 0
    last = missing[1]
    for entry in entries[:BUILD_ENTRIES].iterator(chunk_size=200):
        documents.extend(documents_of(entry, zone))
        last = entry.seq
        characters += len(entry.content or "")
        if characters >= BUILD_CHARACTERS:
            break
    built = segments.build(documents)
    try:
        if made_by := embedder():
            texts = [one.text for one in documents]
            made = vectors.quantised(made_by.name, made_by.embed(texts))
            built = replace(built, vectors=made)
    except EmbeddingFailed as error:
        logger.warning("search_segment_without_vectors", user=index.user_id, error=str(error))
    return (missing[0], last), built


def _embedded_anew(index: SearchIndex, covered: Range, stored: Segment) -> Vectors:
    """Return the vectors of a stored segment's documents; raises EmbeddingFailed.

    Raises ValueError if the log has other documents.
    """
    made_by = embedder()
    if made_by is None:
        raise EmbeddingFailed("There is no model any more.")
    entries = LogEntry.objects.filter(
        user=index.user_id, seq__range=covered, redacted_at=None, kind__in=CORPUS_OF
    )
    made = []
    texts: list[str] = []
    for entry in entries.order_by("seq").only(*READ).iterator(chunk_size=200):
        texts.extend(text for _, _, text in passages_of(entry))
        if len(texts) >= BUILD_ENTRIES:
            made.append(made_by.embed(texts))
            texts = []
    made.append(made_by.embed(texts))
    found = np.concatenate(made)
    if len(found) != len(stored.seqs):
        raise ValueError(f"{len(found)} passages in the log, {len(stored.seqs)} in the segment")
    return vectors.quantised(made_by.name, found)


def _stored(row: SearchSegment) -> Segment:
    blocks = SearchBlock.objects.filter(segment=row).order_by("number")
    documents, *postings, last = (bytes(data) for data in blocks.values_list("data", flat=True))
    return replace(segments.decode(documents, postings), vectors=vectors.decode(last))


def _write(index: SearchIndex, covered: Range, segment: Segment) -> None:
    """Store a segment in the place of all that overlap it; raises LeaseLost."""
    blocks = segments.encode(segment)
    first, last = covered
    with transaction.atomic():
        leases.check(index)
        _remove(
            SearchSegment.objects.filter(
                Q(first_seq__lte=last, last_seq__gte=first), user_id=index.user_id
            ).values_list("pk", flat=True)
        )
        row = SearchSegment.objects.create(
            user_id=index.user_id,
            first_seq=first,
            last_seq=last,
            version=VERSION,
            blocks=len(blocks) - 2,
            postings=len(segment.places),
        )
        SearchBlock.objects.bulk_create(
            SearchBlock(segment=row, number=number, data=data) for number, data in enumerate(blocks)
        )


def _remove(rows: Iterable[int]) -> None:
    rows = list(rows)
    SearchBlock.objects.filter(segment__in=rows)._raw_delete("default")
    SearchSegment.objects.filter(pk__in=rows)._raw_delete("default")
