"""Hooks of coding agents: what each host sends, and what it gets."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from userascode import Client, record
from userascode.cli import main
from userascode.errors import UserAsCodeError
from userascode.hooks import HOSTS, respond

from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.workspaces import create_key
from tests.integration.agents.test_memory import UNPAID, Worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(work: Callable[[], None], workspace: Workspace) -> Client:
    _, key = create_key(workspace, "agent", [Scope.READ, Scope.WRITE])
    client = Client("http://testserver", key, transport=Worker(work), timeout=1)
    client.users.create("ada")
    return client


# For each host: its events at the start, a prompt and an answer, and where it reads context.
EVENTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "claude-code": (
        {"hook_event_name": "SessionStart", "session_id": "s", "source": "startup"},
        {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "Call Dr. Brown."},
        {"hook_event_name": "Stop", "session_id": "s", "last_assistant_message": "I did."},
    ),
    "cursor": (
        {"hook_event_name": "sessionStart", "conversation_id": "s"},
        {
            "hook_event_name": "beforeSubmitPrompt",
            "conversation_id": "s",
            "prompt": "Call Dr. Brown.",
        },
        {"hook_event_name": "afterAgentResponse", "conversation_id": "s", "text": "I did."},
    ),
}
EVENTS["codex"] = EVENTS["claude-code"]


def context_in(host: str, output: dict[str, Any]) -> str:
    if host == "cursor":
        return str(output["additional_context"])
    return str(output["hookSpecificOutput"]["additionalContext"])


@pytest.mark.parametrize("host", list(HOSTS))
def test_a_session_gets_context_and_its_exchange_is_remembered(client: Client, host: str) -> None:
    ada = client.user("ada")
    ada.add({"kind": "fact", "content": "Dr. Brown is Ada's dentist."})
    start, prompt, answer = EVENTS[host]

    assert context_in(host, respond(ada, HOSTS[host], start))
    assert "dentist" in context_in(host, respond(ada, HOSTS[host], prompt))
    assert respond(ada, HOSTS[host], answer) == {}

    said = [entry for entry in ada.entries.list() if entry.kind == "message"]
    assert [(one.role, one.content, one.session_id) for one in said] == [
        ("user", "Call Dr. Brown.", "s"),
        ("assistant", "I did.", "s"),
    ]


def test_open_alerts_are_a_notice_where_the_host_shows_one(client: Client) -> None:
    ada = client.user("ada")
    ada.add(record("work", "Bill", "a", name="rent", due="2026-01-02", cost=3))
    ada.constraints.put("unpaid", source=UNPAID["source"], tests=UNPAID["tests"])

    started = {host: respond(ada, HOSTS[host], EVENTS[host][0]) for host in HOSTS}

    assert started["claude-code"]["systemMessage"] == "warning: rent is due"
    assert "rent is due" in context_in("cursor", started["cursor"])
    assert list(started["cursor"]) == ["additional_context"]


def test_other_events_and_empty_ones_do_nothing(client: Client) -> None:
    ada = client.user("ada")

    for event in ({}, {"hook_event_name": "PreToolUse"}, {"hook_event_name": "Stop"}):
        assert respond(ada, HOSTS["codex"], event) == {}
    assert not list(ada.entries.list())


def test_prompt_is_remembered_though_its_context_fails(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = client.user("ada")

    def fail(*arguments: object, **options: object) -> None:
        raise UserAsCodeError("busy")

    monkeypatch.setattr(type(ada), "context", fail)

    with pytest.raises(UserAsCodeError):
        respond(ada, HOSTS["codex"], EVENTS["codex"][1])
    assert [entry.content for entry in ada.entries.list()] == [EVENTS["codex"][1]["prompt"]]


@pytest.mark.parametrize("arguments", [["codex"], ["vim", "--user", "ada"], []])
def test_a_mistake_in_the_command_does_not_block_the_agent(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["hook", *arguments], input="{}")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("userascode: ")


@pytest.mark.parametrize("sent", ["", "[", json.dumps(EVENTS["codex"][0])])
def test_an_agent_goes_on_without_its_memory(sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userascode.cli.HOOK_SECONDS", 0.01)
    options = ["--url", "http://127.0.0.1:9", "--key", "uac_none", "hook", "codex", "--user", "ada"]

    result = CliRunner().invoke(main, options, input=sent)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("userascode: ")
