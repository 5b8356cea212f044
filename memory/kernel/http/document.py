"""`/v1/openapi.json`: the OpenAPI document, which each process builds once.

The document is public, so no key is needed. Building the document takes half a second of CPU time.
"""

import functools
import threading
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request

_lock = threading.Lock()


class Document(SpectacularJSONAPIView):
    """The OpenAPI document, as JSON."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the document."""
        with _lock:  # make sure that only one thread builds the document
            document = made()
        return HttpResponse(document, content_type=OpenApiJsonRenderer.media_type)


@functools.cache
def made() -> bytes:
    """Return the document as JSON, cached after the first call."""
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    rendered: bytes = OpenApiJsonRenderer().render(document, renderer_context={})
    return rendered
