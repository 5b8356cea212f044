"""Maintenance of the stored index, by workers.

Segments keep an earlier model's vectors until a worker has re-embedded their passages, which the
first search that encounters such vectors requests. A large segment's new vectors are stored step by
step, after the old ones, which stay in use until the new ones are complete. Segments whose vectors
come from the same model are merged so that each segment has at least twice as many postings as the
next. As a result, there are only a few segments to read, and each entry is merged only a few times.
"""

import datetime
import random
import zoneinfo
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import structlog
from django.db import connection, transaction
from django.db.models import Max, Q, Sum
from django.db.models.functions import Length
from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases
from memory.language.detection import may_be_english
from memory.log.models.entries import LogEntry
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment
from memory.recall.search import segments, vectors
from memory.recall.search.announcing import TAIL, TAIL_CHARACTERS
from memory.recall.search.documents import CORPUS_OF, READ, documents_of, passages_of
from memory.recall.search.embeddings import embedder, for_log
from memory.recall.search.embeddings.interface import Embedder, EmbedderBusy, EmbeddingFailed
from memory.recall.search.index import Range, uncovered_ranges
from memory.recall.search.segments import VERSION, Document, Segment
from memory.recall.search.vectors import Vectors

logger = structlog.get_logger(__name__)

# Segments are built from at most this many entries or characters, and merged up to this many
# postings.
BUILD_ENTRIES = 2048
BUILD_CHARACTERS = 4_000_000
MERGE_POSTINGS = 4_000_000
# How many passages and characters of a stored segment to embed between two commits, so that vectors
# that a provider has charged for survive a later failure. A new segment within these limits is
# embedded before it is stored.
STEP_PASSAGES = 512
STEP_CHARACTERS = 200_000
# Minimum and maximum number of seconds before an index is retried if all threads that embed indexes
# are busy.
BUSY_SECONDS = (10.0, 30.0)
_MODELS = """
SELECT s.id, substring(b.data FOR %s), EXISTS (
    SELECT 1 FROM memory_searchblock p WHERE p.segment_id = s.id AND p.number > s.blocks + 1)
FROM memory_searchsegment s JOIN memory_searchblock b
    ON b.segment_id = s.id AND b.number = s.blocks + 1
WHERE s.user_id = %s AND s.version = %s
"""


def keep_up(index: SearchIndex) -> None:
    """Index a user's log and merge its segments; the caller has claimed the index.

    Each step is committed separately, and only while the lease is held. If the worker is killed,
    its finished steps are kept, and repeating a step does no harm.
    """
    try:
        while _step(index):
            pass
    except EmbedderBusy as error:
        wait = random.uniform(*BUSY_SECONDS)  # noqa: S311  # nosec B311 # no secret
        until = timezone.now() + datetime.timedelta(seconds=wait)
        logger.info("search_index_waits", user=index.user_id, reason=str(error))
        raise leases.Postponed("", until=until, counts=False) from error


@dataclass(frozen=True)
class _Plan:
    """The next segment to build: from the entries in the range `covers`, or by merging `merged`.

    If `merged` is a single segment, its next missing vectors are computed instead, and the segment
    is replaced once all of its vectors have been computed.
    """

    covers: Range
    merged: Sequence[SearchSegment] = ()


def _step(index: SearchIndex) -> bool:
    """Build a segment; return False if there was nothing left to do and the index was released."""
    plan = _plan(index)
    if plan is None:
        with transaction.atomic():
            leases.check(index)  # from now on, concurrent appends wait or are seen by `_plan`
            if _plan(index) is None:
                leases.release(index, due_at=None, attempts=0, last_error="")
                return False
        return True
    if not plan.merged:
        _write(index, *_built(index, plan.covers))
        return True
    try:
        if len(plan.merged) == 1:
            _embed_next(index, plan.merged[0])
            return True
        merged = segments.merge([_stored(one) for one in plan.merged])
    except ValueError as error:
        logger.error("search_segments_unreadable", user=index.user_id, error=str(error))
        with transaction.atomic():
            leases.check(index)
            _remove([one.pk for one in plan.merged])  # the segments will be rebuilt
    else:
        _write(index, plan.covers, merged)
    return True


