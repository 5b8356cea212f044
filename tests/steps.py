"""Steps that many tests take: entries, versions and runs of a user, and values that must exist."""

import datetime
from collections.abc import Sequence
from typing import Any, TypeVar

from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.versions import runs
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunTrigger
from workers import tasks

T = TypeVar("T")


class Killed(BaseException):
    """An exception like kill -9: nothing catches it or writes anything."""


def not_none(value: T | None) -> T:
    """Return a value that must exist, for the type checker, too."""
    assert value is not None
    return value


def head_of(user: MemoryUser) -> Checkpoint:
    """Return the user's newest version, which must exist; the user is read anew."""
    user.refresh_from_db()
    return not_none(user.head)


def due(user: MemoryUser) -> datetime.datetime | None:
    """Return when the constraints of the user run next by the clock."""
    user.refresh_from_db()
    return user.constraints_due_at


def append_texts(
    user: MemoryUser, *texts: str, kind: EntryKind = EntryKind.MESSAGE, **fields: Any
) -> list[int]:
    """Append entries with these texts, without working on them; return their numbers."""
    drafts = [Draft(kind=kind, content=text, **fields) for text in texts]
    return [entry.seq for entry in entry_log.append(user, drafts, source="test")]


def append_records(user: MemoryUser, *statements: dict[str, Any]) -> list[int]:
    """Append typed entries, without working on them; return their numbers."""
    drafts = [Draft(kind=EntryKind.RECORD, data=statement) for statement in statements]
    return [entry.seq for entry in entry_log.append(user, drafts, source="test")]


def settle_records(user: MemoryUser, *statements: dict[str, Any]) -> list[int]:
    """Append typed entries and settle them; return their numbers."""
    seqs = append_records(user, *statements)
    tasks.work("records", user.pk)
    user.refresh_from_db()
    return seqs


def execute(run: Run) -> Run:
    """Execute a run as a worker does; return it as it is then."""
    tasks.work("runs", str(run.pk))
    run.refresh_from_db()
    return run


def attempt(run: Run) -> Run:
    """Execute a run at once, even if it is to wait after a failure; return it as it is then."""
    Run.objects.filter(pk=run.pk).update(run_after=timezone.now())
    return execute(run)


def propose(
    user: MemoryUser,
    *edits: dict[str, Any],
    considered: Sequence[int] = (),
    trigger: RunTrigger = RunTrigger.API,
    **options: Any,
) -> Run:
    """Propose edits of the newest version and let the gate decide; return the finished run."""
    user.refresh_from_db()
    given = {"edits": list(edits), "considered": list(considered), **options}
    run = runs.queue(user, RunKind.PROPOSAL, trigger, checkpoint=user.head, input=given)
    execute(run)
    user.refresh_from_db()
    return run
