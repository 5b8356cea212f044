"""Reopening: making wrongly settled entries pending again, so that they are reprocessed.

A reopening creates a version with the same files as the previous one: whatever was derived from the
entries stays until somebody changes it. Like any version, it can be rolled back
(`memory.versions.rollback.restore`), which restores the entries' outcomes.

Typed entries are not reopened: they were settled by trusted code, which would settle them the same
way again. Facts that were extracted from a reopened message are dismissed, because they will be
extracted again; if such a fact comes from several messages, all of these messages are reopened.
"""

import datetime
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.llm.models import LlmCall, LlmPurpose
from memory.log import lanes
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.versions import checkpoints, past_states, rollback
from memory.versions.models.checkpoints import Checkpoint, Origin

# The maximum number of entries that can be selected for a single reopening.
MAX_REOPENED = 10_000
# The reason given for dismissing a reopened message's facts.
REMEMBERED_ANEW = "the message this fact came from was reopened and will be processed again"


class NothingToReopen(Exception):
    """No settled entry that can be reopened matches the selection."""


class TooManyToReopen(Exception):
    """More entries match than a single reopening may contain."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Conditions that select a user's entry outcomes; without conditions, all are selected.

    `model` is a language model's name as recorded for its calls ("openai:gpt-5"). It selects the
    outcomes of entries that were settled after a call to that model, with no call to another model
    in between.
    """

    entries: Collection[int] | None = None
    session_id: str | None = None
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    outcomes: Collection[str] = ()
    model: str | None = None


@dataclass(frozen=True)
class Reopening:
    """A reopening's result: the reopened entries, the dismissed facts, and the new version.

    `checkpoint` is None if the user has no version yet.
    """

    entries: Sequence[int]
    dismissed: Sequence[int]
    checkpoint: Checkpoint | None


def select(user: MemoryUser, selection: Selection) -> QuerySet[EntryOutcome]:
    """Return the selected outcomes whose entries can be reopened."""
    mine = LogEntry.objects.filter(user=user, redacted_at=None).exclude(kind=EntryKind.RECORD)
    if selection.session_id is not None:
        mine = mine.filter(session_id=selection.session_id)
    outcomes = EntryOutcome.objects.filter(user=user, seq__in=mine.values("seq"))
    if selection.entries is not None:
        outcomes = outcomes.filter(seq__in=list(selection.entries))
    if selection.since is not None:
        outcomes = outcomes.filter(decided_at__gte=selection.since)
    if selection.until is not None:
        outcomes = outcomes.filter(decided_at__lt=selection.until)
    if selection.outcomes:
        outcomes = outcomes.filter(outcome__in=list(selection.outcomes))
    if selection.model is not None:
        outcomes = _settled_by(outcomes, selection.model)
    return outcomes.order_by("seq")


def _settled_by(outcomes: QuerySet[EntryOutcome], model: str) -> QuerySet[EntryOutcome]:
    calls = LlmCall.objects.filter(
        user=OuterRef("user"),
        purpose__in=[LlmPurpose.MEMORIZE, LlmPurpose.STRUCTURE],
        started_at__lte=OuterRef("decided_at"),
    )
    # If a version wasn't created by a model, the outcomes that were decided along with it weren't
    # decided by a model, either.
    others = Q(decided_at=F("checkpoint__created_at")) & ~Q(checkpoint__origin=Origin.LLM)
    return (
        outcomes.exclude(others)
        .annotate(settled_by=Subquery(calls.order_by("-started_at").values("model")[:1]))
        .filter(settled_by=model)
    )


