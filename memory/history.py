"""What was known at an earlier moment, what changed since, and going back to it.

A version is *what we knew* when the newest entry that it considered was the newest there was. What
it did not hold yet is pending. Nothing here touches the log.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, Min, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Least
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from memory import checkpoints, lanes, runs
from memory.hints import hint
from memory.models import Checkpoint, EntryOutcome, Lane, LogEntry, MemoryUser, RecordLocation
from memory.models.checkpoints import Origin
from memory.models.log import EntryKind, Outcome
from memory.models.users import LaneName
from memory.project import Outline, RecordId
from memory.project.parse import parse_state
from memory.project.typed import encode

# Of the entries that a version did not hold yet, so many are named.
PENDING_NAMED = 1000
# What is said of entries that a return to an earlier version has left out.
UNDONE = "undone by the return to version"
# A seq, a version such as v7, or a moment.
_SEQ = re.compile(r"[0-9]{1,18}")
_VERSION = re.compile(r"v([0-9]{1,9})")
FORMS = (
    "Give the number of an entry (120), a version (v7), or a moment with its offset"
    " (2026-03-01T09:00:00+01:00)."
)


class BadMoment(ValueError):
    """Nothing was ever known at that: it is no moment of this user's log."""


class Redacted(Exception):
    """What was known then holds what was redacted since, so it is not told any more."""


class NothingToRestore(Exception):
    """The head is no other than the version."""


class NoSuchVersion(NothingToRestore):
    """The version is not there."""


@dataclass(frozen=True)
class Known:
    """What was known when the entry `seq` was the newest: a version, if there was one, and the
    entries up to `seq` that it did not hold yet: how many, and the first of them. Of now, these are
    not counted."""

    user: MemoryUser
    seq: int
    checkpoint: Checkpoint | None
    pending_count: int | None = None
    pending: Sequence[int] = ()

    @property
    def version(self) -> int | None:
        """The number of the version, if there was one."""
        return self.checkpoint.version if self.checkpoint else None

    @property
    def is_now(self) -> bool:
        """Whether it is what is known now."""
        return self.pending_count is None

    def to_json(self) -> dict[str, Any] | None:
        """Return what an answer says of an earlier moment; None of now."""
        if self.is_now:
            return None
        return {
            "seq": self.seq,
            "version": self.version,
            "pending_count": self.pending_count,
            "pending": list(self.pending),
        }


def now(user: MemoryUser) -> Known:
    """Return what is known now."""
    return Known(user, user.last_seq, user.head)


def as_of(user: MemoryUser, text: str) -> Known:
    """Return what was known of the user as of an entry's number, a version or a moment.

    Of a moment it is what was known right then: entries that had come, and versions that were
    there. Raises BadMoment if it is none of these, before the first entry or in the future, and
    Redacted where it would tell what was redacted since.
    """
    versions = Checkpoint.objects.filter(user=user).select_related("user")
    if _SEQ.fullmatch(text):
        known = _as_of_seq(user, int(text), versions)
    elif match := _VERSION.fullmatch(text):
        checkpoint = versions.filter(version=int(match[1])).first()
        if checkpoint is None:
            raise BadMoment(f"This user has no version {match[1]}.")
        known = _known(user, checkpoint.seen_seq, checkpoint)
    else:
        known = _as_of_moment(user, text, versions)
    if known.checkpoint is not None:
        _refuse_redacted(known.checkpoint)
    return known


def _as_of_seq(user: MemoryUser, seq: int, versions: QuerySet[Checkpoint]) -> Known:
    if not 1 <= seq <= user.last_seq:
        raise BadMoment(f"This user's log has the entries 1 to {user.last_seq}, and no {seq}.")
    return _known(user, seq, versions.filter(seen_seq__lte=seq).order_by("-version").first())


def _as_of_moment(user: MemoryUser, text: str, versions: QuerySet[Checkpoint]) -> Known:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadMoment(FORMS)
    if moment > timezone.now():
        raise BadMoment("This moment is in the future, of which nothing is known.")
    entries = LogEntry.objects.filter(user=user, recorded_at__lte=moment)
    seq = entries.order_by("-seq").values_list("seq", flat=True).first()
    if seq is None:
        raise BadMoment("This moment is before the first entry of this user's log.")
    then = versions.filter(seen_seq__lte=seq, created_at__lte=moment)
    return _known(user, seq, then.order_by("-version").first())


