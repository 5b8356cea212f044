"""What was known at an earlier moment, what changed since, and going back to it.

A version is *what we knew* when the newest entry that it considered was the newest there was. What
it did not hold yet is pending. Nothing here touches the log.
"""

import datetime
import re
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import Exists, Min, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from memory import answers, checkpoints, lanes, redaction, runs
from memory.checkpoints import Redacted
from memory.models import Checkpoint, EntryOutcome, LogEntry, MemoryUser, RecordLocation
from memory.models.checkpoints import Origin
from memory.models.log import EntryKind, Outcome
from memory.project import Outline, RecordId
from memory.project.parse import parse_state
from memory.project.paths import holds_records, is_code
from memory.project.typed import encode

# Of the entries that a version did not hold yet, so many are named.
PENDING_NAMED = 1000
# What is said of entries that a return to an earlier version has left out.
UNDONE = "undone by the return to version"
# A seq, a version such as v7, or a moment.
_SEQ = re.compile(r"[0-9]{1,18}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
NOON = datetime.time(12)
_VERSION = re.compile(r"v([0-9]{1,9})")
FORMS = (
    "Give the number of an entry (120), a version (v7), or a moment with its offset"
    " (2026-03-01T09:00:00+01:00)."
)


class BadMoment(ValueError):
    """Nothing was ever known at that: it is no moment of this user's log."""


class UnknownMoment(BadMoment):
    """There is no such entry or version of the user, or nothing is known of that moment."""


class BeingRedacted(Exception):
    """The newest version may hold what was redacted a moment ago: nothing is told until it does
    not."""

    def __init__(self) -> None:
        super().__init__(
            "Something is being redacted of this user's memory: ask again in a moment."
        )


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
    """Return what is known now; raises BeingRedacted."""
    refuse_being_redacted(user)
    return Known(user, user.last_seq, user.head)


def as_of(user: MemoryUser, text: str) -> Known:
    """Return what was known of the user as of an entry's number, a version or a moment.

    Of a moment it is what was known right then: entries that had come, and versions that were
    there. Raises BadMoment if it is none of these, before the first entry or in the future, and
    Redacted where it would tell what was redacted since; BeingRedacted.
    """
    refuse_being_redacted(user)
    versions = Checkpoint.objects.filter(user=user).select_related("user")
    if _SEQ.fullmatch(text):
        known = _as_of_seq(user, int(text), versions)
    elif match := _VERSION.fullmatch(text):
        checkpoint = versions.filter(version=int(match[1])).first()
        if checkpoint is None:
            raise UnknownMoment(f"This user has no version {match[1]}.")
        known = _known(user, checkpoint.seen_seq, checkpoint, checkpoint.created_at)
    else:
        known = _as_of_moment(user, text, versions)
    if known.checkpoint is not None:
        refuse_redacted(known.checkpoint)
    return known


def _as_of_seq(user: MemoryUser, seq: int, versions: QuerySet[Checkpoint]) -> Known:
    if not 1 <= seq <= user.last_seq:
        raise UnknownMoment(f"This user's log has the entries 1 to {user.last_seq}, and no {seq}.")
    if redaction.redacted_among(user, [seq]):
        raise Redacted(f"Entry {seq} was redacted: what was known with it is not told any more.")
    checkpoint = versions.filter(seen_seq__lte=seq).order_by("-version").first()
    return _known(user, seq, checkpoint, _until(user, seq, checkpoint))


def _until(user: MemoryUser, seq: int, checkpoint: Checkpoint | None) -> datetime.datetime:
    """Return when the entry had come, and the version was there; if it is a typed one that no
    version holds, when that was decided."""
    (entry,) = LogEntry.objects.filter(user=user, seq=seq).only("kind", "recorded_at")
    moments = [entry.recorded_at, *([checkpoint.created_at] if checkpoint else [])]
    if entry.kind == EntryKind.RECORD:
        decided = EntryOutcome.objects.filter(user=user, seq=seq, checkpoint=checkpoint)
        moments += decided.values_list("decided_at", flat=True)
    return max(moments)


def _as_of_moment(user: MemoryUser, text: str, versions: QuerySet[Checkpoint]) -> Known:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadMoment(FORMS)
    if moment > timezone.now():
        raise UnknownMoment("This moment is in the future, of which nothing is known.")
    entries = LogEntry.objects.filter(user=user, recorded_at__lte=moment)
    seq = entries.order_by("-seq").values_list("seq", flat=True).first()
    if seq is None:
        raise UnknownMoment("This moment is before the first entry of this user's log.")
    then = versions.filter(seen_seq__lte=seq, created_at__lte=moment)
    return _known(user, seq, then.order_by("-version").first(), moment)


def _known(
    user: MemoryUser, seq: int, checkpoint: Checkpoint | None, until: datetime.datetime
) -> Known:
    """What was settled later than that, with no newer version, was pending."""
    decided = Q(checkpoint=None)
    if checkpoint is not None:
        decided |= Q(checkpoint__version__lte=checkpoint.version)
    held = EntryOutcome.objects.filter(
        decided, decided_at__lte=until, user=user, seq=OuterRef("seq")
    )
    pending = LogEntry.objects.filter(~Exists(held), user=user, seq__lte=seq)
    named = list(pending.order_by("seq").values_list("seq", flat=True)[:PENDING_NAMED])
    count = len(named) if len(named) < PENDING_NAMED else pending.count()
    return Known(user, seq, checkpoint, count, named)


def instant_of(user: MemoryUser, text: str) -> datetime.datetime:
    """Return the moment that is named, of a day its noon where the user lives; BadMoment."""
    try:
        zone = zoneinfo.ZoneInfo(user.time_zone)
        if _DAY.fullmatch(text):
            day = datetime.date.fromisoformat(text)
            moment: datetime.datetime | None = datetime.datetime.combine(day, NOON, zone)
        else:
            moment = parse_datetime(text)
        if moment is not None and moment.tzinfo is not None:
            moment.astimezone(zone)  # the calendar may end before
            return moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        pass
    raise BadMoment(
        "Give a day (2026-03-01), or a moment with its offset (2026-03-01T09:00:00+01:00)."
    )


def refuse_being_redacted(user: MemoryUser) -> None:
    """Raise BeingRedacted while the user's newest version may hold what was redacted."""
    if user.redacting_since is not None:
        raise BeingRedacted


def refuse_redacted(checkpoint: Checkpoint) -> None:
    """Raise Redacted for a version that rests on an entry that was redacted since."""
    seq = redaction.first_since(checkpoint, redaction.moments(checkpoint.user_id))
    if seq is not None:
        raise Redacted(
            f"Version {checkpoint.version} rests on entry {seq}, which was redacted since."
        )
    if checkpoints.is_redacted(checkpoint):  # made while the entry was being redacted
        raise Redacted(f"Version {checkpoint.version} rests on what was redacted since.")


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
    causes, of_classes = _causes(before, after)
    found = Difference(files=sorted(path for path in differing if is_code(path)))
    for record in sorted(were.keys() | are.keys()):
        was, now = were.get(record), are.get(record)
        if _say_the_same(was, now):
            continue
        cited = set(causes.get(record, ()))
        if record not in causes:  # of a version that was restored, or imported
            cited |= set(_sources(now)) ^ set(_sources(was))
        if not cited and now is not None:  # a field of its class was renamed
            cited = of_classes.get((record.domain, now["$record"]), cited)
        change = RecordChange(record, was, now, sorted(cited))
        kind = found.added if was is None else found.retired if now is None else found.changed
        kind.append(change)
    return found


def _differing(before: Checkpoint | None, after: Checkpoint | None) -> set[str]:
    """Return the paths of the files that are not the same in both."""
    old, new = (one.tree if one else {} for one in (before, after))
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def _records(
    checkpoint: Checkpoint | None, paths: Iterable[str]
) -> dict[RecordId, tuple[str, Any]]:
    """Return the records of some files of a version: each with its file, and in typed JSON."""
    if checkpoint is None:
        return {}
    outline = Outline.from_json(checkpoint.outline)
    wanted = [path for path in paths if holds_records(path) and path in checkpoint.tree]
    found = {}
    for path, source in checkpoints.read_files(checkpoint, wanted).items():
        domain = outline.domains[path.split("/")[1]]
        for name, by_key in parse_state(path, source, domain).records.items():
            for key, record in by_key.items():
                found[RecordId(domain.name, name, key)] = path, encode(record, domain)
    return found


def _say_the_same(was: Any, now: Any) -> bool:
    """Whether two states of a record differ by nothing but fields of which nothing is said."""
    if was is None or now is None or was == now:
        return bool(was == now)
    told = [{k: v for k, v in one["fields"].items() if v is not None} for one in (was, now)]
    return told[0] == told[1] and {**was, "fields": None} == {**now, "fields": None}


def _sources(record: Any) -> Sequence[int]:
    return record["sources"] if record is not None else ()


def _causes(
    before: Checkpoint | None, after: Checkpoint | None
) -> tuple[dict[RecordId, set[int]], dict[tuple[str, str], set[int]]]:
    """Return the entries cited by the edits between two versions, by the record that they are
    about, and by domain and class of those about all its records."""
    user = (after or before).user_id if (after or before) else None  # type: ignore[union-attr]
    low, high = sorted(one.version if one else 0 for one in (before, after))
    between = Checkpoint.objects.filter(user=user, version__gt=low, version__lte=high)
    causes: dict[RecordId, set[int]] = {}
    of_classes: dict[tuple[str, str], set[int]] = {}
    for edits in between.order_by().values_list("edits", flat=True).iterator(chunk_size=100):
        for edit in edits:
            names = (edit.get("domain"), edit.get("collection"), edit.get("key"))
            cited = edit.get("sources", ())
            if all(isinstance(name, str) for name in names):
                causes.setdefault(RecordId(*names), set()).update(cited)
            elif edit.get("op") == "rename_field":
                of_classes.setdefault((names[0], edit["class_name"]), set()).update(cited)
    return causes, of_classes


# -- Going back --------------------------------------------------------------------------------


def restore(
    user: MemoryUser, version: int, *, reopen: bool, by: str, reason: str = ""
) -> Checkpoint:
    """Make an earlier version the newest one again, as a version of its own; the log stays.

    What later versions took from entries is dismissed, with the reason. With `reopen` these entries
    are pending again instead, and are worked on anew, with the keys that they had. Of messages it
    is their facts that count. Work that goes on meanwhile is done again on the restored version.
    Raises NothingToRestore, Redacted and BeingRedacted.
    """
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        refuse_being_redacted(locked)
        head = locked.head
        target = Checkpoint.objects.filter(user=locked, version=version).first()
        if head is None or target is None:
            raise NoSuchVersion(f"This user has no version {version}.")
        if target.tree == head.tree:
            raise NothingToRestore(f"Version {head.version}, the newest, holds the same.")
        refuse_redacted(target)
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
        answers.forget(locked)
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
    lanes.begin_again(target.user_id, first)
