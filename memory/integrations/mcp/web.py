"""The HTTP interface of the `mcp` process: MCP, event streams and health checks.

Every request is checked first: the host and origin against ALLOWED_HOSTS, then the transport (as in
the web processes), then the key or the token of a client that has signed in. The tools' API
requests go to the WSGI application in this process with the caller's own key or token, so all of
the API's rules apply here too.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import rest_framework.views  # noqa: F401 - comes first: the settings import the API
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from memory.alerts import alert_events
from memory.integrations.mcp import connections, issuer, listening, server, sign_in
from memory.integrations.mcp.api import Api
from memory.integrations.mcp.connections import Kind
from memory.integrations.mcp.events import Full, Streams, Subscription
from memory.integrations.mcp.outages import using_database
from memory.integrations.mcp.tools import Caller
from memory.kernel.http.authentication import FIND_KEY, NOT_FOR_CERTAIN_USERS
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
# What pages of the origins in UAC_MCP_ORIGINS may send, and read in a response.
CORS_HEADERS = (
    *("Authorization", "Content-Type", "Last-Event-ID", REQUEST_ID),
    *("Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id"),
)
CORS_EXPOSED = ("WWW-Authenticate", "Retry-After", REQUEST_ID)
NOTHING_ELSE = (
    "This process serves POST /mcp, POST /users/{user_id}/mcp, GET /events/ and GET"
    " /users/{user_id}/events/; the API is served at another URL."
)
FAILED = "The server failed to process this request."
# Keys in the ASGI scope for the request's id, its API key or what a token allows, the text of that
# key or token, and the user that a token is bound to.
NAME, KEY, KEY_TEXT = "uac.request_id", "uac.key", "uac.key_text"
BOUND_USER = "uac.user_id"


class UserIdConvertor(StringConvertor):
    """Matches a user's id, which may have slashes: the path arrives decoded."""

    regex = USER_ID_IN_PATH


register_url_convertor("user", UserIdConvertor())
_ENDPOINT = re.compile(rf"(?:/users/(?P<user>{USER_ID_IN_PATH}))?/mcp/?")


def application(wsgi: "WSGIApplication") -> ASGIApp:
    """Return the ASGI application. `wsgi` is the server's WSGI application, with the API."""
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="api")
    client = httpx2.Client(transport=httpx2.WSGITransport(_for_agents(wsgi)))

    async def is_valid(text: str) -> bool:
        return await _find_fresh(threads, text, None) is not None

    streams = Streams(threads, is_valid)

    def caller_of(request: Request) -> Caller:
        headers = {
            "Authorization": f"Bearer {request.scope[KEY_TEXT]}",
            REQUEST_ID: request.scope[NAME],
        }
        api = Api(client, _base_url(request), headers, threads)
        user_id = request.path_params.get("user_id") or request.scope[BOUND_USER]
        return Caller(api, user_id, request.scope[KEY].scopes)

    async def listen(
        context: ServerRequestContext[Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        request = context.request
        assert isinstance(request, Request)
        loop = asyncio.get_running_loop()
        try:
            subscription = await loop.run_in_executor(threads, _subscription, request, "now")
        except HTTPException as error:
            raise MCPError(code=INVALID_PARAMS, message=error.detail) from None
        return await listening.listen(streams, subscription, context, params)

    manager = StreamableHTTPSessionManager(
        server.create(caller_of, listen),
        json_response=True,
        stateless=True,
        max_request_body_size=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
    )

    async def events(scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        request = Request(scope)
        subscription = await loop.run_in_executor(
            threads, _subscription, request, _position(request)
        )
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
            *sign_in.routes(_base_url, threads),
            *_routes_of(manager.handle_request, events),
        ],
        exception_handlers={HTTPException: _answer_refusal, Exception: _answer_failure},
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=settings.UAC_MCP_ORIGINS,
                allow_methods=["GET", "POST"],
                allow_headers=CORS_HEADERS,
                expose_headers=CORS_EXPOSED,
            ),
            Middleware(GateKeeper, threads),
        ],
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
        _check_transport(scope, headers)
        if scope["path"].startswith(sign_in.PATHS):
            return
        if WELL_KNOWN in scope["path"]:
            # A client that looks for an OAuth server takes a 401 for one that wants a login.
            raise HTTPException(404, NOTHING_ELSE)
        kind, _, text = headers.get("authorization", "").partition(" ")
        text = text.strip()
        base_url = _base_url(Request(scope))
        endpoint = _ENDPOINT.fullmatch(scope["path"])
        user_id = endpoint["user"] if endpoint else None
        audience = sign_in.resource_of(base_url, user_id) if endpoint else ""
        found = await _find_fresh(self._threads, text, audience) if text else None
        if found and user_id is not None and found[1] not in (None, user_id):
            found = None
        if found is None or kind.lower() != "bearer":
            raise HTTPException(
                401,
                "The API key or token is unknown, expired or revoked, or is not for this address;"
                " send 'Authorization: Bearer uac_…'."
                if kind
                else "The request has no API key; send 'Authorization: Bearer uac_…'.",
                {
                    "WWW-Authenticate": sign_in.challenge(base_url, user_id, has_token=bool(text))
                    if endpoint
                    else 'Bearer realm="uac"'
                },
            )
        (scope[KEY], scope[BOUND_USER]), scope[KEY_TEXT] = found, text


