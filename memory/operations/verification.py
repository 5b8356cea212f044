"""Verifying that no stored data has been lost, altered or left half done: `manage.py verify`.

The checks only read the database, and describe each problem in a sentence. They concern what no
constraint of a table can say. docs/backup.md lists the problem codes and their remedies. Run the
checks in a single snapshot, so that concurrent writes cause no false alarms. No check keeps more in
memory than the names of one user's files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import connection
from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q, QuerySet

from memory.alerts import duplicates
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind, EventCounter
from memory.alerts.models.webhooks import Delivery
from memory.kernel.canonical import git_blob_id, sha256
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.texts import REDACTED
from memory.log import copies, entry_log
from memory.log.lanes import KINDS
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.merges import CopiedEntries, Merge
from memory.log.models.redactions import Redaction
from memory.privacy import erasure_registry, forgetting, user_erasure
from memory.privacy.models import UserErasure
from memory.project import Outline
from memory.recall.models import SearchSegment
from memory.recall.search.segments import VERSION
from memory.versions import redactions
from memory.versions.checkpoints import is_redacted
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, RecordLocation
from memory.versions.models.runs import Run

# Maximum number of rows a check reports for each kind of problem.
NAMED = 20


@dataclass(frozen=True)
class Discrepancy:
    """An inconsistency in the stored data; `code` names the check that found it."""

    code: str
    message: str

    def __str__(self) -> str:
        return self.message


def problems(user: MemoryUser) -> Iterator[Discrepancy]:
    """Yield the inconsistencies in a user's data."""
    # The log may have grown since the user's row was read.
    user.refresh_from_db()
    for code, check in (_OF_USERS if user.erased_at is None else _OF_ERASED).items():
        for sentence in check(user):
            yield Discrepancy(code, sentence)


def workspace_problems(workspace: Workspace) -> Iterator[Discrepancy]:
    """Yield the inconsistencies in a workspace's event feed and webhook messages."""
    for code, check in (("event", _event_problems), ("delivery", _delivery_problems)):
        for sentence in check(workspace):
            yield Discrepancy(code, sentence)


def _outcome_problems(user: MemoryUser) -> Iterator[str]:
    counts = entry_log.coverage(user)
    if counts.pending < 0:
        yield f"there are {-counts.pending} more outcomes than entries"
    outcomes = EntryOutcome.objects.filter(user=user)
    for seq in _some(outcomes.filter(seq__gt=user.last_seq), "seq"):
        yield f"there is an outcome for entry {seq}, which is not in the log"
    for seq in _some(_of_others(outcomes, user), "seq"):
        yield f"the outcome of entry {seq} names another user's version"
    for seq in _pending(LogEntry.objects.filter(user=user, kind=EntryKind.REDACTION)):
        yield f"entry {seq} is a redaction but has no outcome"


def _lane_problems(user: MemoryUser) -> Iterator[str]:
    """Check that every pending entry will be processed, since it would be lost otherwise.

    A merged user's entries are copied, and the copies are processed instead.
    """
    if user.merged_into_id is not None:
        return
    lanes = {lane.name: lane for lane in Lane.objects.filter(user=user)}
    for name in LaneName:
        lane = lanes.get(name)
        if lane is None:
            yield f"the lane {name} is missing: nothing will process its entries"
            continue
        entries = LogEntry.objects.filter(user=user, kind__in=KINDS[name])
        for seq in _pending(entries.filter(seq__lte=lane.cursor_seq)):
            yield f"entry {seq} is pending, but the lane {name} continues after {lane.cursor_seq}"
        if lane.due_at is None:
            for seq in _pending(entries.filter(seq__gt=lane.cursor_seq))[:1]:
                yield f"entry {seq} is pending, but nothing is due in the lane {name}"


def _blob_problems(user: MemoryUser) -> Iterator[str]:
    for blob in Blob.objects.filter(user=user).iterator(chunk_size=100):
        if blob.content is None:  # redacted content leaves its hash behind
            continue
        if sha256(blob.content) != blob.hash:
            yield f"blob {blob.hash}: the hash of its content is different"
        elif git_blob_id(blob.content.encode()) != blob.git_id:
            yield f"blob {blob.hash}: the git id of its content is different"