def _known(user: MemoryUser, seq: int, checkpoint: Checkpoint | None) -> Known:
    decided = Q(checkpoint__version__lte=checkpoint.version) if checkpoint else Q(pk=None)
    held = EntryOutcome.objects.filter(decided, user=user, seq=OuterRef("seq"))
    pending = LogEntry.objects.filter(~Exists(held), user=user, seq__lte=seq)
    named = list(pending.order_by("seq").values_list("seq", flat=True)[:PENDING_NAMED])
    count = len(named) if len(named) < PENDING_NAMED else pending.count()
    return Known(user, seq, checkpoint, count, named)


def _refuse_redacted(checkpoint: Checkpoint) -> None:
    redacted = LogEntry.objects.filter(
        user=checkpoint.user_id,
        seq__lte=checkpoint.seen_seq,
        redacted_at__gt=checkpoint.created_at,
    )
    seq = redacted.values_list("seq", flat=True).first()
    if seq is not None:
        raise Redacted(
            f"Version {checkpoint.version} rests on entry {seq}, which was redacted since."
        )


# -- What changed ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordChange:
    """What became of one record: what it was, what it is (None: not there), in typed JSON, and the
    entries that the edits cite which did it."""

    record: RecordId
    before: Any
    after: Any
    entries: Sequence[int]


@dataclass(frozen=True)
class Difference:
    """What differs between two versions, records by domain, collection and key."""

    added: list[RecordChange] = field(default_factory=list)
    changed: list[RecordChange] = field(default_factory=list)
    retired: list[RecordChange] = field(default_factory=list)
    files: Sequence[str] = ()


def difference(before: Checkpoint | None, after: Checkpoint | None) -> Difference:
    """Return what changed from one version of a user to another, in either direction.

    Only files that differ are read. `files` are those without records: schemas, constraints, tests.
    """
    differing = _differing(before, after)
    were = {record: value for record, (_, value) in _records(before, differing).items()}
    are = {record: value for record, (_, value) in _records(after, differing).items()}
    causes = _causes(before, after)
    found = Difference(
        files=sorted(
            path for path in differing if not _holds_records(path) and path != "manifest.py"
        )
    )
    for record in sorted(were.keys() | are.keys()):
        was, now = were.get(record), are.get(record)
        if was == now:
            continue
        cited = set(causes.get(record, ()))
        if record not in causes:  # of a version that was restored, or imported
            cited |= set(_sources(now)) ^ set(_sources(was))
        change = RecordChange(record, was, now, sorted(cited))
        kind = found.added if was is None else found.retired if now is None else found.changed
        kind.append(change)
    return found


def _differing(before: Checkpoint | None, after: Checkpoint | None) -> set[str]:
    """Return the paths of the files that are not the same in both."""
    old, new = (one.tree if one else {} for one in (before, after))
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def _holds_records(path: str) -> bool:
    return path.startswith("domains/") and path.rpartition("/")[2] not in (
        "schema.py",
        "__init__.py",
    )


def _records(
    checkpoint: Checkpoint | None, paths: Iterable[str]
) -> dict[RecordId, tuple[str, Any]]:
    """Return the records of some files of a version: each with its file, and in typed JSON."""
    if checkpoint is None:
        return {}
    outline = Outline.from_json(checkpoint.outline)
    wanted = [path for path in paths if _holds_records(path) and path in checkpoint.tree]
    found = {}
    for path, source in checkpoints.read_files(checkpoint, wanted).items():
        domain = outline.domains[path.split("/")[1]]
        for name, by_key in parse_state(path, source, domain).records.items():
            for key, record in by_key.items():
                found[RecordId(domain.name, name, key)] = path, encode(record, domain)
    return found


def _sources(record: Any) -> Sequence[int]:
    return record["sources"] if record is not None else ()


def _causes(before: Checkpoint | None, after: Checkpoint | None) -> dict[RecordId, set[int]]:
    """Return the entries cited by the edits between two versions, by the record they are about."""
    user = (after or before).user_id if (after or before) else None  # type: ignore[union-attr]
    low, high = sorted(one.version if one else 0 for one in (before, after))
    between = Checkpoint.objects.filter(user=user, version__gt=low, version__lte=high)
    causes: dict[RecordId, set[int]] = {}
    for edits in between.values_list("edits", flat=True):
        for edit in edits:
            names = (edit.get("domain"), edit.get("collection"), edit.get("key"))
            if all(isinstance(name, str) for name in names):
                causes.setdefault(RecordId(*names), set()).update(edit.get("sources", ()))
    return causes


# -- Going back --------------------------------------------------------------------------------


