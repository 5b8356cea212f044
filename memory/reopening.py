"""Outcomes taken back: entries that somebody settled wrongly wait again, and are worked on anew.

A reopening is a version of its own, with the files of the one before: what was made of the entries
stays until somebody changes it. So it can be undone as any version can, by the return to an
earlier one (`memory.temporal.history.restore`), which gives the entries the outcomes that they had.

Typed entries are not reopened: trusted code has settled them, and would do the same again. Facts
that a reopened message was remembered by are dismissed, since they are found anew, and the other
messages that such a fact rests on are reopened with it.
"""

import datetime
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from memory import checkpoints
from memory.models import Checkpoint, EntryOutcome, LlmCall, LogEntry, MemoryUser
from memory.models.checkpoints import Origin
from memory.models.llm import LlmPurpose
from memory.models.log import EntryKind, Outcome
from memory.temporal import history
from memory.work import lanes

# Of whatever is chosen, so many at once.
MAX_REOPENED = 10_000
# Why a fact is dismissed that a reopened message was remembered by.
REMEMBERED_ANEW = "its message was reopened, and is remembered anew"


class NothingToReopen(Exception):
    """No entry that was chosen is settled, or none can be reopened."""


class TooManyToReopen(Exception):
    """So many entries are not reopened at once."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which outcomes of a user are meant: those that meet all that is given; by default, all.

    `model` is a language model as calls name it ("openai:gpt-5"): what it settled is what was
    decided after its call and before anybody else's.
    """

    entries: Collection[int] | None = None
    session_id: str | None = None
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    outcomes: Collection[str] = ()
    model: str | None = None


@dataclass(frozen=True)
class Reopening:
    """The entries that wait again, the facts that were dismissed, and the version that says so, if
    there was one before."""

    entries: Sequence[int]
    dismissed: Sequence[int]
    checkpoint: Checkpoint | None


def select(user: MemoryUser, selection: Selection) -> QuerySet[EntryOutcome]:
    """Select the outcomes that are meant and can be reopened."""
    mine = LogEntry.objects.filter(user=user, redacted_at=None).exclude(kind=EntryKind.RECORD)
    if selection.session_id is not None:
        mine = mine.filter(session_id=selection.session_id)
    found = EntryOutcome.objects.filter(user=user, seq__in=mine.values("seq"))
    if selection.entries is not None:
        found = found.filter(seq__in=list(selection.entries))
    if selection.since is not None:
        found = found.filter(decided_at__gte=selection.since)
    if selection.until is not None:
        found = found.filter(decided_at__lt=selection.until)
    if selection.outcomes:
        found = found.filter(outcome__in=list(selection.outcomes))
    if selection.model is not None:
        found = _settled_by(found, selection.model)
    return found.order_by("seq")


def _settled_by(outcomes: QuerySet[EntryOutcome], model: str) -> QuerySet[EntryOutcome]:
    calls = LlmCall.objects.filter(
        user=OuterRef("user"),
        purpose__in=[LlmPurpose.MEMORIZE, LlmPurpose.STRUCTURE],
        started_at__lte=OuterRef("decided_at"),
    )
    # What a version decided that is none of a model's was decided by whoever made that.
    others = Q(decided_at=F("checkpoint__created_at")) & ~Q(checkpoint__origin=Origin.LLM)
    return (
        outcomes.exclude(others)
        .annotate(settled_by=Subquery(calls.order_by("-started_at").values("model")[:1]))
        .filter(settled_by=model)
    )


def reopen(user: MemoryUser, selection: Selection, *, by: str, reason: str = "") -> Reopening:
    """Take outcomes back: their entries are pending again, and work on them is due.

    Who works on the user's lanes meanwhile loses the lease. Raises NothingToReopen,
    TooManyToReopen, and history.BeingRedacted.
    """
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        history.refuse_being_redacted(locked)
        if locked.merged_into_id is not None:
            raise NothingToReopen("This user was merged: reopen the entries of the other one.")
        chosen = list(select(locked, selection).select_related("checkpoint")[: MAX_REOPENED + 1])
        if not chosen:
            raise NothingToReopen("Nothing that is settled matches: nothing was reopened.")
        if len(chosen) > MAX_REOPENED:
            raise TooManyToReopen(
                f"More than {MAX_REOPENED} entries match: choose a shorter span of time."
            )
        seqs, facts = _with_messages(locked, {one.seq for one in chosen})
        settled = EntryOutcome.objects.filter(user=locked, seq__in=seqs - facts)
        chosen = list(settled.select_related("checkpoint").order_by("seq"))
        known = EntryOutcome.objects.filter(user=locked, seq__in=facts)
        before = [*chosen, *known.select_related("checkpoint")]
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
        lanes.begin_again(locked.pk, min(one.seq for one in chosen))
    return Reopening([one.seq for one in chosen], sorted(facts), checkpoint)


def _with_messages(user: MemoryUser, seqs: Set[int]) -> tuple[set[int], set[int]]:
    """Return these entries, with the messages that were remembered together with one of them, and
    the facts that a language model has found in all these messages."""
    messages = LogEntry.objects.filter(user=user, kind=EntryKind.MESSAGE, redacted_at=None)
    found = LogEntry.objects.filter(user=user, kind=EntryKind.FACT, source="memorize")
    reopened = set(seqs)
    while True:
        said = messages.filter(seq__in=reopened).values_list("seq", flat=True)
        facts = dict(
            found.filter(derived_from__overlap=list(said)).values_list("seq", "derived_from")
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
    """Write the version of a reopening, with what the entries were before (facts that were pending
    are named, too), and make it the newest. Without a version there is none to go back to."""
    head = user.head
    if head is None:
        return None
    were = {
        one.seq: [one.seq, one.outcome, one.checkpoint.version if one.checkpoint else None]
        for one in before
    }
    were |= {seq: [seq, None, None] for seq in facts if seq not in were}
    # What was settled later than its version was made is none of that version's work.
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
    checkpoint = Checkpoint.objects.create(
        user=user,
        version=head.version + 1,
        parent=head,
        tree=head.tree,
        outline=head.outline,
        seen_seq=head.seen_seq,
        origin=Origin.RESTORED,
        edits=[],
        verdict={**head.verdict, "restored": restored, history.REOPENED: reopened},
    )
    # The files are the same; but what is foreseen is foreseen of the newest version alone.
    checkpoints.make_head(user, checkpoint)
    return checkpoint
