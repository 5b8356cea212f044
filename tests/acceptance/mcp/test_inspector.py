"""The MCP Inspector's command line, with which developers try a server."""

import json
import os
import subprocess
from typing import Any

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from memory.integrations.mcp.prompts import PROMPTS
from memory.integrations.mcp.tools import TOOLS
from tests.framework_venvs import NODE, node_modules_with
from tests.system import Person, record
from tests.waiting import scaled

INSPECTOR = "@modelcontextprotocol/inspector@^2.12"

pytestmark = pytest.mark.timeout(600)


def inspect(system: System, key: str, method: str, *options: str) -> Any:
    """Return what the inspector prints."""
    program = str(node_modules_with([INSPECTOR]) / ".bin" / "mcp-inspector")
    url = f"{system.mcp_url}/mcp"
    command = [str(NODE), program, "--cli", url, "--transport", "http"]
    ended = subprocess.run(
        [*command, "--header", f"Authorization: Bearer {key}", "--method", method, *options],
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(120),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def test_it_lists_all_and_calls_a_tool(system: System, client: Client, person: Person) -> None:
    person.log(record("Trip", "rome", domain="travel", to="Rome", cost=840))

    # With --strict, it fails for a schema that some models do not accept
    listed = inspect(system, client.key, "tools/list", "--strict")
    prompts = inspect(system, client.key, "prompts/list")
    user = f"user_id={person.user_id}"
    called = inspect(
        system,
        client.key,
        *("tools/call", "--tool-name", "run_query"),
        *("--tool-arg", user, "--tool-arg", "code=sum(trip.cost for trip in trips)"),
    )

    assert {tool["name"] for tool in listed["tools"]} == set(TOOLS)
    assert {prompt["name"] for prompt in prompts["prompts"]} == set(PROMPTS)
    assert called["structuredContent"]["value"] == 840
