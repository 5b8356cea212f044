"""The fallback for URLs below `/v1/` that do not exist."""

from typing import Any

from django.http import Http404
from rest_framework.request import Request
from rest_framework.views import APIView

NO_ENDPOINT = "Endpoint not found. All endpoints are listed in /v1/openapi.json."


class Unknown(APIView):
    """Responds with a 404 to requests for URLs that do not exist, whatever the method."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise Http404 with a pointer to the valid URLs, once the caller is authenticated."""
        super().initial(request, *args, **kwargs)
        raise Http404(NO_ENDPOINT)
