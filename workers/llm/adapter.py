"""Call language model providers through pydantic-ai.

Importing pydantic-ai takes seconds and a hundred megabytes, so it is imported on the first call,
and only by workers that call a model. Each attempt creates its own client and closes it: a client
is tied to a single workspace's key and to an event loop, which must not be shared between threads
or inherited by a forked process.
"""

import asyncio
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from memory.kernel.settings.language_models import PROVIDERS, Connection, NotConfigured, Usage
from memory.kernel.texts import one_line
from workers.llm.interface import (
    Assistant,
    CallFailed,
    ConnectionLost,
    EmptyAnswer,
    InvalidAnswer,
    Message,
    ModelAnswer,
    ModelRefused,
    NoCredit,
    PromptTooLong,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
    System,
    TimedOut,
    Tool,
    ToolChoice,
    ToolResult,
    Truncated,
    UnknownModel,
    User,
    WrongKey,
)
from workers.llm.tool_calls import read_call

if TYPE_CHECKING:
    import ssl

    import httpx2
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

# Maximum size of a response, in bytes: no model's response is larger, but a file that a proxy
# serves instead may be.
MAX_RESPONSE_BYTES = 32 * 1024 * 1024
CONNECT_SECONDS = 10.0
MAX_DETAIL = 2000
# Maximum length of the provider's own message when quoted in the message for the caller.
MAX_SAID = 200
# A reported token count larger than this can't be right.
MAX_TOKENS = 10**12
# Placeholder used if no key is set: the clients require a key even if the server does not.
NO_KEY = "none"


class ProviderModel:
    """A provider's model: one attempt per call, no retries."""

    def __init__(self, connection: Connection, *, seconds: float, max_output_tokens: int) -> None:
        self._connection = connection
        self._seconds = seconds
        self._max_output_tokens = max_output_tokens

    def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
    ) -> ModelAnswer:
        """Return the answer; raise CallFailed, or NotConfigured if the client isn't installed.

        If `tool_choice` is `required`, the model is told to call a tool. Not every server enforces
        this, so an answer may still consist only of text.
        """
        try:
            response = asyncio.run(self._ask(messages, tools, tool_choice))
        except ImportError as error:
            provider = self._connection.provider
            raise NotConfigured(
                f"The client for {provider} is not installed: install userascode-server[{provider}]"
                f" ({error})."
            ) from error
        except Exception as error:
            failure = self._failure(error)
            failure.provider_said = one_line(self._without_key(_words(error)), MAX_SAID)
            raise failure from error
        return _read(response, tools)

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[Tool], choice: ToolChoice
    ) -> "ModelResponse":
        from pydantic_ai.direct import model_request
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.settings import ModelSettings
        from pydantic_ai.tools import ToolDefinition

        definitions = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
                # Strict mode rewrites some schemas and rejects others; we validate tool calls
                # anyway.
                strict=False,
            )
            for tool in tools
        ]
        settings = ModelSettings(max_tokens=self._max_output_tokens, timeout=self._seconds)
        if self._connection.provider == "anthropic":
            settings.update(_marked_for_caching())
        if tools and choice == "required":
            settings["tool_choice"] = "required"
        # The imports are done by now, so they don't count towards the provider's time limit.
        async with _model(self._connection, self._seconds) as model, asyncio.timeout(self._seconds):
            return await model_request(
                model,
                _history(messages),
                model_settings=settings,
                model_request_parameters=ModelRequestParameters(function_tools=definitions),
                instrument=False,
            )

    def _failure(self, error: Exception) -> CallFailed:  # noqa: C901 - one case for each kind
        """Convert one of the library's errors to a CallFailed that doesn't reveal the API key."""
        from pydantic_ai import exceptions

        text = str(error) or type(error).__name__
        if said := _words(error):  # instead of the body that they are from
            text = text.replace(str(getattr(error, "body", "")), said)
        detail = self._without_key(text)[:MAX_DETAIL]
        retry_after = getattr(error, "retry_after", None)
        # Subclasses of the library's errors have to come before their base classes.
        match error:
            case TimeoutError() | exceptions.ModelTimeoutError() | exceptions.ModelRequestTimeout():
                unsent = getattr(error, "phase", None) in ("pool", "connect")
                return TimedOut(f"{self._seconds:g} s", unsent=unsent)
            case exceptions.ModelRateLimitError():
                return RateLimited(detail, retry_after=retry_after)
            case exceptions.ModelQuotaExceededError():
                return NoCredit(detail)
            case exceptions.ModelAuthenticationError():
                return WrongKey(detail)
            case exceptions.ModelNotFoundError():
                return UnknownModel(detail)
            case exceptions.ModelContextWindowExceededError():
                return PromptTooLong(detail)
            case exceptions.ContentFilterError():
                return ModelRefused(detail)
            case exceptions.ModelRequestRejectedError() | exceptions.UserError():
                return RequestRejected(detail)
            case exceptions.ModelUnavailableError() | exceptions.ModelServerError():
                return ProviderUnavailable(detail, retry_after=retry_after)
            case exceptions.ModelConnectionError():
                return ConnectionLost(detail, unsent=error.phase in ("pool", "connect"))
            case exceptions.ModelHTTPError() if 300 <= error.status_code < 400:
                return InvalidAnswer(detail)
            case exceptions.ModelHTTPError() if error.status_code in (408, 409, 425):
                return ProviderUnavailable(detail, retry_after=retry_after)
            case exceptions.ModelHTTPError():
                return RequestRejected(detail)
            case _:
                # Each client raises its own errors if a response doesn't follow the protocol.
                return InvalidAnswer(f"{type(error).__name__}: {detail}")

    def _without_key(self, text: str) -> str:
        key = self._connection.api_key
        return text.replace(key, "***") if key else text


