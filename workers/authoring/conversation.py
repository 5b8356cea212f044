"""A conversation with a language model that works by calling tools."""

from collections.abc import Sequence

from django.db import transaction

from memory.kernel.models.leased import LeasedWork
from memory.kernel.work import leases
from memory.llm.llm_calls import CallSession
from workers.authoring.settling import NotSettled
from workers.llm.interface import (
    Assistant,
    EmptyAnswer,
    Message,
    ModelRefused,
    PromptTooLong,
    RequestRejected,
    System,
    Tool,
    ToolCall,
    ToolResult,
    Truncated,
    User,
)
from workers.llm.metered import MeteredModel

# Failures that the question may have caused: asking about fewer or different entries may succeed.
OF_THE_QUESTION = (Truncated, ModelRefused, PromptTooLong, EmptyAnswer, RequestRejected)
# Give up once a model has repeated a response this often despite being told what is wrong with it.
MAX_REPETITIONS = 2

NO_TOOL = (
    "Your answer called no tool, so nothing happened. Work only by calling tools; nobody reads text"
    " outside tool calls."
)


class Conversation:
    """A conversation with a language model, for one leased task."""

    def __init__(self, work: CallSession, leased: LeasedWork) -> None:
        self._model = MeteredModel(work)
        self._leased = leased
        self._messages: list[Message] = []
        self._repetitions = 0
        self.characters = 0
        self.last_problem = "none"

    def start(self, system: str, text: str) -> None:
        """Start with the system prompt and the question."""
        self._messages = [System(system), User(text)]

    @property
    def turns(self) -> int:
        """The number of responses that the model has given in this task."""
        return self._model.turn

    def continue_as(self, work: CallSession) -> None:
        """Record further calls under another purpose."""
        self._model = MeteredModel(work, self.turns)

    def ask(self, tools: Sequence[Tool]) -> Sequence[ToolCall]:
        """Return the model's next tool calls, if any.

        The caller must pass the result of each call to `answer`. Raises NotSettled if the model
        keeps repeating itself or fails on this question, LeaseLost if another worker has taken over
        the task, and LanguageModelError if the call to the model fails for any other reason.
        """
        with transaction.atomic():
            leases.check(self._leased)  # don't pay if another worker has taken over the task
        try:
            answer = self._model.complete(self._messages, tools, tool_choice="required")
        except OF_THE_QUESTION as error:
            raise NotSettled(str(error), call=error) from error
        self._heed_repetition(answer.message)
        self._append(answer.message)
        if not answer.tool_calls:
            self.last_problem = "the model answered without calling a tool"
            self._append(User(NO_TOOL))
        return answer.tool_calls

    def answer(self, call: ToolCall, text: str, *, failed: bool = False) -> None:
        """Append a tool call's result to the conversation."""
        if failed:
            self.last_problem = text
        self._append(ToolResult(call, text, failed))

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        if isinstance(message, Assistant):
            self.characters += sum(len(call.text) for call in message.tool_calls)
        self.characters += len(message.text)

    def _heed_repetition(self, new: Assistant) -> None:
        before = next((one for one in reversed(self._messages) if isinstance(one, Assistant)), None)
        last = self._messages[-1]
        complained = isinstance(last, User) or (isinstance(last, ToolResult) and last.failed)
        same = before is not None and _content_of(before) == _content_of(new)
        self._repetitions = self._repetitions + 1 if same and complained else 0
        if self._repetitions == MAX_REPETITIONS:
            raise NotSettled(
                f"the model keeps repeating the same answer after this error: {self.last_problem}"
            )


def _content_of(message: Assistant) -> tuple[str, list[tuple[str, str]]]:
    return message.text, [(call.name, call.text) for call in message.tool_calls]
