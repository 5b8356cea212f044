"""The core of `userascode-agents`: in every turn, whatever happens to the server."""

import datetime
import logging
from collections.abc import Callable

import httpx
import pytest
from rest_framework.test import APIClient
from userascode import Client, record
from userascode_agents import Memory, Message

from memory.constraints import forecasts
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.workspaces import create_key
from tests.constraints import make_rule
from workers import tasks

pytestmark = pytest.mark.django_db

HELLO = Message("user", "My dentist is Dr. Brown.")
NOTED = Message("assistant", "Noted.")
WHO = Message("user", "Who is my dentist?")
UNPAID = make_rule(
    "unpaid",
    "work.Bill",
    "bill.due <= today",
    "{bill.name} is due",
    fires='name="a", cost=3, due=TODAY',
    silent='name="a", cost=3, due=datetime.date(2026, 2, 1)',
)


class Worker(httpx.BaseTransport):
    """The server in this process, whose work is done at once instead of waited for."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.server = APIClient()
        self.work = work
        self.requests: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        url = request.url
        if "wait" in url.params:  # nobody works meanwhile
            url = url.copy_set_param("wait", "0")
        answer = self.server.generic(
            request.method,
            url.raw_path.decode(),
            request.read().decode(),
            content_type=request.headers.get("Content-Type", "application/json"),
            headers=dict(request.headers),
        )
        if answer.status_code == 202:
            self.work()
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.fixture
def worker(work: Callable[[], None]) -> Worker:
    def forecast_too() -> None:
        work()
        for waiting in forecasts.waiting():
            tasks.work("forecasts", waiting.user_id)

    return Worker(forecast_too)


@pytest.fixture
def client(worker: Worker, workspace: Workspace) -> Client:
    _, key = create_key(workspace, "agent", [Scope.READ, Scope.WRITE])
    return Client("http://testserver", key, transport=worker, timeout=1)


@pytest.fixture
def memory(client: Client) -> Memory:
    return Memory("ada", session_id="monday", agent_id="clerk", client=client)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setattr("userascode.protocol.FIRST_DELAY", 0.001)
    client = Client("http://127.0.0.1:9", "uac_none", timeout=0.01)
    return Memory("ada", client=client)


def log_of(memory: Memory) -> list[tuple[str | None, str | None]]:
    return [(entry.role, entry.content) for entry in memory.user.entries.list()]


def test_only_the_last_turn_is_remembered_and_only_once(memory: Memory, client: Client) -> None:
    # Given a conversation whose first turn was remembered, of a user that nobody had created
    memory.remember_turn([HELLO, NOTED])
    # When the second ends, and the agent is run for it once more
    for _ in range(2):
        memory.remember_turn([HELLO, NOTED, WHO, Message("assistant", "Dr. Brown.")])
    # Then each message is there once, with its author, conversation and agent
    turns = [
        ("user", HELLO.text),
        ("assistant", NOTED.text),
        ("user", WHO.text),
        ("assistant", "Dr. Brown."),
    ]
    assert log_of(memory) == turns
    [first, *_] = memory.user.entries.list()
    assert (first.kind, first.session_id, first.agent_id) == ("message", "monday", "clerk")
    # And the same words in another conversation, or again in this one, are said again
    Memory("ada", session_id="tuesday", client=client).remember_turn([HELLO, NOTED])
    memory.remember_turn([HELLO, NOTED, WHO, Message("assistant", "Dr. Brown."), HELLO])
    assert log_of(memory) == [*turns, *turns[:2], turns[0]]


def test_alerts_forecasts_and_what_was_said_are_in_the_turn(
    memory: Memory, client: Client, worker: Worker
) -> None:
    # Given a constraint that fires for one record and will for another, and something that was said
    client.users.create("ada")
    soon = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=10)
    memory.user.add(
        record("work", "Bill", "a", name="rent", cost=3, due="2026-01-02"),
        record("work", "Bill", "b", name="power", cost=3, due=soon.isoformat()),
        HELLO.text,
    )
    memory.user.constraints.put("unpaid", source=UNPAID["source"], tests=UNPAID["tests"])
    # When the agent is asked for something else
    text = memory.brief([NOTED, WHO])
    # Then the model knows all of them, by one reading for all its calls in the turn
    assert "warning: rent is due [1]" in text
    assert f"- {soon}: unpaid (warning) about work.bills:b" in text
    assert "Dr. Brown. [3]" in text
    before = len(worker.requests)
    assert memory.brief([NOTED, WHO, Message("assistant", "Let me see.")]) == text
    assert len(worker.requests) == before
    assert memory.brief([NOTED]) == ""


def test_tools_answer_and_say_what_is_wrong(memory: Memory, client: Client) -> None:
    client.users.create("ada")
    memory.user.add(record("work", "Bill", "a", name="rent", due="2026-01-02", cost=3))
    memory.user.constraints.put("unpaid", source=UNPAID["source"], tests=UNPAID["tests"])
    remember, recall, compute, alerts = memory.tools

    assert remember("Ada likes tea.") == remember("Ada likes tea.") == "Remembered as entry 2."
    assert "Ada likes tea." in recall("tea")
    assert '"value": 3' in compute("sum(bill.cost for bill in bills)")
    assert '"sources": [[1]]' in compute("sum(bill.cost for bill in bills)")
    assert recall("").startswith("Error: ")
    assert alerts().startswith("warning: rent is due [1]")


def test_an_agent_goes_on_without_its_memory(
    broken: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "userascode_agents"):
        assert broken.brief([HELLO]) == ""
        broken.remember_turn([HELLO, NOTED])

    assert [record.name for record in caplog.records] == ["userascode_agents"] * 2
    assert [tool("tea").startswith("Error: ") for tool in broken.tools[:2]] == [True] * 2


class Unreachable(httpx.BaseTransport):
    """A server that refuses connections, and counts them."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        raise httpx.ConnectError("refused")


def test_an_agent_waits_once_for_a_server_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userascode.protocol.FIRST_DELAY", 0.001)
    server = Unreachable()
    client = Client("http://testserver", "uac_none", timeout=0.01, transport=server)
    memory = Memory("ada", client=client)

    assert memory.brief([WHO]) == ""
    asked = len(server.requests)
    assert memory.recall("dentist").startswith("Error: ")
    assert Memory("grace", client=client).brief([WHO]) == ""

    assert len(server.requests) == asked
    # But what was said is worth another attempt, and so is everything after a while.
    memory.remember_turn([WHO])
    assert server.requests[-1] == "POST /v1/users/ada/entries/"
    monkeypatch.setattr("userascode_agents.memory.PAUSE", 0.0)
    memory.remember_turn([WHO])
    memory.recall("dentist")
    assert server.requests[-1] == "POST /v1/users/ada/search/"