def _words(error: Exception) -> str:
    """Return the provider's own message in an error; "" if there is none, or only a web page."""
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        body = inner.get("message") if isinstance(inner, Mapping) else inner
    return body if isinstance(body, str) and not body.lstrip().startswith("<") else ""


def _marked_for_caching() -> "ModelSettings":
    """Return the settings that mark the repeated parts of a prompt for caching.

    The repeated parts are the tools, the instructions, and the conversation so far. Other providers
    cache the beginning of a prompt automatically.
    """
    from pydantic_ai.models.anthropic import AnthropicModelSettings

    return AnthropicModelSettings(
        anthropic_cache_tool_definitions=True,
        anthropic_cache_instructions=True,
        anthropic_cache_messages=True,
    )


@functools.cache
def _trusted() -> "ssl.SSLContext":
    """Load the trusted certificates only once: loading them is most of the cost of a new client."""
    import httpx2

    return httpx2.create_ssl_context()


@asynccontextmanager
async def _model(connection: Connection, seconds: float) -> "AsyncIterator[Model]":
    """Yield a model with its own client, which neither retries nor follows redirects."""
    import httpx2

    async with httpx2.AsyncClient(
        verify=_trusted(),
        timeout=httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
        event_hooks={"response": [_bound]},
    ) as http:
        yield _BUILDERS[connection.provider](connection, http)


def _openai(connection: Connection, http: "httpx2.AsyncClient") -> "Model":
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client = AsyncOpenAI(
        base_url=connection.base_url,
        api_key=connection.api_key or NO_KEY,
        max_retries=0,
        http_client=http,
    )
    if connection.base_url == PROVIDERS["openai"]:
        return OpenAIChatModel(connection.model, provider=OpenAIProvider(openai_client=client))
    # Other servers that implement OpenAI's protocol support only part of it.
    compatible = OpenAICompatibleProvider(
        "openai-compatible",
        openai_client=client,
        profile=OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False),
    )
    return OpenAIChatModel(connection.model, provider=compatible)


def _anthropic(connection: Connection, http: "httpx2.AsyncClient") -> "Model":
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        base_url=connection.base_url,
        api_key=connection.api_key or NO_KEY,
        max_retries=0,
        http_client=http,
    )
    return AnthropicModel(connection.model, provider=AnthropicProvider(anthropic_client=client))


