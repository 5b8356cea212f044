"""A language model to test with: a local HTTP server whose answers are scripted.

It speaks the protocols of the real providers, told by the path: OpenAI's chat completions,
Anthropic's messages and Google's generateContent. One script serves all three: what is said and
called is rendered as each protocol has it. Requests are held to the protocol as the providers hold
them (keys, order of roles, a result for every call), so that a client that would be refused there
is refused here.

    with llm_server(called("remember", {"fact": "…"}), said("done")) as server:
        … server.openai_url … server.requests

A script is a list of replies, in order, or a function from the request to a reply. Replies that do
not behave are made by `status`, `raw`, `hangs`, `drops` and their kind.
"""

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, TypeAlias

Protocol: TypeAlias = Literal["openai", "anthropic", "google"]
Finish: TypeAlias = Literal["stop", "length", "refusal"]

KEY = "sk-of-the-tests"


@dataclass(frozen=True)
class Called:
    """A tool call. Text as arguments is sent unchanged, where the protocol has text there."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str = ""


@dataclass(frozen=True)
class Said:
    """An answer of the model. Without tokens, the server does not report any."""

    text: str = ""
    calls: tuple[Called, ...] = ()
    finish: Finish = "stop"
    tokens: tuple[int, int] | None = (100, 20)
    cached_tokens: int = 0


@dataclass(frozen=True)
class Misbehaviour:
    """Any other response that a server may send, or fail to send."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    # Seconds before the first byte.
    hang: float = 0
    # The connection ends after this many bytes of the body, although more were announced.
    drop_after: int | None = None
    # Seconds between two bytes of the body.
    drip: float = 0


Reply: TypeAlias = Said | Misbehaviour


@dataclass(frozen=True)
class Request:
    """A request to the server, as it came and in the form common to all protocols."""

    protocol: Protocol
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def model(self) -> str:
        if self.protocol == "google":
            return self.path.rpartition("/")[2].partition(":")[0]
        return str(self.body["model"])

    @property
    def tools(self) -> list[str]:
        """The names of the tools."""
        match self.protocol:
            case "openai":
                return [tool["function"]["name"] for tool in self.body.get("tools", [])]
            case "anthropic":
                return [tool["name"] for tool in self.body.get("tools", [])]
            case "google":
                declared = [tool["functionDeclarations"] for tool in self.body.get("tools", [])]
                return [function["name"] for functions in declared for function in functions]

    @property
    def text(self) -> str:
        """All text that was sent, to search for words."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def results(self) -> list[str]:
        """Return the results of the newest tool calls, as the model was given them."""
        match self.protocol:
            case "openai":
                return [_text(one["content"]) for one in _last_results(self.body["messages"])]
            case "anthropic":
                content = self.body["messages"][-1]["content"]
                results = [one for one in content if one["type"] == "tool_result"]
                return [_text(one["content"]) for one in results]
            case "google":
                parts = self.body["contents"][-1]["parts"]
                found = [part["functionResponse"] for part in parts if "functionResponse" in part]
                return [json.dumps(one["response"], ensure_ascii=False) for one in found]


Script: TypeAlias = Callable[[Request], Reply]


def said(text: str, **fields: Any) -> Said:
    """Answer with text."""
    return Said(text=text, **fields)


def called(name: str, arguments: Mapping[str, Any] | str, **fields: Any) -> Said:
    """Answer with a call of one tool."""
    return Said(calls=(Called(name, arguments),), **fields)


def status(code: int, message: str = "no", **headers: str) -> Misbehaviour:
    """Answer with an error as providers write it; `retry_after` becomes Retry-After."""
    body = {"type": "error", "error": {"type": "error", "message": message, "code": code}}
    return Misbehaviour(
        code,
        json.dumps(body).encode(),
        {"content-type": "application/json"}
        | {name.replace("_", "-"): value for name, value in headers.items()},
    )


def raw(body: str, content_type: str = "application/json") -> Misbehaviour:
    """Answer 200 with this body."""
    return Misbehaviour(200, body.encode(), {"content-type": content_type})


def hangs(seconds: float = 60) -> Misbehaviour:
    """Accept the request and never answer."""
    return Misbehaviour(hang=seconds)


def drops(after: int = 20) -> Misbehaviour:
    """Begin to answer and drop the connection."""
    body = json.dumps({"id": "x" * 500}).encode()
    return Misbehaviour(200, body, {"content-type": "application/json"}, drop_after=after)


class LlmServer:
    """The running server: its addresses, and the requests that it received."""

    def __init__(self, script: Script, address: str = "127.0.0.1") -> None:
        self.requests: list[Request] = []
        self._script = script
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._under_way = 0
        # Maximum number of requests answered at the same time.
        self.most_at_once = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                server._serve(self)

        self._address = address
        self._http = _Http((address, 0), Handler)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self._http.server_port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a server that asks this model."""
        return {
            "UAC_LLM_MODEL": "openai:the-model",
            "UAC_LLM_BASE_URL": self.openai_url,
            "UAC_LLM_API_KEY": KEY,
        }

    def url_of(self, protocol: Protocol) -> str:
        """Return the base URL for a client of this protocol."""
        return self.openai_url if protocol == "openai" else self.url

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        try:
            request = Request(_protocol(handler.path), handler.path, headers, json.loads(body))
            problem = _problem(request)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            problem, request = (400, f"{type(error).__name__}: {error}"), None
        if problem is not None or request is None:
            _send(handler, status(*(problem or (400, "no request"))))
            return
        with self._lock:
            self.requests.append(request)
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            reply = self._script(request)
            number = len(self.requests)
        except Exception as error:
            reply, number = status(599, f"the script has failed: {error!r}"), 0
        try:
            if isinstance(reply, Said):
                answer = _render(request, reply, number)
                reply = raw(json.dumps(answer))
            if reply.hang:
                self._closing.wait(reply.hang)
            _send(handler, reply)
        except OSError:
            pass  # the client has gone
        finally:
            with self._lock:
                self._under_way -= 1


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        """Ignore clients that disconnect in the middle, which some tests are about."""