def reopen(user: MemoryUser, selection: Selection, *, by: str, reason: str = "") -> Reopening:
    """Make the selected entries pending again and schedule work on them.

    Workers that are processing the user's lanes lose their leases. Raises NothingToReopen if no
    entry can be reopened, TooManyToReopen if more than MAX_REOPENED match, and
    past_states.BeingRedacted while any of the user's content is being redacted.
    """
    with transaction.atomic():
        locked = MemoryUser.objects.locked(user.pk)
        past_states.refuse_being_redacted(locked)
        if locked.merged_into_id is not None:
            raise NothingToReopen(
                "This user was merged into another one: reopen the other user's entries."
            )
        chosen = list(select(locked, selection).select_related("checkpoint")[: MAX_REOPENED + 1])
        if not chosen:
            raise NothingToReopen("No settled entry matches: nothing was reopened.")
        if len(chosen) > MAX_REOPENED:
            raise TooManyToReopen(
                f"More than {MAX_REOPENED} entries match: choose a shorter period."
            )
        seqs, facts = _add_messages(locked, {one.seq for one in chosen})
        settled = EntryOutcome.objects.filter(user=locked, seq__in=seqs - facts)
        chosen = list(settled.select_related("checkpoint").order_by("seq"))
        fact_outcomes = EntryOutcome.objects.filter(user=locked, seq__in=facts)
        before = [*chosen, *fact_outcomes.select_related("checkpoint")]
        checkpoint = _version(locked, before, facts, by=by, reason=reason)
        EntryOutcome.objects.filter(pk__in=[one.pk for one in before]).delete()
        EntryOutcome.objects.bulk_create(
            EntryOutcome(
                user=locked,
                seq=seq,
                outcome=Outcome.DISMISSED,
                checkpoint=checkpoint,
                reason=REMEMBERED_ANEW,
                decided_at=checkpoint.created_at if checkpoint else timezone.now(),
            )
            for seq in facts
        )
        lanes.begin_again(locked, min(one.seq for one in chosen))
    return Reopening([one.seq for one in chosen], sorted(facts), checkpoint)


def _add_messages(user: MemoryUser, seqs: Set[int]) -> tuple[set[int], set[int]]:
    """Return (entries, facts): these entries, messages they share facts with, and these facts.

    The facts are those that a language model extracted from any of these messages.
    """
    messages = LogEntry.objects.filter(user=user, kind=EntryKind.MESSAGE, redacted_at=None)
    memorized = LogEntry.objects.filter(user=user, kind=EntryKind.FACT, source="memorize")
    reopened = set(seqs)
    while True:
        message_seqs = messages.filter(seq__in=reopened).values_list("seq", flat=True)
        facts = dict(
            memorized.filter(derived_from__overlap=list(message_seqs)).values_list(
                "seq", "derived_from"
            )
        )
        cited = {seq for rested_on in facts.values() for seq in rested_on}
        together = set(messages.filter(seq__in=cited).values_list("seq", flat=True)) - reopened
        if not together:
            return reopened, set(facts)
        reopened |= together


def _version(
    user: MemoryUser,
    before: Sequence[EntryOutcome],
    facts: Collection[int],
    *,
    by: str,
    reason: str,
) -> Checkpoint | None:
    """Create a reopening's version and make it the newest; return None if the user has no version.

    The version records which outcomes the entries and facts had before, even if they were pending.
    """
    head = user.head
    if head is None:
        return None
    were = {
        one.seq: [one.seq, one.outcome, one.checkpoint.version if one.checkpoint else None]
        for one in before
    }
    were |= {seq: [seq, None, None] for seq in facts if seq not in were}
    # If an outcome was decided after its version was created, it doesn't result from that version.
    versions = {
        one.checkpoint.version
        for one in before
        if one.checkpoint is not None
        and one.outcome == Outcome.COVERED
        and one.decided_at == one.checkpoint.created_at
    }
    reopened = {
        "by": by,
        "outcomes": [were[seq] for seq in sorted(were)],
        "versions": sorted(versions),
    }
    restored = {"version": head.version, "by": by, "reason": reason, "reopened": True}
    verdict = {**head.verdict, "restored": restored, rollback.REOPENED: reopened}
    checkpoint = checkpoints.add_restored(user, head, verdict)
    # The files are unchanged, but forecasts are valid only for the newest version.
    checkpoints.make_head(user, checkpoint)
    return checkpoint
