"""A model that enforces a workspace's budget, retries failed calls, and records every attempt."""

import random
import time
from collections.abc import Sequence
from typing import Any

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db import connection as db_connection

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import language_models
from memory.kernel.settings.language_models import Usage
from memory.llm import llm_calls, llm_spans
from memory.llm.llm_budgets import TooManyCalls
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmCall, LlmOutcome
from workers.llm.adapter import ProviderModel
from workers.llm.interface import (
    Assistant,
    CallFailed,
    Message,
    ModelAnswer,
    System,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    User,
)

logger = structlog.get_logger(__name__)

# Estimated bytes per token; real tokens are longer, so prompts are never underestimated by much.
BYTES_PER_TOKEN = 3
# After the first call in a task, later calls wait this many times as long for a call slot: giving
# up at that point would waste everything paid for so far.
PATIENCE = 20
# Pauses, in seconds, between attempts to record a call while the database does not respond.
DATABASE_PAUSES = (0.1, 1.0, 2.0, 4.0, 8.0)


class MeteredModel:
    """A workspace's model, for use in one task.

    It holds no database connection or transaction between calls; each call rereads the workspace's
    settings. It must not be used by several threads simultaneously. `turn` counts the model's
    answers in the task, including those given before this object was created.
    """

    def __init__(self, work: CallSession, turn: int = 0) -> None:
        self._work = work
        self.turn = turn

    def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        max_output_tokens: int | None = None,
    ) -> ModelAnswer:
        """Return the answer; raise CallFailed if the last attempt fails. See `ProviderModel`.

        Before anything is sent, raises NotConfigured if no model is configured, BudgetExhausted if
        the budget does not cover the call, and TooManyCalls if the limit on concurrent calls leaves
        no room in time.
        """
        self.turn += 1
        prompt = {
            "messages": [_message_json(message) for message in messages],
            "tools": [{**vars(tool), "parameters": dict(tool.parameters)} for tool in tools],
            "tool_choice": tool_choice,
        }
        size = len(str(prompt).encode(errors="replace"))
        most = max_output_tokens or settings.UAC_LLM_OUTPUT_TOKENS
        attempt = 0
        while True:
            attempt += 1
            workspace = Workspace.objects.get(pk=self._work.workspace.pk)
            connection = language_models.connection(workspace.chosen_llm)
            model = ProviderModel(
                connection, seconds=settings.UAC_LLM_TIMEOUT_SECONDS, max_output_tokens=most
            )
            language_models.price(connection.name)  # may take a second, which no lock must wait for
            call = self._admitted(
                Attempt(
                    model=connection.name,
                    turn=self.turn,
                    attempt=attempt,
                    prompt=prompt,
                    instructions="\n".join(one.text for one in messages if isinstance(one, System)),
                    most=Usage(input_tokens=size // BYTES_PER_TOKEN, output_tokens=most),
                    seconds=settings.UAC_LLM_TIMEOUT_SECONDS,
                )
            )
            try:
                return _recorded(call, model, messages, tools, tool_choice)
            except CallFailed as failure:
                if not failure.passing:
                    raise
                wait = llm_calls.pause_before_next(attempt, failure.retry_after)
                if wait is None:
                    raise
            time.sleep(wait)

    def _admitted(self, attempt: Attempt) -> LlmCall:
        """Create the attempt's row as soon as the limits allow one more call."""
        patience = 1 if self.turn == 1 else PATIENCE
        deadline = time.monotonic() + patience * settings.UAC_LLM_TURN_SECONDS
        while True:
            try:
                return llm_calls.start(
                    self._work, attempt, keep_content=settings.UAC_LLM_KEEP_CONTENT
                )
            except TooManyCalls:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            time.sleep(min(left, random.uniform(0.1, 0.5)))  # noqa: S311  # nosec B311 # not secret


def _recorded(
    call: LlmCall,
    model: ProviderModel,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    tool_choice: ToolChoice,
) -> ModelAnswer:
    """Make one attempt, and record the result, whether it succeeds or fails."""
    started = time.perf_counter()
    outcome, error, answer = LlmOutcome.INTERRUPTED, "The worker was stopped during the call.", None
    failure: CallFailed | None = None
    try:
        with llm_spans.model_span("chat", call.model, purpose=call.purpose) as span:
            answer = model.complete(messages, tools, tool_choice=tool_choice)
            llm_spans.note_answer(span, answer.model, answer.usage)
        problems = [called.problem for called in answer.tool_calls if called.problem]
        outcome = LlmOutcome.INVALID_CALL if problems else LlmOutcome.OK
        error = "\n".join(problems)
    except CallFailed as failed:
        failure, outcome, error = failed, failed.outcome, str(failed)
        raise
    except language_models.NotConfigured as problem:
        outcome, error = LlmOutcome.REJECTED, str(problem)
        raise
    finally:
        usage = answer.usage if answer else failure.usage if failure else None
        seconds = time.perf_counter() - started
        _finish(
            call,
            Ending(
                outcome=outcome,
                seconds=seconds,
                usage=usage,
                error=error,
                answered_by=answer.model if answer else failure.answered_by if failure else "",
                answer=_format_answer(answer, failure),
                unsent=failure is not None and failure.unsent,
            ),
        )
        logger.info(
            "llm_call",
            call=str(call.pk),
            model=call.model,
            purpose=call.purpose,
            turn=call.turn,
            attempt=call.attempt,
            outcome=outcome,
            seconds=round(seconds, 3),
            tokens=usage.tokens if usage else None,
        )
    return answer


def _finish(call: LlmCall, ending: Ending) -> None:
    """Record the result of a call that has cost money; retry while the database restarts."""
    for pause in DATABASE_PAUSES:
        try:
            llm_calls.finish(call, ending, keep_content=settings.UAC_LLM_KEEP_CONTENT)
        except (OperationalError, InterfaceError) as error:
            logger.warning("llm_call_not_written", call=str(call.pk), error=str(error))
            db_connection.close()
            time.sleep(pause)
        else:
            return
    llm_calls.finish(call, ending, keep_content=settings.UAC_LLM_KEEP_CONTENT)


def _format_answer(answer: ModelAnswer | None, failure: CallFailed | None) -> dict[str, Any] | None:
    if answer is not None:
        return _message_json(answer.message)
    return {"role": "assistant", "text": failure.text} if failure and failure.text else None


def _message_json(message: Message) -> dict[str, Any]:
    match message:
        case System(text):
            return {"role": "system", "text": text}
        case User(text):
            return {"role": "user", "text": text}
        case ToolResult(call, text, failed):
            return {"role": "tool", "call": call.id, "text": text, "failed": failed}
        case Assistant(text, calls):
            return {"role": "assistant", "text": text, "tool_calls": list(map(_call_json, calls))}


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.text}
