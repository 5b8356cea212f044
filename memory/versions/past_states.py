"""Past knowledge: what was known about a user at an earlier time.

A version is *what we knew* when the newest entry it takes into account was the newest entry in the
log. Entries that it doesn't include yet are pending. States between versions, and states by the
entries' own times, are computed (`memory.versions.computed_states`). Nothing here writes to the
log.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from memory.kernel.instants import MOMENT_FORMS, RESOLUTION, BadMoment, span_of
from memory.kernel.models.users import MemoryUser
from memory.kernel.refused import Refused
from memory.log.models.entries import By, EntryKind, EntryOutcome, LogEntry, Outcome
from memory.versions import checkpoints, computed_states, redactions
from memory.versions.checkpoints import AnyState, Redacted, State
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run

# The maximum number of pending entries listed in a response.
PENDING_NAMED = 1000
# A text can specify an entry (by its number), a version such as v7, or a day or time.
_SEQ = re.compile(r"[0-9]{1,18}")
_VERSION = re.compile(r"v([0-9]{1,9})")
FORMS = (
    "Give an entry's number (120), a version (v7), a day (2026-03-01), or a date and"
    " time (2026-03-01T09:00 in the user's time zone, or 2026-03-01T09:00+01:00 with a UTC offset)."
)


class UnknownMoment(BadMoment):
    """The user has no such entry or version, or there is no state at that time."""


class NotByOccurred(BadMoment):
    """An entry or version was given, but a state by the entries' own times needs a day or time."""


class BeingRedacted(Refused):
    """The newest version may still contain content that is being redacted, so nothing is shown."""

    status = 503
    problem = "being-redacted"

    def __init__(self) -> None:
        super().__init__("A redaction of this user's memory is in progress. Try again in a moment.")


@dataclass(frozen=True)
class KnownState:
    """The state of knowledge when the entry `seq` was the newest in the log.

    It consists of a version, if there was one, and pending entries, i.e. entries up to `seq` that
    the version didn't include yet: `pending_count` is their number, and `pending` lists the first
    of them. In the present state, pending entries are not counted.

    If `up_to` is set, the state includes only those of the version's edits that are based on
    entries up to `up_to`. If `by` is OCCURRED, the state is what was true at `moment` according to
    the entries' own times.
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
    def checkpoint(self) -> AnyState | None:
        """The version, or the state computed from it; may raise computed_states.NotComputable."""
        if self.stored is None or not self.is_computed:
            return self.stored
        return _state(self.stored, self.by, self.moment, self.up_to)

    @property
    def version(self) -> int | None:
        """The version's number, if there was a version."""
        return self.stored.version if self.stored else None

    @property
    def is_now(self) -> bool:
        """Return whether this is the present state."""
        return self.pending_count is None

    @property
    def is_computed(self) -> bool:
        """Return whether the state is computed from a version rather than stored."""
        return self.by == By.OCCURRED or self.up_to is not None

    @property
    def state_key(self) -> list[str | int]:
        """The text that tells this state from others of its version; empty for the version."""
        return state_key_of(self.to_json())

    def to_json(self) -> dict[str, Any] | None:
        """Describe a past state for use in responses; return None for the present state."""
        if self.is_now:
            return None
        state = self.checkpoint
        return {
            "seq": self.seq,
            "version": self.version,
            "by": self.by.value,
            "moment": self.moment.isoformat() if self.moment else None,
            "computed": self.is_computed and self.stored is not None,
            "pending_count": self.pending_count,
            "pending": list(self.pending),
            "left_out": list(state.rejected) if isinstance(state, State) else [],
        }


def _state(
    version: Checkpoint, by: By, moment: datetime.datetime | None, up_to: int | None
) -> AnyState:
    if by == By.OCCURRED:
        assert moment is not None
        return computed_states.compute_by_occurred(version, moment)
    return version if up_to is None else computed_states.compute_up_to(version, up_to)


def state_key_of(document: Mapping[str, Any] | None) -> list[str | int]:
    """Return `Known.state_key`, given the description returned by `Known.to_json`."""
    if not (document or {}).get("computed"):
        return []
    assert document is not None
    return [
        document["by"],
        document["moment"] if document["by"] == By.OCCURRED else document["seq"],
    ]


