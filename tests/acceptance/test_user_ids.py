"""Ids as other products use them, through the real web servers: REST, git, agents and mem0."""

import asyncio
import base64
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from mcp.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.system import EVERYTHING, new_client, ok, running_system
from tests.waiting import scaled

IDS = [
    "https://idp.example.com/tenants/4 2?sub=7#me",
    "Anna-Marié O'Brien",
    "山田 太郎/1",
    "100%",
    "a%2Fb",
    "dXNlcjoxMjM=",
    "名" * 256,
]


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with running_system(mcp=True) as system:
        yield system


@pytest.fixture(scope="module")
def client(system: System) -> Client:
    return new_client(system, "ids", *EVERYTHING)


@pytest.fixture(params=IDS, ids=lambda user_id: user_id[:20])
def path(request: pytest.FixtureRequest, client: Client) -> Iterator[str]:
    """The path of a user with a record, without the version."""
    user_id = request.param
    ok(client.request("POST", "users/", {"user_id": user_id}))
    path = f"users/{quote(user_id, safe='')}/"
    record = {"kind": "record", "domain": "work", "type": "Task", "key": "t", "data": {"days": 3}}
    told = ok(client.request("POST", f"{path}entries/?wait=100", record))
    assert told["entries"][0]["state"] == "covered"
    assert ok(client.request("GET", path))["user_id"] == user_id
    yield path
    ok(client.request("DELETE", f"{path}?reason=asked"))
    assert client.request("GET", path)[0] == 404


def test_git(system: System, client: Client, path: str, tmp_path: Path) -> None:
    basic = base64.b64encode(f"x:{client.key}".encode()).decode()
    done = subprocess.run(
        [
            *("git", "-c", f"http.extraHeader=Authorization: Basic {basic}"),
            *("clone", f"{system.base_url}/v1/{path}git", str(tmp_path / "cloned")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cloned/domains/work/state.py").exists()


def test_agents_and_events(system: System, client: Client, path: str) -> None:
    user_id = ok(client.request("GET", path))["user_id"]
    headers = {"Authorization": f"Bearer {client.key}"}

    async def ask(address: str, **who: str) -> list[Any]:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=scaled(60)) as http,
            McpClient(
                streamable_http_client(f"{system.mcp_url}{address}", http_client=http)
            ) as agent,
        ):
            manifest = await agent.call_tool("get_manifest", who)
            assert not manifest.is_error, manifest.content
            value = await agent.call_tool(
                "run_query", {**who, "code": "sum(t.days for t in tasks)"}
            )
            assert not value.is_error, value.content
            listed = await agent.list_resources()
            texts = [await agent.read_resource(one.uri) for one in listed.resources[:2]]
            return [value.structured_content["value"], len(texts)]

    assert asyncio.run(ask("/mcp", user_id=user_id)) == [3, 0]
    assert asyncio.run(ask(f"/{path}mcp")) == [3, 2]
    stream = urllib.request.Request(f"{system.mcp_url}/{path}events/", headers=headers)
    with urllib.request.urlopen(stream, timeout=scaled(60)) as answer:
        assert answer.status == 200


def test_mem0(system: System, client: Client, path: str) -> None:
    user_id = ok(client.request("GET", path))["user_id"]

    def call(method: str, path: str, body: Any = None) -> Any:
        with httpx2.Client(
            headers={"Authorization": f"Token {client.key}"}, timeout=scaled(60)
        ) as http:
            answer = http.request(method, f"{system.base_url}/mem0/{path}", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

    call(
        "POST",
        "v3/memories/add/",
        {"messages": [{"role": "user", "content": "tea"}], "user_id": user_id, "infer": False},
    )
    [found] = call("POST", "v3/memories/", {"filters": {"user_id": user_id}})["results"]
    assert (found["memory"], found["user_id"]) == ("tea", user_id)
    assert call("DELETE", f"v1/memories/?user_id={quote(user_id, safe='')}")["deleted"] == 1
