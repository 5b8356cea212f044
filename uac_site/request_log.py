"""Log one line per request, without personal data, and give each request an id."""

import logging
from collections.abc import Callable

import structlog
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django_structlog.middlewares import RequestMiddleware

from memory.kernel.http.problems import REQUEST_ID, request_id


def request_ids(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return a middleware that gives each request an id for logs, errors and the response.

    If the client sent an `X-Request-Id` that is safe to log, that becomes the request's id.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        name = request_id(request.META.get("HTTP_X_REQUEST_ID", ""))
        # `RequestLog` takes the id from this header.
        request.META["HTTP_X_REQUEST_ID"] = name
        with structlog.contextvars.bound_contextvars(request_id=name):
            response = get_response(request)
        response[REQUEST_ID] = name
        return response

    return respond


def route_of(request: HttpRequest) -> str:
    """Return a request's route, such as `/v1/users/<user:user_id>/`."""
    try:
        match = request.resolver_match or resolve(request.path_info)
    except Resolver404:
        return "(no such route)"
    return f"/{match.route}"


class RequestLog(RequestMiddleware):
    """Logs the route (`/v1/users/<user:user_id>/`) where the framework would log the URL path.

    A path identifies a user, and a query string may quote a user's text.
    """

    @staticmethod
    def format_request(request: HttpRequest) -> str:
        """Return the method and route."""
        return f"{request.method} {route_of(request)}"


class RouteForAddress(logging.Filter):
    """A filter that puts routes into Django's log lines about rejected and failed requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every line pass, but replace its path with the route."""
        request = getattr(record, "request", None)
        if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
            address = request.path.encode("unicode_escape").decode("ascii")
            route = RequestLog.format_request(request)
            record.args = tuple(route if one == address else one for one in record.args)
        return True
