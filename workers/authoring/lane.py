"""The language model lane: messages become facts, and facts become edits."""

import datetime
import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog
from django.db import DatabaseError, InterfaceError, transaction
from django.utils import timezone

from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.settings.language_models import LanguageModelError
from memory.kernel.work import leases
from memory.llm import track_records
from memory.llm.llm_budgets import BudgetExhausted
from memory.log import entry_log, lanes
from memory.log.models.entries import LogEntry, Outcome
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision
from workers.authoring import memorize, structure
from workers.authoring.sandbox_runs import NotJudged, NotJudgedYet
from workers.authoring.settling import Blame, NotSettled, settle
from workers.llm.interface import CallFailed

logger = structlog.get_logger(__name__)

# Maximum wait before rechecking an exhausted budget, which may be raised at any time.
BUDGET_AGAIN = datetime.timedelta(minutes=15)
# Errors that are never blamed on an entry.
PASSING = (
    NotSettled,
    LanguageModelError,
    NotJudgedYet,
    leases.LeaseLost,
    DatabaseError,
    InterfaceError,
)
# From this attempt on, we no longer treat an error in our own code as transient.
PATIENT_ATTEMPTS = 4
# Maximum pause between attempts at entries that the model keeps failing on. Pauses are long because
# each attempt costs money.
LONGEST_PAUSE = datetime.timedelta(days=1)


def settle_pending(lane: Lane) -> None:
    """Settle the messages, facts and corrections that are pending in a lane that was claimed."""
    try:
        _settle(lane)
    except (LanguageModelError, NotSettled, NotJudged) as failure:
        # A task stopped by the operator or by staff doesn't count as failed.
        willed = isinstance(failure, BudgetExhausted | track_records.Stopped)
        until = _again(failure, lane.attempts)
        raise leases.Postponed(str(failure), until=until, counts=not willed) from failure
    # Store how far the log is settled without gaps, so that this part isn't reread.
    last = structure.newest(lane.user_id).last_seq
    rest = lanes.pending(lane, 1)
    lane.cursor_seq = rest[0].seq - 1 if rest else last
    lanes.release(lane)


def _settle(lane: Lane) -> None:
    """Memorize messages, then structure facts; a failure in one step doesn't block the other step.

    Facts that the model sent together with edits are structured before the next slice is memorized.
    """
    if structure.unjudged(structure.newest(lane.user_id)):
        raise NotJudgedYet("an earlier proposal has not been judged yet")
    memorizing = _Memorizing(lane)
    unsettled = _settle_pending(lane, memorize.pending, memorizing.work, memorize.MAX_MESSAGES)
    failure = memorizing.unstructured or _structure(lane) or unsettled
    if failure:
        raise failure


class _Memorizing:
    """Memorizes slices of messages, and structures the facts that the model sent with edits.

    `unstructured` is the error if facts of the last slice couldn't be structured.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.unstructured: NotSettled | None = None

    def work(self, messages: Sequence[LogEntry]) -> None:
        first = memorize.memorize(self._lane, structure.newest(self._lane.user_id), messages)
        # If the model sent no edits, all facts are structured at the end, even those that failed
        # before.
        self.unstructured = _structure(self._lane, first) if first else None


class _Structuring:
    """Structures windows of facts and corrections.

    `first` is the response that the model has already given for the first window, if any. It is
    used once: if it settles nothing, the model is asked about fewer entries.
    """

    def __init__(self, lane: Lane, first: structure.FirstAnswer | None) -> None:
        self._lane = lane
        self._first = first

    def work(self, entries: Sequence[LogEntry]) -> None:
        first, self._first = self._first, None
        structure.structure(self._lane, structure.newest(self._lane.user_id), entries, first)


def _structure(lane: Lane, first: structure.FirstAnswer | None = None) -> NotSettled | None:
    """Structure the pending facts and corrections; return the error if some couldn't be settled."""
    work = _Structuring(lane, first).work
    return _settle_pending(lane, structure.pending, work, structure.MAX_ENTRIES)


def _settle_pending(
    lane: Lane,
    pending: Callable[[Lane, int, Collection[int]], Sequence[LogEntry]],
    work: Callable[[Sequence[LogEntry]], None],
    most: int,
) -> NotSettled | None:
    """Have `work` settle the lane's entries; return the error if some couldn't be settled.

    Repeated errors in our own code are blamed on the entries: bisecting then isolates the entry
    that causes the error, so that it doesn't hold up other entries.
    """

    def do(entries: Sequence[LogEntry]) -> None:
        try:
            work(entries)
        except PASSING:
            raise
        except Exception as error:
            if lane.attempts < PATIENT_ATTEMPTS:
                raise
            logger.exception("entries_failed", user=lane.user_id, entries=len(entries))
            raise NotSettled(
                f"the server failed on this entry ({type(error).__name__}: {error})", Blame.SERVER
            ) from error

    try:
        settle(
            functools.partial(pending, lane),
            do,
            functools.partial(_reject, lane),
            most=most,
            attempt=lane.attempts,
        )
    except NotSettled as error:
        return error
    return None


def _reject(lane: Lane, reasons: Mapping[int, str]) -> None:
    """Reject entries that the model failed on while other entries passed; skip settled entries."""
    with transaction.atomic():
        user = MemoryUser.objects.locked(lane.user_id)
        settled = entry_log.outcomes(user, reasons)
        decisions = [
            Decision(seq, Outcome.REJECTED, why)
            for seq, why in reasons.items()
            if seq not in settled
        ]
        checkpoints.commit(lane, user, None, decisions)


def _again(failure: Exception, attempts: int) -> datetime.datetime | None:
    """Return the time of the next attempt, or None to wait for the usual delay after a failure."""
    now = timezone.now()
    match failure:
        case BudgetExhausted(until=until):
            return min(until or now + BUDGET_AGAIN, now + BUDGET_AGAIN)
        case track_records.Stopped():
            return now + track_records.AGAIN
        case CallFailed(retry_after=float() as seconds):
            return now + datetime.timedelta(seconds=seconds)
        case NotSettled():
            minutes = datetime.timedelta(minutes=2 ** min(attempts, 12))
            return now + min(minutes, LONGEST_PAUSE)
        case _:
            return None
