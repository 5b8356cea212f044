"""Rows for tests that are not about how those rows come to be."""

import datetime
from typing import Any

from django.utils import timezone

from memory.log import PAYLOAD_FIELDS
from memory.models import Checkpoint, LogEntry, MemoryUser, Redaction, Run
from memory.models.checkpoints import Origin
from memory.models.runs import RunKind, RunStatus, RunTrigger
from memory.project import Outline


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


def redacted(user: MemoryUser, seq: int, at: datetime.datetime) -> None:
    """Leave an entry as a redaction at that moment would have, and nothing else."""
    empty = dict.fromkeys((*PAYLOAD_FIELDS, "salt"))
    LogEntry.objects.filter(user=user, seq=seq).update(**empty, redacted_at=at)
    Redaction.objects.create(
        user=user, seq=user.last_seq + 1, asked=[seq], entries=[seq], by="test", created_at=at
    )
