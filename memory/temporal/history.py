"""Past knowledge: the state at an earlier moment, differences, and rollback.

A version is *what we knew* when the newest entry that it considered was the newest there was.
Entries that it did not contain yet are pending. States between versions, and states by the entries'
own times, are computed (`memory.temporal.states`). Nothing here writes to the log.
"""

import datetime
import re
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.db import transaction
from django.db.models import Exists, Min, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from memory import checkpoints
from memory.checkpoints import Redacted
from memory.models import (
    Alert,
    Checkpoint,
    EntryOutcome,
    LogEntry,
    MemoryUser,
    RecordLocation,
    Run,
)
from memory.models.alerts import LIVE_STATES, AlertKind
from memory.models.checkpoints import Origin
from memory.models.log import By, EntryKind, Outcome
from memory.privacy import redaction
from memory.project import Outline, RecordId
from memory.project.parse import parse_state
from memory.project.paths import holds_records, is_code
from memory.project.typed import encode
from memory.recall import answer_cache
from memory.temporal import states
from memory.work import lanes

# The number of entries not in a version yet that are named.
PENDING_NAMED = 1000
# The reason of entries that a rollback has excluded.
UNDONE = "undone by the return to version"
# The key of a verdict with the entries that a version reopened; and the reason of those of them
# that were not covered when the reopening is undone.
REOPENED = "reopened"
AS_BEFORE = "as it was before it was reopened"
# A number, a version such as v7, or a moment.
_SEQ = re.compile(r"[0-9]{1,18}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
NOON = datetime.time(12)
_VERSION = re.compile(r"v([0-9]{1,9})")
FORMS = (
    "Give the number of an entry (120), a version (v7), a day (2026-03-01), or a moment"
    " (2026-03-01T09:00, where the user lives, or with its offset, 2026-03-01T09:00+01:00)."
)
MOMENT_FORMS = (
    "Give a day (2026-03-01), or a moment (2026-03-01T09:00, where the user lives, or with its"
    " offset, 2026-03-01T09:00+01:00)."
)


class BadMoment(ValueError):
    """The text names no moment of this user's log."""


class UnknownMoment(BadMoment):
    """The user has no such entry or version, or nothing is known of that moment."""


class NotByOccurred(BadMoment):
    """By the entries' own times only moments have a state, not entries or versions."""


class BeingRedacted(Exception):
    """The newest version may hold something just redacted, so nothing is shown for now."""

    def __init__(self) -> None:
        super().__init__(
            "Something is being redacted of this user's memory: ask again in a moment."
        )


class NothingToRestore(Exception):
    """The head is this version already."""


class NoSuchVersion(NothingToRestore):
    """There is no such version."""


@dataclass(frozen=True)
class Known:
    """The state of knowledge at the time when the entry `seq` was the newest.

    That is a version, if there was one, and the entries up to `seq` that it did not contain yet:
    their number and the first of them. For the present these are not counted.

    With `up_to` the state is that of the version up to this entry only; `by` occurred, it is what
    was the case at `moment` by the entries' own times.
    """

    user: MemoryUser
    seq: int
    stored: Checkpoint | None
    pending_count: int | None = None
    pending: Sequence[int] = ()
    by: By = By.RECORDED
    moment: datetime.datetime | None = None
    up_to: int | None = None

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The state: the version, or one computed from it; raises states.CannotBeTold."""
        if self.stored is None or not self.is_computed:
            return self.stored
        return _state(self.stored, self.by, self.moment, self.up_to)

    @property
    def version(self) -> int | None:
        """The number of the version, if there was one."""
        return self.stored.version if self.stored else None

    @property
    def is_now(self) -> bool:
        """Tell whether this is the present state."""
        return self.pending_count is None

    @property
    def is_computed(self) -> bool:
        """Tell whether the state is computed from a version rather than stored."""
        return self.by == By.OCCURRED or self.up_to is not None

    @property
    def place(self) -> list[str | int]:
        """An identifier among the states of the same version; empty for the version itself."""
        return place_of(self.to_json())

    def to_json(self) -> dict[str, Any] | None:
        """Return the description of an earlier moment for an answer; None for the present."""
        if self.is_now:
            return None
        return {
            "seq": self.seq,
            "version": self.version,
            "by": self.by.value,
            "moment": self.moment.isoformat() if self.moment else None,
            "computed": self.is_computed and self.stored is not None,
            "pending_count": self.pending_count,
            "pending": list(self.pending),
            "left_out": list(self.checkpoint.left_out) if self.checkpoint else [],
        }


def _state(
    version: Checkpoint, by: By, moment: datetime.datetime | None, up_to: int | None
) -> Checkpoint:
    if by == By.OCCURRED:
        assert moment is not None
        return states.by_occurred(version, moment)
    return version if up_to is None else states.up_to(version, up_to)


def place_of(told: Mapping[str, Any] | None) -> list[str | int]:
    """Return `Known.place`, given the description of an earlier moment in an answer."""
    if not (told or {}).get("computed"):
        return []
    assert told is not None
    return [told["by"], told["moment"] if told["by"] == By.OCCURRED else told["seq"]]


def state_of(run: Run) -> Checkpoint:
    """Return the state that a run reads: its version, or the state computed from it again.

    Raises states.CannotBeTold.
    """
    assert run.checkpoint is not None
    told = run.input.get("as_of") or {}
    if not told.get("computed"):
        return run.checkpoint
    version = Checkpoint.objects.select_related("parent", "user").get(pk=run.checkpoint.pk)
    moment = parse_datetime(told["moment"]) if told["moment"] else None
    by = By(told["by"])
    return _state(version, by, moment, None if by == By.OCCURRED else told["seq"])


def now(user: MemoryUser) -> Known:
    """Return the present state; raises BeingRedacted."""
    refuse_being_redacted(user)
    return Known(user, user.last_seq, user.head)


def as_of(user: MemoryUser, text: str) -> Known:
    """Return what was known of the user as of an entry's number, a version or a moment.

    As of a number, it is what somebody knows who was told the entries up to it, however they were
    batched. As of a moment, it is what was known right then: the entries that had arrived and the
    versions that existed. Raises BadMoment if the text is none of these, before the first entry or
    in the future, and Redacted if the answer would reveal something redacted since; also
    BeingRedacted and states.CannotBeTold.
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
    if known.stored is not None:
        refuse_redacted(known.stored)
    return known


def by_occurred(user: MemoryUser, text: str | None = None) -> Known:
    """Return what was the case at a moment, or is now, by the entries' own times.

    It includes all typed entries known by now that had occurred. Raises BadMoment for a moment that
    is invalid or in the future, and NotByOccurred for an entry or a version; also BeingRedacted and
    states.CannotBeTold.
    """
    refuse_being_redacted(user)
    if text is not None and (_SEQ.fullmatch(text) or _VERSION.fullmatch(text)):
        raise NotByOccurred(
            f"By the entries' own times there is no state as of an entry or version. {MOMENT_FORMS}"
        )
    now_ = timezone.now()
    moment = now_ if text is None else instant_of(user, text)
    if moment > now_:
        raise UnknownMoment("This moment is in the future, of which nothing is known.")
    head = user.head
    if head is not None:
        head = Checkpoint.objects.select_related("user").get(pk=head.pk)
        states.refuse_untyped(head)
    occurred = LogEntry.objects.filter(user=user, occurred_at__lte=moment)
    if not occurred.exists():
        raise UnknownMoment("This moment is before anything of this user's log occurred.")
    decided = EntryOutcome.objects.filter(user=user, seq=OuterRef("seq"))
    count, named = _pending(user, occurred.filter(~Exists(decided)))
    return Known(user, user.last_seq, head, count, named, By.OCCURRED, moment)


def _as_of_seq(user: MemoryUser, seq: int, versions: QuerySet[Checkpoint]) -> Known:
    if not 1 <= seq <= user.last_seq:
        raise UnknownMoment(f"This user's log has the entries 1 to {user.last_seq}, and no {seq}.")
    if redaction.redacted_among(user, [seq]):
        raise Redacted(f"Entry {seq} was redacted: what was known with it is not told any more.")
    before = versions.filter(seen_seq__lte=seq).order_by("-version").first()
    whole = states.version_with(user, seq, before)
    found = before if whole is None else whole
    # An entry that was rejected beside later ones is in no state, and waits for nothing.
    settled = Q(outcome=Outcome.REJECTED)
    known = _known(user, seq, found, _until(user, seq, found), settled=settled)
    return known if whole is None else replace(known, up_to=seq)


def _until(user: MemoryUser, seq: int, checkpoint: Checkpoint | None) -> datetime.datetime:
    """Return when the entry had arrived and the version existed.

    For a typed entry that no version holds, it is when that was decided.
    """
    (entry,) = LogEntry.objects.filter(user=user, seq=seq).only("kind", "recorded_at")
    moments = [entry.recorded_at, *([checkpoint.created_at] if checkpoint else [])]
    if entry.kind == EntryKind.RECORD:
        decided = EntryOutcome.objects.filter(user=user, seq=seq, checkpoint=checkpoint)
        moments += decided.values_list("decided_at", flat=True)
    return max(moments)


def _as_of_moment(user: MemoryUser, text: str, versions: QuerySet[Checkpoint]) -> Known:
    try:
        moment = instant_of(user, text)
    except BadMoment:
        raise BadMoment(FORMS) from None
    if moment > timezone.now():
        raise UnknownMoment("This moment is in the future, of which nothing is known.")
    entries = LogEntry.objects.filter(user=user, recorded_at__lte=moment)
    seq = entries.order_by("-seq").values_list("seq", flat=True).first()
    if seq is None:
        raise UnknownMoment(
            "This moment is before the first entry of this user's log was recorded. What was the"
            " case then by the entries' own times is told with by=occurred."
        )
    then = versions.filter(seen_seq__lte=seq, created_at__lte=moment)
    return replace(_known(user, seq, then.order_by("-version").first(), moment), moment=moment)


def _known(
    user: MemoryUser,
    seq: int,
    checkpoint: Checkpoint | None,
    until: datetime.datetime,
    *,
    settled: Q = Q(pk=None),  # noqa: B008 - it is not changed
) -> Known:
    """Return what was known; entries settled after `until` count as pending.

    That holds if no newer version settled them, and they are not `settled`.
    """
    decided = Q(checkpoint=None)
    if checkpoint is not None:
        decided |= Q(checkpoint__version__lte=checkpoint.version)
    decided = decided & Q(decided_at__lte=until) | settled
    held = EntryOutcome.objects.filter(decided, user=user, seq=OuterRef("seq"))
    return Known(
        user, seq, checkpoint, *_pending(user, LogEntry.objects.filter(~Exists(held), seq__lte=seq))
    )


def _pending(user: MemoryUser, entries: QuerySet[LogEntry]) -> tuple[int, list[int]]:
    """Return the number of these entries of the user, and the first of them."""
    entries = entries.filter(user=user)
    named = list(entries.order_by("seq").values_list("seq", flat=True)[:PENDING_NAMED])
    return (len(named) if len(named) < PENDING_NAMED else entries.count()), named


def instant_of(user: MemoryUser, text: str) -> datetime.datetime:
    """Return the moment that a text names; for a day, its noon. Raises BadMoment.

    Without an offset it is local time of the user.
    """
    return instant_in(user.time_zone, text)


def instant_in(time_zone: str, text: str) -> datetime.datetime:
    """Return the same in a given time zone; raises BadMoment."""
    try:
        zone = zoneinfo.ZoneInfo(time_zone)
        if _DAY.fullmatch(text):
            day = datetime.date.fromisoformat(text)
            moment: datetime.datetime | None = datetime.datetime.combine(day, NOON)
        else:
            moment = parse_datetime(text)
        if moment is not None:
            moment = moment.replace(tzinfo=moment.tzinfo or zone)
            moment.astimezone(zone)  # the calendar may end before
            return moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        pass
    raise BadMoment(MOMENT_FORMS)


def refuse_being_redacted(user: MemoryUser) -> None:
    """Raise BeingRedacted while the user's newest version may hold something redacted."""
    if user.redacting_since is not None:
        raise BeingRedacted


def refuse_redacted(checkpoint: Checkpoint) -> None:
    """Raise Redacted for a version that rests on an entry redacted since."""
    seq = redaction.first_since(checkpoint, redaction.moments(checkpoint.user_id))
    if seq is not None:
        raise Redacted(
            f"Version {checkpoint.version} rests on entry {seq}, which was redacted since."
        )
    if checkpoints.is_redacted(checkpoint):  # made while the entry was being redacted
        raise Redacted(f"Version {checkpoint.version} rests on what was redacted since.")


# -- Differences -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordChange:
    """The change of one record in typed JSON: before, after (None: absent), and its entries.

    These are the entries that the edits cite which made the change.
    """

    record: RecordId
    before: Any
    after: Any
    entries: Sequence[int]


@dataclass(frozen=True)
class Difference:
    """The difference between two versions, with records by domain, collection and key."""

    added: list[RecordChange] = field(default_factory=list)
    changed: list[RecordChange] = field(default_factory=list)
    retired: list[RecordChange] = field(default_factory=list)
    files: Sequence[str] = ()


def difference(before: Checkpoint | None, after: Checkpoint | None) -> Difference:
    """Return what changed from one version of a user to another, in either direction.

    Only files that differ are read. `files` are those without records: schemas, constraints, tests.
    """
    differing = _differing(before, after)
    were = {record: value for record, (_, value) in records_in(before, differing).items()}
    are = {record: value for record, (_, value) in records_in(after, differing).items()}
    causes, of_classes = _causes(before, after)
    found = Difference(files=sorted(path for path in differing if is_code(path)))
    for record in sorted(were.keys() | are.keys()):
        was, now = were.get(record), are.get(record)
        if _say_the_same(was, now):
            continue
        cited = set(causes.get(record, ()))
        if record not in causes:  # the version was restored or imported
            cited |= set(_sources(now)) ^ set(_sources(was))
        if not cited and now is not None:  # a field of its class was renamed
            cited = of_classes.get((record.domain, now["$record"]), cited)
        change = RecordChange(record, was, now, sorted(cited))
        kind = found.added if was is None else found.retired if now is None else found.changed
        kind.append(change)
    return found


def _differing(before: Checkpoint | None, after: Checkpoint | None) -> set[str]:
    """Return the paths of the files that differ."""
    old, new = (one.tree if one else {} for one in (before, after))
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def records_in(
    checkpoint: Checkpoint | None, paths: Iterable[str]
) -> dict[RecordId, tuple[str, Any]]:
    """Return the records of some files of a version, each with its file, as typed JSON.

    Raises Redacted.
    """
    if checkpoint is None:
        return {}
    wanted = [path for path in paths if holds_records(path) and path in checkpoint.tree]
    outline = Outline.from_json(checkpoint.outline) if wanted else Outline()
    found = {}
    for path, source in checkpoints.read_files(checkpoint, wanted).items():
        domain = outline.domains[path.split("/")[1]]
        for name, by_key in parse_state(path, source, domain).records.items():
            for key, record in by_key.items():
                found[RecordId(domain.name, name, key)] = path, encode(record, domain)
    return found


def _say_the_same(was: Any, now: Any) -> bool:
    """Return whether two states of a record are equal, ignoring absent and None fields."""
    if was is None or now is None or was == now:
        return bool(was == now)
    told = [{k: v for k, v in one["fields"].items() if v is not None} for one in (was, now)]
    return told[0] == told[1] and {**was, "fields": None} == {**now, "fields": None}


def _sources(record: Any) -> Sequence[int]:
    return record["sources"] if record is not None else ()


def _causes(
    before: Checkpoint | None, after: Checkpoint | None
) -> tuple[dict[RecordId, set[int]], dict[tuple[str, str], set[int]]]:
    """Return the entries cited by the edits between two versions.

    The first mapping is by record; the second, for edits of all records of a class, by domain and
    class.
    """
    user = (after or before).user_id if (after or before) else None  # type: ignore[union-attr]
    low, high = sorted([before, after], key=lambda one: (one.version, one.seen_seq) if one else ())
    causes: dict[RecordId, set[int]] = {}
    of_classes: dict[tuple[str, str], set[int]] = {}
    if before and after and (before.told or after.told):  # by the entries' own times
        for record in before.told.keys() | after.told.keys():
            told = set(before.told.get(record, ())) ^ set(after.told.get(record, ()))
            causes[RecordId(*record)] = told
        return causes, of_classes
    first = low.version + (low.computed_from is None) if low else 1
    last = high.version if high else 0
    between = Checkpoint.objects.filter(user=user, version__gte=first, version__lte=last)
    rows = between.order_by().values_list("version", "edits")
    for version, edits in rows.iterator(chunk_size=100):
        above = low.seen_seq if low and low.computed_from and version == low.version else 0
        below = high.seen_seq if high and high.computed_from and version == last else None
        for edit in edits:
            names = (edit.get("domain"), edit.get("collection"), edit.get("key"))
            cited = edit.get("sources", ())
            if any(seq <= above or (below is not None and seq > below) for seq in cited):
                continue  # it is in both states, or in neither
            if all(isinstance(name, str) for name in names):
                causes.setdefault(RecordId(*names), set()).update(cited)
            elif edit.get("op") == "rename_field" and not edit.get("redacted"):
                of_classes.setdefault((names[0], edit["class_name"]), set()).update(cited)
    return causes, of_classes


# -- Rollback ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Excluded:
    """The effects of a rollback to an earlier version.

    `records` are those that the version does not hold. `alerts` are live and rest on them, or
    belong to constraints that it does not have: they will resolve. `may_resolve` rest on records
    that differ in it. `entries` are those that later versions took in.
    """

    records: Sequence[RecordId]
    alerts: Sequence[Alert]
    may_resolve: Sequence[Alert]
    entries: Sequence[int]


def excluded_by_restoring(user: MemoryUser, version: int) -> Excluded:
    """Return what a rollback to this version would exclude, without doing it.

    Further alerts may resolve: the constraints run on the restored records. Raises
    NothingToRestore, Redacted and BeingRedacted.
    """
    refuse_being_redacted(user)
    head, target = _head_and_target(user, version)
    if target.tree == head.tree and not _reopenings_since(target):
        raise NothingToRestore(f"Version {head.version}, the newest, holds the same.")
    back = difference(head, target)
    gone = [change.record for change in back.retired]
    changed = {change.record for change in back.changed}
    outline = Outline.from_json(target.outline)
    rules = {f"constraints/{name}.py" for name in outline.constraints}
    live = Alert.objects.listed().filter(user=user, kind=AlertKind.FINDING, state__in=LIVE_STATES)
    resolving, uncertain = [], []
    for alert in live.order_by("opened_at", "pk").prefetch_related("duplicates"):
        records = {_record_of(item) for item in alert.evidence}
        lost = all(
            cause.constraint.startswith("constraints/") and cause.constraint not in rules
            for cause in alert.causes
        )
        if lost or records & set(gone):
            resolving.append(alert)
        elif records & changed:
            uncertain.append(alert)
    entries = _undone(target).order_by("seq").values_list("seq", flat=True)
    return Excluded(gone, resolving, uncertain, list(entries))


def _record_of(evidence: Mapping[str, Any]) -> RecordId:
    return RecordId(evidence["domain"], evidence["collection"], evidence["key"])


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
    """Roll back: make an earlier version the newest one again, as a new version; the log stays.

    Entries that later versions took in are dismissed, with the reason. With `reopen` they are
    pending again instead and are worked on anew, with the keys that they had; of messages, their
    facts are. Entries that were reopened since get their earlier outcomes back. Work under way is
    done again on the restored version.

    Raises NothingToRestore, Redacted and BeingRedacted.
    """
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        refuse_being_redacted(locked)
        head, target = _head_and_target(locked, version)
        reopenings = _reopenings_since(target)
        if target.tree == head.tree and (reopen or not reopenings):
            raise NothingToRestore(f"Version {head.version}, the newest, holds the same.")
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
            # This one does not undo what that version reopened.
            verdict={
                **{name: part for name, part in target.verdict.items() if name != REOPENED},
                "restored": restored,
            },
        )
        _move_records(head, target, checkpoint, reopen=reopen)
        _undo_outcomes(target, restored)
        if not reopen:
            _undo_reopenings(target, reopenings, restored)
        answer_cache.forget(locked)
        checkpoints.make_head(locked, checkpoint)
    return checkpoint