def state_of(run: Run) -> AnyState:
    """Return the state a run reads: its version, or a state that is recomputed from the version.

    May raise computed_states.NotComputable.
    """
    assert run.checkpoint is not None
    document = run.input.get("as_of") or {}
    if not document.get("computed"):
        return run.checkpoint
    version = Checkpoint.objects.select_related("parent", "user").get(pk=run.checkpoint.pk)
    moment = parse_datetime(document["moment"]) if document["moment"] else None
    by = By(document["by"])
    return _state(version, by, moment, None if by == By.OCCURRED else document["seq"])


def now(user: MemoryUser) -> KnownState:
    """Return the present state; raises BeingRedacted during a redaction."""
    refuse_being_redacted(user)
    return KnownState(user, user.last_seq, user.head)


def read_as_of(user: MemoryUser, text: str, *, at_start: bool = False) -> KnownState:
    """Return what was known about the user as of an entry's number, a version, or a day or time.

    As of an entry's number, the result follows from the entries up to that number, regardless of
    how they were batched. As of a time, the result is what was known then, from the entries that
    had arrived and the versions that existed. A day means its end (now, if it is today) or, with
    `at_start`, the time just before its start, when possibly nothing was known yet.

    Raises BadMoment if the text is none of these, or if the time is before the first entry or in
    the future; Redacted if the state would reveal content that has since been redacted;
    BeingRedacted during a redaction; and NotComputable if the state can't be computed.
    """
    refuse_being_redacted(user)
    versions = Checkpoint.objects.filter(user=user).select_related("user")
    if _SEQ.fullmatch(text):
        snapshot = _as_of_seq(user, int(text), versions)
    elif match := _VERSION.fullmatch(text):
        checkpoint = versions.filter(version=int(match[1])).first()
        if checkpoint is None:
            raise UnknownMoment(f"This user has no version {match[1]}.")
        snapshot = _make_snapshot(user, checkpoint.seen_seq, checkpoint, checkpoint.created_at)
    else:
        snapshot = _as_of_moment(user, text, versions, at_start=at_start)
    if snapshot.stored is not None:
        refuse_redacted(snapshot.stored)
    return snapshot


def read_by_occurred(
    user: MemoryUser, text: str | None = None, *, at_start: bool = False
) -> KnownState:
    """Return what was true at a given time (default: now) according to the entries' own times.

    This is based on all typed entries that are known now and had occurred by the given time. A day
    is interpreted as by `as_of`.

    Raises BadMoment if the time is invalid or in the future; NotByOccurred if the text is an entry
    or a version; BeingRedacted during a redaction; and NotComputable if the state can't be
    computed.
    """
    refuse_being_redacted(user)
    if text is not None and (_SEQ.fullmatch(text) or _VERSION.fullmatch(text)):
        raise NotByOccurred(
            "When ordering by the entries' own times, give a day or time, not an entry or version."
            f" {MOMENT_FORMS}"
        )
    moment, is_start = timezone.now(), False
    if text is not None:
        moment, is_start = _moment(user, text, at_start=at_start)
    head = user.head
    if head is not None:
        head = Checkpoint.objects.select_related("user").get(pk=head.pk)
        computed_states.refuse_untyped(head)
    occurred = LogEntry.objects.filter(user=user, occurred_at__lte=moment)
    if not is_start and not occurred.exists():
        raise UnknownMoment("This time is before the first event in this user's log.")
    decided = EntryOutcome.objects.filter(user=user, seq=OuterRef("seq"))
    count, named = _pending(user, occurred.filter(~Exists(decided)))
    return KnownState(user, user.last_seq, head, count, named, By.OCCURRED, moment)


def _as_of_seq(user: MemoryUser, seq: int, versions: QuerySet[Checkpoint]) -> KnownState:
    if not 1 <= seq <= user.last_seq:
        raise UnknownMoment(
            f"This user's log has no entry {seq}: its last entry is {user.last_seq}."
            if user.last_seq
            else f"This user's log has no entry {seq}: it is empty."
        )
    if redactions.redacted_among(user, [seq]):
        raise Redacted(
            f"Entry {seq} was redacted: the state as of that entry is no longer returned."
        )
    before = versions.filter(seen_seq__lte=seq).order_by("-version").first()
    whole = computed_states.version_with(user, seq, before)
    checkpoint = before if whole is None else whole
    # An entry that was rejected together with later entries isn't part of any state, but isn't
    # pending, either.
    settled = Q(outcome=Outcome.REJECTED)
    snapshot = _make_snapshot(user, seq, checkpoint, _until(user, seq, checkpoint), settled=settled)
    return snapshot if whole is None else replace(snapshot, up_to=seq)


