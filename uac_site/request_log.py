"""A line of log for each request, without anything that tells of a person."""

from django.http import HttpRequest
from django.urls import Resolver404, resolve
from django_structlog.middlewares import RequestMiddleware


class RequestLog(RequestMiddleware):
    """Logs the route (`/v1/users/<str:user_id>/`) where the framework would log the address.

    An address names a user, and a query string may quote what somebody said.
    """

    @staticmethod
    def format_request(request: HttpRequest) -> str:
        """Return method and route."""
        try:
            match = request.resolver_match or resolve(request.path_info)
            return f"{request.method} /{match.route}"
        except Resolver404:
            return f"{request.method} (no such route)"
