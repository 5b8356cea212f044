"""Which entries have been redacted, and whether a version was made before that."""

import datetime
from collections.abc import Collection, Iterable

from memory.kernel.models.users import MemoryUser
from memory.log.models.redactions import Redaction
from memory.versions.checkpoints import AnyState


def _not_named(user_pk: int, seqs: Collection[int]) -> list[int]:
    """Return which of the entries are not part of any redaction.

    This includes entries that only retention has cleared, since data derived from them may still
    exist.
    """
    redactions = Redaction.objects.filter(user=user_pk, entries__overlap=list(seqs))
    named = {seq for entries in redactions.values_list("entries", flat=True) for seq in entries}
    return sorted(set(seqs) - named)


def redacted_among(user: MemoryUser, seqs: Collection[int]) -> list[int]:
    """Return which of these entries have been redacted, in ascending order."""
    numbers = {seq for seq in seqs if abs(seq) < 2**63}  # no log has larger numbers
    return sorted(numbers - set(_not_named(user.pk, numbers)))


def moments(user_pk: int) -> list[tuple[int, datetime.datetime]]:
    """Return each redacted entry's number and the time of its redaction.

    Entries that were only cleared by retention are left out.
    """
    redactions = Redaction.objects.filter(user=user_pk).values_list("entries", "created_at")
    return [(seq, at) for entries, at in redactions for seq in entries]


def first_since(
    checkpoint: AnyState, redacted: Iterable[tuple[int, datetime.datetime]]
) -> int | None:
    """Return the first entry seen by the version that was redacted after the version was created.

    `redacted` comes from `moments`. Returns None if there is no such entry.
    """
    seen, since = checkpoint.seen_seq, checkpoint.created_at
    return min((seq for seq, at in redacted if seq <= seen and at > since), default=None)
