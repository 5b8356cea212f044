"""The WSGI entry point. The process refuses to start if the system checks find an error."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.wsgi import get_wsgi_application
from django.urls import reverse

if TYPE_CHECKING:
    from _typeshed.wsgi import InputStream, StartResponse, WSGIEnvironment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")

_django = get_wsgi_application()
_ADMIN = reverse("admin:index")

from memory.kernel import tracing  # noqa: E402 - these need the apps to be loaded
from memory.kernel.admission import slots  # noqa: E402
from memory.operations import alarms  # noqa: E402
from uac_site.checks import refuse_unsafe_start  # noqa: E402
from uac_site.telemetry import registry  # noqa: E402
from uac_site.unread_bodies import announce_closing  # noqa: E402
from workers.metrics.serving import serve_metrics  # noqa: E402
from workers.service.process_tuning import share_fairly, share_memory  # noqa: E402

share_memory()
refuse_unsafe_start("web")
tracing.start("web")
serve_metrics(registry())
alarms.watch()
share_fairly()


@announce_closing
def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    """Handle a request; a form posted to a staff page is accepted only if a form slot is free."""
    if environ["REQUEST_METHOD"] != "POST" or not environ["PATH_INFO"].startswith(_ADMIN):
        return _answer(environ, start_response)
    text = {"Content-Type": "text/plain; charset=utf-8"}
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        start_response("413 Content Too Large", list(text.items()))
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        return [f"A form submitted to these pages may contain at most {most:,} bytes.\n".encode()]
    with slots.ADMIN_FORMS.take("anybody") as admitted:
        if admitted:
            return _answer(environ, start_response)
    start_response("503 Service Unavailable", [*text.items(), ("Retry-After", "10")])
    return [b"Too many forms are being submitted at once. Submit yours again in ten seconds.\n"]


def _answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    """Let Django handle the request; if the body is chunked, declare a content length for it first.

    Django treats a body without a content length as missing and would ignore what the client sent,
    so we declare the maximum allowed length. The body is read only when needed, and only after the
    caller has been authenticated.
    """
    if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        environ["wsgi.input"] = _Limited(environ["wsgi.input"], limit)
        environ["CONTENT_LENGTH"] = str(limit)
    return _django(environ, start_response)


class _Limited:
    """A stream that raises RequestDataTooBig once more than `limit` bytes have been read."""

    def __init__(self, stream: "InputStream", limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes."""
        return self._counted(self._stream.read(self._allowed(size)))

    def readline(self, size: int = -1, /) -> bytes:
        """Return a line, or the first `size` bytes of a longer line."""
        return self._counted(self._stream.readline(self._allowed(size)))

    def _allowed(self, size: int) -> int:
        return self._left if size < 0 else min(size, self._left)

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if not self._left and self._stream.read(1):
            raise RequestDataTooBig
        return data
