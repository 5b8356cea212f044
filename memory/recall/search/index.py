"""Reading the stored index of a user's log when searching.

Entries that no segment covers are indexed in memory on every search, so the index may be out of
date, incomplete or missing without affecting the results. Searches just become slower (or, above a
limit, are rejected), and only the newest part of a long unindexed tail gets vectors. Workers
maintain the segments (`memory.recall.search.index_maintenance`).
"""

import threading
import zoneinfo
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import structlog
from django.db import connection

from memory.kernel.admission import slots
from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from memory.recall.search import announcing, segments, vectors
from memory.recall.search.announcing import TAIL
from memory.recall.search.documents import READ, documents_of, text_of
from memory.recall.search.embeddings import for_log, for_texts, is_multilingual
from memory.recall.search.embeddings.interface import Embedder, EmbeddingFailed
from memory.recall.search.segments import VERSION, Document, Segment
from memory.recall.search.vectors import Vectors

logger = structlog.get_logger(__name__)

# Searches embed only the newest part of the unindexed tail, up to this many characters.
LIVE_CHARACTERS = 60_000
# Each search indexes the unindexed tail in memory, which takes half a second per million
# characters. Tails of more than QUICK_CHARACTERS need a slot. Tails of more than
# MAX_LIVE_CHARACTERS must wait for a worker to index them.
QUICK_CHARACTERS = 200_000
MAX_LIVE_CHARACTERS = 20_000_000
INDEX_RETRY_SECONDS = 10.0
# The maximum total size, in bytes, of the vectors that a process caches for recent searches.
CACHED_BYTES = 64 * 1024 * 1024
# A segment's vectors are its last and by far its largest block; if the vectors are cached, they are
# not read again.
_READ = """
SELECT s.id, s.first_seq, s.last_seq, b.number > s.blocks, b.data
FROM memory_searchsegment s JOIN memory_searchblock b ON b.segment_id = s.id
WHERE s.user_id = %s AND s.version = %s
  AND (b.number = 0
    OR b.number IN (SELECT 1 + t.id %% s.blocks FROM unnest(%s::bigint[]) AS t (id))
    OR b.number = s.blocks + 1 AND %s AND s.id <> ALL(%s::bigint[]))
ORDER BY s.first_seq, b.number
"""

Range = tuple[int, int]


def read(
    user: MemoryUser,
    terms: Sequence[int],
    embedder: Embedder | None = None,
    *,
    with_vectors: bool = False,
    live: dict[Range, Segment] | None = None,
) -> list[Segment]:
    """Return segments that cover the whole log, in order, with the postings for these terms.

    If a model is given, or if `with_vectors` is set because the model has just failed, the segments
    include any vectors they have, even those from an earlier model. Entries that the user's index
    doesn't cover are read from the log and embedded with the model, or with the one for their
    languages; `live` caches them for the next call. Raises `LimitExceeded` if these entries contain
    too much text, or if too many other searches are currently reading such entries.
    """
    live = {} if live is None else live
    with_vectors = with_vectors or embedder is not None
    cached = _cache.get(user.pk) if with_vectors else {}
    # A single statement sees a single snapshot, i.e. either all of a concurrent merge or none of
    # it.
    with connection.cursor() as cursor:
        parameters: list[Any] = [user.pk, VERSION, list(terms), with_vectors, list(cached)]
        cursor.execute(_READ, parameters)
        rows = cursor.fetchall()
    blocks: dict[tuple[int, int, int], list[bytes]] = {}
    read_vectors: dict[int, bytes] = {}
    for segment, first, last, has_vectors, data in rows:
        if has_vectors:
            read_vectors[segment] = bytes(data)
        else:
            blocks.setdefault((segment, first, last), []).append(bytes(data))
    by_range: dict[Range, Segment] = {}
    known_vectors: dict[int, Vectors | None] = {}
    for (segment, first, last), (documents, *postings) in blocks.items():
        try:
            decoded = segments.decode(documents, postings)
            if with_vectors:
                known_vectors[segment] = _vectors(cached, segment, read_vectors, len(decoded.seqs))
        except ValueError as error:
            logger.error("search_segment_unreadable", segment=segment, error=str(error))
            continue
        by_range[first, last] = replace(decoded, vectors=known_vectors.get(segment))
    if with_vectors:
        _cache.keep(user.pk, known_vectors)
    made_by = {one.vectors.model if one.vectors else "" for one in by_range.values()}
    try:
        embedder = for_log(embedder, is_multilingual=any(map(is_multilingual, made_by)))
    except EmbeddingFailed as error:
        logger.error("search_without_vectors", user=user.pk, error=str(error))
        embedder = None
    is_behind = embedder is not None and bool(made_by - {embedder.name})
    for missing in uncovered_ranges(list(by_range), None):
        if missing not in live:
            live[missing] = _live(user, missing, embedder)
        by_range[missing] = live[missing]
        is_behind |= _is_behind(by_range[missing])
    if is_behind:
        announcing.want(
            user.pk,
            user.workspace_id,
            is_multilingual=embedder is not None and is_multilingual(embedder.name),
        )
    return [by_range[covered] for covered in sorted(by_range)]


