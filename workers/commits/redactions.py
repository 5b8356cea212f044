"""Make a version without the redacted content, and remove all copies of that content.

Records and constraints that rely on a redacted entry are restored to their state before that entry
touched them, or removed; legacy files are removed. Other entries that have changed these records
and constraints since then become pending again, so that the changes are redone. If the gate rejects
the resulting project, the redacted content still has to go: the gate then checks only what it
checks for typed entries, as if somebody had retired the records. The gate's objection is stored for
staff, and a constraint that can't cope with the change fails visibly on its next run. If the
project does not even load, the redaction is retried, and nothing is reported as redacted until the
redaction succeeds.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from memory import checkpoints, users
from memory.checkpoints import Candidate, HeadMoved
from memory.models import EntryOutcome, LogEntry, MemoryUser, Redaction
from memory.models.checkpoints import Origin
from memory.models.log import EntryKind, Outcome
from memory.privacy import forgetting, redaction
from memory.privacy.forgetting import Traces
from memory.project import Change, EditError, Project, Record, RecordId, conflicts
from memory.project.conform import conform_fields
from memory.work import lanes, leases, runs
from workers.gate import judging
from workers.gate.cases import Profile, ProjectCase

logger = structlog.get_logger(__name__)

MAX_REBUILDS = 3


def work_on(user_pk: int) -> None:
    """Finish the user's redactions in progress, unless another worker is doing so.

    Everything is written in one transaction: a worker that is killed before it commits has written
    nothing, and the redaction starts over.
    """
    row = leases.claim(redaction.waiting().filter(user_id=user_pk))
    if row is None:
        return
    try:
        with leases.kept(row):
            for attempt in range(1, MAX_REBUILDS + 1):
                try:
                    _finish(row)
                except HeadMoved:
                    if attempt == MAX_REBUILDS:
                        raise
                else:
                    break
    except leases.LeaseLost:
        logger.warning("lease_lost", user=user_pk)
    except Exception as error:
        leases.fail(row, f"{type(error).__name__}: {error}")
        raise


def _finish(row: Redaction) -> None:
    user = users.with_head(MemoryUser.objects.select_related("workspace")).get(pk=row.user_id)
    # Finish all of the user's redactions in progress together, with a single new version.
    seqs = redaction.under_way(user)
    traces = forgetting.find(user, seqs)
    draft = _draft(user, row, traces) if traces.in_head else None
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        leases.check(row)
        if locked.head_id != user.head_id or redaction.under_way(locked) != seqs:
            raise HeadMoved(f"{user}: entries were redacted or the project changed in the meantime")
        checkpoint = None
        reopened: list[int] = []
        if draft is not None:
            checkpoint = checkpoints.commit(row, locked, draft.candidate, [])
            locked.refresh_from_db()
        again = {seq for behind in traces.ended.values() for seq in behind}
        again |= {*draft.again} if draft else set()
        if again:
            reopened = _reopen(locked, again)
        forgetting.forget(locked, seqs, traces)
        locked.redacting_since = None
        locked.save(update_fields=["redacting_since"])
        if locked.head is not None and checkpoints.wants_constraints_run(locked.head):
            runs.queue_constraints(locked, locked.head)
        leases.release(
            row,
            due_at=None,
            finished_at=timezone.now(),
            version=checkpoint.version if checkpoint else None,
            records=len(traces.head_records),
            constraints=len(traces.head_constraints),
            reopened=len(reopened),
            problem=draft.problem if draft else "",
            last_error="",
        )
    logger.info(
        "redacted",
        user=user.pk,
        entries=len(seqs),
        version=checkpoint.version if checkpoint else None,
        problem=bool(draft and draft.problem),
    )


@dataclass(frozen=True)
class _Draft:
    """A project without anything that relies on the redacted entries.

    `again` contains the unredacted entries that have to be reprocessed; `problem` is the gate's
    objection, if any.
    """

    candidate: Candidate
    again: Collection[int]
    problem: str


def _draft(user: MemoryUser, row: Redaction, traces: Traces) -> _Draft:
    assert user.head is not None
    change, again = _without(user, row, traces)
    case = ProjectCase(profile=Profile.REDACTION, user=user, parent=user.head, change=change)
    verdict = judging.judge(case)
    problem = verdict.reason
    if problem:
        verdict = judging.judge(replace(case, profile=Profile.TYPED))
    if not verdict.accepted:
        raise judging.GateUnavailable(f"without the redacted content, {verdict.reason}")
    candidate = Candidate(
        parent=user.head,
        change=change,
        edits=[],  # stored edits would name the removed records
        origin=Origin.REDACTION,
        seen_seq=max(user.head.seen_seq, row.seq),
        verdict={**verdict.to_json(), "redaction": {"seq": row.seq, "problem": problem}},
        bytecode=verdict.bytecode,
        image_digest=verdict.image_digest,
    )
    return _Draft(candidate, again, problem)


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
    project.drop_legacy(sorted(traces.head_legacy))
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
        lanes.begin_again(user.pk, reopened[0])
    return reopened
