"""Alerts reach a client that subscribes over MCP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.mcp.conftest import CHECKOUT, with_alerts
from tests.system import create_person
from tests.waiting import scaled

PACKAGE = CHECKOUT / "clients" / "python" / "src"


@asynccontextmanager
async def connected(system: System, key: str, path: str) -> AsyncIterator[McpClient]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=scaled(60)) as http,
        McpClient(streamable_http_client(f"{system.mcp_url}{path}", http_client=http)) as mcp,
    ):
        yield mcp


@pytest.mark.parametrize("path", ["/mcp", "/users/lena/mcp"])
def test_a_client_that_subscribes_is_told_of_its_own_alerts_alone(
    system: System, client: Client, path: str
) -> None:
    lena = create_person(client, f"lena{len(path)}" if path == "/mcp" else "lena")
    other = create_person(client, f"other{len(path)}")
    uri = f"uac://users/{lena.user_id}/alerts"

    async def work() -> None:
        async with (
            connected(system, client.key, path) as mcp,
            mcp.listen(resource_subscriptions=[uri]) as subscription,
        ):
            # When another user has an alert, and then this one
            await asyncio.to_thread(with_alerts, other, 2)
            await asyncio.to_thread(with_alerts, lena, 3)
            async with asyncio.timeout(scaled(30)):
                event = await anext(aiter(subscription))
            # Then the client is told of this one, and reads it
            assert getattr(event, "uri", None) == uri
            [content] = (await mcp.read_resource(uri)).contents
            [alert] = json.loads(getattr(content, "text", ""))
            assert alert["user_id"] == lena.user_id

    asyncio.run(work())
