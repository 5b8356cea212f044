"""What a redaction would remove, as of now."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from django.db.models import Q

from memory.kernel.models.users import MemoryUser
from memory.log import documents
from memory.log.models.documents import Document
from memory.privacy import forgetting, redaction
from memory.project import RecordId

Effect = Literal["removed", "restored"]


@dataclass(frozen=True)
class Preview:
    """What a redaction would remove from one user's memory.

    `entries` are all that it would clear, and `sources` those that they were derived from, which
    would remain. `records` and `constraints` are those of the newest version; a record is restored
    to what it was before the entries, if it was anything. `traces` has all versions. The files of
    `documents` would be removed, and nothing would be left of those mapped to True.
    """

    user: MemoryUser
    entries: Sequence[int]
    sources: Sequence[int]
    records: Mapping[RecordId, Effect]
    constraints: Sequence[str]
    documents: Mapping[Document, bool]
    traces: forgetting.Traces


def preview(user: MemoryUser, seqs: Collection[int], within: Q | None = None) -> list[Preview]:
    """Return what a redaction would remove from this user's memory and from merged users'.

    The user comes first; of the others, only those `within` the condition are described. Raises
    UnknownEntries and RedactionRefused, as `redaction.redact` does.
    """
    affected = redaction.find_affected(user, seqs)
    others = MemoryUser.objects.filter(within or Q(), pk__in=affected.keys() - {user.pk})
    return [
        _describe(user, affected[user.pk]),
        *(_describe(other, affected[other.pk]) for other in others if affected[other.pk]),
    ]


def _describe(user: MemoryUser, seqs: Sequence[int]) -> Preview:
    traces = forgetting.find(user, seqs)
    return Preview(
        user,
        seqs,
        redaction.find_sources(user, seqs),
        {
            one: "restored" if one in traces.kept else "removed"
            for one in sorted(traces.head_records)
        },
        sorted(traces.head_constraints),
        {one: documents.is_whole(one, seqs) for one in documents.select_behind(user.pk, seqs)},
        traces,
    )