def _version_problems(user: MemoryUser) -> Iterator[str]:
    """Check that versions are consecutive and have all their files."""
    hashes = set(Blob.objects.filter(user=user).values_list("hash", flat=True))
    cited: set[str] = set()
    compiled: set[tuple[str, str]] = set()
    previous: dict[str, Any] | None = None
    rows = Checkpoint.objects.filter(user=user).order_by("version")
    columns = ("pk", "version", "parent_id", "seen_seq", "tree")
    for row in rows.values(*columns).iterator(chunk_size=20):
        version = row["version"]
        expected = previous["version"] + 1 if previous else 1
        if version != expected:
            yield f"version {expected} is missing"
        if row["parent_id"] != (previous["pk"] if previous else None):
            yield f"version {version} does not follow version {expected - 1}"
        if row["seen_seq"] > user.last_seq:
            yield f"version {version} has seen entry {row['seen_seq']}, which is not in the log"
        for path, hash_ in row["tree"].items():
            if hash_ not in hashes:
                yield f"version {version}: the content of {path} is missing"
        cited |= set(row["tree"].values())
        compiled |= set(row["tree"].items())
        previous = {"pk": row["pk"], "version": version}
    if user.head_id != (previous["pk"] if previous else None):
        yield "the head is not the newest version"
    for hash_ in sorted(hashes - cited)[:NAMED]:
        yield f"blob {hash_}: no version uses it"
    code = Bytecode.objects.filter(user=user).values_list("path", "source_hash")
    for path, hash_ in sorted(set(code.iterator()) - compiled)[:NAMED]:
        yield f"bytecode of {path} ({hash_[:12]}): no version has that file"


def _record_problems(user: MemoryUser) -> Iterator[str]:
    """Check that the index names the right file for every record in the newest version."""
    head = user.head
    located = RecordLocation.objects.filter(user=user, retired_version=None)
    tree = head.tree if head else {}
    for location in located.exclude(path__in=list(tree))[:NAMED]:
        yield f"the record {location} is located in {location.path}, which does not exist"
    if head is None:
        return
    counted: dict[tuple[str, str, str], int] = {}
    for domain in Outline.from_json(head.outline).domains.values():
        for collection in domain.collections.values():
            for shard in collection.shards:
                counted[domain.name, collection.name, shard.path] = shard.count
        for singleton in domain.singletons.values():
            counted[domain.name, singleton.name, domain.state_path] = 1
    groups = located.order_by().values_list("domain", "collection", "path").annotate(Count("id"))
    indexed = {(domain, name, path): number for domain, name, path, number in groups}
    for key in sorted(indexed.keys() | {key for key, number in counted.items() if number}):
        has, says = counted.get(key, 0), indexed.get(key, 0)
        if has != says and key[2] in tree:
            holder = ".".join(key[:2])
            yield f"{key[2]} has {has} records of {holder}, but the index locates {says} there"
    beyond = Q(added_version__gt=head.version) | Q(retired_version__gt=head.version)
    for location in RecordLocation.objects.filter(beyond, user=user)[:NAMED]:
        yield f"the record {location} belongs to a version that does not exist"


def _run_problems(user: MemoryUser) -> Iterator[str]:
    runs = Run.objects.filter(user=user)
    for pk in _some(_of_others(runs, user)):
        yield f"run {pk} has another user's version"


def _alert_problems(user: MemoryUser) -> Iterator[str]:
    of_user = Alert.objects.filter(user=user)
    opened = AlertEvent.objects.filter(kind=AlertEventKind.OPENED, alert=OuterRef("pk"))
    for pk in _some(of_user.listed().filter(~Exists(opened))):
        yield f"alert {pk} has no event that opened it"
    originals = of_user.listed().filter(pk=OuterRef("duplicate_of"))
    orphans = of_user.filter(~Exists(originals), duplicate_of__isnull=False)
    for pk in _some(orphans):
        yield f"alert {pk} is a duplicate of an alert that does not belong to the user"
    for alert in islice(duplicates.find_orphans(of_user), NAMED):
        yield f"alert {alert.pk} is not listed, although it does not duplicate a listed alert"
    for pk in _some(_of_others(of_user, user, "last_run__user")):
        yield f"alert {pk} was raised by another user's run"
    events = erasure_registry.rows_of(AlertEvent, user).exclude(workspace=user.workspace_id)
    for pk in _some(events):
        yield f"event {pk} is in the feed of another workspace"


