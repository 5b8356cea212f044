"""Sign-in of MCP clients: metadata, registration, codes and tokens (OAuth 2.1).

The MCP SDK implements the protocol; here is what it asks of a server. Clients register themselves,
and nothing is stored for it: a client's ID is its signed registration. All clients are public, so
PKCE protects their codes. Staff approve a client on a page of the admin
(`memory.integrations.admin.connections`).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from django.conf import settings
from django.core import signing
from django.urls import reverse
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.metadata import MetadataHandler, ProtectedResourceMetadataHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, request_response

from memory.integrations.mcp import connections, requests
from memory.integrations.mcp.connections import ACCESS_LIFETIME, Kind
from memory.integrations.mcp.models import AgentConnection
from memory.integrations.mcp.outages import using_database
from memory.integrations.mcp.requests import CLIENTS, AccessRequest
from memory.kernel.models.users import is_user_id
from memory.kernel.models.workspaces import Scope

# With `manage`, a client can forget entries: it reaches nothing but the tools.
SCOPES = [str(scope) for scope in Scope]
# How clients authenticate: not at all, as they have no secret.
PUBLIC = "none"
PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"
AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
PATHS = (PROTECTED_RESOURCE, AUTHORIZATION_SERVER, "/oauth/")
MAX_REDIRECT_URIS, MAX_REDIRECT_URI = 5, 500
MAX_BODY = 16_384
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Schemes that a browser runs or shows by itself; apps have schemes of their own.
BROWSER_SCHEMES = ("javascript", "data", "blob", "file", "about", "view-source", "vbscript")

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_USER_PATH = re.compile(r"/users/([^/]+)/mcp")

Result = TypeVar("Result")
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def is_offered() -> bool:
    """Return whether MCP clients can sign in: at the product's issuer, or with staff's approval."""
    return bool(settings.UAC_MCP_ISSUER or settings.UAC_BASE_URL)


def resource_of(base_url: str, user_id: str | None) -> str:
    """Return the URL of an MCP endpoint, which is the audience of its tokens."""
    return f"{base_url}{_path_of(user_id)}"


def _asked_scopes() -> list[str]:
    """Return the scopes that clients ask for at sign-in.

    A product's issuer may not know `manage`, or grant it to every client that asks.
    """
    return [Scope.READ, Scope.WRITE] if settings.UAC_MCP_ISSUER else SCOPES


def challenge(base_url: str, user_id: str | None, *, has_token: bool) -> str:
    """Return the WWW-Authenticate header of an MCP endpoint, which names its metadata."""
    if not is_offered():
        return 'Bearer realm="uac"'
    error = ', error="invalid_token"' if has_token else ""
    metadata = f"{base_url}{PROTECTED_RESOURCE}{_path_of(user_id)}"
    scope = " ".join(_asked_scopes())
    return f'Bearer realm="uac"{error}, scope="{scope}", resource_metadata="{metadata}"'


def _path_of(user_id: str | None) -> str:
    return "/mcp" if user_id is None else f"/users/{quote(user_id, safe='')}/mcp"


def routes(base_url_of: Callable[[Request], str], threads: Executor) -> list[Route]:
    """Return the routes of sign-in. Those that are not offered answer 404."""

    async def describe_resource(request: Request) -> Response:
        base_url = base_url_of(request)
        metadata = ProtectedResourceMetadata.model_validate(
            {
                "resource": resource_of(base_url, request.path_params.get("user_id")),
                "authorization_servers": [settings.UAC_MCP_ISSUER or base_url],
                "scopes_supported": _asked_scopes(),
                "resource_name": "UaC",
            }
        )
        return await ProtectedResourceMetadataHandler(metadata).handle(request)

    async def describe_server(request: Request) -> Response:
        base_url = base_url_of(request)
        metadata = OAuthMetadata.model_validate(
            {
                "issuer": base_url,
                "authorization_endpoint": f"{base_url}/oauth/authorize",
                "token_endpoint": f"{base_url}/oauth/token",
                "registration_endpoint": f"{base_url}/oauth/register",
                "revocation_endpoint": f"{base_url}/oauth/revoke",
                "scopes_supported": SCOPES,
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": [PUBLIC],
                "revocation_endpoint_auth_methods_supported": [PUBLIC],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        )
        return await MetadataHandler(metadata).handle(request)

    async def authorize(request: Request) -> Response:
        provider = Provider(base_url_of(request), threads)
        response = await AuthorizationHandler(provider).handle(request)
        if response.status_code == 302 and not response.headers["location"].startswith(_page()):
            # Anybody can register a redirect URI, so an error is shown here: only staff send the
            # browser there.
            query = urlsplit(response.headers["location"]).query
            raise HTTPException(400, f"The client's request is invalid: {query[:500]}")
        return response

    async def register(request: Request) -> Response:
        options = ClientRegistrationOptions(valid_scopes=SCOPES, default_scopes=SCOPES)
        return await RegistrationHandler(Provider("", threads), options).handle(request)

    async def exchange(request: Request) -> Response:
        provider = Provider(base_url_of(request), threads)
        handler = TokenHandler(provider, ClientAuthenticator(provider))
        response: Response = await handler.handle(request)
        return response

    async def revoke(request: Request) -> Response:
        # The SDK's handler requires a secret, which our clients do not have. The answer is the same
        # for an unknown token (RFC 7009).
        provider = Provider(base_url_of(request), threads)
        form = await request.form()
        token, client = (
            str(form.get("token")),
            await provider.get_client(str(form.get("client_id"))),
        )
        if client is not None:
            access = await provider.load_access_token(token)
            found = access or await provider.load_refresh_token(client, token)
            if found is not None and found.client_id == client.client_id:
                await provider.revoke_token(found)
        return Response(headers={"Cache-Control": "no-store"})

    def route(
        path: str, handle: Handler, is_here: Callable[[], bool], methods: Sequence[str] = ("GET",)
    ) -> Route:
        async def handle_if_offered(request: Request) -> Response:
            if not is_here():
                raise HTTPException(404)
            return await handle(request)

        limited = RequestBodyLimitMiddleware(request_response(handle_if_offered), MAX_BODY)
        return Route(path, limited, methods=methods)

    def is_server() -> bool:
        return bool(settings.UAC_BASE_URL and not settings.UAC_MCP_ISSUER)

    return [
        route(f"{PROTECTED_RESOURCE}/mcp", describe_resource, is_offered),
        route(f"{PROTECTED_RESOURCE}/users/{{user_id:user}}/mcp", describe_resource, is_offered),
        route(AUTHORIZATION_SERVER, describe_server, is_server),
        route("/oauth/authorize", authorize, is_server),
        route("/oauth/register", register, is_server, ["POST"]),
        route("/oauth/token", exchange, is_server, ["POST"]),
        route("/oauth/revoke", revoke, is_server, ["POST"]),
    ]


def _page() -> str:
    return f"{settings.UAC_BASE_URL.rstrip('/')}{reverse('admin:approve_client')}?"


def _may_redirect(uri: str) -> bool:
    """Return whether a client may register this redirect URI."""
    parts = urlsplit(uri)
    if parts.scheme == "http":
        is_safe = parts.hostname in LOOPBACK
    else:
        is_safe = parts.scheme not in BROWSER_SCHEMES
    return (
        is_safe and not parts.fragment and "@" not in parts.netloc and len(uri) <= MAX_REDIRECT_URI
    )


class Code(AuthorizationCode):
    """A client's code, with the connection that it belongs to."""

    connection: Any


