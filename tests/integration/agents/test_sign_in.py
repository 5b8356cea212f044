"""MCP clients sign in: staff approve them, and every token is for one user, address and scope."""

import asyncio
import base64
import datetime
import hashlib
import html
import json
import re
import secrets
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import jwt
import pytest
import time_machine
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import Group, User
from django.core.wsgi import get_wsgi_application
from django.test import Client
from pytest_django.fixtures import Settings
from pytest_django.plugin import DjangoDbBlocker

from memory.integrations.mcp import issuer, requests, web
from memory.integrations.mcp.models import AgentConnection
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import StaffAccess, StaffAudit
from memory.kernel.users import create_user
from memory.kernel.workspaces import create_key
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from tests.conftest import cloned_database
from tests.integration.operation.test_agents import alive
from tests.waiting import scaled

BASE = "http://testserver"
REDIRECT = "http://127.0.0.1:33418/callback"
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "get_manifest", "arguments": {}},
}


@dataclass
class Agent:
    """An MCP client that speaks to the process for agents, and the browser of its person."""

    browser: Client
    base: str = BASE
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    client_id: str = ""

    def ask(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """Send a request to the process for agents."""

        async def send() -> httpx2.Response:
            app = web.application(get_wsgi_application())
            transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
            async with alive(app), httpx2.AsyncClient(transport=transport) as client:
                return await client.request(method, f"{self.base}{path}", **request)

        answer = asyncio.run(send())
        for thread in threading.enumerate():
            if thread.name.startswith("api"):
                thread.join()  # the server does not wait for the requests that are left
        return answer

    def register(self, *uris: str) -> httpx2.Response:
        body = {"client_name": "Chat", "redirect_uris": uris or [REDIRECT]}
        answer = self.ask("POST", "/oauth/register", json=body)
        if answer.status_code == 201:
            self.client_id = answer.json()["client_id"]
        return answer

    def authorize(self, **changed: str | None) -> httpx2.Response:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": REDIRECT,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "state": "x y",
            "resource": f"{self.base}/mcp",
            **changed,
        }
        chosen = {name: value for name, value in query.items() if value is not None}
        return self.ask("GET", f"/oauth/authorize?{urlencode(chosen)}")

    def approval_page(self, **changed: str) -> str:
        """Return the path of the page on which staff approve the client."""
        answer = self.authorize(**changed)
        assert answer.status_code == 302, answer.text
        parts = urlsplit(answer.headers["location"])
        return f"{parts.path}?{parts.query}"

    def approve(self, page: str, user: MemoryUser, **fields: Any) -> dict[str, str]:
        """Approve the client; return what it is sent, and where."""
        given = {"workspace": user.workspace_id, "user_id": user.user_id, "scopes": ["read"]}
        return sent_to(self.browser.post(page, {**given, **fields}))

    def exchange(self, code: str, **changed: str) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT,
            "client_id": self.client_id,
            "code_verifier": self.verifier,
            **changed,
        }
        return self.ask("POST", "/oauth/token", data=form)

    def refresh(self, token: str) -> httpx2.Response:
        form = {
            "grant_type": "refresh_token",
            "refresh_token": token,
            "client_id": self.client_id,
        }
        return self.ask("POST", "/oauth/token", data=form)

    def sign_in(self, user: MemoryUser, resource: str = "/mcp", **fields: Any) -> dict[str, Any]:
        """Register, be approved, and return the first tokens."""
        self.register()
        page = self.approval_page(resource=f"{self.base}{resource}")
        answer = self.exchange(self.approve(page, user, **fields)["code"])
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens

    def ask_mcp(self, token: str, method: str) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
        return self.ask("POST", "/mcp", json=body, headers=headers).json()["result"]

    def call(self, token: str, path: str = "/mcp", tool: str = "", **given: Any) -> httpx2.Response:
        body: Any = CALL
        if tool:
            body = {**CALL, "params": {"name": tool, "arguments": given}}
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        return self.ask("POST", path, json=body, headers=headers)


