"""A server with the process for agents, and the official client, over HTTP and over stdio."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from mcp.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.llm_server import Reply, Request, called, llm_server
from tests.system import LATE, Person, log_tasks, new_client, running_system
from tests.waiting import scaled

CHECKOUT = Path(__file__).parents[3]
# Longer than a signal takes, so that tests can tell a signal from a poll.
HEARTBEAT_SECONDS = 1
STREAMS = 4
SPENT = "sum(trip.cost for trip in trips if trip.on.year == 2026)"


def writes_the_query(request: Request) -> Reply:
    """Compute the total cost, then name that query as the answer."""
    return called("answer", {"query": 1}) if request.results else called("query", {"code": SPENT})


@pytest.fixture(scope="package")
def system() -> Iterator[System]:
    """A server whose model knows one query; its streams send many heartbeats."""
    with llm_server(script=writes_the_query) as llm:
        environment = {
            **llm.environment,
            # Messages are not processed: these tests are about queries.
            "UAC_STRUCTURE_IDLE_SECONDS": "900",
            "UAC_EVENT_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
            "UAC_EVENT_STREAMS": str(STREAMS),
        }
        with running_system(mcp=True, llm_workers=1, environment=environment) as system:
            yield system
            system.check()


@pytest.fixture(scope="package")
def client(system: System) -> Client:
    return new_client(system, "agents")


@dataclass(frozen=True)
class Agents:
    """Connect agents to the server: over HTTP, in both eras of the protocol, or over stdio."""

    system: System
    key: str
    transport: str

    @asynccontextmanager
    async def connected(self, user: str | None = None) -> AsyncIterator[McpClient]:
        """Connect, bound to a user if one is named."""
        if self.transport == "stdio":
            bound = [] if user is None else ["--user", user]
            parameters = StdioServerParameters(
                command=sys.executable,
                args=["manage.py", "mcp", *bound],
                # The client has the server's address and key, but no database and no secret.
                env={
                    "UAC_URL": self.system.base_url,
                    "UAC_KEY": self.key,
                    "PATH": os.environ["PATH"],
                },
                cwd=CHECKOUT,
            )
            async with McpClient(stdio_client(parameters)) as client:
                yield client
            return
        path = "/mcp" if user is None else f"/users/{quote(user, safe='')}/mcp"
        mode = "legacy" if self.transport == "http, with handshake" else "auto"
        async with (
            httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {self.key}"}, timeout=scaled(60)
            ) as http,
            McpClient(
                streamable_http_client(f"{self.system.mcp_url}{path}", http_client=http), mode=mode
            ) as client,
        ):
            yield client


@pytest.fixture(params=["http", "http, with handshake", "stdio"])
def agents(request: pytest.FixtureRequest, system: System, client: Client) -> Agents:
    return Agents(system, client.key, request.param)


def told(result: Any) -> str:
    """Return the text that a model reads in a tool's result."""
    (content,) = result.content
    return str(content.text)


def with_alerts(person: Person, *late: int) -> None:
    """Raise alerts about tasks that are so many days late."""
    log_tasks(person, *[0] * len(late))
    person.write_constraint("late", LATE)
    log_tasks(person, *late)
