"""The process for agents checks access before any tool or event is reached."""

import asyncio
import dataclasses
import http.client
import json
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp.shared.exceptions import MCPError

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.mcp.conftest import CHECKOUT, Agents, told
from tests.waiting import polled, scaled

LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ADDRESSES = [("POST", "/mcp"), ("POST", "/users/ada/mcp"), ("GET", "/events/")]


def ask(
    system: System,
    method: str,
    path: str,
    body: Any = LIST_TOOLS,
    **headers: str,
) -> tuple[int, dict[str, str], Any]:
    """Send a request; return status, headers and the answer's JSON."""
    connection = http.client.HTTPConnection(urlsplit(system.mcp_url).netloc, timeout=scaled(60))
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(
            method,
            path,
            sent if method == "POST" else None,
            {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                **headers,
            },
        )
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        if found.get("content-type") == "text/event-stream":
            return answer.status, found, None
        content = answer.read()
        is_json = found.get("content-type", "").endswith("json")
        return answer.status, found, json.loads(content) if is_json else None
    finally:
        connection.close()


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
def test_only_callers_with_a_key_are_let_in(
    system: System, client: Client, method: str, path: str
) -> None:
    assert client.post("users/", {"user_id": "ada"})[0] in (201, 409)
    good = client.key

    assert ask(system, method, path, Authorization=f"Bearer {good}")[0] == 200
    assert ask(system, method, path, Authorization=f"bearer  {good}")[0] == 200
    for sent in ({}, {"Authorization": good}, {"Authorization": f"Basic {good}"}):
        status, headers, problem = ask(system, method, path, **sent)
        assert status == 401
        assert headers["www-authenticate"].startswith('Bearer realm="uac"')
        assert "send 'Authorization: Bearer uac_" in problem["detail"]
        assert problem["request_id"] == headers["x-request-id"]
    for wrong in ("Bearer", "Bearer x", f"Bearer {good[:-1]}", f"Bearer {good} x", "Bearer é"):
        status, _, problem = ask(system, method, path, Authorization=wrong)
        assert (status, problem["title"]) == (401, "Unauthorized")


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
def test_a_foreign_host_and_a_foreign_origin_are_refused(
    system: System, client: Client, method: str, path: str
) -> None:
    key = f"Bearer {client.key}"

    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "a b", ""):
        status, _, problem = ask(system, method, path, Authorization=key, Host=host)
        assert (status, problem["status"]) == (421, 421), host
    for origin in ("https://evil.example", "null", "", "http://a@127.0.0.1", "http://["):
        status, _, problem = ask(system, method, path, Authorization=key, Origin=origin)
        assert (status, "origin" in problem["detail"]) == (403, True), origin
    for ours in ("http://127.0.0.1:5173", "http://localhost"):
        assert ask(system, method, path, Authorization=key, Origin=ours)[0] == 200


def test_request_outside_the_protocol_is_refused(system: System, client: Client) -> None:
    key = f"Bearer {client.key}"

    for method in ("GET", "DELETE", "PUT"):
        named = {"Authorization": key, "X-Request-Id": "order-17"}
        status, headers, problem = ask(system, method, "/mcp", **named)
        assert (status, headers["allow"]) == (405, "POST")
        assert problem["request_id"] == headers["x-request-id"] == "order-17"
    for body in (b"", b"{", b"[]", b"\xff", b'{"jsonrpc": "2.0"}', b"[" * 100_000):
        assert ask(system, "POST", "/mcp", body, Authorization=key)[0] == 400, body[:20]
    large = {"Content-Length": str(8 * 1024 * 1024 + 1)}
    assert ask(system, "POST", "/mcp", b"{", Authorization=key, **large)[0] == 413
    assert ask(system, "GET", "/elsewhere", Authorization=key)[0] == 404
    # And it answers as before.
    status, _, answer = ask(system, "POST", "/mcp", Authorization=key)
    assert (status, len(answer["result"]["tools"]) > 10) == (200, True)


def test_health_is_told_without_a_key(system: System) -> None:
    assert ask(system, "GET", "/livez")[::2] == (200, {"status": "ok"})
    assert ask(system, "GET", "/readyz")[::2] == (200, {"database": "ok", "redis": "ok"})


def test_missing_database_is_reported_with_retry_after(system: System, client: Client) -> None:
    ask(system, "POST", "/mcp", Authorization=f"Bearer {client.key}")  # it is connected
    system.stop("postgres")
    try:
        for method, path in ADDRESSES:
            for _ in range(2):  # whose connection has ended, and who gets none
                status, headers, problem = ask(
                    system, method, path, Authorization=f"Bearer {client.key}"
                )
                assert (status, headers["retry-after"]) == (503, "1"), problem
                assert "The database is not responding" in problem["detail"]
    finally:
        system.start("postgres")

    answers = polled(
        lambda: [
            ask(system, *each, Authorization=f"Bearer {client.key}")[0] for each in ADDRESSES[:2]
        ],
        lambda statuses: statuses[0] == 200,
    )
    assert answers[0] == 200


def test_over_stdio_what_is_missing_is_said() -> None:
    alien = {"UAC_URL": "http://127.0.0.1:1", "UAC_KEY": "é"}
    for variables in ({}, {"UAC_URL": "http://127.0.0.1:1"}, {"UAC_KEY": "uac_0_x"}, alien):
        ended = subprocess.run(
            [sys.executable, "manage.py", "mcp"],
            cwd=CHECKOUT,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(240),
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "Set UAC_URL to the server's URL and UAC_KEY to an API key." in ended.stderr


@pytest.mark.parametrize(
    ("url", "key", "said"),
    [
        ("http://127.0.0.1:1", "uac_0_x", "is not responding"),
        ("127.0.0.1", "uac_0_x", "is not responding"),
        ("http://[", "uac_0_x", "is not responding"),
        ("{mcp}", "{good}", "the API is served at another URL"),
        ("{web}", "uac_0_x", "The API key is unknown"),
    ],
)
def test_over_stdio_a_wrong_address_or_key_is_an_answer(
    system: System, client: Client, url: str, key: str, said: str
) -> None:
    base_url = url.format(mcp=system.mcp_url, web=system.base_url)
    key = key.format(good=client.key)
    agents = Agents(dataclasses.replace(system, base_url=base_url), key, "stdio")

    async def work() -> None:
        async with agents.connected("ada") as mcp:
            result = await mcp.call_tool("get_manifest", {})
            assert result.is_error
            assert said in told(result)
            with pytest.raises(MCPError, match=said):
                await mcp.list_resources()

    asyncio.run(work())
