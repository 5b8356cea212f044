"""Provider-neutral requests to a language model, the answers, and the ways a call can fail.

One call is one turn: messages and tools in, an answer out. The caller runs the tool loop: it
appends the answer's `message` and a `ToolResult` for every tool call, and calls again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from memory.kernel.settings.language_models import LanguageModelError, Usage
from memory.llm.models import LlmOutcome


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A tool call that the model requests.

    If the arguments are not a JSON object or do not fit the tool's schema, or if the tool does not
    exist, `problem` explains this to the model, and the call must not be carried out. `arguments`
    are the arguments that could be parsed, and `text` is the text that the model sent.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    text: str = ""
    problem: str = ""


@dataclass(frozen=True)
class System:
    """The system prompt, which describes the task and precedes all other messages."""

    text: str


@dataclass(frozen=True)
class User:
    """A request to the model."""

    text: str


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call; `failed` tells the model that the call had no effect."""

    call: ToolCall
    text: str
    failed: bool = False


@dataclass(frozen=True)
class Assistant:
    """A message from the model.

    `native` contains data that must be sent back to the provider in the next turn, such as thought
    signatures; only the adapter that created `native` looks into it.
    """

    text: str
    tool_calls: Sequence[ToolCall] = ()
    native: Any = field(default=None, compare=False, repr=False)


Message: TypeAlias = System | User | Assistant | ToolResult

ToolChoice: TypeAlias = Literal["auto", "required"]


@dataclass(frozen=True)
class ModelAnswer:
    """One answer; `usage` is None if the provider did not report token usage."""

    message: Assistant
    usage: Usage | None
    model: str = ""

    @property
    def text(self) -> str:
        """The text of the answer, without the tool calls."""
        return self.message.text

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        """The tool calls that the model requests, in order."""
        return self.message.tool_calls


class CallFailed(LanguageModelError):
    """A call to a language model that returned no usable answer.

    The subclass indicates the kind of failure. The message explains the failure to staff, and
    `explanation` explains it to the caller: what happened, whose fault it is, and what to do.
    `usage` is the call's token usage, if the provider still reports it; `unsent` is True if we know
    that the request did not reach the provider. `retry_after` is the number of seconds that the
    provider asks us to wait; `provider_said` is the provider's own message, shortened.
    """

    outcome: ClassVar[LlmOutcome]
    summary: ClassVar[str]
    explanation: ClassVar[str]
    # True if retrying the same question may succeed.
    passing: ClassVar[bool] = False

    def __init__(
        self,
        detail: str = "",
        *,
        usage: Usage | None = None,
        unsent: bool = False,
        retry_after: float | None = None,
        text: str = "",
        answered_by: str = "",
        provider_said: str = "",
    ) -> None:
        super().__init__(f"{self.summary} ({detail})" if detail else self.summary)
        self.usage = usage
        self.unsent = unsent
        self.retry_after = retry_after
        # The answer's text up to the point where it was cut off or refused.
        self.text = text
        self.answered_by = answered_by
        self.provider_said = provider_said


class RateLimited(CallFailed):
    """The provider responded with status 429."""

    outcome = LlmOutcome.RATE_LIMITED
    summary = "The provider's rate limit for this key has been reached for now."
    explanation = (
        "The language model's provider is not accepting more calls at the moment. This is not a"
        " problem with your question. Ask again in a minute."
    )
    passing = True


class ProviderUnavailable(CallFailed):
    """The provider responded with a 5xx status."""

    outcome = LlmOutcome.UNAVAILABLE
    summary = "The provider has failed or is overloaded."
    explanation = (
        "The language model's provider has failed or is overloaded. This is not a problem with your"
        " question. Ask again in a minute."
    )
    passing = True


class TimedOut(CallFailed):
    """The provider did not respond within UAC_LLM_TIMEOUT_SECONDS."""

    outcome = LlmOutcome.TIMEOUT
    summary = "The provider did not respond in time (UAC_LLM_TIMEOUT_SECONDS)."
    explanation = (
        "The language model's provider did not respond in time. This is not a problem with your"
        " question. Ask again. If this happens often, the server's operator can raise"
        " UAC_LLM_TIMEOUT_SECONDS."
    )
    passing = True


