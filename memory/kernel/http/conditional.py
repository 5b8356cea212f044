"""Middleware that adds an ETag to API responses, and doesn't resend unchanged responses."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.http import ConditionalGetMiddleware

from memory.kernel.http.problems import CHANGED, answer


class ConditionalGet(ConditionalGetMiddleware):
    """Adds an ETag to API responses, and responds with a 304 if `If-None-Match` matches it."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return the response, or a 304 or 412 response in its place."""
        if not request.path_info.startswith("/v1/"):
            return response
        result: HttpResponseBase = super().process_response(request, response)
        if result.status_code == 412 and result is not response:
            return answer(412, CHANGED)
        return result
