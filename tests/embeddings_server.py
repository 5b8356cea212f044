"""Embeddings to test with: a local HTTP server that speaks OpenAI's protocol of embeddings.

Texts are close to each other if they are about the same: a word of `CONCEPTS`, or nothing of these.
Another model has its numbers in another order, so that vectors of two models say nothing together.

    with embeddings_server() as server:
        … server.url … server.requests

A script gets each request and returns a reply: `embedded`, or what misbehaves of
`tests.llm_server`.
"""

import json
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.llm_server import LlmServer, Misbehaviour, _send, raw, status

CONCEPTS = {
    **dict.fromkeys(("dog", "puppy", "hound"), 0),
    **dict.fromkeys(("cat", "kitten", "tabby"), 1),
    **dict.fromkeys(("car", "engine", "wheel"), 2),
}
DIMENSIONS = 6


@dataclass(frozen=True)
class EmbeddingsRequest:
    """A request that the server received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        return list(self.body["input"])

    @property
    def model(self) -> str:
        return str(self.body["model"])


EmbeddingsScript: TypeAlias = Callable[[EmbeddingsRequest], Misbehaviour]


def vector(text: str, model: str = "m", dimensions: int = DIMENSIONS) -> list[float]:
    """Return the model's vector of a text."""
    found = [0.0] * dimensions
    for word in text.lower().split():
        found[CONCEPTS.get(word.strip(".,?!"), 3)] += 1.0
    turn = sum(model.encode()) % dimensions
    return found[turn:] + found[:turn]


def embedded(
    request: EmbeddingsRequest, vectors: Sequence[Any] | None = None, **fields: Any
) -> Misbehaviour:
    """Answer with vectors, by default those of the texts; `fields` replace those of the answer."""
    dimensions = request.body.get("dimensions", DIMENSIONS)
    made = [vector(text, request.model, dimensions) for text in request.texts]
    data = [
        {"object": "embedding", "index": place, "embedding": one}
        for place, one in enumerate(made if vectors is None else vectors)
    ]
    tokens = sum(len(text.split()) for text in request.texts)
    answer = {
        "object": "list",
        "data": data,
        "model": request.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return raw(json.dumps({**answer, **fields}))


class EmbeddingsServer(LlmServer):
    """The running server: its address, and the requests that it received."""

    requests: list[EmbeddingsRequest]  # type: ignore[assignment]

    def __init__(self, script: EmbeddingsScript) -> None:
        self._answer = script
        super().__init__(lambda _: status(599))

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Answer over TLS from now on."""
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    @property
    def texts(self) -> list[str]:
        """Return all texts that were sent, in order."""
        return [text for request in self.requests for text in request.texts]

    def _serve(self, handler: Any) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = EmbeddingsRequest(handler.path, headers, json.loads(body))
        problem = _problem(request)
        if problem is None:
            with self._lock:
                self.requests.append(request)
        try:
            reply = problem or self._answer(request)
        except Exception as error:
            reply = status(599, f"the script has failed: {error!r}")
        try:
            if reply.hang:
                self._closing.wait(reply.hang)
            _send(handler, reply)
        except OSError:
            pass  # the client has gone


def _problem(request: EmbeddingsRequest) -> Misbehaviour | None:
    """Return what OpenAI would refuse."""
    if request.path != "/v1/embeddings":
        return status(404, "no such path")
    texts = request.body.get("input")
    if not isinstance(texts, list) or not 0 < len(texts) <= 2048 or not all(texts):
        return status(400, "input: 1 to 2048 texts, none of them empty")
    if request.body.get("encoding_format") != "float":
        return status(400, "encoding_format")
    known = {"model", "input", "encoding_format", "dimensions"}
    return status(400, "unknown fields") if set(request.body) - known else None


@contextmanager
def embeddings_server(
    script: EmbeddingsScript = embedded, *first: Misbehaviour
) -> Iterator[EmbeddingsServer]:
    """Run a server that gives these replies first, and then those of the script."""
    waiting = iter(first)

    def answer(request: EmbeddingsRequest) -> Misbehaviour:
        return next(waiting, None) or script(request)

    server = EmbeddingsServer(answer)
    try:
        yield server
    finally:
        server.close()
