"""Make a version without the redacted content, and remove all copies of that content.

Records and constraints that rely on a redacted entry are restored to their state before that entry
touched them, or removed. Other entries that have changed these records
and constraints since then become pending again, so that the changes are redone. If the gate rejects
the resulting project, the redacted content still has to go: the gate then checks only what it
checks for typed entries, as if somebody had retired the records. The gate's objection is stored for
staff, and a constraint that can't cope with the change fails visibly on its next run. If the
project does not even load, the redaction is retried, and nothing is reported as redacted until the
redaction succeeds.
"""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from memory.constraints import applicability
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases
from memory.log import lanes
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.redactions import Redaction
from memory.privacy import forgetting, redaction
from memory.privacy.forgetting import Traces
from memory.project import Change, EditError, Project, Record, RecordId, conflicts
from memory.project.conform import conform_fields
from memory.versions import checkpoints, runs
from memory.versions.checkpoints import Decision, HeadMoved
from memory.versions.models.checkpoints import Checkpoint, Origin
from workers.commits.on_head import Draft, commit_on_head
from workers.findings import Verdict
from workers.gate import checks as gate
from workers.gate.cases import Profile, ProjectCase

logger = structlog.get_logger(__name__)


def redact(row: Redaction) -> None:
    """Finish all redactions in progress of the user whose redaction the caller has claimed.

    Everything is written in one transaction: a worker that is killed before it commits has written
    nothing, and the redaction starts over.
    """
    commit_on_head(row, row.user_id, functools.partial(_build, row))


@dataclass(frozen=True, kw_only=True)
class _RedactionDraft(Draft):
    """The user's project without anything that relies on the redacted entries `seqs`.

    `again` contains the unredacted entries that have to be reprocessed; `problem` is the gate's
    objection, if any. The change is None if the newest version contains nothing to remove.
    """

    row: Redaction
    seqs: Collection[int]
    traces: Traces
    again: Collection[int] = ()
    problem: str = ""

    def decide(self, user: MemoryUser) -> Sequence[Decision]:
        """Lock the user; raise HeadMoved if the project or the entries have changed."""
        locked = MemoryUser.objects.locked(user.pk)
        leases.check(self.row)
        if locked.head_id != user.head_id or redaction.under_way(locked) != self.seqs:
            raise HeadMoved(f"{user}: entries were redacted or the project changed in the meantime")
        return []

    def finish(self, user: MemoryUser, made: Checkpoint | None) -> None:
        """Remove all copies of the content, and have the entries in `again` reprocessed."""
        user = MemoryUser.objects.get(pk=user.pk)
        again = {seq for behind in self.traces.ended.values() for seq in behind} | {*self.again}
        reopened = _reopen(user, again) if again else []
        forgetting.forget(user, self.seqs, self.traces)
        user.redacting_since = None
        user.save(update_fields=["redacting_since"])
        if user.head is not None and applicability.wants_constraints_run(user.head):
            runs.queue_constraints(user, user.head)
        version = made.version if made else None
        leases.release(
            self.row,
            due_at=None,
            finished_at=timezone.now(),
            version=version,
            records=len(self.traces.head_records),
            constraints=len(self.traces.head_constraints),
            reopened=len(reopened),
            problem=self.problem,
            last_error="",
        )
        log = functools.partial(
            logger.info,
            "redacted",
            user=user.pk,
            entries=len(self.seqs),
            version=version,
            problem=bool(self.problem),
        )
        transaction.on_commit(log, robust=True)


def _build(row: Redaction, user: MemoryUser) -> _RedactionDraft:
    # Finish all of the user's redactions in progress together, with a single new version.
    seqs = redaction.under_way(user)
    traces = forgetting.find(user, seqs)
    draft = _RedactionDraft(
        change=None,
        verdict=Verdict(),
        origin=Origin.REDACTION,
        seen_seq=row.seq,
        row=row,
        seqs=seqs,
        traces=traces,
    )
    if not traces.in_head:
        return draft
    change, again = _without(user, row, traces)
    case = ProjectCase(profile=Profile.REDACTION, user=user, parent=user.head, change=change)
    verdict = gate.judge(case)
    problem = verdict.reason
    if problem:
        verdict = gate.judge(replace(case, profile=Profile.TYPED))
    if not verdict.accepted:
        raise gate.GateUnavailable(f"without the redacted content, {verdict.reason}")
    # No edits are stored, because they would name the removed records.
    notes = {"redaction": {"seq": row.seq, "problem": problem}}
    return replace(draft, change=change, verdict=verdict, notes=notes, again=again, problem=problem)


def _without(user: MemoryUser, row: Redaction, traces: Traces) -> tuple[Change, set[int]]:
    """Return the change that removes the content, and the entries to reprocess.

    The entries to reprocess are the unredacted entries that contributed to what the change removes.
    """
    keys = {record.key for record in traces.head_records}
    project = checkpoints.open_project(user.head, user, keys=keys)
    again: set[int] = set()
    for record_id, sources in sorted(traces.head_records.items()):
        earlier = _as_it_was(project, record_id, traces.earlier.get(record_id))
        if earlier is None:
            traces.earlier.pop(record_id, None)
            project.remove(record_id, ())
        else:
            project.replace(record_id, earlier)
        if record_id.domain != conflicts.DOMAIN:  # removing a conflict leaves nothing to reprocess
            again |= set(sources) - set(earlier.sources if earlier else ())
    for name, also in sorted(traces.head_constraints.items()):
        if (text := traces.earlier_constraints.get(name)) is None:
            project.delete_constraint(name)
        else:
            project.write_constraint(name, *text)
        again |= also
    return project.change(), again


def _as_it_was(project: Project, record_id: RecordId, earlier: Record | None) -> Record | None:
    """Return a record as it was before a redacted entry touched it.

    Returns None if the record cannot be restored under the current schema.
    """
    domain = project.outline.domains[record_id.domain]
    now = project.record(record_id)
    if earlier is None or now is None or now.class_name != earlier.class_name:
        return None
    if not {*earlier.sources} <= {*now.sources}:  # it belongs to an earlier life of the record
        return None
    class_ = domain.classes[earlier.class_name]
    try:
        fields = conform_fields(earlier.fields, class_, domain, ".".join(record_id))
    except EditError:  # the class has changed since then
        return None
    return replace(earlier, fields=fields)


def _reopen(user: MemoryUser, seqs: Collection[int]) -> list[int]:
    """Make entries that the previous version covered pending again.

    A message from which facts were derived stays settled: the facts are reopened instead.
    """
    made = LogEntry.objects.filter(
        user=user, redacted_at=None, derived_from__contains=[OuterRef("seq")]
    )
    messages = LogEntry.objects.filter(Exists(made), user=user, kind=EntryKind.MESSAGE)
    outcomes = EntryOutcome.objects.filter(user=user, seq__in=seqs, outcome=Outcome.COVERED)
    wordless = LogEntry.objects.filter(user=user, redacted_at__isnull=False)
    again = outcomes.exclude(seq__in=messages.values("seq")).exclude(seq__in=wordless.values("seq"))
    reopened = sorted(again.values_list("seq", flat=True))
    if reopened:
        again.delete()
        lanes.begin_again(user, reopened[0])
    return reopened
