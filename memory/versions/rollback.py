"""Rollback: making an earlier version the newest again without changing the log."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Min, QuerySet

from memory.kernel.hooks import later
from memory.kernel.models.users import MemoryUser
from memory.kernel.refused import Refused
from memory.log import lanes
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.project import Outline, RecordId
from memory.project.paths import constraint_path
from memory.versions import checkpoints, computed_states, earlier_entries
from memory.versions.differences import difference, differing_paths, records_in
from memory.versions.models.checkpoints import Checkpoint, Origin, RecordLocation
from memory.versions.past_states import refuse_being_redacted, refuse_redacted

# The start of the reason that is stored for entries excluded by a rollback.
UNDONE = "excluded by the rollback to version"
# REOPENED is the key under which a verdict stores the entries that its version reopened. AS_BEFORE
# is the reason stored when the reopening is undone, for entries that weren't covered before they
# were reopened.
REOPENED = "reopened"
AS_BEFORE = "as before the entry was reopened"
_find_affected_alerts: Callable[
    [MemoryUser, Set[RecordId], Set[RecordId], Set[str]], tuple[Sequence[Any], Sequence[Any]]
] = later("memory.alerts.rollback_preview:affected_alerts")
_forget_answers: Callable[[MemoryUser], None] = later("memory.recall.answer_cache:forget")


class NothingToRestore(Refused):
    """The newest version is already identical to the version to restore."""


class NoSuchVersion(NothingToRestore):
    """The user has no such version."""

    status = 404


@dataclass(frozen=True)
class Excluded:
    """Everything that a rollback to an earlier version would exclude.

    `records` are the records that the earlier version doesn't contain. `alerts` are the live alerts
    that will be resolved because they are based on these records or belong to constraints that the
    earlier version doesn't have. `may_resolve` are live alerts based on records that have different
    content in the earlier version. `entries` are the entries that only later versions contain.
    """

    records: Sequence[RecordId]
    alerts: Sequence[Any]
    may_resolve: Sequence[Any]
    entries: Sequence[int]


def excluded_by_restoring(user: MemoryUser, version: int) -> Excluded:
    """Return what a rollback to this version would exclude, without performing it.

    Further alerts may be resolved when the constraints run on the restored records.

    Raises NothingToRestore if there is no such version or the newest version is identical to it;
    Redacted if the version is based on redacted content; and BeingRedacted during a redaction.
    """
    refuse_being_redacted(user)
    head, target = _head_and_target(user, version)
    if target.tree == head.tree and not _reopenings_since(target):
        raise NothingToRestore(
            f"The newest version, {head.version}, is already identical to version {version}."
        )
    back = difference(head, target)
    gone = [change.record for change in back.retired]
    changed = {change.record for change in back.changed}
    outline = Outline.from_json(target.outline)
    constraints = {constraint_path(name) for name in outline.constraints}
    resolving, uncertain = _find_affected_alerts(user, set(gone), changed, constraints)
    entries = _undone(target).order_by("seq").values_list("seq", flat=True)
    return Excluded(gone, resolving, uncertain, list(entries))


def _head_and_target(user: MemoryUser, version: int) -> tuple[Checkpoint, Checkpoint]:
    head = user.head
    target = Checkpoint.objects.filter(user=user, version=version).first()
    if head is None or target is None:
        raise NoSuchVersion(f"This user has no version {version}.")
    refuse_redacted(target)
    return head, target


def restore(
    user: MemoryUser, version: int, *, reopen: bool, by: str, reason: str = ""
) -> Checkpoint:
    """Roll back: store an earlier version's content as a new version. The log stays unchanged.

    Entries that only later versions contain are dismissed, with the reason. If `reopen` is set,
    these entries become pending instead and are reprocessed; their records get the same keys as
    before, and facts derived from messages are processed in place of the messages. If `reopen` is
    not set, entries that were reopened after the earlier version get their previous outcomes back.
    Work in progress is repeated on the restored version.

    Raises NothingToRestore if there is no such version or nothing would change; Redacted if the
    version is based on redacted content; and BeingRedacted during a redaction.
    """
    with transaction.atomic():
        locked = MemoryUser.objects.locked(user.pk)
        refuse_being_redacted(locked)
        head, target = _head_and_target(locked, version)
        reopenings = _reopenings_since(target)
        if target.tree == head.tree and (reopen or not reopenings):
            raise NothingToRestore(
                f"The newest version, {head.version}, is already identical to version {version}."
            )
        restored = {"version": version, "by": by, "reason": reason, "reopened": reopen}
        # Even if the target reopened entries, the new version doesn't.
        verdict = {name: part for name, part in target.verdict.items() if name != REOPENED}
        checkpoint = checkpoints.add_restored(locked, target, {**verdict, "restored": restored})
        _move_records(head, target, checkpoint, reopen=reopen)
        _undo_outcomes(target, restored)
        _undo_retirements(locked, target)
        if not reopen:
            _undo_reopenings(target, reopenings, restored)
        _forget_answers(locked)
        checkpoints.make_head(locked, checkpoint)
    return checkpoint


def _move_records(
    head: Checkpoint, target: Checkpoint, checkpoint: Checkpoint, *, reopen: bool
) -> None:
    differing = differing_paths(head, target)
    were, back = records_in(head, differing), records_in(target, differing)
    locations = RecordLocation.objects.filter(user=head.user_id)
    for record, (path, _) in back.items():
        if record in were and were[record][0] == path:
            continue  # the record's path is unchanged; only its content differs
        locations.filter(domain=record.domain, collection=record.collection, key=record.key).update(
            path=path, retired_version=None
        )
    for record in were.keys() - back.keys():
        row = locations.filter(domain=record.domain, collection=record.collection, key=record.key)
        if not (reopen and row.filter(added_version__gt=target.version).delete()[0]):
            row.update(retired_version=checkpoint.version)
    if reopen:  # delete even records that had already been retired
        locations.filter(
            added_version__gt=target.version, retired_version__lt=checkpoint.version
        ).delete()


def _undo_retirements(user: MemoryUser, target: Checkpoint) -> None:
    """Make the index name, for each key, the last retirement that the target knows of."""
    rows = list(RecordLocation.objects.filter(user=user, ended_by__isnull=False))
    ids = {RecordId(row.domain, row.collection, row.key) for row in rows}
    made = computed_states.lineage(target)
    retirements = earlier_entries.last_retirements(
        user, ids, computed_states.within(made), computed_states.within(made, "checkpoint__")
    )
    for row in rows:
        row.ended_by = retirements.get(RecordId(row.domain, row.collection, row.key))
    RecordLocation.objects.bulk_update(rows, ["ended_by"], batch_size=1000)


def _undone(target: Checkpoint) -> QuerySet[EntryOutcome]:
    """Select the outcomes of entries that the project contains but the target doesn't."""
    messages = LogEntry.objects.filter(user=target.user_id, kind=EntryKind.MESSAGE)
    outcomes = EntryOutcome.objects.filter(user=target.user_id, checkpoint__isnull=False)
    return (
        outcomes.filter(outcome=Outcome.COVERED)
        .exclude(computed_states.within(computed_states.lineage(target), "checkpoint__"))
        .exclude(seq__in=messages.values("seq"))
    )


