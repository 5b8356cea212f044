"""A proxy between the sandbox workers and the Docker engine, whose socket grants root access.

    python -m workers.sandbox.proxy --listen /run/engine/engine.sock [--engine /var/run/docker.sock]

Even a compromised worker can request only what workers need: to create sandboxes from a single
template (`workers.sandbox.container_template`) and our own images, and to start, attach to, list
and remove sandboxes. Any other request is rejected with 403 and logged.

Nothing that a client sends reaches the engine unchanged. Requests are parsed strictly, one per
connection, and rebuilt for the engine from fixed paths and parameters and the ids of sandboxes. The
body of a `create` request must equal the template, and is replaced with it.
"""

import argparse
import contextlib
import http.client
import json
import logging
import os
import re
import socket
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.log import configure_logging

from workers.sandbox.proxy_engine import ATTACH, CONTAINERS, Engine, EngineAnswer
from workers.sandbox.proxy_requests import (
    BODY_BYTES,
    CLIENT_SECONDS,
    RequestDenied,
    read_request,
    receive,
)

logger = logging.getLogger(__name__)

# Seconds for which the rest of a rejected request is read before its connection is closed.
DRAIN_SECONDS = 1
# Maximum number of concurrent connections, most of which belong to running sandboxes.
CONNECTIONS = 400


class _Connection(socketserver.BaseRequestHandler):
    """A connection from one client, which may make one request."""

    server: "Proxy"

    def handle(self) -> None:
        """Read and check the request, forward it to the engine, and send the response."""
        request_line = ""
        try:
            request = read_request(self.request)
            request_line = f"{request.method} {request.path}"
            attached = re.fullmatch(ATTACH, request.path)
            if attached is not None and request.method == "POST":
                self.request.settimeout(CLIENT_SECONDS)
                self.server.engine.attach(request, attached[1], self.request)
                return
            answer = self.server.engine.answer(request)
        except RequestDenied as refusal:
            logger.warning("refused: %s: %s", request_line[:200] or "a request", refusal)
            answer = _refusal(refusal)
        except (EOFError, OSError):
            return
        with contextlib.suppress(OSError):
            self._send(answer)

    def _send(self, answer: EngineAnswer) -> None:
        self.request.settimeout(CLIENT_SECONDS)  # timeout for sending the whole response
        self.request.sendall(_written(answer))
        # Read the rest of a rejected request: otherwise, the unread part would reset the
        # connection, and the response would be lost.
        self.request.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + DRAIN_SECONDS
        left = BODY_BYTES * 8
        while left > 0 and (data := receive(self.request, deadline)):
            left -= len(data)


def _refusal(refusal: RequestDenied) -> EngineAnswer:
    return EngineAnswer(refusal.status, json.dumps({"message": str(refusal)}).encode())


def _written(answer: EngineAnswer) -> bytes:
    reason = http.client.responses.get(answer.status, "")
    content = b"" if answer.status == 204 else answer.body
    head = f"HTTP/1.1 {answer.status} {reason}\r\nConnection: close\r\n"
    if answer.status != 204:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return f"{head}\r\n".encode() + content


class Proxy(socketserver.ThreadingUnixStreamServer):
    """The proxy's server, on its own Unix socket."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, engine: Engine, *, connections: int = CONNECTIONS) -> None:
        """Listen on `path`, replacing any file there; only this process's user may connect."""
        self.engine = engine
        self.room = threading.BoundedSemaphore(connections)
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()
        before = os.umask(0o177)
        try:
            super().__init__(path, _Connection)
        finally:
            os.umask(before)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in its own thread, or respond that there are too many connections."""
        if not self.room.acquire(blocking=False):
            refusal = RequestDenied("too many connections", 503)
            logger.warning("refused: a request: %s", refusal)
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(_written(_refusal(refusal)))
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started to free the slot
            self.room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a client until its connection ends, and then free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()


def main() -> None:
    """Serve until a signal terminates the process."""
    parser = argparse.ArgumentParser(prog="python -m workers.sandbox.proxy", description=__doc__)
    parser.add_argument(
        "--listen", required=True, help="path of the socket to create for the workers"
    )
    parser.add_argument(
        "--engine", default="/var/run/docker.sock", help="path of the engine's socket"
    )
    parser.add_argument(
        "--containers", type=int, default=CONTAINERS, help="maximum number of containers"
    )
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    with Proxy(arguments.listen, Engine(arguments.engine, most=arguments.containers)) as proxy:
        logger.info("listening at %s, for %s", arguments.listen, arguments.engine)
        proxy.serve_forever()


if __name__ == "__main__":
    main()
