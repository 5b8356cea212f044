"""The lane of the language model: messages become facts, facts become edits."""

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence

import structlog
from django.db import DatabaseError, InterfaceError, transaction
from django.utils import timezone

from memory import checkpoints, log
from memory.checkpoints import Decision
from memory.llm import llm_turns, track_records
from memory.llm.language_models import LanguageModelError
from memory.llm.llm_calls import BudgetExhausted
from memory.models import Lane, LogEntry, MemoryUser
from memory.models.log import Outcome
from memory.models.users import LaneName
from memory.work import lanes, leases
from workers.authoring import memorize, structure
from workers.authoring.settling import NotSettled, settle
from workers.llm.interface import CallFailed

logger = structlog.get_logger(__name__)

# One claim settles so many slices and windows at most; a user with a long backlog gives way.
ROUNDS = 10
# A budget may be raised at any time: it is looked at again after so long at most.
BUDGET_AGAIN = datetime.timedelta(minutes=15)
# What is told of none of the entries.
PASSING = (
    NotSettled,
    LanguageModelError,
    structure.NotJudgedYet,
    leases.LeaseLost,
    DatabaseError,
    InterfaceError,
)
# So many attempts a failure of ours is taken for one that passes.
PATIENT_ATTEMPTS = 4
# What the model has failed on costs money each time, and is tried once a day in the end.
LONGEST_PAUSE = datetime.timedelta(days=1)


def work_on(user_pk: int) -> None:
    """Settle the user's pending messages, facts and corrections, unless another worker is at it, or
    as many users of the workspace are worked on as may be."""
    workspace_pk = MemoryUser.objects.values_list("workspace_id", flat=True).get(pk=user_pk)
    due = lanes.due(LaneName.STRUCTURE).filter(user_id=user_pk)
    lane = llm_turns.claim(due, workspace_pk) if due.exists() else None
    if lane is None:
        return
    try:
        _work_on(lane)
    finally:
        llm_turns.pass_on(workspace_pk)


def _work_on(lane: Lane) -> None:
    user_pk = lane.user_id
    try:
        with leases.kept(lane):
            _settle(lane)
            _advance(lane)
            lanes.release(lane)
    except leases.LeaseLost:
        logger.warning("lease_lost", user=user_pk)
    except (LanguageModelError, NotSettled, structure.NotJudged) as failure:
        # Which is the will of the operator or the staff, and no failure.
        willed = isinstance(failure, BudgetExhausted | track_records.Stopped)
        leases.fail(lane, str(failure), until=_again(failure, lane.attempts), counts=not willed)
        logger.warning("not_settled", user=user_pk, error=type(failure).__name__)
    except Exception as error:
        leases.fail(lane, f"{type(error).__name__}: {error}")
        raise


def _settle(lane: Lane) -> None:
    """Memorize, then structure; what the one cannot settle does not keep back the other."""
    user = structure.newest(lane.user_id)
    if structure.unjudged(user):
        raise structure.NotJudgedYet("what was proposed before is still to be judged")
    failure: NotSettled | None = None
    try:
        settle(
            functools.partial(memorize.pending, lane),
            _patiently(lane, lambda messages: memorize.memorize(lane, user, messages)),
            functools.partial(_reject, lane, user),
            most=memorize.MOST_MESSAGES,
            rounds=ROUNDS,
            attempt=lane.attempts,
        )
    except NotSettled as error:
        failure = error
    settle(
        functools.partial(structure.pending, lane),
        _patiently(
            lane,
            lambda entries: structure.structure(lane, structure.newest(user.pk), entries),
        ),
        functools.partial(_reject, lane, user),
        most=structure.MOST_ENTRIES,
        rounds=ROUNDS,
        attempt=lane.attempts,
    )
    if failure is not None:
        raise failure


def _patiently(
    lane: Lane, work: Callable[[Sequence[LogEntry]], None]
) -> Callable[[Sequence[LogEntry]], None]:
    """Take a failure of ours that comes again and again for one of the entries.

    So it is looked for which of them it is, and the others are not kept back by it.
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
            raise NotSettled(f"the server fails on it ({type(error).__name__}: {error})") from error

    return do


def _advance(lane: Lane) -> None:
    """Remember up to where all is settled, so that a long log is not looked through again."""
    last = structure.newest(lane.user_id).last_seq
    rest = lanes.pending(lane, 1)
    lanes.advance(lane, rest[0].seq - 1 if rest else last)


def _reject(lane: Lane, user: MemoryUser, reasons: Mapping[int, str]) -> None:
    """Settle entries that the model fails on, while others pass; what others settled stays so."""
    with transaction.atomic():
        MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        settled = log.outcomes(user, reasons)
        decisions = [
            Decision(seq, Outcome.REJECTED, why)
            for seq, why in reasons.items()
            if seq not in settled
        ]
        checkpoints.decide(lane, user, decisions)


def _again(failure: Exception, attempts: int) -> datetime.datetime | None:
    """When to try again; None: as after any failure."""
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
