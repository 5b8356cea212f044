"""Tell clients that their connection ends because a request's body was not read.

Many errors are answered without reading the body: a request without a key, for example, may not
tie up a thread by sending slowly. What is left of the body would be taken for the next request, so
the web server closes the connection, but without saying so: the client's next request would fail.
"""

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import InputStream, StartResponse, WSGIApplication, WSGIEnvironment
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The header exists in these versions only; HTTP/2 has other means.
_VERSIONS = ("1.0", "1.1")


def announce_closing(wsgi: "WSGIApplication") -> "WSGIApplication":
    """Have a WSGI application say `Connection: close` if it has not read a request's whole body."""

    def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        body = environ["wsgi.input"] = _Body(environ)
        version = environ.get("SERVER_PROTOCOL", "").removeprefix("HTTP/")

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            if not body.is_read and version in _VERSIONS:
                headers = [*headers, ("Connection", "close")]
            return start_response(status, headers, *error)

        return wsgi(environ, start)

    return application


class _Body:
    """A request's body, which knows whether it has been read to its end."""

    def __init__(self, environ: "WSGIEnvironment") -> None:
        self._stream: InputStream = environ.get("wsgi.input", io.BytesIO())
        length = environ.get("CONTENT_LENGTH") or "0"
        self._left = int(length) if length.isdecimal() else 0
        self._is_chunked = "HTTP_TRANSFER_ENCODING" in environ  # until its end is seen

    @property
    def is_read(self) -> bool:
        return not (self._left or self._is_chunked)

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, or fewer if the body ends."""
        data = self._stream.read(size)
        if size < 0 or len(data) < size:
            self._is_chunked = False
        return self._counted(data)

    def readline(self, size: int = -1, /) -> bytes:
        """Return a line, or the first `size` bytes of a longer line."""
        return self._counted(self._stream.readline(size))

    def _counted(self, data: bytes) -> bytes:
        self._left = max(self._left - len(data), 0)
        return data


def announce_closing_asgi(asgi: "ASGIApp") -> "ASGIApp":
    """Have an ASGI application say so, too."""

    async def application(scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or scope["http_version"] not in _VERSIONS:
            return await asgi(scope, receive, send)
        headers = dict(scope["headers"])
        is_read = (
            headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        )

        async def heard() -> "Message":
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def wrapped_send(message: "Message") -> None:
            if message["type"] == "http.response.start" and not is_read:
                closing = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": closing}
            await send(message)

        return await asgi(scope, heard, wrapped_send)

    return application
