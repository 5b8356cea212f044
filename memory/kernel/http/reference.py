"""`/docs/`: the API reference as a web page that can send requests (Swagger UI).

The page needs no other server, so it works wherever this server is reachable.
"""

import functools
import threading
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Return the reference page, which is public, as the document is."""
    return render(request, "reference/page.html", {"settings": settings.SPECTACULAR_SETTINGS})


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