def _google(connection: Connection, http: "httpx2.AsyncClient") -> "Model":
    from google.genai.types import HttpRetryOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(
        api_key=connection.api_key or NO_KEY,
        base_url=connection.base_url,
        http_client=http,
        retry_options=HttpRetryOptions(attempts=1),
    )
    return GoogleModel(connection.model, provider=provider)


_BUILDERS = {"openai": _openai, "anthropic": _anthropic, "google": _google}


async def _bound(response: "httpx2.Response") -> None:
    """Abort a response that is larger than any genuine model response."""
    import httpx2

    stream: httpx2.AsyncByteStream = response.stream  # type: ignore[assignment]

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > MAX_RESPONSE_BYTES:
                    raise ValueError(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()


def _history(messages: Sequence[Message]) -> "list[ModelMessage]":
    """Convert messages to the library's format, which combines those between two responses."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    history: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in messages:
        match message:
            case System(text):
                parts.append(SystemPromptPart(text))
            case User(text):
                parts.append(UserPromptPart(text))
            case ToolResult(call, text, failed):
                parts.append(
                    ToolReturnPart(
                        tool_name=call.name,
                        content=text,
                        tool_call_id=call.id,
                        outcome="failed" if failed else "success",
                    )
                )
            case Assistant():
                if parts:
                    history.append(ModelRequest(parts))
                    parts = []
                native = message.native
                if not isinstance(native, ModelResponse):
                    native = ModelResponse(
                        [
                            *([TextPart(message.text)] if message.text else []),
                            *(
                                ToolCallPart(call.name, dict(call.arguments), tool_call_id=call.id)
                                for call in message.tool_calls
                            ),
                        ]
                    )
                history.append(native)
    if parts:
        history.append(ModelRequest(parts))
    return history


def _read(response: "ModelResponse", tools: Sequence[Tool]) -> ModelAnswer:
    """Return the model's answer; raise ModelRefused, Truncated or EmptyAnswer if there is none."""
    from pydantic_ai.messages import TextPart, ToolCallPart

    usage = _usage(response)
    text = _whole("".join(part.content for part in response.parts if isinstance(part, TextPart)))
    model = response.model_name or ""
    if response.finish_reason == "content_filter":
        details = response.provider_details or {}
        reason = str(details.get("refusal") or details.get("block_reason") or text or "")
        raise ModelRefused(
            reason[:MAX_DETAIL],
            usage=usage,
            text=text,
            answered_by=model,
            provider_said=one_line(reason, MAX_SAID),
        )
    if response.finish_reason == "length":
        raise Truncated(usage=usage, text=text, answered_by=model)
    calls = []
    parts = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            sent = "" if part.args is None else part.args
            call = read_call(part.tool_call_id, part.tool_name, sent, tools)
            calls.append(call)
            # Servers parse the tool calls that are sent back to them, so arguments must be a JSON
            # object.
            if call.problem and not call.arguments:
                part = dataclasses.replace(part, args=json.dumps({"unreadable": call.text}))
        elif isinstance(part, TextPart):
            part = dataclasses.replace(part, content=_whole(part.content))
        parts.append(part)
    if not calls and not text.strip():
        if usage is None and response.finish_reason is None:
            raise InvalidAnswer("the response has neither content nor usage")
        finished = f"finish reason {response.finish_reason}" if response.finish_reason else ""
        raise EmptyAnswer(finished, usage=usage, answered_by=model)
    native = dataclasses.replace(response, parts=parts)
    return ModelAnswer(Assistant(text, tuple(calls), native), usage, model)


def _whole(text: str) -> str:
    """Return the text without lone surrogates (from cut-off emoji), which cannot be sent."""
    return text.encode(errors="replace").decode()


def _usage(response: "ModelResponse") -> Usage | None:
    """Return the provider's token counts; None if they are missing or implausible."""
    reported = response.usage
    usage = Usage(
        input_tokens=reported.input_tokens or 0,
        output_tokens=reported.output_tokens or 0,
        cache_read_tokens=reported.cache_read_tokens or 0,
        cache_write_tokens=reported.cache_write_tokens or 0,
    )
    counts = dataclasses.astuple(usage)
    return usage if usage.tokens and min(counts) >= 0 and max(counts) < MAX_TOKENS else None
