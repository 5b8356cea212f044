"""Rows for tests that are not about how those rows are made."""

import datetime
import uuid
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from memory.kernel.canonical import git_blob_id, sha256
from memory.kernel.models.users import MemoryUser
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import PAYLOAD_FIELDS, EntryKind, LogEntry
from memory.log.models.redactions import Redaction
from memory.project import Outline
from memory.versions.models.checkpoints import Blob, Checkpoint, Origin
from memory.versions.models.runs import Run, RunKind, RunStatus, RunTrigger
from workers import tasks


def make_checkpoint(user: MemoryUser, version: int = 1, **fields: Any) -> Checkpoint:
    """Store a version without files, which nobody accepted."""
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


def store_files(user: MemoryUser, files: Mapping[str, str]) -> dict[str, str]:
    """Store the text of these files; return the tree of a version that has them."""
    tree = {path: sha256(text) for path, text in files.items()}
    blobs = [
        Blob(user=user, hash=tree[path], content=text, git_id=git_blob_id(text.encode()))
        for path, text in files.items()
    ]
    Blob.objects.bulk_create(blobs, ignore_conflicts=True)
    return tree


def make_run(
    checkpoint: Checkpoint,
    *,
    kind: RunKind = RunKind.CONSTRAINTS,
    instant: datetime.datetime | None = None,
    status: str = RunStatus.QUEUED,
    **fields: Any,
) -> Run:
    """Store a run of a version, by default a queued one."""
    return Run.objects.create(
        user=checkpoint.user,
        kind=kind,
        trigger=RunTrigger.CHECKPOINT,
        checkpoint=checkpoint,
        instant=instant or timezone.now(),
        status=status,
        **fields,
    )


def reject(user: MemoryUser, number: int = 1, *, key: str = "missing") -> list[int]:
    """Append typed entries that the project cannot hold, settle them, and return their numbers.

    Their keys end with a control character, which the API would not take; the reasons quote them.
    """
    data = {"domain": "work", "type": "Task", "retired": True}
    drafts = [
        Draft(kind=EntryKind.RECORD, data={**data, "key": f"{key}-{index}\a"})
        for index in range(number)
    ]
    entries = entry_log.append(user, drafts, source="test")
    tasks.work("records", user.pk)
    return [entry.seq for entry in entries]


def redacted(user: MemoryUser, seq: int, at: datetime.datetime) -> None:
    """Leave an entry as a redaction at that moment would have, and nothing else."""
    empty = dict.fromkeys((*PAYLOAD_FIELDS, "salt"))
    LogEntry.objects.filter(user=user, seq=seq).update(**empty, redacted_at=at)
    Redaction.objects.create(
        user=user, seq=user.last_seq + 1, asked=[seq], entries=[seq], by="test", created_at=at
    )


def make_session(
    user: MemoryUser,
    *,
    model: str = "openai:the-model",
    refusals: int = 0,
    made: Checkpoint | None = None,
    accepted: bool = False,
    at: datetime.datetime | None = None,
) -> LlmCall:
    """Store the rows of a language model's session on a user.

    They are its first call, with how often the gate refused it, whether it was accepted, and the
    version that it made.
    """
    began = at or timezone.now()
    accepted = accepted or made is not None
    return LlmCall.objects.create(
        workspace=user.workspace,
        user=user,
        purpose=LlmPurpose.STRUCTURE,
        work=uuid.uuid4(),
        turn=1,
        attempt=1,
        model=model,
        prompt_hash="0" * 64,
        outcome=LlmOutcome.OK,
        reserved_tokens=0,
        started_at=began,
        expires_at=began,
        finished_at=began,
        checkpoint=made,
        accepted=accepted if accepted or refusals else None,
        refusals=refusals if accepted or refusals else None,
    )