@contextmanager
def llm_server(
    *replies: Reply, script: Script | None = None, address: str = "127.0.0.1"
) -> Iterator[LlmServer]:
    """Run a server with these replies, in order, or with a script of your own.

    More requests than replies are answered 599, which no client accepts.
    """
    waiting = iter(replies)
    lock = threading.Lock()

    def in_order(request: Request) -> Reply:
        with lock:
            return next(waiting, status(599, "the script has no more replies"))

    server = LlmServer(script or in_order, address)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def model_in(settings: Any) -> Iterator[Callable[..., LlmServer]]:
    """Yield a function that makes a model answer with such replies, with these Django settings."""
    settings.UAC_LLM_BACKOFF_SECONDS = 0.01
    settings.UAC_LLM_OUTPUT_TOKENS = 1000
    settings.UAC_LLM_API_KEY = KEY
    with ExitStack() as servers:

        def do(*replies: Reply, script: Script | None = None) -> LlmServer:
            server = servers.enter_context(llm_server(*replies, script=script))
            settings.UAC_LLM_MODEL = "openai:the-model"
            settings.UAC_LLM_BASE_URL = server.url_of("openai")
            return server

        yield do


# -- The protocols -----------------------------------------------------------------------------


def _protocol(path: str) -> Protocol:
    if path.endswith("/chat/completions"):
        return "openai"
    if path.partition("?")[0].endswith("/v1/messages"):
        return "anthropic"
    if path.endswith(":generateContent"):
        return "google"
    raise ValueError(f"no such path: {path}")


def _problem(request: Request) -> tuple[int, str] | None:
    """Return why the provider would refuse this request."""
    body, headers = request.body, request.headers
    match request.protocol:
        case "openai":
            if not headers.get("authorization", "").startswith("Bearer "):
                return 401, "no key"
            return _openai_problem(body)
        case "anthropic":
            # Clients send one or the other, depending on their version.
            if not headers.get("x-api-key") and "authorization" not in headers:
                return 401, "no key"
            if "anthropic-version" not in headers:
                return 400, "anthropic-version: header is required"
            return _anthropic_problem(body)
        case "google":
            if not headers.get("x-goog-api-key"):
                return 401, "no key"
            return None if body["contents"] else (400, "contents is empty")