def _check_host(headers: Headers) -> None:
    """Reject hosts that are not ours, and browser requests from other origins."""
    host, _ = split_domain_port(headers.get("host", ""))
    if not host or not validate_host(host, settings.ALLOWED_HOSTS):
        raise HTTPException(
            421, "This server does not answer requests for this host: see ALLOWED_HOSTS."
        )
    origin = headers.get("origin")
    if origin is not None and not _is_ours(origin) and not _is_allowed(origin):
        raise HTTPException(403, "Pages from this origin may not call this server.")


def _is_ours(origin: str) -> bool:
    try:
        host, _ = split_domain_port(urlsplit(origin).netloc.lower())
    except ValueError:
        return False
    return bool(host) and validate_host(host, settings.ALLOWED_HOSTS)


def _is_allowed(origin: str) -> bool:
    return "*" in settings.UAC_MCP_ORIGINS or origin in settings.UAC_MCP_ORIGINS


def _check_transport(scope: Scope, headers: Headers) -> None:
    """Reject unencrypted requests if the server requires TLS."""
    secure = scope["scheme"] == "https"
    if settings.SECURE_PROXY_SSL_HEADER:
        name, value = settings.SECURE_PROXY_SSL_HEADER
        header = headers.get(name.removeprefix("HTTP_").replace("_", "-"))
        secure = secure if header is None else header.split(",")[0].strip() == value
    if settings.SECURE_SSL_REDIRECT and not secure:
        raise HTTPException(403, "Use https: API keys must not be sent in clear text.")


async def _find_fresh(
    threads: ThreadPoolExecutor, text: str, audience: str | None
) -> tuple[ApiKey, str | None] | None:
    """Return what `_find` does, with keys of the issuer that are up to date."""
    await issuer.prepare(text)
    return await asyncio.get_running_loop().run_in_executor(threads, _find, text, audience)


@using_database()
def _find(text: str, audience: str | None) -> tuple[ApiKey, str | None] | None:
    """Return what a key or token allows, and the user that a token is bound to.

    Returns None if it is invalid. A token is only valid for its own audience, and for all of them
    if `audience` is None.
    """
    if (key := find_key(text)) is not None:
        return key, None
    if (connection := connections.find(Kind.ACCESS, text)) is None:
        return issuer.find_user(text, audience)
    if audience not in (None, connection.audience):
        return None
    return connections.key_of(connection), connection.user.user_id


def _find_key(text: str) -> ApiKey | None:
    found = _find(text, None)
    return None if found is None else found[0]


def _position(request: Request) -> str:
    """Return where an event stream begins; raises HTTPException for unknown parameters."""
    if unknown := sorted(set(request.query_params) - {"after"}):
        raise HTTPException(
            400, f"Unknown parameter {unknown[0][:100]!r}; this endpoint accepts only `after`."
        )
    return request.headers.get("last-event-id") or request.query_params.get("after", "now")


@using_database()
def _subscription(request: Request, position: str) -> Subscription:
    """Return the requested subscription; raises HTTPException if the request is invalid."""
    key: ApiKey = request.scope[KEY]
    if KeyScope.READ not in key.scopes:
        raise HTTPException(403, "This API key lacks the required scope `read`.")
    user_id, user = request.path_params.get("user_id") or request.scope[BOUND_USER], None
    if user_id is not None:
        users = MemoryUser.objects.filter(reach(key), user_id=user_id).values_list("pk", flat=True)
        user = users.first() if is_user_id(user_id) else None
        if user is None:
            raise HTTPException(404, "There is no such user in this workspace.")
    elif key.user_pks is not None:
        raise HTTPException(404, NOT_FOR_CERTAIN_USERS)
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


def _for_agents(wsgi: "WSGIApplication") -> "WSGIApplication":
    """Wrap `wsgi` for this process's own requests.

    It then accepts the tokens of MCP clients, whose audience has been checked; and the path, which
    the client doesn't encode the way WSGI requires, is fixed.
    """

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> "Iterable[bytes]":
        environ[FIND_KEY] = _find_key
        environ["PATH_INFO"] = environ["PATH_INFO"].encode().decode("latin-1")
        return wsgi(environ, start_response)

    return answer
