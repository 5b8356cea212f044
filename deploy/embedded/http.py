"""JSON over HTTP for the demo, the tests and the benchmarks: an API client, and a small server."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class UnexpectedAnswer(RuntimeError):
    """The server responded with a status that the caller doesn't expect."""


@dataclass(frozen=True)
class ApiClient:
    """A client for the API that uses one API key."""

    base_url: str
    key: str

    def call(
        self, method: str, path: str, body: object = None, *, expect: tuple[int, ...] = (200,)
    ) -> Any:
        """Send a request to a path below /v1/; return the response's JSON.

        Raises UnexpectedAnswer if the response's status is not in `expect`, and OSError if the
        server is down.
        """
        status, answer = self.request(method, path, body)
        if status not in expect:
            raise UnexpectedAnswer(f"{method} {path} answered {status}: {answer!s:.2000}")
        return answer

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> tuple[int, Any]:
        """Send a request to a path below /v1/; return the status and the decoded body.

        An error status is returned instead of being raised.
        """
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.base_url}/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                **(headers or {}),
            },
        )
        try:
            # This is our own server, too.
            with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310  # nosec B310
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")


@contextmanager
def serve_json(answer: Callable[[bytes], tuple[int, Any]]) -> Iterator[str]:
    """Answer POST requests on a free port of 127.0.0.1 until the context ends.

    `answer` takes a request's body, and returns the status and the content. Yields the base URL.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            status, answered = answer(self.rfile.read(int(self.headers.get("content-length", 0))))
            content = json.dumps(answered).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