def _plan(index: SearchIndex) -> _Plan | None:
    """Decide what to build next: missing segments first, then merges, then missing vectors.

    Segments with vectors from different models are not merged, because the vectors would be lost.
    """
    rows = list(
        SearchSegment.objects.filter(user_id=index.user_id, version=VERSION).order_by("first_seq")
    )
    last = LogEntry.objects.filter(user_id=index.user_id).aggregate(last=Max("seq"))["last"] or 0
    for missing in uncovered_ranges([(row.first_seq, row.last_seq) for row in rows], last):
        if missing[1] < last or _is_long(index, missing):
            return _Plan(missing)
    kinds = _kinds(index)
    for end in range(len(rows), 1, -1):
        size = max(1, rows[end - 1].postings)
        start = end - 1
        while start and rows[start - 1].postings < 2 * size and _follow(rows, start):
            if size + rows[start - 1].postings > MERGE_POSTINGS:
                break
            if kinds.get(rows[start - 1].pk) != kinds.get(rows[start].pk):
                break
            start -= 1
            size += rows[start].postings
        if start < end - 1:
            merged = rows[start:end]
            return _Plan((merged[0].first_seq, merged[-1].last_seq), merged)
    made_by = _embedder(index)
    if made_by is None:
        return None
    for row in reversed(rows):  # newest first, because recent entries matter most in searches
        if row.pk not in kinds or kinds[row.pk].model != made_by.name:
            return _Plan((row.first_seq, row.last_seq), [row])
    return None


@dataclass(frozen=True)
class _Kind:
    """The kind of vectors that a segment has: their model and number of dimensions.

    While a segment is being re-embedded, `embedded` is the segment's key, so that its kind is
    unique and no other segment is merged with it.
    """

    model: str
    dimensions: int
    embedded: int | None


def _kinds(index: SearchIndex) -> dict[int, _Kind]:
    with connection.cursor() as cursor:
        cursor.execute(_MODELS, [vectors.BEGINNING, index.user_id, VERSION])
        rows = cursor.fetchall()
    kinds = {}
    for segment, beginning, is_embedded in rows:
        try:
            model, dimensions = vectors.kind_of(bytes(beginning))
        except ValueError:
            model, dimensions = "", 0
        kinds[segment] = _Kind(model, dimensions, segment if is_embedded else None)
    return kinds


def _embedder(index: SearchIndex, *, has_lease: bool = False) -> Embedder | None:
    """Return the model for the log's languages, as known by now; may raise EmbeddingFailed."""
    index.refresh_from_db(fields=["is_multilingual"])
    model = embedder(_user(index), lease=index if has_lease else None)
    return for_log(model, is_multilingual=index.is_multilingual)


def _user(index: SearchIndex) -> MemoryUser:
    return MemoryUser.objects.only("time_zone", "workspace_id").get(pk=index.user_id)


def _follow(rows: Sequence[SearchSegment], index: int) -> bool:
    return rows[index - 1].last_seq + 1 == rows[index].first_seq


def _is_long(index: SearchIndex, tail: Range) -> bool:
    """Return whether the unindexed tail is long enough to build a segment from it."""
    if tail[1] - tail[0] + 1 >= TAIL:
        return True
    entries = LogEntry.objects.filter(user_id=index.user_id, seq__range=tail)
    characters = entries.aggregate(sum=Sum(Length("content")))["sum"] or 0
    return bool(characters >= TAIL_CHARACTERS)


def _built(index: SearchIndex, missing: Range) -> tuple[Range, Segment]:
    """Build a segment from the first entries in the missing range; return (range, segment)."""
    user = _user(index)
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
    texts = [one.text for one in documents]
    if not index.is_multilingual and not all(map(may_be_english, texts)):
        with transaction.atomic():
            leases.check(index)
            SearchIndex.objects.filter(pk=index.pk).update(is_multilingual=True)
    if len(texts) > STEP_PASSAGES or sum(map(len, texts)) > STEP_CHARACTERS:
        return (missing[0], last), built
    try:
        if made_by := _embedder(index, has_lease=True):
            made = vectors.quantised(made_by.name, made_by.embed(texts))
            built = replace(built, vectors=made)
    except EmbeddingFailed as error:
        logger.warning("search_segment_without_vectors", user=index.user_id, error=str(error))
    return (missing[0], last), built


