"""The official client signs in at the real server: staff approve it in the admin, and revoke it."""

import asyncio
import html
import re
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from mcp.client import Client as McpClient
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.mcp.conftest import told
from tests.browser import PASSWORD, STAFF, create_staff
from tests.waiting import scaled

REDIRECT = "http://127.0.0.1:33418/callback"


class Browser:
    """The browser of a member of the staff, at the client's sign-in."""

    def __init__(self, system: System, workspace: str) -> None:
        self.http = httpx2.AsyncClient(follow_redirects=True, timeout=scaled(60))
        self.system = system
        self.workspace = workspace
        self.answer: dict[str, list[str]] = {}

    async def approve(self, url: str) -> None:
        """Open the URL that the client opens, sign in, and approve the client for ada."""
        page = await self._submit(await self.http.get(url), login=STAFF, password=PASSWORD)
        [workspace] = re.findall(rf'value="(\d+)"[^>]*>{self.workspace}<', page.text)
        page = await self._submit(page, workspace=workspace, user_id="ada", scopes="read")
        [answer_url] = re.findall(r'content="0; url=([^"]+)"', page.text)
        self.answer = parse_qs(urlsplit(html.unescape(answer_url)).query)

    async def revoke(self) -> None:
        """Revoke the only connection in the admin."""
        url = f"{self.system.base_url}/admin/memory/agentconnection/"
        page = await self.http.get(url)
        [row] = re.findall(r'name="_selected_action" value="([^"]+)"', page.text)
        await self._submit(page, _selected_action=row, action="revoke", confirmed="1")

    async def _submit(self, page: httpx2.Response, **fields: str) -> httpx2.Response:
        assert page.status_code == 200, page.text
        token = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[-1]
        form = {"csrfmiddlewaretoken": token, **fields}
        return await self.http.post(str(page.url), data=form, headers={"Referer": str(page.url)})

    async def callback(self) -> AuthorizationCodeResult:
        """Return what the client's address was sent."""
        [code], [state], [issuer] = (self.answer[name] for name in ("code", "state", "iss"))
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)


class Storage:
    """Keeps the client's registration and tokens in memory."""

    tokens: Any = None
    client_info: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client_info

    async def set_client_info(self, client_info: Any) -> None:
        self.client_info = client_info


def test_the_official_client_signs_in_calls_and_is_revoked(system: System, client: Client) -> None:
    assert client.post("users/", {"user_id": "ada"})[0] in (201, 409)
    create_staff(system)
    browser, storage = Browser(system, "agents"), Storage()
    auth = OAuthClientProvider(
        f"{system.mcp_url}/mcp",
        OAuthClientMetadata(client_name="Chat", redirect_uris=[AnyUrl(REDIRECT)]),
        storage,
        browser.approve,
        browser.callback,
    )

    async def work() -> None:
        async with (
            httpx2.AsyncClient(auth=auth, timeout=scaled(60)) as http,
            McpClient(
                streamable_http_client(f"{system.mcp_url}/mcp", http_client=http)
            ) as connected,
        ):
            tools = {tool.name: tool for tool in (await connected.list_tools()).tools}
            assert "user_id" not in tools["get_manifest"].input_schema["properties"]
            assert not (await connected.call_tool("get_manifest", {})).is_error
            refused = await connected.call_tool("remember", {"text": "She moved to Rome."})
            assert "lacks the required scope" in told(refused)
        token = storage.tokens.access_token
        await browser.revoke()
        async with httpx2.AsyncClient() as http:
            answer = await http.post(
                urljoin(system.mcp_url, "/mcp"), headers={"Authorization": f"Bearer {token}"}
            )
        assert answer.status_code == 401

    asyncio.run(work())


@pytest.mark.parametrize("path", ["/mcp", "/users/ada/mcp"])
def test_metadata_is_public(system: System, path: str) -> None:
    url = f"{system.mcp_url}/.well-known/oauth-protected-resource{path}"

    assert httpx2.get(url).json()["authorization_servers"] == [system.mcp_url]
