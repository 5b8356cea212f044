"""The HTTP interface of the `mcp` process: MCP, event streams and health checks.

Every request is checked first: the host and origin against ALLOWED_HOSTS, then the transport (as in
the web processes), then the key. The tools' API requests go to the WSGI application in this process
with the caller's own key, so all of the API's rules apply here too.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import rest_framework.views  # noqa: F401 - comes first: the settings import the API
from django.conf import settings
from django.db import Error, close_old_connections
from django.http.request import split_domain_port, validate_host
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from memory.alerts import alert_events
from memory.integrations.mcp import server
from memory.integrations.mcp.api import Api
from memory.integrations.mcp.events import Full, Streams, Subscription
from memory.integrations.mcp.tools import Caller
from memory.kernel.database import timeouts
from memory.kernel.http.authentication import NOT_FOR_CERTAIN_USERS
from memory.kernel.http.errors import Unavailable, describe_database_error
from memory.kernel.http.problems import CONTENT_TYPE, REQUEST_ID, problem, request_id
from memory.kernel.models.users import USER_ID_IN_PATH, MemoryUser, is_user_id
from memory.kernel.models.workspaces import ApiKey
from memory.kernel.models.workspaces import Scope as KeyScope
from memory.kernel.workspaces import find_key, reach

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# As many request threads as a web process has; up to UAC_WAITING_REQUESTS of them may wait.
THREADS = 16
RETRY_SECONDS = 5
HEALTH = ("/livez", "/readyz")
WELL_KNOWN = "/.well-known/"
NOTHING_ELSE = (
    "This process serves POST /mcp, POST /users/{user_id}/mcp, GET /events/ and GET"
    " /users/{user_id}/events/; the API is served at another URL."
)
FAILED = "The server failed to process this request."
# Keys in the ASGI scope for the request's id, its API key, and that key's text.
NAME, KEY, KEY_TEXT = "uac.request_id", "uac.key", "uac.key_text"


class UserIdConvertor(StringConvertor):
    """Matches a user's id, which may have slashes: the path arrives decoded."""

    regex = USER_ID_IN_PATH


register_url_convertor("user", UserIdConvertor())