def _embed_next(index: SearchIndex, row: SearchSegment) -> None:
    """Embed a stored segment's next passages; after the last one, replace the segment's vectors.

    May raise EmbeddingFailed or LeaseLost. Raises ValueError if the log's passages differ from the
    segment's.
    """
    made_by = _embedder(index, has_lease=True)
    if made_by is None:
        raise EmbeddingFailed("The embedding model was removed.")
    blocks = SearchBlock.objects.filter(segment=row)
    documents = segments.decode(bytes(blocks.get(number=0).data), [])
    done = _made_so_far(index, row, made_by.name)
    first = sum(len(one.values) for one in done)
    last = first + _step_size(documents, first)
    made = made_by.embed(_passages(index, documents, first, last))
    done.append(vectors.quantised(made_by.name, made))
    if last == len(documents.seqs):
        whole = vectors.joined(done)
        if whole is None:
            _forget_made(index, row)
            raise EmbeddingFailed(
                f"{made_by.name} returns vectors with {done[-1].dimensions} dimensions, but"
                " previously returned a different number: set UAC_EMBEDDINGS_DIMENSIONS."
            )
        _write(index, (row.first_seq, row.last_seq), replace(_stored(row), vectors=whole))
        return
    with transaction.atomic():
        leases.check(index)
        number = row.blocks + 1 + len(done)
        SearchBlock.objects.create(segment=row, number=number, data=vectors.encode(done[-1]))


def _made_so_far(index: SearchIndex, row: SearchSegment, model: str) -> list[Vectors]:
    """Return the new vectors for a segment's first passages, which are stored after the old ones.

    Vectors that are from another model or can't be read are removed.
    """
    blocks = SearchBlock.objects.filter(segment=row, number__gt=row.blocks + 1).order_by("number")
    try:
        made = [vectors.decode(bytes(data)) for data in blocks.values_list("data", flat=True)]
    except ValueError:
        made = [None]
    if all(one is not None and one.model == model for one in made):
        return [one for one in made if one is not None]
    _forget_made(index, row)
    return []


def _forget_made(index: SearchIndex, row: SearchSegment) -> None:
    with transaction.atomic():
        leases.check(index)
        SearchBlock.objects.filter(segment=row, number__gt=row.blocks + 1)._raw_delete("default")


def _step_size(documents: Segment, first: int) -> int:
    """Return how many passages, starting at `first`, to embed in the next step."""
    here = slice(first, first + STEP_PASSAGES)
    lengths = documents.ends[here].astype(np.int64) - documents.begins[here]
    fitting = int(np.searchsorted(np.cumsum(lengths), STEP_CHARACTERS, side="right"))
    return min(max(fitting, 1), len(lengths))


def _passages(index: SearchIndex, documents: Segment, first: int, last: int) -> list[str]:
    """Return the texts of some of a segment's passages; raises ValueError if the log's differ."""
    wanted = documents.seqs[first:last]
    if not len(wanted):
        return []
    entries = LogEntry.objects.filter(
        user=index.user_id,
        seq__range=(int(wanted[0]), int(wanted[-1])),
        redacted_at=None,
        kind__in=CORPUS_OF,
    )
    texts = [
        (entry.seq, text)
        for entry in entries.order_by("seq").only(*READ).iterator(chunk_size=200)
        for _, _, text in passages_of(entry)
    ]
    skipped = first - int(np.searchsorted(documents.seqs, wanted[0]))
    texts = texts[skipped : skipped + len(wanted)]
    if [seq for seq, _ in texts] != wanted.tolist():
        raise ValueError(f"the log's passages differ from the segment's passages {first} to {last}")
    return [text for _, text in texts]


def _stored(row: SearchSegment) -> Segment:
    blocks = SearchBlock.objects.filter(segment=row, number__lte=row.blocks + 1).order_by("number")
    documents, *postings, last = (bytes(data) for data in blocks.values_list("data", flat=True))
    return replace(segments.decode(documents, postings), vectors=vectors.decode(last))


def _write(index: SearchIndex, covered: Range, segment: Segment) -> None:
    """Store a segment, replacing all segments that overlap it; may raise LeaseLost."""
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
