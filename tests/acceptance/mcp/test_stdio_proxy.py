"""The client package serves MCP over stdio, without a checkout of the server."""

import asyncio
import os
import sys

from mcp.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.mcp.conftest import CHECKOUT, told
from tests.system import create_person

PACKAGE = CHECKOUT / "clients" / "python" / "src"


def test_the_client_package_serves_mcp_over_stdio(system: System, client: Client) -> None:
    person = create_person(client, "stella")
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from userascode.cli import main; main()", "mcp", "--user", person.user_id],
        env={
            "UAC_URL": system.base_url,
            "UAC_MCP_URL": system.mcp_url,
            "UAC_KEY": client.key,
            "PYTHONPATH": str(PACKAGE),
            "PATH": os.environ["PATH"],
        },
    )

    async def work() -> None:
        async with McpClient(stdio_client(parameters)) as mcp:
            assert {tool.name for tool in (await mcp.list_tools()).tools} >= {"remember", "ask"}
            assert not (await mcp.call_tool("remember", {"text": "Stella likes tea."})).is_error
            assert "tea" in told(await mcp.call_tool("search_memory", {"query": "tea"}))

    asyncio.run(work())