def _is_behind(tail: Segment) -> bool:
    """Return whether the tail is too long or lacks vectors."""
    has_all = tail.vectors is None or bool(np.isfinite(tail.vectors.factors).all())
    return not has_all or len(np.unique(tail.seqs)) > TAIL


def _vectors(
    cached: Mapping[int, Vectors | None], segment: int, read: Mapping[int, bytes], number: int
) -> Vectors | None:
    """Return a segment's vectors; raises ValueError if they don't match its documents."""
    decoded = cached[segment] if segment in cached else vectors.decode(read.get(segment, b""))
    if decoded is not None and len(decoded.values) != number:
        raise ValueError(f"{len(decoded.values)} vectors for {number} documents")
    return decoded


class _Cache:
    """The vectors of the most recently read segments; a segment's vectors never change.

    A deleted segment's vectors are never requested again, and are dropped the next time its user's
    log is searched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: OrderedDict[int, Mapping[int, Vectors | None]] = OrderedDict()
        self._bytes = 0

    def get(self, user_pk: int) -> Mapping[int, Vectors | None]:
        """Return a user's cached vectors, keyed by segment."""
        with self._lock:
            return self._users.get(user_pk, {})

    def keep(self, user_pk: int, by_segment: Mapping[int, Vectors | None]) -> None:
        """Replace a user's cached vectors."""
        size = _size(by_segment)
        with self._lock:
            self._bytes -= _size(self._users.pop(user_pk, {}))
            if size:
                self._users[user_pk] = by_segment
                self._bytes += size
            while self._bytes > CACHED_BYTES:
                _, gone = self._users.popitem(last=False)
                self._bytes -= _size(gone)


def _size(by_segment: Mapping[int, Vectors | None]) -> int:
    return sum(one.bytes for one in by_segment.values() if one is not None)


_cache = _Cache()


def _live(user: MemoryUser, covered: Range, embedder: Embedder | None) -> Segment:
    zone = zoneinfo.ZoneInfo(user.time_zone)
    entries = LogEntry.objects.filter(user=user, seq__range=covered).order_by("seq").only(*READ)
    documents: list[Document] = []
    characters = 0
    with ExitStack() as stack:
        for entry in entries.iterator():
            before, characters = characters, characters + len(text_of(entry))
            if before <= QUICK_CHARACTERS < characters:
                # A worker has to index the tail, whether or not this search may.
                announcing.want(user.pk, user.workspace_id)
                stack.enter_context(slots.INDEXING.hold(user.workspace_id))
            if characters > MAX_LIVE_CHARACTERS:
                raise LimitExceeded(
                    "max_unindexed",
                    "Much of this user's log is still being indexed. Try again in"
                    f" {INDEX_RETRY_SECONDS:g} s.",
                    INDEX_RETRY_SECONDS,
                )
            documents += documents_of(entry, zone)
        built = segments.build(documents)
        if not embedder or not documents:
            return built
        try:
            embedder = for_texts(embedder, (one.text for one in documents)) or embedder
            return replace(built, vectors=_embedded_live(documents, embedder))
        except EmbeddingFailed as error:
            logger.warning("search_tail_without_vectors", user=user.pk, error=str(error))
            return built


def _embedded_live(documents: Sequence[Document], embedder: Embedder) -> Vectors:
    """Return vectors for the newest documents only; the closeness of older ones stays unknown."""
    room = LIVE_CHARACTERS
    first = len(documents)
    while first and room >= len(documents[first - 1].text):
        first -= 1
        room -= len(documents[first].text)
    made = embedder.embed([one.text for one in documents[first:]])
    padded = np.zeros((len(documents), made.shape[1]), np.float32)
    padded[first:] = made
    quantised = vectors.quantised(embedder.name, padded)
    quantised.factors[:first] = np.nan
    return quantised


def uncovered_ranges(covered: Sequence[Range], last: int | None) -> list[Range]:
    """Return the ranges of the log, up to `last`, that no segment covers.

    If `last` is None, the final range has no end.
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