class Refresh(RefreshToken):
    """A refresh token, with the connection that it belongs to."""

    connection: Any


class Access(AccessToken):
    """An access token, with the connection that it belongs to."""

    connection: Any


class Provider(OAuthAuthorizationServerProvider[Code, Refresh, Access]):
    """What the SDK asks of an authorization server; `base_url` is its issuer."""

    def __init__(self, base_url: str, threads: Executor) -> None:
        self._base_url = base_url
        self._threads = threads

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Return a client's registration, which its ID contains."""
        try:
            registered = signing.loads(client_id, salt=CLIENTS)
        except signing.BadSignature:
            return None
        return OAuthClientInformationFull(
            client_id=client_id,
            client_name=registered["name"],
            redirect_uris=registered["uris"],
            token_endpoint_auth_method=PUBLIC,
            scope=" ".join(SCOPES),
        )

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Set the client's ID in `client_info`, which is the response; the client gets no secret.

        Raises RegistrationError if a redirect URI is not allowed.
        """
        uris = [str(uri) for uri in client_info.redirect_uris or ()]
        if not uris or len(uris) > MAX_REDIRECT_URIS or not all(map(_may_redirect, uris)):
            raise RegistrationError(
                "invalid_redirect_uri",
                f"Register 1 to {MAX_REDIRECT_URIS} redirect URIs, which use https, http on this"
                " machine, or an app's own scheme, and have no fragment.",
            )
        name = (client_info.client_name or urlsplit(uris[0]).netloc)[:100]
        name = "".join(character for character in name if character.isprintable())
        client_info.client_id = signing.dumps({"name": name, "uris": uris}, salt=CLIENTS)
        client_info.token_endpoint_auth_method = PUBLIC
        client_info.client_secret = client_info.client_secret_expires_at = None

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """Return the URL of the page on which staff approve the client.

        Raises AuthorizeError if `resource` is not one of this server's MCP endpoints.
        """
        user_id = self._user_in(params.resource or "")
        if not _CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", "`code_challenge` is not of method S256.")
        request = AccessRequest(
            client_id=client.client_id,
            client_name=client.client_name or "",
            redirect_uri=str(params.redirect_uri),
            state=params.state,
            code_challenge=params.code_challenge,
            scopes=params.scopes or SCOPES,
            issuer=self._base_url,
            audience=resource_of(self._base_url, user_id),
            user_id=user_id,
        )
        return _page() + urlencode({"request": requests.sign(request)})

    def _user_in(self, resource: str) -> str | None:
        """Return the user id in an MCP endpoint's URL; raises AuthorizeError if it is none."""
        path = resource.removesuffix("/").removeprefix(self._base_url)
        if resource.startswith(self._base_url) and path == "/mcp":
            return None
        match = _USER_PATH.fullmatch(path) if resource.startswith(self._base_url) else None
        user_id = unquote(match[1]) if match else ""
        if not is_user_id(user_id):
            raise AuthorizeError("invalid_target", "`resource` is none of this server's.")
        return user_id

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> Code | None:
        """Return a code that is valid; the SDK compares client, redirect URI and challenge."""
        connection = await self._find(Kind.CODE, authorization_code)
        if connection is None:
            return None
        return Code(
            code=authorization_code,
            scopes=connection.scopes,
            expires_at=connections.expiry_of(connection, Kind.CODE).timestamp(),
            client_id=connection.client_id,
            code_challenge=connection.code_challenge,
            redirect_uri=AnyUrl(connection.redirect_uri),
            redirect_uri_provided_explicitly=True,
            resource=connection.audience,
            connection=connection,
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: Code
    ) -> OAuthToken:
        """Return the first tokens; raises TokenError if another request was faster."""
        return await self._issue(authorization_code.connection, authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> Refresh | None:
        """Return a refresh token that is valid; one that was used before ends its connection."""
        connection = await self._find(Kind.REFRESH, refresh_token)
        if connection is None:
            return None
        return Refresh(
            token=refresh_token,
            client_id=connection.client_id,
            scopes=connection.scopes,
            connection=connection,
        )

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: Refresh, scopes: list[str]
    ) -> OAuthToken:
        """Return new tokens; raises TokenError if another request was faster."""
        return await self._issue(refresh_token.connection, refresh_token.connection.scopes)

    async def load_access_token(self, token: str) -> Access | None:
        """Return an access token that is valid."""
        connection = await self._find(Kind.ACCESS, token)
        if connection is None:
            return None
        return Access(
            token=token,
            client_id=connection.client_id,
            scopes=connection.scopes,
            connection=connection,
        )

    async def revoke_token(self, token: Access | Refresh) -> None:
        """Revoke the connection: both of its tokens."""
        rows = AgentConnection.objects.filter(pk=token.connection.pk)
        await self._run(connections.revoke, rows)

    async def _find(self, kind: Kind, text: str) -> AgentConnection | None:
        return await self._run(connections.find, kind, text)

    async def _issue(self, connection: AgentConnection, scopes: Sequence[str]) -> OAuthToken:
        tokens = await self._run(connections.issue_tokens, connection)
        if tokens is None:
            raise TokenError("invalid_grant", "The code or token has been used.")
        access, refresh = tokens
        return OAuthToken(
            access_token=access,
            refresh_token=refresh,
            expires_in=int(ACCESS_LIFETIME.total_seconds()),
            scope=" ".join(scopes),
        )

    async def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        called = using_database()(function)
        return await loop.run_in_executor(self._threads, called, *arguments)
