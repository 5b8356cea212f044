"""The application for agents in this process: keys in clear text, ids of requests, faults."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from django.core.checks import run_checks
from django.core.wsgi import get_wsgi_application
from pytest_django.fixtures import Settings
from starlette.types import ASGIApp, Message

from memory.integrations.mcp import web
from memory.kernel.http.problems import CONTENT_TYPE
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.workspaces import create_key

CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "get_manifest", "arguments": {"user_id": "ada"}},
}


@asynccontextmanager
async def alive(app: ASGIApp) -> AsyncIterator[None]:
    """Run the application's lifespan, as a server does."""
    said: asyncio.Queue[Message] = asyncio.Queue()
    answered: asyncio.Queue[Message] = asyncio.Queue()
    running = asyncio.ensure_future(app({"type": "lifespan"}, said.get, answered.put))
    await said.put({"type": "lifespan.startup"})
    assert (await answered.get())["type"] == "lifespan.startup.complete"
    yield
    await said.put({"type": "lifespan.shutdown"})
    await running


@pytest.fixture
def ask(workspace: Workspace, user: MemoryUser) -> Callable[..., httpx2.Response]:
    """Call a tool in this process, at an address."""
    _, key = create_key(workspace, "agent")

    async def do(url: str, body: Any, headers: dict[str, str]) -> httpx2.Response:
        app = web.application(get_wsgi_application())
        sent = {"Authorization": f"Bearer {key}", "Accept": "application/json", **headers}
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with alive(app), httpx2.AsyncClient(transport=transport) as client:
            return await client.post(url, json=body, headers=sent)

    def asked(url: str, body: Any = CALL, **headers: str) -> httpx2.Response:
        answer = asyncio.run(do(url, body, headers))
        for thread in threading.enumerate():
            if thread.name.startswith("api"):
                thread.join()  # the server does not wait for the requests that are left
        gc.collect()  # closes what the ended threads had open to the database
        return answer

    return asked


def text_of(response: httpx2.Response) -> Any:
    assert response.status_code == 200, response.text
    (content,) = response.json()["result"]["content"]
    return content["text"]


def test_in_production_a_key_is_taken_over_tls_alone(
    live_database: str, ask: Callable[..., httpx2.Response], settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = True

    refused = ask("http://testserver/mcp")
    assert (refused.status_code, "https" in refused.json()["detail"]) == (403, True)
    assert text_of(ask("https://testserver/mcp")).startswith("Domains")


def test_a_proxy_that_terminates_tls_is_believed_if_there_is_one(
    live_database: str, ask: Callable[..., httpx2.Response], settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    proxied = {"X-Forwarded-Proto": "https"}
    assert ask("http://testserver/mcp", **proxied).status_code == 403

    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert text_of(ask("http://testserver/mcp", **proxied))
    assert ask("https://testserver/mcp", **{"X-Forwarded-Proto": "http"}).status_code == 403


def test_a_request_and_what_it_asks_of_the_api_have_one_name(
    live_database: str, ask: Callable[..., httpx2.Response]
) -> None:
    unknown = {**CALL["params"], "arguments": {"user_id": "nobody"}}

    answer = ask("http://testserver/mcp", {**CALL, "params": unknown}, **{"X-Request-Id": "o-17"})

    told = answer.json()["result"]["structuredContent"]
    assert (told["status"], told["request_id"]) == (404, "o-17")
    assert answer.headers["X-Request-Id"] == "o-17"


def test_a_fault_of_ours_is_a_problem_as_everywhere(
    live_database: str, ask: Callable[..., httpx2.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(text: str) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(web, "find_key", fail)

    answer = ask("http://testserver/mcp")

    assert (answer.status_code, answer.headers["Content-Type"]) == (500, CONTENT_TYPE)
    told = answer.json()
    assert told["type"].endswith(":server-error")
    assert told["request_id"] == answer.headers["X-Request-Id"]
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("name", "value"), [("UAC_EVENT_HEARTBEAT_SECONDS", 0.0), ("UAC_EVENT_STREAMS", -1)]
)
def test_invalid_settings_are_refused(settings: Settings, name: str, value: float) -> None:
    assert "uac.E018" not in {found.id for found in run_checks(tags=["uac"])}
    setattr(settings, name, value)
    assert "uac.E018" in {found.id for found in run_checks(tags=["uac"])}