def sent_to(response: Any) -> dict[str, str]:
    """Return the query of the client's address to which a page leads, and the address as `to`."""
    assert response.status_code == 200, response
    found = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', response.content.decode())
    assert found, response.content.decode()
    url = urlsplit(html.unescape(found[1]))
    query = {name: value for name, [value] in parse_qs(url.query).items()}
    return {**query, "to": url._replace(query="").geturl()}


def connections_of(user: MemoryUser) -> list[AgentConnection]:
    return list(AgentConnection.objects.filter(user=user))


def is_error(answer: httpx2.Response) -> bool:
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["result"]["isError"])


@pytest.fixture(scope="module", autouse=True)
def database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """One database for all tests of this file, in which each has a workspace of its own."""
    with cloned_database(django_db_blocker):
        yield


@pytest.fixture
def ada(workspace: Workspace) -> MemoryUser:
    return create_user(workspace, "ada", metadata={})


@pytest.fixture
def bob(workspace: Workspace) -> MemoryUser:
    return create_user(workspace, "bob", metadata={})


@pytest.fixture
def eve() -> User:
    return User.objects.create_superuser(f"eve-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def agent(eve: User, settings: Settings) -> Agent:
    settings.UAC_BASE_URL = BASE
    browser = Client()
    browser.force_login(eve)
    return Agent(browser)


def test_the_challenge_leads_to_metadata_that_leads_to_the_server(agent: Agent) -> None:
    for path in ("/mcp", "/users/ada/mcp", "/users/a%2Fb/mcp"):
        refused = agent.ask("POST", path, json=CALL)
        assert refused.status_code == 401
        found = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
        assert found, refused.headers
        resource = agent.ask("GET", found[1].removeprefix(BASE)).json()
        assert resource["resource"] == f"{BASE}{path}"
        assert resource["authorization_servers"] == [BASE]
        assert resource["scopes_supported"] == ["read", "write", "manage"]

    server = agent.ask("GET", "/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == BASE
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["token_endpoint_auth_methods_supported"] == ["none"]
    assert server["registration_endpoint"] == f"{BASE}/oauth/register"


OTHERS = (
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/v1",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/openid-configuration",
    "/oauth/elsewhere",
)


def test_other_metadata_does_not_exist(agent: Agent) -> None:
    for path in OTHERS:
        assert agent.ask("GET", path).status_code == 404, path


def test_nothing_is_offered_where_staff_could_not_approve_it(
    agent: Agent, settings: Settings
) -> None:
    settings.UAC_BASE_URL = ""

    assert agent.ask("POST", "/mcp").headers["www-authenticate"] == 'Bearer realm="uac"'
    for path in ("oauth-protected-resource/mcp", "oauth-authorization-server"):
        assert agent.ask("GET", f"/.well-known/{path}").status_code == 404
    assert agent.register().status_code == 404


def test_an_approved_client_sees_the_chosen_user_alone(
    agent: Agent, eve: User, ada: MemoryUser, bob: MemoryUser
) -> None:
    tokens = agent.sign_in(ada)

    assert tokens["token_type"] == "Bearer"
    assert (tokens["expires_in"], tokens["scope"]) == (3600, "read")
    assert not is_error(agent.call(tokens["access_token"]))
    assert is_error(agent.call(tokens["access_token"], tool="remember", text="She moved."))
    # A connection that is bound to ada ignores another user's id.
    answer = agent.call(tokens["access_token"], tool="get_manifest", user_id="bob").json()
    assert "Ignored arguments: user_id" in answer["result"]["content"][0]["text"]
    [connection] = connections_of(ada)
    assert connection.scopes == ["read"]
    assert not any(
        token[-20:] in str(value)
        for token in (tokens["access_token"], tokens["refresh_token"])
        for value in vars(connection).values()
    )
    assert StaffAudit.objects.filter(what="approve", staff_id=eve.pk, person=ada.public_id).exists()


def test_a_client_with_write_access_writes(agent: Agent, ada: MemoryUser) -> None:
    token = agent.sign_in(ada, scopes=["read", "write"])["access_token"]

    assert not is_error(agent.call(token, tool="remember", text="She moved to Rome."))
    ada.refresh_from_db()
    assert ada.last_seq == 1


def test_only_a_client_that_was_let_forget_does(agent: Agent, ada: MemoryUser) -> None:
    # Given a client that asked for everything, which is not granted by itself
    agent.register()
    page = agent.approval_page()
    offered = agent.browser.get(page).content.decode()
    ticked = re.findall(r'name="scopes" value="(\w+)"[^>]*checked', offered)
    assert ticked == ["read", "write"]
    told = entry_log.append(ada, [Draft(kind=EntryKind.FACT, content="Moved.")], source="test")

    def tools_of(token: str) -> set[str]:
        return {one["name"] for one in agent.ask_mcp(token, "tools/list")["tools"]}

    # When it is let read and write, or forget as well
    careful, trusted = (
        agent.exchange(agent.approve(page, ada, scopes=scopes)["code"]).json()["access_token"]
        for scopes in (ticked, [*ticked, "manage"])
    )

    # Then it has the tool in the latter case alone
    assert tools_of(trusted) - tools_of(careful) == {"forget"}
    assert is_error(agent.call(careful, tool="forget", entry=told[0].seq))
    shown = agent.call(trusted, tool="forget", entry=told[0].seq).json()["result"]
    code = shown["structuredContent"]["confirm"]
    assert not is_error(agent.call(trusted, tool="forget", entry=told[0].seq, confirm=code))
    told[0].refresh_from_db()
    assert told[0].redacted_at is not None


def test_a_client_reads_what_it_may_not_write(agent: Agent, ada: MemoryUser) -> None:
    token = agent.sign_in(ada)["access_token"]

    listed = agent.ask_mcp(token, "tools/list")["tools"]

    assert listed
    assert all(one["annotations"]["readOnlyHint"] for one in listed)


def test_only_staff_who_may_redact_let_a_client_forget(
    agent: Agent, eve: User, ada: MemoryUser
) -> None:
    operator = User.objects.create(username=f"operator of {eve}", is_staff=True)
    operator.groups.add(Group.objects.get(name="operator"))
    StaffAccess.objects.create(user=operator, all_workspaces=True)
    agent.browser.force_login(operator)
    agent.register()
    page = agent.approval_page()

    given = {"workspace": ada.workspace_id, "user_id": "ada", "scopes": ["read", "manage"]}
    assert 'http-equiv="refresh"' not in agent.browser.post(page, given).content.decode()
    operator.groups.add(Group.objects.get(name="privacy officer"))
    granted = agent.approve(page, ada, scopes=["read", "manage"])
    token = agent.exchange(granted["code"]).json()["access_token"]
    assert agent.call(token).status_code == 200
    # Access ends with the permission of whoever gave it.
    operator.groups.remove(Group.objects.get(name="privacy officer"))
    assert agent.call(token).status_code == 401


def test_a_token_is_for_its_own_address(agent: Agent, ada: MemoryUser, bob: MemoryUser) -> None:
    token = agent.sign_in(ada, "/users/ada/mcp")["access_token"]

    assert agent.call(token, "/users/ada/mcp").status_code == 200
    assert agent.call(token, "/users/ada/mcp/").status_code == 200
    for elsewhere in ("/mcp", "/users/bob/mcp"):
        refused = agent.call(token, elsewhere)
        assert refused.status_code == 401
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    headers = {"Authorization": f"Bearer {token}"}
    assert agent.ask("GET", "/users/ada/events/", headers=headers).status_code == 401
    assert Client().get("/v1/users/ada/manifest/", headers=headers).status_code == 401


def test_an_address_of_a_user_cannot_be_approved_for_another(
    agent: Agent, ada: MemoryUser, bob: MemoryUser
) -> None:
    agent.register()
    page = agent.approval_page(resource=f"{BASE}/users/ada/mcp")

    agent.approve(page, bob)

    assert [len(connections_of(user)) for user in (ada, bob)] == [1, 0]


FOREIGN = (
    None,
    "https://evil.example/mcp",
    f"{BASE}.evil.example/mcp",
    f"{BASE}/v1/",
    f"{BASE}/users/../mcp",
    "/mcp",
    "/users/ada/mcp",
)


def test_a_foreign_audience_is_refused(agent: Agent) -> None:
    agent.register()

    for resource in FOREIGN:
        refused = agent.authorize(resource=resource)
        assert (refused.status_code, "invalid_target" in refused.text) == (400, True), resource


WRONG: Sequence[Any] = (
    {"redirect_uri": "https://evil.example/"},
    {"redirect_uri": f"{REDIRECT}/../elsewhere"},
    {"client_id": "unknown"},
    {"code_challenge": None},
    {"code_challenge_method": "plain"},
    {"response_type": "token"},
    {"scope": "admin"},
)


def test_a_wrong_request_goes_nowhere(agent: Agent) -> None:
    agent.register()

    for changed in WRONG:
        refused = agent.authorize(**changed)
        assert (refused.status_code, refused.headers.get("location")) == (400, None), changed


UNSAFE = (
    "http://evil.example/",
    "http://localhost.evil.example/",
    "javascript:alert(1)",
    "data:text/html,x",
    "https://chat.example/#fragment",
    "https://chat.example@evil.example/",
    "https://chat.example/" + "x" * 500,
)


def test_an_unsafe_redirect_uri_is_not_registered(agent: Agent) -> None:
    for uri in UNSAFE:
        answer = agent.register(uri)
        assert answer.status_code == 400, uri
        assert answer.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata")


def test_registration_gives_no_secret_and_stores_nothing(agent: Agent) -> None:
    before = AgentConnection.objects.count()

    answer = agent.register("https://chat.example/callback", "chat.app://callback").json()

    assert answer["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in answer
    assert AgentConnection.objects.count() == before
    assert agent.ask("POST", "/oauth/register", content=b" " * 20_000).status_code == 413


def test_the_client_gets_its_state_and_our_issuer_back(agent: Agent, ada: MemoryUser) -> None:
    agent.register()

    answer = agent.approve(agent.approval_page(), ada)

    assert (answer["to"], answer["state"], answer["iss"]) == (REDIRECT, "x y", BASE)


def test_staff_can_deny_it(agent: Agent) -> None:
    agent.register()

    answer = sent_to(agent.browser.post(agent.approval_page(), {"deny": "1"}))

    assert (answer["to"], answer["error"], answer["state"]) == (REDIRECT, "access_denied", "x y")
    assert "code" not in answer


def test_only_staff_who_may_grant_it_are_asked(agent: Agent, eve: User, ada: MemoryUser) -> None:
    agent.register()
    page = agent.approval_page()

    signed_out = Client().get(page)
    assert signed_out.headers["location"].startswith("/admin/login/")
    viewer = Client()
    viewer.force_login(User.objects.create(username=f"viewer of {eve}", is_staff=True))
    for answer in (viewer.get(page), viewer.post(page, {"deny": "1"})):
        assert answer.status_code == 403
    crossing = Client(enforce_csrf_checks=True)
    crossing.force_login(eve)
    assert crossing.post(page, {"user_id": "ada"}).status_code == 403
    assert not connections_of(ada)


def test_a_request_that_was_changed_or_is_old_is_not_asked(agent: Agent) -> None:
    agent.register()
    page = agent.approval_page()

    assert agent.browser.get(page).status_code == 200
    assert agent.browser.get(page[:-1] + ("A" if page[-1] != "A" else "B")).status_code == 403
    assert agent.browser.get("/admin/connect/").status_code == 403
    # A client's ID is signed, too, but it is no request.
    forged = urlencode({"request": agent.client_id})
    assert agent.browser.get(f"/admin/connect/?{forged}").status_code == 403
    late = datetime.datetime.now(datetime.UTC) + datetime.timedelta(
        seconds=requests.LIFETIME_SECONDS + 1
    )
    with time_machine.travel(late):
        assert requests.read(parse_qs(urlsplit(page).query)["request"][0]) is None


def test_only_what_the_client_asked_for_can_be_granted(agent: Agent, ada: MemoryUser) -> None:
    agent.register()
    page = agent.approval_page(scope="read")

    for scopes in (["write"], ["manage"], []):
        given = {"workspace": ada.workspace_id, "user_id": "ada", "scopes": scopes}
        assert 'http-equiv="refresh"' not in agent.browser.post(page, given).content.decode()
    unknown = {"workspace": ada.workspace_id, "user_id": "nobody", "scopes": ["read"]}
    assert "There is no such user" in agent.browser.post(page, unknown).content.decode()
    assert not connections_of(ada)


def test_a_code_is_for_its_client_alone(agent: Agent, ada: MemoryUser) -> None:
    agent.register()
    code = agent.approve(agent.approval_page(), ada)["code"]
    thief = Agent(agent.browser)
    thief.register(REDIRECT, "https://evil.example/")

    assert thief.exchange(code).json()["error"] == "invalid_grant"
    for changed in (
        {"code_verifier": "x" * 43},
        {"redirect_uri": "https://evil.example/"},
        {"code": code[:-1]},
    ):
        assert agent.exchange(**{"code": code, **changed}).status_code == 400
    # Without a verifier, too; and it is still good for its own client.
    form = {"grant_type": "authorization_code", "code": code, "client_id": agent.client_id}
    assert agent.ask("POST", "/oauth/token", data=form).status_code == 400
    assert agent.exchange(code).status_code == 200


def test_a_code_that_is_used_again_revokes_its_tokens(agent: Agent, ada: MemoryUser) -> None:
    agent.register()
    code = agent.approve(agent.approval_page(), ada)["code"]
    tokens = agent.exchange(code).json()
    assert agent.call(tokens["access_token"]).status_code == 200

    assert agent.exchange(code).json()["error"] == "invalid_grant"

    assert agent.call(tokens["access_token"]).status_code == 401
    assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_refresh_replaces_both_tokens_and_a_used_one_revokes_them(
    agent: Agent, ada: MemoryUser
) -> None:
    first = agent.sign_in(ada)

    second = agent.refresh(first["refresh_token"]).json()
    assert agent.call(second["access_token"]).status_code == 200
    assert agent.call(first["access_token"]).status_code == 401

    assert agent.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"
    assert agent.call(second["access_token"]).status_code == 401
    assert agent.refresh(second["refresh_token"]).json()["error"] == "invalid_grant"


def test_codes_and_tokens_expire(agent: Agent, ada: MemoryUser) -> None:
    now = datetime.datetime.now(datetime.UTC)
    tokens = agent.sign_in(ada)
    page = agent.approval_page()
    code = agent.approve(page, ada)["code"]

    with time_machine.travel(now + datetime.timedelta(minutes=2)):
        assert agent.exchange(code).json()["error"] == "invalid_grant"
        assert agent.call(tokens["access_token"]).status_code == 200
    with time_machine.travel(now + datetime.timedelta(hours=1, minutes=1)):
        assert agent.call(tokens["access_token"]).status_code == 401
        assert agent.refresh(tokens["refresh_token"]).status_code == 200
    tokens = agent.sign_in(ada)
    with time_machine.travel(now + datetime.timedelta(days=31)):
        assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_client_revokes_its_own_access(agent: Agent, ada: MemoryUser) -> None:
    tokens = agent.sign_in(ada)
    other = Agent(agent.browser)
    other.register("https://evil.example/")
    form = {"token": tokens["refresh_token"]}

    other.ask("POST", "/oauth/revoke", data={**form, "client_id": other.client_id})
    assert agent.call(tokens["access_token"]).status_code == 200
    agent.ask("POST", "/oauth/revoke", data={**form, "client_id": agent.client_id})
    assert agent.call(tokens["access_token"]).status_code == 401


def test_staff_revoke_access_in_the_admin(agent: Agent, ada: MemoryUser) -> None:
    tokens = agent.sign_in(ada)
    [connection] = connections_of(ada)

    agent.browser.post(
        "/admin/memory/agentconnection/",
        {"action": "revoke", "_selected_action": connection.pk, "confirmed": "1"},
    )

    assert agent.call(tokens["access_token"]).status_code == 401
    assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert StaffAudit.objects.filter(what="revoke", person=ada.public_id).exists()


def test_access_ends_with_the_account_that_approved_it(
    agent: Agent, eve: User, ada: MemoryUser
) -> None:
    tokens = agent.sign_in(ada)

    User.objects.filter(pk=eve.pk).update(is_active=False)

    assert agent.call(tokens["access_token"]).status_code == 401
    assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_pages_of_chosen_origins_may_call(agent: Agent, settings: Settings) -> None:
    settings.UAC_MCP_ORIGINS = ["https://chat.example"]
    preflight = {"Access-Control-Request-Method": "POST"}
    paths = ("/mcp", "/oauth/token", "/oauth/register", "/.well-known/oauth-authorization-server")

    for path in paths:
        for origin, allowed in (("https://chat.example", 200), ("https://evil.example", 400)):
            answer = agent.ask("OPTIONS", path, headers={**preflight, "Origin": origin})
            assert answer.status_code == allowed, (path, origin)
    refused = agent.ask("POST", "/mcp", json=CALL, headers={"Origin": "https://chat.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://chat.example"
    assert "WWW-Authenticate" in refused.headers["access-control-expose-headers"]
    assert agent.ask("POST", "/mcp", headers={"Origin": "https://evil.example"}).status_code == 403


# -- The product's own authorization server ------------------------------------------------------

ISSUER = "https://id.example"
PRIVATE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def own_issuer(ada: MemoryUser, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's server, whose public key is found at its JWKS URL."""
    settings.UAC_MCP_ISSUER = ISSUER
    settings.UAC_MCP_JWKS_URL = f"{ISSUER}/jwks"
    settings.UAC_MCP_WORKSPACE = ada.workspace.name
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(PRIVATE_KEY.public_key()))
    answer = {"keys": [{**public, "kid": "one", "use": "sig"}]}
    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", lambda self: answer)
    monkeypatch.setattr(issuer, "signing_keys", issuer.SigningKeys())


def token_for(
    user_id: str,
    key: Any = PRIVATE_KEY,
    algorithm: str = "RS256",
    key_id: str = "one",
    **claims: Any,
) -> str:
    in_an_hour = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    all_claims = {"iss": ISSUER, "aud": f"{BASE}/mcp", "exp": in_an_hour, "scope": "read"}
    return jwt.encode(
        {**all_claims, "sub": user_id, **claims}, key, algorithm, headers={"kid": key_id}
    )


@pytest.mark.usefixtures("own_issuer")
def test_the_issuer_is_named_instead_of_ours(agent: Agent) -> None:
    resource = agent.ask("GET", "/.well-known/oauth-protected-resource/mcp").json()

    assert resource["authorization_servers"] == [ISSUER]
    # It may not know what only we have, or grant it to every client that asks.
    assert resource["scopes_supported"] == ["read", "write"]
    assert agent.ask("GET", "/.well-known/oauth-authorization-server").status_code == 404
    assert agent.register().status_code == 404


@pytest.mark.usefixtures("own_issuer")
def test_a_token_of_the_issuer_is_bound_to_the_user_that_it_names(agent: Agent) -> None:
    assert not is_error(agent.call(token_for("ada")))
    assert is_error(agent.call(token_for("ada"), tool="remember", text="She moved."))
    writes = token_for("ada", scope="read write openid")
    assert not is_error(agent.call(writes, tool="remember", text="She moved."))
    listed = agent.call(token_for("ada"), tool="list_alerts")
    assert not is_error(listed)
    offered = agent.ask_mcp(token_for("ada", scope="read manage"), "tools/list")["tools"]
    assert "forget" in {one["name"] for one in offered}


@pytest.mark.usefixtures("own_issuer")
def test_a_wrong_token_of_the_issuer_is_refused(agent: Agent, bob: MemoryUser) -> None:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.dumps(jwt.algorithms.RSAAlgorithm.to_jwk(PRIVATE_KEY.public_key()))
    for token in (
        token_for("nobody"),
        token_for("ada", aud=f"{BASE}/users/ada/mcp"),
        token_for("ada", aud="another client"),
        token_for("ada", iss="https://evil.example"),
        token_for("ada", exp=past),
        token_for("ada", key=other_key),
        token_for("ada", key=public, algorithm="HS256"),
        token_for("ada", key=None, algorithm="none"),
        token_for("ada")[:-5],
    ):
        assert agent.call(token).status_code == 401, jwt.decode_complete(
            token, options={"verify_signature": False}
        )
    of_bob = token_for("ada", aud=f"{BASE}/users/bob/mcp")
    assert agent.call(of_bob, "/users/bob/mcp").status_code == 401


@pytest.mark.usefixtures("own_issuer")
def test_the_api_does_not_take_a_token_of_the_issuer(agent: Agent) -> None:
    headers = {"Authorization": f"Bearer {token_for('ada')}"}

    assert Client().get("/v1/users/ada/manifest/", headers=headers).status_code == 401


@pytest.mark.usefixtures("own_issuer")
def test_keys_of_the_issuer_are_fetched_again_for_an_unknown_one_but_not_for_each_token(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = jwt.PyJWKClient.fetch_data
    fetched: list[int] = []

    def count_and_fetch(client: jwt.PyJWKClient) -> Any:
        fetched.append(1)
        return fetch(client)

    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", count_and_fetch)

    for key_id in ("one", "one", "two", "three"):
        agent.call(token_for("ada", key_id=key_id))
    assert len(fetched) == 1
    monkeypatch.setattr(issuer, "RETRY_SECONDS", 0.0)
    agent.call(token_for("ada"))
    assert len(fetched) == 1
    agent.call(token_for("ada", key_id="two"))
    assert len(fetched) == 2


@pytest.mark.usefixtures("own_issuer")
def test_known_keys_remain_valid_for_a_while_if_the_issuer_fails(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_error(agent.call(token_for("ada")))

    def fail(self: jwt.PyJWKClient) -> None:
        raise jwt.PyJWKClientConnectionError("no answer")

    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", fail)
    monkeypatch.setattr(issuer, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(issuer, "LIFETIME_SECONDS", 0.0)
    assert not is_error(agent.call(token_for("ada")))
    monkeypatch.setattr(issuer, "MAX_AGE_SECONDS", 0.0)
    assert agent.call(token_for("ada")).status_code == 401


def test_an_issuer_that_never_answers_delays_only_its_own_tokens(
    ada: MemoryUser, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = create_key(ada.workspace, "agent")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.UAC_MCP_ISSUER = ISSUER
        settings.UAC_MCP_JWKS_URL = f"http://127.0.0.1:{silent.getsockname()[1]}/jwks"
        settings.UAC_MCP_WORKSPACE = ada.workspace.name
        monkeypatch.setattr(issuer, "signing_keys", issuer.SigningKeys())
        monkeypatch.setattr(issuer, "TIMEOUT_SECONDS", scaled(60))

        async def ask() -> None:
            app = web.application(get_wsgi_application())
            async with (
                alive(app),
                httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client,
            ):

                async def status(token: str) -> int:
                    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
                    answer = await client.post("/mcp", json=CALL, headers=headers)
                    return answer.status_code

                of_issuer = [
                    asyncio.create_task(status(token_for("ada", key_id=str(number))))
                    for number in range(2 * web.THREADS)
                ]
                loop = asyncio.get_running_loop()
                connected = await loop.run_in_executor(None, silent.accept)
                assert await status(key) == 200
                assert not any(task.done() for task in of_issuer)
                connected[0].close()
                assert set(await asyncio.gather(*of_issuer)) == {401}
                assert await status(token_for("ada")) == 401

        asyncio.run(ask())
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_token_waits_a_limited_time_for_the_issuer(
    agent: Agent, ada: MemoryUser, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.UAC_MCP_ISSUER = ISSUER
    settings.UAC_MCP_JWKS_URL = f"{ISSUER}/jwks"
    settings.UAC_MCP_WORKSPACE = ada.workspace.name
    released = threading.Event()
    monkeypatch.setattr(issuer, "signing_keys", issuer.SigningKeys())
    monkeypatch.setattr(issuer, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", lambda self: released.wait() and None)

    try:
        assert agent.call(token_for("ada")).status_code == 401
        assert not issuer.signing_keys.is_due("one")
    finally:
        released.set()