def _move_records(
    head: Checkpoint, target: Checkpoint, checkpoint: Checkpoint, *, reopen: bool
) -> None:
    differing = _differing(head, target)
    were, back = records_in(head, differing), records_in(target, differing)
    locations = RecordLocation.objects.filter(user=head.user_id)
    for record, (path, _) in back.items():
        if record in were and were[record][0] == path:
            continue  # most of them: only their content differs
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


def _undone(target: Checkpoint) -> QuerySet[EntryOutcome]:
    """Select the outcomes of the entries that are in the project, but not in the target."""
    messages = LogEntry.objects.filter(user=target.user_id, kind=EntryKind.MESSAGE)
    outcomes = EntryOutcome.objects.filter(user=target.user_id, checkpoint__isnull=False)
    return (
        outcomes.filter(outcome=Outcome.COVERED)
        .exclude(states.within(states.lineage(target), "checkpoint__"))
        .exclude(seq__in=messages.values("seq"))
    )


def _reopenings_since(target: Checkpoint) -> list[Checkpoint]:
    """Return later versions that reopened entries (`memory.reopening`), if not rolled back."""
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
    """Give entries the outcomes from before they were first reopened.

    Those that the target does not hold are dismissed like everything that came since.
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
    held = states.lineage(target)

    def again(outcome: str, version: int | None) -> tuple[str, str]:
        if outcome != Outcome.COVERED:
            return outcome, AS_BEFORE
        if version is None or any(began <= version <= last for began, last in held):
            return outcome, ""
        return Outcome.DISMISSED, _undone_by(target, restored)

    decided = []
    for seq, (was, version) in sorted(were.items()):
        if was is not None:  # and not pending
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
    made = states.within(states.lineage(target), "checkpoint__")
    outcomes = EntryOutcome.objects.filter(user=target.user_id, checkpoint__isnull=False)
    undone = _undone(target)
    # Entries of the target may have been excluded before: that is undone in turn.
    outcomes.filter(made, outcome=Outcome.DISMISSED, reason__startswith=UNDONE).update(
        outcome=Outcome.COVERED, reason=""
    )
    first = undone.aggregate(Min("seq"))["seq__min"]
    if first is None:
        return
    if not restored["reopened"]:
        # The version that took the entry in stays recorded: as of that version it is not pending.
        undone.update(outcome=Outcome.DISMISSED, reason=_undone_by(target, restored))
        return
    undone.delete()
    lanes.begin_again(target.user_id, first)
