"""The WSGI entry point. Refuses to start where the system checks find an error."""

import io
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.wsgi import get_wsgi_application

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")

_django = get_wsgi_application()

from uac_site.checks import refuse_unsafe_start  # noqa: E402 - needs the apps to be loaded

refuse_unsafe_start()


def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    """Answer a request. A body that comes in chunks is given the length that it turns out to have.

    Django takes a body without a length for none, and would ignore what the client sent. Of one
    that is too large a byte too much is read, so that it is refused for that.
    """
    if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
        body = environ["wsgi.input"].read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
    return _django(environ, start_response)
