"""Build checkpoints from typed entries with trusted code only, without a language model.

Pending `record` entries become edits, the edits become a candidate, and the gate judges the
candidate. An entry that contradicts the schema or that the gate won't accept (bisection finds which
entry) is rejected with the reason; the other entries go through.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from django.conf import settings
from django.db import Error, transaction

from memory.kernel.models.users import Lane, MemoryUser
from memory.log import copies, lanes
from memory.log.entry_log import record_entry
from memory.log.models.entries import LogEntry, Outcome
from memory.log.models.merges import Merge
from memory.project import (
    Change,
    Edit,
    EditError,
    Project,
    RecordId,
    apply,
    compile_record,
    set_aside_by,
)
from memory.project.edits import Retire, RetireEarlier, Update
from memory.project.names import key_of_entry
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision
from memory.versions.earlier_entries import LoggedEntries
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.prescribed_classes import adopt_prescribed
from workers.commits.on_head import Draft, commit_on_head
from workers.findings import Verdict
from workers.gate import checks as gate
from workers.gate.cases import Profile, ProjectCase

logger = structlog.get_logger(__name__)

# Errors that no entry caused: the entries are retried later.
_TRANSIENT = (Error, MemoryError, SystemError)


def settle_pending(lane: Lane) -> bool:
    """Settle a batch of typed entries; return whether more of the user's are pending."""
    if entries := lanes.pending(lane, settings.UAC_CHECKPOINT_BATCH):
        commit_on_head(lane, lane.user_id, functools.partial(_build, entries))
        lane.cursor_seq = entries[-1].seq
    return lanes.release(lane)


@dataclass(frozen=True, kw_only=True)
class _BatchDraft(Draft):
    """A batch of entries as a change; `decisions` has the outcome of each."""

    decisions: Sequence[Decision]

    def decide(self, user: MemoryUser) -> Sequence[Decision]:
        """Return the outcomes, which the gate's verdict determined."""
        return self.decisions

    def finish(self, user: MemoryUser, made: Checkpoint | None) -> None:
        """Log the new version once it is committed."""
        if made is None:
            return
        outcomes = [decision.outcome for decision in self.decisions]
        log = functools.partial(
            logger.info,
            "checkpoint_accepted",
            user=user.pk,
            version=made.version,
            entries=len(outcomes),
            rejected=outcomes.count(Outcome.REJECTED),
            **self.verdict.counts,
        )
        transaction.on_commit(log, robust=True)


def _build(entries: Sequence[LogEntry], user: MemoryUser) -> _BatchDraft:
    """Return the batch as a change to the user's head, with an outcome for every entry."""
    best = _best_attempt(user, entries)
    return _BatchDraft(
        change=best.change,
        verdict=best.verdict,
        origin=Origin.RECORDS,
        seen_seq=entries[-1].seq,
        edits=best.edits,
        decisions=[
            Decision(entry.seq, Outcome.REJECTED, best.rejected[entry.seq])
            if entry.seq in best.rejected
            else _covered(entry.seq, best)
            for entry in entries
        ],
    )


def _covered(seq: int, attempt: "_Attempt") -> Decision:
    set_aside = attempt.set_aside.get(seq, ())
    remark = attempt.change.remarks.get(seq)
    if remark is None:
        return Decision(seq, Outcome.COVERED, set_aside=set_aside)
    reason = f"{remark.code}: {remark.message}"
    newer = remark.newer or None
    return Decision(seq, Outcome.COVERED, reason, superseded_by=newer, set_aside=set_aside)


@dataclass(frozen=True)
class _Attempt:
    """The entries as a change to the project, and the gate's verdict on it."""

    change: Change
    edits: Sequence[Edit]
    rejected: dict[int, str]
    set_aside: dict[int, list[str]]
    verdict: Verdict


def _best_attempt(user: MemoryUser, entries: Sequence[LogEntry]) -> _Attempt:
    """Return an accepted attempt with as many of the entries as the gate lets through."""
    attempt = _attempt(user, entries)
    if attempt.verdict.accepted:
        return attempt
    offenders = _offenders(user, [], entries, attempt.verdict)
    innocent = [entry for entry in entries if entry.seq not in offenders]
    attempt = _attempt(user, innocent)
    if not attempt.verdict.accepted:
        raise gate.GateUnavailable(
            f"entries that passed individually fail together: {attempt.verdict.reason}"
        )
    return replace(attempt, rejected={**attempt.rejected, **offenders})