def _redaction_problems(user: MemoryUser) -> Iterator[str]:  # noqa: C901 - one case for each kind
    """Check that redacted content is gone, including from everything derived from it."""
    rows = Redaction.objects.filter(user=user)
    waiting = rows.filter(due_at__isnull=False).exists()
    if user.redacting_since is not None and not waiting:
        yield "the project is blocked by a redaction, but none is in progress"
    gone = LogEntry.objects.filter(user=user, redacted_at__isnull=False)
    named = {seq for entries in rows.values_list("entries", flat=True) for seq in entries}
    messages = gone.filter(kind=EntryKind.MESSAGE)
    # Retention clears old, settled messages, which are not part of any redaction.
    outlived = set(messages.values_list("seq", flat=True)) - named - _redacted_seqs(user)
    # A merged user's messages are copied to the other user's log and settled there.
    unsettled = messages.filter(seq__in=outlived, user__merged_into=None)
    for seq in _pending(unsettled):
        yield f"entry {seq} lost its text before it was settled"
    redacted = set(gone.values_list("seq", flat=True)) - outlived
    for seq in sorted(redacted - named)[:NAMED]:
        yield f"entry {seq} is redacted, but no redaction names it"
    for seq in sorted(named - redacted)[:NAMED]:
        yield f"entry {seq} is named by a redaction but is not redacted"
    if not redacted:
        return
    others = EntryOutcome.objects.filter(user=user).exclude(outcome=Outcome.DISMISSED)
    for seq in _some(others.filter(seq__in=redacted), "seq"):
        yield f"entry {seq} is redacted but was not dismissed"
    if user.head is not None and is_redacted(user.head):
        yield "the newest version has a file that was redacted"
    if waiting:
        return  # derived data may remain until the redaction is complete
    if user.head is not None:
        paths = {
            hash_: path for path, hash_ in user.head.tree.items() if path.startswith("domains/")
        }
        files = Blob.objects.filter(user=user, hash__in=list(paths), content__isnull=False)
        for hash_, content in files.values_list("hash", "content").iterator(chunk_size=50):
            for seq in sorted(forgetting.cited(content or "") & redacted)[:NAMED]:
                yield f"{paths[hash_]} is based on entry {seq}, which was redacted"
    revealing = Alert.objects.filter(user=user).exclude(message=REDACTED)
    for pk in _some(revealing.filter(entries__overlap=sorted(redacted))):
        yield f"alert {pk} reports an entry that was redacted"


def _redacted_seqs(user: MemoryUser) -> set[int]:
    """Return the entries that were redacted according to the log's redaction entries."""
    rows = LogEntry.objects.filter(user=user, kind=EntryKind.REDACTION)
    return {seq for data in rows.values_list("data", flat=True) for seq in (data or {})["entries"]}


def _merge_problems(user: MemoryUser) -> Iterator[str]:
    """Check that all of a merged user's entries were copied, and none were appended later."""
    merge = Merge.objects.filter(merged=user).first()
    if (merge.user_id if merge else None) != user.merged_into_id:
        yield "the user was merged into a different user than the merge record says"
    if merge is None:
        return
    entries = LogEntry.objects.filter(user=user).exclude(kind=EntryKind.REDACTION)
    for seq in _some(entries.filter(seq__gt=merge.last_seq), "seq"):
        yield f"entry {seq} was appended after the merge"
    copied = CopiedEntries.objects.filter(
        merge=merge, from_seq__lte=OuterRef("seq"), from_seq__gt=OuterRef("seq") - F("number")
    )
    kept = entries.filter(redacted_at=None).exclude(seq__in=merge.skipped)
    for seq in _some(kept.filter(~Exists(copied), seq__lte=merge.cursor_seq), "seq"):
        yield f"entry {seq} was not copied by the merge"
    end = MemoryUser.objects.get(pk=merge.user_id).last_seq
    beyond = CopiedEntries.objects.annotate(end=F("seq") + F("number") - 1)
    for row in beyond.filter(merge=merge, end__gt=end)[:NAMED]:
        yield (
            f"entry {row.from_seq} was copied as entry {row.seq}, which the other log does not have"
        )
    # If a message was only cleared by retention, its copy is not redacted.
    gone = [seq for seq, _ in redactions.moments(user.pk) if seq <= merge.last_seq]
    became = copies.became(merge, gone)
    left = LogEntry.objects.filter(
        user=merge.user_id, seq__in=became.values(), redacted_at=None
    ).values_list("seq", flat=True)
    for seq in sorted(left)[:NAMED]:
        yield f"an entry was redacted, but its copy {seq} was not"


_OVERLAPS = """
SELECT one.id, two.id FROM memory_searchsegment one JOIN memory_searchsegment two
    ON two.user_id = one.user_id AND two.id <> one.id AND two.version = one.version
    AND (two.first_seq, two.id) > (one.first_seq, one.id) AND two.first_seq <= one.last_seq
WHERE one.user_id = %s ORDER BY 1, 2 LIMIT %s
"""