def application(wsgi: "WSGIApplication") -> ASGIApp:
    """Return the ASGI application. `wsgi` is the server's WSGI application, with the API."""
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="api")
    client = httpx2.Client(transport=httpx2.WSGITransport(_with_path_as_bytes(wsgi)))
    streams = Streams(threads)

    def caller_of(request: Request) -> Caller:
        headers = {
            "Authorization": f"Bearer {request.scope[KEY_TEXT]}",
            REQUEST_ID: request.scope[NAME],
        }
        api = Api(client, _base_url(request), headers, threads)
        return Caller(api, request.path_params.get("user_id"))

    manager = StreamableHTTPSessionManager(
        server.create(caller_of),
        json_response=True,
        stateless=True,
        max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
    )

    async def events(scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        subscription = await loop.run_in_executor(threads, _subscription, Request(scope))
        try:
            await streams.send(subscription, scope, receive, send)
        except Full:
            raise HTTPException(
                503,
                "This server has reached its maximum number of open streams; try again later.",
                {"Retry-After": str(RETRY_SECONDS)},
            ) from None

    async def ready(request: Request) -> Response:
        loop = asyncio.get_running_loop()
        url = f"{_base_url(request)}/readyz"
        answer = await loop.run_in_executor(threads, client.get, url)
        return JSONResponse(answer.json(), answer.status_code)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run(), streams.listening():
            yield
        threads.shutdown(wait=False, cancel_futures=True)

    app = Starlette(
        routes=[
            Route("/livez", _answer_alive),
            Route("/readyz", ready),
            *_routes_of(manager.handle_request, events),
        ],
        exception_handlers={HTTPException: _answer_refusal, Exception: _answer_failure},
        middleware=[Middleware(GateKeeper, threads)],
        lifespan=lifespan,
    )
    return RequestIds(app)


def _routes_of(mcp: ASGIApp, events: ASGIApp) -> list[Route]:
    """Return the routes for all users in a workspace, then those for a single user."""
    return [
        route
        for user in ("", "/users/{user_id:user}")
        for route in (
            # Without sessions, there is nothing for a GET to listen to or a DELETE to end. Many
            # clients do not repeat a POST where a redirect leads, so there is none.
            Route(f"{user}/mcp", Endpoint(mcp), methods=["POST"]),
            Route(f"{user}/mcp/", Endpoint(mcp), methods=["POST"]),
            Route(f"{user}/events/", Endpoint(events), methods=["GET"]),
        )
    ]


async def _answer_alive(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.detail == HTTPStatus(error.status_code).phrase:
        error.detail = NOTHING_ELSE
    return _problem(error)


async def _answer_failure(request: Request, error: Exception) -> Response:
    return _problem(HTTPException(500, FAILED))


class Endpoint:
    """An ASGI application as a route endpoint; Starlette would treat a function as a view."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request."""
        await self._app(scope, receive, send)


class RequestIds:
    """Gives each request an id for the log, errors and responses, just like the web processes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, adding its id to all log lines and to the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = scope[NAME] = request_id(Headers(scope=scope).get(REQUEST_ID, ""))

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = name
            await send(message)

        with bound_contextvars(request_id=name):
            await self._app(scope, receive, send_named)


class GateKeeper:
    """Admits requests that have a key and reach one of our hosts over a secure transport."""

    def __init__(self, app: ASGIApp, threads: ThreadPoolExecutor) -> None:
        self._app = app
        self._threads = threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or reject it."""
        try:
            if scope["type"] == "http":
                await self._judge(scope)
        except HTTPException as error:
            await _problem(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _judge(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        _check_host(headers)
        if scope["path"] in HEALTH:
            return
        if WELL_KNOWN in scope["path"]:
            # A client that looks for an OAuth server takes a 401 for one that wants a login.
            raise HTTPException(404, NOTHING_ELSE)
        _check_transport(scope, headers)
        kind, _, text = headers.get("authorization", "").partition(" ")
        text = text.strip()
        loop = asyncio.get_running_loop()
        key = await loop.run_in_executor(self._threads, _key, text) if text else None
        if key is None or kind.lower() != "bearer":
            raise HTTPException(
                401,
                "The API key is unknown, expired or revoked; send 'Authorization: Bearer uac_…'."
                if kind
                else "The request has no API key; send 'Authorization: Bearer uac_…'.",
                {"WWW-Authenticate": 'Bearer realm="uac"'},
            )
        scope[KEY], scope[KEY_TEXT] = key, text


def _check_host(headers: Headers) -> None:
    """Reject hosts that are not ours, and browser requests from other origins."""
    host, _ = split_domain_port(headers.get("host", ""))
    if not host or not validate_host(host, settings.ALLOWED_HOSTS):
        raise HTTPException(
            421, "This server does not answer requests for this host: see ALLOWED_HOSTS."
        )
    origin = headers.get("origin")
    if origin is not None and not _is_ours(origin):
        raise HTTPException(403, "Pages from this origin may not call this server.")


def _is_ours(origin: str) -> bool:
    try:
        host, _ = split_domain_port(urlsplit(origin).netloc.lower())
    except ValueError:
        return False
    return bool(host) and validate_host(host, settings.ALLOWED_HOSTS)


def _check_transport(scope: Scope, headers: Headers) -> None:
    """Reject unencrypted requests if the server requires TLS."""
    secure = scope["scheme"] == "https"
    if settings.SECURE_PROXY_SSL_HEADER:
        name, value = settings.SECURE_PROXY_SSL_HEADER
        header = headers.get(name.removeprefix("HTTP_").replace("_", "-"))
        secure = secure if header is None else header.split(",")[0].strip() == value
    if settings.SECURE_SSL_REDIRECT and not secure:
        raise HTTPException(403, "Use https: API keys must not be sent in clear text.")


@contextmanager
def _database() -> Iterator[None]:
    """Raise an HTTPException (503) if a query in the block finds the database unavailable."""
    close_old_connections()
    try:
        yield
    except Error as error:
        if not timeouts.is_unavailable(error):
            raise
        again = {"Retry-After": str(Unavailable.wait)}
        raise HTTPException(503, describe_database_error(error), again) from None


@_database()
def _key(text: str) -> ApiKey | None:
    return find_key(text)


@_database()
def _subscription(request: Request) -> Subscription:
    """Return the requested subscription; raises HTTPException if the request is invalid."""
    key: ApiKey = request.scope[KEY]
    if KeyScope.READ not in key.scopes:
        raise HTTPException(403, "This API key lacks the required scope `read`.")
    user_id, user = request.path_params.get("user_id"), None
    if user_id is not None:
        users = MemoryUser.objects.filter(reach(key), user_id=user_id).values_list("pk", flat=True)
        user = users.first() if is_user_id(user_id) else None
        if user is None:
            raise HTTPException(404, "There is no such user in this workspace.")
    elif key.user_pks is not None:
        raise HTTPException(404, NOT_FOR_CERTAIN_USERS)
    if unknown := sorted(set(request.query_params) - {"after"}):
        raise HTTPException(
            400, f"Unknown parameter {unknown[0][:100]!r}; this endpoint accepts only `after`."
        )
    position = request.headers.get("last-event-id") or request.query_params.get("after", "now")
    try:
        after = alert_events.number(position, alert_events.newest(key.workspace))
    except ValueError as error:
        raise HTTPException(400, f"`after` or Last-Event-ID: {error}") from None
    return Subscription(request.scope[KEY_TEXT], key.workspace, user, after)


def _base_url(request: Request) -> str:
    """Return the API's base URL for this request: the same host with the checked scheme."""
    scheme = "https" if settings.SECURE_SSL_REDIRECT else "http"
    return f"{scheme}://{request.headers['host']}"


def _problem(error: HTTPException) -> Response:
    return JSONResponse(
        problem(error.status_code, error.detail),
        error.status_code,
        headers=error.headers,
        media_type=CONTENT_TYPE,
    )


def _with_path_as_bytes(wsgi: "WSGIApplication") -> "WSGIApplication":
    """Wrap `wsgi` to fix the path, which the client doesn't encode the way WSGI requires."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> "Iterable[bytes]":
        environ["PATH_INFO"] = environ["PATH_INFO"].encode().decode("latin-1")
        return wsgi(environ, start_response)

    return answer
