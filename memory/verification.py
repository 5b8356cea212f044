"""Proof that a user's memory is as it was written: `manage.py verify`."""

from collections.abc import Iterator

from django.db.models import Q

from memory import log
from memory.canonical import sha256
from memory.models import Blob, Checkpoint, EntryOutcome, MemoryUser, RecordLocation


def problems(user: MemoryUser) -> Iterator[str]:
    """Yield a sentence for everything that is not as it should be."""
    # The end of the log may have moved since the row was read.
    user.refresh_from_db()
    yield from log.broken_links(user)
    yield from _outcome_problems(user)
    yield from _blob_problems(user)
    yield from _checkpoint_problems(user)


def _outcome_problems(user: MemoryUser) -> Iterator[str]:
    counts = log.coverage(user)
    if counts.pending < 0:
        yield f"{-counts.pending} more outcomes than entries"
    beyond = EntryOutcome.objects.filter(user=user).filter(Q(seq__gt=user.last_seq) | Q(seq__lt=1))
    for outcome in beyond:
        yield f"an outcome for entry {outcome.seq}, which is not in the log"


def _blob_problems(user: MemoryUser) -> Iterator[str]:
    for blob in Blob.objects.filter(user=user).iterator(chunk_size=100):
        if sha256(blob.content) != blob.hash:
            yield f"blob {blob.hash}: its content has another hash"


def _checkpoint_problems(user: MemoryUser) -> Iterator[str]:
    known = set(Blob.objects.filter(user=user).values_list("hash", flat=True))
    previous: Checkpoint | None = None
    for checkpoint in Checkpoint.objects.filter(user=user).order_by("version").iterator():
        expected = previous.version + 1 if previous else 1
        if checkpoint.version != expected:
            yield f"version {expected} is missing"
        if checkpoint.parent_id != (previous.pk if previous else None):
            yield f"version {checkpoint.version} does not follow version {expected - 1}"
        if not checkpoint.verdict.get("accepted"):
            yield f"version {checkpoint.version} did not pass the gate"
        for path, hash_ in checkpoint.tree.items():
            if hash_ not in known:
                yield f"version {checkpoint.version}: the content of {path} is missing"
        previous = checkpoint
    if user.head_id != (previous.pk if previous else None):
        yield "the head is not the newest version"
    if previous is not None:
        located = RecordLocation.objects.filter(user=user, retired_version=None)
        for location in located.exclude(path__in=list(previous.tree)):
            yield f"the record {location} is located in {location.path}, which is no file"