def _search_problems(user: MemoryUser) -> Iterator[str]:
    segments = SearchSegment.objects.filter(user=user)
    names = {segment.pk: str(segment) for segment in segments}
    with connection.cursor() as cursor:
        cursor.execute(_OVERLAPS, [user.pk, NAMED])
        for one, two in cursor.fetchall():
            yield f"the search segments {names[one]} and {names[two]} overlap"
    for segment in segments.filter(last_seq__gt=user.last_seq):
        yield f"the search segment {segment} covers entries that do not exist"
    # A segment has one block of documents, one of vectors, and `blocks` blocks of postings. Any
    # further blocks contain another model's vectors, which are still being computed.
    own = Count("parts", filter=Q(parts__number__lte=F("blocks") + 1))
    parts = segments.filter(version=VERSION).annotate(number=own)
    for segment in parts.exclude(number=F("blocks") + 2):
        yield f"the search segment {segment} is missing parts"
    gone = LogEntry.objects.filter(user=user, redacted_at__isnull=False)
    for seq, at in gone.values_list("seq", "redacted_at").iterator():
        older = segments.filter(first_seq__lte=seq, last_seq__gte=seq, created_at__lt=at)
        for segment in older:
            yield (
                f"the search segment {segment} contains entry {seq} as it was before its redaction"
            )


def _event_problems(workspace: Workspace) -> Iterator[str]:
    """Check that the workspace's events are numbered without gaps up to the counter."""
    events = AlertEvent.objects.filter(workspace=workspace)
    totals = events.aggregate(number=Count("id"), first=Min("seq"), last=Max("seq"))
    counters = EventCounter.objects.filter(workspace=workspace)
    counted = counters.values_list("last_seq", flat=True).first() or 0
    last = totals["last"] or 0
    if last != counted:
        yield f"the newest event is {last}, but the counter is at {counted}"
    if totals["number"] != last or (totals["first"] or 1) != 1:
        with connection.cursor() as cursor:
            cursor.execute(_GAPS, [workspace.pk, NAMED])
            for first, end in cursor.fetchall():
                missing = f"event {first} is" if first == end else f"events {first} to {end} are"
                yield f"{missing} missing from the feed"


_GAPS = """
SELECT previous + 1, seq - 1 FROM (
    SELECT seq, lag(seq, 1, 0::bigint) OVER (ORDER BY seq) AS previous
    FROM memory_alertevent WHERE workspace_id = %s) AS numbered
WHERE seq > previous + 1 ORDER BY 1 LIMIT %s
"""


def _delivery_problems(workspace: Workspace) -> Iterator[str]:
    """Check that each webhook message is consistent with its event and its workspace."""
    deliveries = Delivery.objects.filter(endpoint__workspace=workspace)
    foreign = deliveries.filter(event__isnull=False).exclude(event__workspace=workspace)
    for pk in _some(foreign):
        yield f"delivery {pk} reports an event from another workspace"
    of_alert = Q(event__alert__isnull=False)
    wrong = ~Q(seq=F("event__seq")) | (of_alert & ~Q(alert=F("event__alert")))
    wrong |= ~of_alert & Q(alert__isnull=False)
    for pk in _some(deliveries.filter(wrong, event__isnull=False)):
        yield f"delivery {pk} does not match its event"


def _erasure_problems(user: MemoryUser) -> Iterator[str]:
    row = UserErasure.objects.filter(user=user).first()
    if row is None:
        yield "the user is erased, but the requester is not recorded"
    elif row.due_at is None:
        for what in user_erasure.left(user):
            yield f"the user is erased, but there are still {what}"


_OF_USERS = {
    "log": entry_log.broken_links,
    "outcome": _outcome_problems,
    "lane": _lane_problems,
    "file": _blob_problems,
    "version": _version_problems,
    "record": _record_problems,
    "run": _run_problems,
    "alert": _alert_problems,
    "redaction": _redaction_problems,
    "merge": _merge_problems,
    "search": _search_problems,
}
_OF_ERASED = {"log": entry_log.broken_links, "erasure": _erasure_problems}


def _some(rows: Any, column: str = "pk") -> Sequence[Any]:
    """Return the first NAMED values of a column of these rows, by default their primary keys."""
    return list(rows.order_by(column).values_list(column, flat=True)[:NAMED])


def _of_others(rows: Any, user: MemoryUser, path: str = "checkpoint__user") -> Any:
    """Keep the rows whose `path` lookup leads to a different user."""
    return rows.filter(**{f"{path}__isnull": False}).exclude(**{path: user})


def _pending(entries: QuerySet[LogEntry]) -> Sequence[int]:
    """Return the first NAMED of these entries that have no outcome."""
    decided = EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq"))
    return _some(entries.filter(~Exists(decided)), "seq")
