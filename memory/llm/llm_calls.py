"""Calls to language models: admitting them, and recording their outcomes.

A row is written before the request is sent and completed afterwards, so a call is on record even if
its process is killed. Running calls count towards the limit on concurrent calls, and the most that
they may spend is reserved in the budget (`memory.llm.llm_budgets`) until they finish, so concurrent
calls never exceed the budget. Finished calls are added to a ledger (`LlmSpending`), which is fast
to sum up.
"""

import datetime
import json
import random
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from memory.kernel import encryption
from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.models.large import defer_large
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import language_models
from memory.kernel.settings.language_models import Budget, Usage
from memory.kernel.work import leases
from memory.llm import track_records
from memory.llm.llm_budgets import TooManyCalls, check_budget, cost_of, price_of
from memory.llm.llm_spending import EMBEDDINGS, MODELS
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose
from memory.versions.models.runs import Run

logger = structlog.get_logger(__name__)

# If a call is overdue by more than this, its caller is considered dead.
GRACE = datetime.timedelta(seconds=30)
ERROR_CHARACTERS = 4000
# How many digits of a hash tell versions of instructions apart.
VERSION_DIGITS = 12
# Outcomes that no provider charges for. With any other outcome, the provider may have done work
# that it charges for, even if it has not reported any usage.
FREE = (
    LlmOutcome.RATE_LIMITED,
    LlmOutcome.UNAVAILABLE,
    LlmOutcome.WRONG_KEY,
    LlmOutcome.NO_CREDIT,
    LlmOutcome.UNKNOWN_MODEL,
    LlmOutcome.TOO_LONG,
    LlmOutcome.REJECTED,
)


@dataclass(frozen=True, kw_only=True)
class CallSession:
    """The purpose and owner of the calls made for one task; all of these calls share its `id`.

    No call is made if the caller has lost its lease on the lane, the run or other leased work.
    """

    workspace: Workspace
    purpose: LlmPurpose
    user: MemoryUser | None = None
    lane: Lane | None = None
    run: Run | None = None
    lease: LeasedWork | None = None
    id: uuid.UUID = field(default_factory=uuid.uuid4)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that is about to start: a single request to a model.

    `prompt` is the whole request, of which `instructions` are the server's own part; `most` is the
    maximum usage, and `seconds` the time limit.
    """

    model: str
    turn: int
    attempt: int
    prompt: Mapping[str, Any]
    most: Usage
    seconds: float
    instructions: str = ""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The result of an attempt. `answer` is the provider's response, as JSON."""

    outcome: LlmOutcome
    seconds: float
    usage: Usage | None = None
    error: str = ""
    answered_by: str = ""
    answer: Mapping[str, Any] | None = None
    # Whether it is certain that the request was not sent.
    unsent: bool = False


def start(
    work: CallSession, attempt: Attempt, *, keep_content: bool, budget: Budget | None = None
) -> LlmCall:
    """Write an attempt's row if `budget` (by default the workspace's budget) allows the attempt.

    Embedding calls are counted separately from other calls.

    Raises BudgetExhausted or TooManyCalls if the budget does not allow the attempt; NotConfigured
    if the budget limits the cost but the model has no price; LeaseLost if the caller no longer
    holds the lease on the work, because the prompt may then contain content that has been redacted;
    track_records.Stopped if the model must no longer write to projects. In all these cases nothing
    is written.
    """
    now = timezone.now()
    with transaction.atomic():
        for leased in (work.lane, work.run, work.lease):
            if leased is not None:
                leases.check(leased)
        workspace = Workspace.objects.select_for_update(no_key=True).get(pk=work.workspace.pk)
        is_author = work.purpose in track_records.AUTHORING
        if is_author and (reason := track_records.why_stopped(workspace, attempt.model)):
            raise track_records.Stopped(reason)
        budget = budget or language_models.budget(workspace.chosen_llm)
        cost = cost_of(attempt.model, work.purpose, budget, attempt.most)
        embeds = work.purpose == LlmPurpose.EMBED
        of_kind = EMBEDDINGS if embeds else MODELS
        check_budget(workspace, budget, attempt.most.tokens, cost or Decimal(0), now, of_kind)
        under_way = _under_way(workspace, now, of_kind).count()
        if embeds:
            has_room = under_way < budget.concurrency
        else:
            has_room = budget.has_room(under_way, slow(workspace, now))
        if not has_room:
            which = "" if embeds else " (llm_concurrency)"
            raise TooManyCalls(
                "This workspace has its maximum number of calls of this kind in progress:"
                f" {under_way}{which}."
            )
        return LlmCall.objects.create(
            workspace=workspace,
            user=work.user,
            purpose=work.purpose,
            work=work.id,
            lane=work.lane,
            run=work.run,
            turn=attempt.turn,
            attempt=attempt.attempt,
            model=attempt.model,
            prompt_hash=sha256(canonical_json(attempt.prompt)),
            instructions=version_of(attempt.instructions),
            reserved_tokens=attempt.most.tokens,
            reserved_cost=cost,
            started_at=now,
            expires_at=now + datetime.timedelta(seconds=attempt.seconds) + GRACE,
            prompt=_sealed(attempt.prompt) if keep_content else None,
        )


def version_of(instructions: str) -> str:
    """Return the version of instructions: the beginning of their hash, "" if there are none."""
    return sha256(instructions)[:VERSION_DIGITS] if instructions else ""


def slow(workspace: Workspace, now: datetime.datetime) -> int:
    """Return how many calls have been running so long that other calls must not wait for them."""
    since = now - datetime.timedelta(seconds=settings.UAC_LLM_SLOW_SECONDS)
    return _under_way(workspace, now, MODELS).filter(started_at__lte=since).count()


