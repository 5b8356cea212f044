"""The index as rows: read for a question, and kept up by workers.

What no segment covers is made into one in memory whenever it is searched, so an index may be
behind, incomplete or gone, and no search notices but by its speed. Segments are merged so that each
has at least twice the postings of the next: few are read, and an entry is merged a few times.
"""

import zoneinfo
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog
from django.db import connection, transaction
from django.db.models import Max, Q, Sum
from django.db.models.functions import Length

from memory import leases
from memory.models import LogEntry, MemoryUser, SearchBlock, SearchIndex, SearchSegment
from memory.search import segments
from memory.search.announcing import TAIL, TAIL_CHARACTERS, waiting
from memory.search.documents import READ, document_of
from memory.search.segments import VERSION, Segment

logger = structlog.get_logger(__name__)

# A segment is built of so many entries or characters at most; and merged up to so many postings.
BUILD_ENTRIES = 2048
BUILD_CHARACTERS = 4_000_000
MERGE_POSTINGS = 4_000_000

_READ = """
SELECT s.id, s.first_seq, s.last_seq, b.data
FROM memory_searchsegment s JOIN memory_searchblock b ON b.segment_id = s.id
WHERE s.user_id = %s AND s.version = %s
  AND (b.number = 0
    OR b.number IN (SELECT 1 + t.id %% s.blocks FROM unnest(%s::bigint[]) AS t (id)))
ORDER BY s.first_seq, b.number
"""

Range = tuple[int, int]


# -- Reading --------------------------------------------------------------------------------------


def read(user: MemoryUser, terms: Sequence[int]) -> list[Segment]:
    """Return segments of the whole log, in its order, that have the postings of these terms.

    What the user's index does not cover is read from the log, up to the newest entry.
    """
    # One statement, one snapshot: a merge that commits meanwhile is seen whole or not at all.
    with connection.cursor() as cursor:
        cursor.execute(_READ, [user.pk, VERSION, list(terms)])
        rows = cursor.fetchall()
    blocks: dict[tuple[int, int, int], list[bytes]] = {}
    for segment, first, last, data in rows:
        blocks.setdefault((segment, first, last), []).append(bytes(data))
    found: dict[Range, Segment] = {}
    for (segment, first, last), (entries, *postings) in blocks.items():
        try:
            found[first, last] = segments.decode(entries, postings)
        except ValueError as error:
            logger.error("search_segment_unreadable", segment=segment, error=str(error))
    for missing in _uncovered(list(found), None):
        found[missing] = _live(user, missing)
    return [found[covered] for covered in sorted(found)]


def _live(user: MemoryUser, covered: Range) -> Segment:
    zone = zoneinfo.ZoneInfo(user.time_zone)
    entries = LogEntry.objects.filter(user=user, seq__range=covered).order_by("seq").only(*READ)
    documents = (document_of(entry, zone) for entry in entries.iterator())
    return segments.build([one for one in documents if one is not None])


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
    """A segment to be made: of the entries of a range, or of these segments."""

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
        merged = segments.merge([_stored(one) for one in plan.merged])
    except ValueError as error:
        logger.error("search_segments_unreadable", user=index.user_id, error=str(error))
        with transaction.atomic():
            leases.check(index)
            _remove([one.pk for one in plan.merged])  # they are built anew
    else:
        _write(index, plan.covers, merged)
    return True


def _plan(index: SearchIndex) -> _Plan | None:
    """Decide what to make next: a segment where one is missing, then of several one."""
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
    return None


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
    """Return a segment of the first entries of the range, and what it covers of it."""
    user = MemoryUser.objects.only("time_zone").get(pk=index.user_id)
    zone = zoneinfo.ZoneInfo(user.time_zone)
    entries = LogEntry.objects.filter(user=user, seq__range=missing).order_by("seq").only(*READ)
    documents = []
    characters = 0
    last = missing[1]
    for entry in entries[:BUILD_ENTRIES].iterator(chunk_size=200):
        document = document_of(entry, zone)
        if document is not None:
            documents.append(document)
        last = entry.seq
        characters += len(entry.content or "")
        if characters >= BUILD_CHARACTERS:
            break
    return (missing[0], last), segments.build(documents)


def _stored(row: SearchSegment) -> Segment:
    blocks = SearchBlock.objects.filter(segment=row).order_by("number")
    entries, *postings = (bytes(data) for data in blocks.values_list("data", flat=True))
    return segments.decode(entries, postings)


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
            blocks=len(blocks) - 1,
            postings=len(segment.places),
        )
        SearchBlock.objects.bulk_create(
            SearchBlock(segment=row, number=number, data=data) for number, data in enumerate(blocks)
        )


def _remove(rows: Iterable[int]) -> None:
    rows = list(rows)
    SearchBlock.objects.filter(segment__in=rows)._raw_delete("default")
    SearchSegment.objects.filter(pk__in=rows)._raw_delete("default")