def _openai_problem(body: dict[str, Any]) -> tuple[int, str] | None:
    waiting: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return 400, "messages with role 'tool' must be a response to a tool call"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            return 400, f"tool_call_ids did not have response messages: {sorted(waiting)}"
        for call in message.get("tool_calls") or []:
            json.loads(call["function"]["arguments"])
            waiting.add(call["id"])
    return (400, f"tool calls without responses: {sorted(waiting)}") if waiting else None


def _anthropic_problem(body: dict[str, Any]) -> tuple[int, str] | None:
    if not body["max_tokens"] > 0 or body["messages"][0]["role"] != "user":
        return 400, "max_tokens must be positive, and the first message the user's"
    waiting: set[str] = set()
    for before, message in zip([None, *body["messages"]], body["messages"], strict=False):
        if before and before["role"] == message["role"]:
            return 400, "roles must alternate"
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if results != waiting:
            return 400, "each tool_use block must have a tool_result block in the next message"
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if not all(isinstance(one["input"], dict) for one in blocks if one["type"] == "tool_use"):
            return 400, "tool_use.input: Input should be a valid dictionary"
    return (400, "tool_use blocks without results") if waiting else None


def _render(request: Request, reply: Said, number: int) -> dict[str, Any]:
    calls = tuple(
        replace(call, id=call.id or f"call_{number}_{index}")
        for index, call in enumerate(reply.calls)
    )
    reply = replace(reply, calls=calls)
    match request.protocol:
        case "openai":
            return _openai(request, reply, number)
        case "anthropic":
            return _anthropic(request, reply, number)
        case "google":
            return _google(request, reply, number)


def _openai(request: Request, reply: Said, number: int) -> dict[str, Any]:
    refused = reply.finish == "refusal"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if refused or not reply.text else reply.text,
        "refusal": reply.text if refused else None,
    }
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _as_text(call.arguments)},
            }
            for call in reply.calls
        ]
    finish = "length" if reply.finish == "length" else "tool_calls" if reply.calls else "stop"
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": f"{request.model}-2026-01-01",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    if reply.tokens:
        sent, received = reply.tokens
        answer["usage"] = {
            "prompt_tokens": sent,
            "completion_tokens": received,
            "total_tokens": sent + received,
            "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
        }
    return answer


def _anthropic(request: Request, reply: Said, number: int) -> dict[str, Any]:
    finish = {"length": "max_tokens", "refusal": "refusal"}.get(reply.finish)
    text = [{"type": "text", "text": reply.text}] if reply.text else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in reply.calls
    ]
    answer: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": f"{request.model}-20260101",
        "content": [*text, *calls],
        "stop_reason": finish or ("tool_use" if reply.calls else "end_turn"),
        "stop_sequence": None,
    }
    if reply.tokens:
        sent, received = reply.tokens
        answer["usage"] = {
            "input_tokens": sent - reply.cached_tokens,
            "cache_read_input_tokens": reply.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": received,
        }
    return answer


def _google(request: Request, reply: Said, number: int) -> dict[str, Any]:
    finish = {"length": "MAX_TOKENS", "refusal": "SAFETY"}.get(reply.finish, "STOP")
    text = [{"text": reply.text}] if reply.text else []
    calls = [{"functionCall": {"name": call.name, "args": call.arguments}} for call in reply.calls]
    answer: dict[str, Any] = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [*text, *calls]},
                "finishReason": finish,
                "index": 0,
            }
        ],
        "modelVersion": f"{request.model}-001",
        "responseId": f"response-{number}",
    }
    if reply.tokens:
        sent, received = reply.tokens
        answer["usageMetadata"] = {
            "promptTokenCount": sent,
            "candidatesTokenCount": received,
            "totalTokenCount": sent + received,
            "cachedContentTokenCount": reply.cached_tokens,
        }
    return answer


def _send(handler: BaseHTTPRequestHandler, reply: Misbehaviour) -> None:
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(reply.body)))
    handler.end_headers()
    if reply.drop_after is not None:
        handler.wfile.write(reply.body[: reply.drop_after])
        handler.wfile.flush()
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)
        return
    if reply.drip:
        for byte in reply.body:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(reply.drip)
        return
    handler.wfile.write(reply.body)


def _as_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _last_results(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    newest = itertools.takewhile(lambda message: message["role"] == "tool", reversed(messages))
    return [*newest][::-1]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)
