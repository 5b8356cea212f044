"""Rows for tests that are not about how those rows come to be."""

import datetime
from typing import Any

from django.utils import timezone

from memory import log
from memory.log import PAYLOAD_FIELDS, Draft
from memory.models import Checkpoint, LogEntry, MemoryUser, Redaction, Run
from memory.models.checkpoints import Origin
from memory.models.log import EntryKind
from memory.models.runs import RunKind, RunStatus, RunTrigger
from memory.project import Outline
from workers import tasks


def make_checkpoint(user: MemoryUser, version: int = 1, **fields: Any) -> Checkpoint:
    """Store a version with no files, accepted by nobody."""
    defaults: dict[str, Any] = {
        "parent": Checkpoint.objects.filter(user=user, version=version - 1).first(),
        "tree": {},
        "outline": Outline().to_json(),
        "seen_seq": 0,
        "origin": Origin.RECORDS,
        "edits": [],
        "verdict": {"accepted": True},
    }
    return Checkpoint.objects.create(user=user, version=version, **{**defaults, **fields})


def make_run(
    checkpoint: Checkpoint,
    *,
    kind: RunKind = RunKind.CONSTRAINTS,
    instant: datetime.datetime | None = None,
    **fields: Any,
) -> Run:
    """Store a queued run of a version."""
    return Run.objects.create(
        user=checkpoint.user,
        kind=kind,
        trigger=RunTrigger.CHECKPOINT,
        checkpoint=checkpoint,
        instant=instant or timezone.now(),
        status=RunStatus.QUEUED,
        **fields,
    )


def reject(user: MemoryUser, number: int = 1, *, key: str = "missing") -> list[int]:
    """Append typed entries that the project cannot hold, settle them, and return their numbers.

    They retire records that nobody has added; the reasons quote the keys.
    """
    data = {"domain": "work", "type": "Task", "retired": True}
    drafts = [
        Draft(kind=EntryKind.RECORD, data={**data, "key": f"{key}-{index}"})
        for index in range(number)
    ]
    entries = log.append(user, drafts, source="test")
    tasks.checkpoint_records(user.pk)
    return [entry.seq for entry in entries]


def redacted(user: MemoryUser, seq: int, at: datetime.datetime) -> None:
    """Leave an entry as a redaction at that moment would have, and nothing else."""
    empty = dict.fromkeys((*PAYLOAD_FIELDS, "salt"))
    LogEntry.objects.filter(user=user, seq=seq).update(**empty, redacted_at=at)
    Redaction.objects.create(
        user=user, seq=user.last_seq + 1, asked=[seq], entries=[seq], by="test", created_at=at
    )