def _reopenings_since(target: Checkpoint) -> list[Checkpoint]:
    """Return later versions that reopened entries and haven't been rolled back.

    See `memory.llm.reopening`.
    """
    later = Checkpoint.objects.filter(user=target.user_id, version__gt=target.version)
    returns = later.filter(origin=Origin.RESTORED).exclude(verdict__has_key=REOPENED)
    undone = list(returns.values_list("version", "verdict__restored__version"))
    return [
        one
        for one in later.filter(verdict__has_key=REOPENED).order_by("version")
        if not any(to < one.version < version for version, to in undone)
    ]


def _undo_reopenings(
    target: Checkpoint, reopenings: Sequence[Checkpoint], restored: Mapping[str, Any]
) -> None:
    """Give reopened entries back the outcomes they had before they were first reopened.

    Entries that the target doesn't contain are dismissed, like all later entries.
    """
    user = target.user
    were: dict[int, tuple[str | None, int | None]] = {}
    for one in reopenings:
        for seq, outcome, version in one.verdict[REOPENED]["outcomes"]:
            were.setdefault(seq, (outcome, version))
    if not were:
        return
    numbers = {version for _, version in were.values() if version is not None}
    made = Checkpoint.objects.filter(user=user, version__in=numbers)
    versions: dict[int | None, Checkpoint] = {one.version: one for one in made}
    held = computed_states.lineage(target)

    def again(outcome: str, version: int | None) -> tuple[str, str]:
        if outcome != Outcome.COVERED:
            return outcome, AS_BEFORE
        if version is None or any(began <= version <= last for began, last in held):
            return outcome, ""
        return Outcome.DISMISSED, _undone_by(target, restored)

    decided = []
    for seq, (was, version) in sorted(were.items()):
        if was is not None:  # None means that the entry was pending
            outcome, reason = again(was, version)
            made_by = versions.get(version)
            decided.append(
                EntryOutcome(user=user, seq=seq, outcome=outcome, checkpoint=made_by, reason=reason)
            )
    EntryOutcome.objects.filter(user=user, seq__in=were).delete()
    EntryOutcome.objects.bulk_create(decided)
    lanes.recount(user.pk)


def _undone_by(target: Checkpoint, restored: Mapping[str, Any]) -> str:
    because = f": {restored['reason']}" if restored["reason"] else ""
    return f"{UNDONE} {target.version}{because}"


def _undo_outcomes(target: Checkpoint, restored: Mapping[str, Any]) -> None:
    made = computed_states.within(computed_states.lineage(target), "checkpoint__")
    outcomes = EntryOutcome.objects.filter(user=target.user_id, checkpoint__isnull=False)
    undone = _undone(target)
    # An earlier rollback may have excluded entries that the target contains: undo that.
    outcomes.filter(made, outcome=Outcome.DISMISSED, reason__startswith=UNDONE).update(
        outcome=Outcome.COVERED, reason=""
    )
    first = undone.aggregate(Min("seq"))["seq__min"]
    if first is None:
        return
    if not restored["reopened"]:
        # Keep the reference to the version that contained the entry, because as of that version,
        # the entry isn't pending.
        undone.update(outcome=Outcome.DISMISSED, reason=_undone_by(target, restored))
        return
    undone.delete()
    lanes.begin_again(target.user, first)