def restore(
    user: MemoryUser, version: int, *, reopen: bool, by: str, reason: str = ""
) -> Checkpoint:
    """Make an earlier version the newest one again, as a version of its own; the log stays.

    What later versions took from entries is dismissed, with the reason. With `reopen` these entries
    are pending again instead, and are worked on anew, with the keys that they had. Of messages it
    is their facts that count. Work that goes on meanwhile is done again on the restored version.
    Raises NothingToRestore, and Redacted.
    """
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        head = locked.head
        target = Checkpoint.objects.filter(user=locked, version=version).first()
        if head is None or target is None:
            raise NoSuchVersion(f"This user has no version {version}.")
        if target.tree == head.tree:
            raise NothingToRestore(f"Version {head.version}, the newest, holds the same.")
        _refuse_redacted(target)
        restored = {"version": version, "by": by, "reason": reason, "reopened": reopen}
        checkpoint = Checkpoint.objects.create(
            user=locked,
            version=head.version + 1,
            parent=head,
            tree=target.tree,
            outline=target.outline,
            seen_seq=head.seen_seq,
            origin=Origin.RESTORED,
            edits=[],
            verdict={**target.verdict, "restored": restored},
        )
        _move_records(head, target, checkpoint, reopen=reopen)
        _undo_outcomes(target, restored)
        locked.head = checkpoint
        locked.save(update_fields=["head"])
        if checkpoints.wants_constraints_run(checkpoint) or checkpoints.wants_constraints_run(head):
            runs.queue_constraints(locked, checkpoint)
    return checkpoint


def _move_records(
    head: Checkpoint, target: Checkpoint, checkpoint: Checkpoint, *, reopen: bool
) -> None:
    differing = _differing(head, target)
    were, back = _records(head, differing), _records(target, differing)
    locations = RecordLocation.objects.filter(user=head.user_id)
    for record, (path, _) in back.items():
        if record in were and were[record][0] == path:
            continue  # most of them: only what they hold differs
        locations.filter(domain=record.domain, collection=record.collection, key=record.key).update(
            path=path, retired_version=None
        )
    for record in were.keys() - back.keys():
        row = locations.filter(domain=record.domain, collection=record.collection, key=record.key)
        if not (reopen and row.filter(added_version__gt=target.version).delete()[0]):
            row.update(retired_version=checkpoint.version)
    if reopen:  # those that were retired again before
        locations.filter(
            added_version__gt=target.version, retired_version__lt=checkpoint.version
        ).delete()


def _made(target: Checkpoint) -> Q:
    """Match what was decided with the versions that made the target: those before it, without those
    that a return to an earlier one has skipped."""
    returns = Checkpoint.objects.filter(user=target.user_id, origin=Origin.RESTORED)
    skipped = dict(returns.values_list("version", "verdict__restored__version"))
    made, version = Q(pk=None), target.version
    while version:
        began = max((one for one in skipped if one <= version), default=1)
        made |= Q(checkpoint__version__gte=began, checkpoint__version__lte=version)
        version = skipped.get(began, 0)
    return made


def _undo_outcomes(target: Checkpoint, restored: Mapping[str, Any]) -> None:
    messages = LogEntry.objects.filter(user=target.user_id, kind=EntryKind.MESSAGE)
    made = _made(target)
    outcomes = EntryOutcome.objects.filter(user=target.user_id, checkpoint__isnull=False)
    undone = (
        outcomes.filter(outcome=Outcome.COVERED)
        .exclude(made)
        .exclude(seq__in=messages.values("seq"))
    )
    # What it holds may have been undone before: then that is undone in turn.
    outcomes.filter(made, outcome=Outcome.DISMISSED, reason__startswith=UNDONE).update(
        outcome=Outcome.COVERED, reason=""
    )
    first = undone.aggregate(Min("seq"))["seq__min"]
    if first is None:
        return
    if not restored["reopened"]:
        because = f": {restored['reason']}" if restored["reason"] else ""
        # The version that took the entry in stays named: as of that one, it is not pending.
        undone.update(outcome=Outcome.DISMISSED, reason=f"{UNDONE} {target.version}{because}")
        return
    undone.delete()
    # Whoever works on a lane has read another past: what it writes is refused.
    Lane.objects.filter(user=target.user_id).update(
        token=F("token") + 1,
        lease_owner="",
        lease_expires_at=None,
        cursor_seq=Least("cursor_seq", Value(first - 1)),
    )
    Lane.objects.filter(user=target.user_id, name=LaneName.RECORDS).update(
        due_at=timezone.now(), run_after=timezone.now(), hinted_at=None
    )
    lanes.recount(target.user_id)
    hint("workers.tasks.checkpoint_records", target.user_id, user_pk=target.user_id)