def _until(user: MemoryUser, seq: int, checkpoint: Checkpoint | None) -> datetime.datetime:
    """Return the time by which the entry had arrived and the version, if any, existed.

    If the entry is typed and no version contains it, its outcome had also been decided by then.
    """
    (entry,) = LogEntry.objects.filter(user=user, seq=seq).only("kind", "recorded_at")
    moments = [entry.recorded_at, *([checkpoint.created_at] if checkpoint else [])]
    if entry.kind == EntryKind.RECORD:
        decided = EntryOutcome.objects.filter(user=user, seq=seq, checkpoint=checkpoint)
        moments += decided.values_list("decided_at", flat=True)
    return max(moments)


def _moment(user: MemoryUser, text: str, *, at_start: bool) -> tuple[datetime.datetime, bool]:
    """Return the time that the text specifies, and whether it is the time before a day's start.

    Raises UnknownMoment if the time is in the future.
    """
    span, now_ = span_of(user, text), timezone.now()
    is_start = at_start and span.is_day
    moment = span.first - RESOLUTION if is_start else span.end_by(now_)
    if moment > now_:
        raise UnknownMoment("This time is in the future: there is no state for it yet.")
    return moment, is_start


def _as_of_moment(
    user: MemoryUser, text: str, versions: QuerySet[Checkpoint], *, at_start: bool
) -> KnownState:
    try:
        moment, is_start = _moment(user, text, at_start=at_start)
    except UnknownMoment:
        raise
    except BadMoment:
        raise BadMoment(FORMS) from None
    entries = LogEntry.objects.filter(user=user, recorded_at__lte=moment)
    seq = entries.order_by("-seq").values_list("seq", flat=True).first()
    if seq is None and is_start:
        return KnownState(user, 0, None, 0, moment=moment)
    if seq is None:
        raise UnknownMoment(
            "At this time, the first entry in this user's log had not been recorded yet. Use"
            " by=occurred for the state at this time according to the entries' own times."
        )
    then = versions.filter(seen_seq__lte=seq, created_at__lte=moment)
    return replace(
        _make_snapshot(user, seq, then.order_by("-version").first(), moment), moment=moment
    )


def _make_snapshot(
    user: MemoryUser,
    seq: int,
    checkpoint: Checkpoint | None,
    until: datetime.datetime,
    *,
    settled: Q = Q(pk=None),  # noqa: B008 - never modified
) -> KnownState:
    """Return what was known at the time `until`.

    Entries that were settled later, or by a newer version, count as pending unless they match
    `settled`.
    """
    decided = Q(checkpoint=None)
    if checkpoint is not None:
        decided |= Q(checkpoint__version__lte=checkpoint.version)
    decided = decided & Q(decided_at__lte=until) | settled
    held = EntryOutcome.objects.filter(decided, user=user, seq=OuterRef("seq"))
    return KnownState(
        user, seq, checkpoint, *_pending(user, LogEntry.objects.filter(~Exists(held), seq__lte=seq))
    )


def _pending(user: MemoryUser, entries: QuerySet[LogEntry]) -> tuple[int, list[int]]:
    """Return how many of these entries belong to the user, and the numbers of the first of them."""
    entries = entries.filter(user=user)
    named = list(entries.order_by("seq").values_list("seq", flat=True)[:PENDING_NAMED])
    return (len(named) if len(named) < PENDING_NAMED else entries.count()), named


def refuse_being_redacted(user: MemoryUser) -> None:
    """Raise BeingRedacted if the user's newest version may still contain redacted content."""
    if user.redacting_since is not None:
        raise BeingRedacted


def refuse_redacted(checkpoint: Checkpoint) -> None:
    """Raise Redacted if a version is based on an entry that has since been redacted."""
    seq = redactions.first_since(checkpoint, redactions.moments(checkpoint.user_id))
    if seq is not None:
        raise Redacted(
            f"Version {checkpoint.version} is based on entry {seq}, which was redacted later."
        )
    if checkpoints.is_redacted(checkpoint):  # the version was created during the redaction
        raise Redacted(f"Version {checkpoint.version} is based on content that was redacted later.")


class NoState(Exception):
    """There is no version to query."""


def version_of(snapshot: KnownState) -> Checkpoint:
    """Return the version that a query runs on; raises NoState if there is none."""
    if snapshot.stored is None:
        raise NoState(
            "This user has no checkpoint yet, so there is no state to query. Append typed records"
            " first, with ?wait= to wait until they are processed."
            if snapshot.user.head is None
            else "There was no checkpoint at that time, so there is no state to query."
        )
    return snapshot.stored