def _offenders(
    user: MemoryUser,
    base: Sequence[LogEntry],
    entries: Sequence[LogEntry],
    verdict: Verdict,
) -> dict[int, str]:
    """Bisect to find the entries that the gate rejects on top of `base`; map each to the reason."""
    if len(entries) == 1:
        return {entries[0].seq: verdict.reason}
    offenders: dict[int, str] = {}
    middle = len(entries) // 2
    accepted = list(base)
    for half in (entries[:middle], entries[middle:]):
        attempt = _attempt(user, [*accepted, *half])
        if not attempt.verdict.accepted:
            offenders |= _offenders(user, accepted, half, attempt.verdict)
        accepted += [entry for entry in half if entry.seq not in offenders]
    return offenders


def _attempt(user: MemoryUser, entries: Sequence[LogEntry]) -> _Attempt:
    """Compile the entries on the user's head and judge the result.

    An entry that contradicts the schema is left out, and the reason is added to `rejected`.
    """
    rejected: dict[int, str] = {}
    statements = {entry.seq: record_entry(entry) for entry in entries}
    merged = {seq: row for seq, (row, _) in copies.origins(user, statements.keys()).items()}
    keys = [
        statement.key or key_of_entry(statement.type, statement.seq)
        for statement in statements.values()
    ]
    earlier = LoggedEntries(user, statements.values())
    while True:
        project = checkpoints.open_project(user.head, user, keys=keys)
        project.earlier = earlier
        earlier.look_up(project)
        edits: list[Edit] = adopt_prescribed(project, user)
        set_aside: dict[int, list[str]] = {}
        for entry in entries:
            if entry.seq in rejected:
                continue
            try:
                compiled = compile_record(project, statements[entry.seq])
                if merge := merged.get(entry.seq):
                    _refuse_collision(project, compiled, merge, user)
            except _TRANSIENT:
                raise
            except Exception as error:
                rejected[entry.seq] = _refusal(entry, error)
                continue
            try:
                for edit in compiled:
                    apply(project, edit)
            except _TRANSIENT:
                raise
            except Exception as error:
                # Some of the entry's edits have already been applied, so start over without this
                # entry.
                rejected[entry.seq] = _refusal(entry, error)
                break
            edits += compiled
            if values := set_aside_by(project, statements[entry.seq], compiled):
                set_aside[entry.seq] = values
        else:
            change = project.change()
            case = ProjectCase(profile=Profile.TYPED, user=user, parent=user.head, change=change)
            verdict = gate.judge(case) if change.files else Verdict()
            return _Attempt(change, edits, rejected, set_aside, verdict)


def _refuse_collision(
    project: Project, edits: Sequence[Edit], merge: Merge, user: MemoryUser
) -> None:
    """Raise EditError if a merged entry would change a record based on the user's own entries.

    The two merged users may have meant different things by the same key.
    """
    for edit in edits:
        if isinstance(edit, Retire | RetireEarlier) or (isinstance(edit, Update) and edit.fields):
            record_id = RecordId(edit.domain, edit.collection, edit.key)
            record = project.record(record_id)
            sources = set(record.sources) if record else set()
            if sources - copies.came_from(merge, sources).keys():
                raise EditError(
                    "merged_key",
                    f"{'.'.join(record_id)} is {user}'s own record: {merge.merged}'s record"
                    " with the same key did not overwrite it; append an entry that says which of"
                    " the two is right",
                )


def _refusal(entry: LogEntry, error: Exception) -> str:
    """Return why an entry could not be turned into edits.

    Any error other than EditError is a bug in the server. The error would recur on every attempt,
    and one entry must not block a user, so the entry is rejected but stays in the user's log, and
    the bug is reported in the server's own log.
    """
    if isinstance(error, EditError):
        return str(error)
    logger.error("entry_failed", user=entry.user_id, seq=entry.seq, error=type(error).__name__)
    return f"the server failed on this entry ({type(error).__name__})"