class ConnectionLost(CallFailed):
    """The connection failed, or was lost before the response was complete."""

    outcome = LlmOutcome.CONNECTION_LOST
    summary = "The provider cannot be reached, or the connection was dropped."
    explanation = (
        "The language model's provider cannot be reached, or the connection was dropped. This is"
        " not a problem with your question. Ask again in a minute. If this persists, the server's"
        " operator has to check the network and UAC_LLM_BASE_URL."
    )
    passing = True


class InvalidAnswer(CallFailed):
    """The response does not follow the protocol; it may be a proxy's HTML, or broken JSON."""

    outcome = LlmOutcome.INVALID_ANSWER
    summary = (
        "The response did not come from this provider: check that the base URL points to it, and"
        " that no proxy answers in its place."
    )
    explanation = (
        "The response did not come from a language model. This is not a problem with your question:"
        " the server's operator has to check that UAC_LLM_BASE_URL points to the provider, and"
        " that no proxy answers in its place."
    )
    passing = True


class EmptyAnswer(CallFailed):
    """The answer has neither text nor a tool call."""

    outcome = LlmOutcome.EMPTY
    summary = "The model returned an empty answer."
    explanation = "The language model returned an empty answer. Rephrase the question."
    passing = True


class Truncated(CallFailed):
    """The answer was cut off at the output token limit, and would be cut off there again."""

    outcome = LlmOutcome.TRUNCATED
    summary = "The answer was cut off at the token limit (UAC_LLM_OUTPUT_TOKENS)."
    explanation = (
        "The language model's answer was cut off because it was too long. Ask for less at a time,"
        " or have the server's operator raise UAC_LLM_OUTPUT_TOKENS."
    )


class ModelRefused(CallFailed):
    """The model, or the provider's content filter, has refused to answer."""

    outcome = LlmOutcome.REFUSED
    summary = "The model, or its provider's filter, refused to answer."
    explanation = (
        "The language model, or its provider's filter, refused this question. Rephrase it."
    )


class WrongKey(CallFailed):
    """The provider responded with status 401 or 403."""

    outcome = LlmOutcome.WRONG_KEY
    summary = (
        "The provider rejects the API key: check UAC_LLM_API_KEY or the workspace's own key, and"
        " whether the key may use this model."
    )
    explanation = (
        "The language model's provider rejects the server's API key. This is not a problem with"
        " your question, but asking again will not help until the server's operator has corrected"
        " UAC_LLM_API_KEY or the workspace's own key."
    )


class NoCredit(CallFailed):
    """The account's credit or quota at the provider is exhausted."""

    outcome = LlmOutcome.NO_CREDIT
    summary = "The provider account has no credit or quota left: top it up there."
    explanation = (
        "The server's account with the language model's provider has no credit left. This is not a"
        " problem with your question, but asking again will not help until the server's operator"
        " has topped it up."
    )


class UnknownModel(CallFailed):
    """The provider responded with status 404."""

    outcome = LlmOutcome.UNKNOWN_MODEL
    summary = (
        "The provider does not know this model or address: check the model's name and the base URL."
    )
    explanation = (
        "The provider does not know this language model or address. This is not a problem with your"
        " question, but asking again will not help until the server's operator has corrected"
        " UAC_LLM_MODEL or UAC_LLM_BASE_URL, or the workspace's own settings."
    )


class PromptTooLong(CallFailed):
    """The prompt is longer than the model's context window."""

    outcome = LlmOutcome.TOO_LONG
    summary = "The prompt is longer than this model's context window."
    explanation = (
        "The question, with the memory's content, is longer than the language model's context"
        " window. Ask a shorter question, send fewer earlier turns, or have the server's operator"
        " choose a model with a larger window."
    )


class RequestRejected(CallFailed):
    """The provider responded with any other 4xx status."""

    outcome = LlmOutcome.REJECTED
    summary = "The provider rejects the request."
    explanation = (
        "The language model's provider rejects the request. Rephrase the question; if it is"
        " rejected again, the server's operator has to check that UAC_LLM_MODEL can call tools."
    )