def _under_way(workspace: Workspace, now: datetime.datetime, of_kind: Q) -> QuerySet[LlmCall]:
    return LlmCall.objects.filter(
        of_kind, workspace=workspace, outcome=LlmOutcome.STARTED, expires_at__gt=now
    )


def finish(call: LlmCall, ending: Ending, *, keep_content: bool) -> bool:
    """Store the result of the attempt and add it to the ledger, in one transaction.

    Returns False, and changes nothing, if the call has already been closed as interrupted.
    """
    usage = ending.usage
    price = price_of(call.model, call.purpose)
    cost = price.cost(usage) if usage and price else None
    with transaction.atomic():
        finished = LlmCall.objects.filter(pk=call.pk, outcome=LlmOutcome.STARTED).update(
            outcome=ending.outcome,
            error=_storable(ending.error)[:ERROR_CHARACTERS],
            answered_by=_storable(ending.answered_by)[:200],
            input_tokens=usage and usage.input_tokens,
            output_tokens=usage and usage.output_tokens,
            cache_read_tokens=usage and usage.cache_read_tokens,
            cache_write_tokens=usage and usage.cache_write_tokens,
            cost=cost,
            finished_at=timezone.now(),
            seconds=ending.seconds,
            answer=_sealed(ending.answer) if keep_content and ending.answer else None,
        )
        # If the prompt was redacted during the call (`memory.privacy.forgetting`), the answer
        # could reveal the redacted content.
        LlmCall.objects.filter(pk=call.pk, prompt_hash="").update(answer=None, error="")
        if not finished:
            logger.warning("llm_call_ended_late", call=str(call.pk), outcome=ending.outcome)
            return False
        presumed = usage is None and not ending.unsent and ending.outcome not in FREE
        _add_to_ledger(call, ending, cost, presumed=presumed)
    return True


def pause_before_next(attempt: int, retry_after: float | None) -> float | None:
    """Return the seconds to wait before the next attempt; None if the call must not be retried.

    The wait is a random duration between half the backoff and the full backoff, so that calls that
    failed together are not retried together. If the provider asks for a wait longer than the
    maximum, the caller must give up and do the work later instead of tying up a worker.
    """
    most = settings.UAC_LLM_BACKOFF_SECONDS_MOST
    if attempt >= settings.UAC_LLM_ATTEMPTS or (retry_after is not None and retry_after > most):
        return None
    longest = min(settings.UAC_LLM_BACKOFF_SECONDS * 2 ** (attempt - 1), most)
    drawn = random.uniform(longest / 2, longest)  # noqa: S311  # nosec B311 # no secret
    return drawn if retry_after is None else retry_after + drawn / 10


def close_interrupted(limit: int) -> int:
    """Close up to `limit` calls whose callers are dead, oldest first; return how many."""
    gone = LlmCall.objects.filter(outcome=LlmOutcome.STARTED, expires_at__lte=timezone.now())
    calls = list(defer_large(gone).order_by("expires_at")[:limit])
    ending = Ending(
        outcome=LlmOutcome.INTERRUPTED,
        seconds=0,
        error="The worker exited during the call; the number of tokens used is unknown.",
    )
    return sum(finish(call, ending, keep_content=False) for call in calls)


def content(call: LlmCall) -> tuple[Any, Any]:
    """Return the call's parsed prompt and answer; either is None if it is not stored.

    Raises EncryptionError if the prompt or the answer cannot be decrypted.
    """
    return opened(call.prompt), opened(call.answer)


LEDGER = """
INSERT INTO memory_llmspending (workspace_id, day, model, purpose, outcome, calls, seconds,
    input_tokens, output_tokens, cost, presumed_tokens, presumed_cost)
VALUES (%s, %s, %s, %s, %s, 1, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace_id, day, model, purpose, outcome) DO UPDATE SET
    calls = memory_llmspending.calls + 1,
    seconds = memory_llmspending.seconds + excluded.seconds,
    input_tokens = memory_llmspending.input_tokens + excluded.input_tokens,
    output_tokens = memory_llmspending.output_tokens + excluded.output_tokens,
    cost = memory_llmspending.cost + excluded.cost,
    presumed_tokens = memory_llmspending.presumed_tokens + excluded.presumed_tokens,
    presumed_cost = memory_llmspending.presumed_cost + excluded.presumed_cost
"""


def _add_to_ledger(call: LlmCall, ending: Ending, cost: Decimal | None, *, presumed: bool) -> None:
    usage = ending.usage or Usage(input_tokens=0, output_tokens=0)
    with connection.cursor() as cursor:
        cursor.execute(
            LEDGER,
            [
                call.workspace_id,
                call.started_at.astimezone(datetime.UTC).date(),
                call.model,
                call.purpose,
                ending.outcome,
                ending.seconds,
                usage.input_tokens,
                usage.output_tokens,
                cost or 0,
                call.reserved_tokens if presumed else 0,
                call.reserved_cost or 0 if presumed else 0,
            ],
        )


def _storable(text: str) -> str:
    """Replace any characters in a provider's text that PostgreSQL doesn't accept."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def _sealed(value: Mapping[str, Any]) -> bytes:
    return encryption.encrypt(zlib.compress(canonical_json(value).encode()))


def opened(token: bytes | memoryview | None) -> Any:
    """Decrypt and parse a stored prompt or answer; None is returned as is.

    Raises EncryptionError if the token cannot be decrypted.
    """
    if token is None:
        return None
    return json.loads(zlib.decompress(encryption.decrypt(bytes(token))))
