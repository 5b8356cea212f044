"""The examples of `userascode-agents`, each with the real framework, a real server and a model.

What they show is the table in docs/integrations.md.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from userascode import Client, record

from deploy.embedded.system import System
from tests.api_tour import RULE, TESTS, key_of
from tests.framework_venvs import (
    NODE,
    PACKAGES,
    ROOT,
    compile_ai_sdk,
    environment,
    extra_of,
    python_with,
)
from tests.llm_server import KEY, LlmServer, Reply, Request, called, llm_server, said
from tests.typescript_client import run_tests
from tests.waiting import scaled

EXAMPLES = PACKAGES[1] / "src" / "userascode_agents" / "examples"
WARNING = "report is 3 days late"


@dataclass(frozen=True)
class Framework:
    """A framework: its title in the table, and what its example needs beside its extra."""

    title: str
    extra: str
    needs: tuple[str, ...] = ()

    def python(self) -> Path:
        return python_with([*extra_of(self.extra), *self.needs])


FRAMEWORKS: Mapping[str, Framework] = {
    "langgraph": Framework("LangGraph", "langgraph", ("langchain-openai",)),
    "langchain": Framework("LangChain", "langchain", ("langchain-openai",)),
    "pydantic_ai": Framework("Pydantic AI", "pydantic-ai", ("pydantic-ai-slim[openai]",)),
    "openai_agents": Framework("OpenAI Agents SDK", "openai-agents"),
    "llama_index": Framework("LlamaIndex", "llama-index", ("llama-index-llms-openai",)),
    "crewai": Framework("CrewAI", "crewai"),
    "claude": Framework("Claude", "claude"),
    "google_adk": Framework("Google ADK", "google-adk"),
}

AI_SDK = "ai_sdk"
TITLES = {**{name: one.title for name, one in FRAMEWORKS.items()}, AI_SDK: "Vercel AI SDK"}

pytestmark = pytest.mark.timeout(1200)


def reply(request: Request) -> Reply:
    """Call the tool that the user's message is about, and repeat its result."""
    text = text_of_user(request)
    if "Who" in text:
        return called("recall", {"query": "dentist"})
    if "How many" in text:
        return called("compute", {"code": "sum(task.days for task in tasks)"})
    return said("Noted." if text else f"I found this: {request.results[-1]}")


def text_of_user(request: Request) -> str:
    """Return the user's text that is to be answered; nothing if there are results of tools."""
    if request.protocol == "google":
        return "".join(part.get("text", "") for part in request.body["contents"][-1]["parts"])
    message = request.body["messages"][-1]
    is_text = message["role"] == "user" and isinstance(message["content"], str)
    return str(message["content"]) if is_text else ""


@pytest.fixture
def model() -> Iterator[LlmServer]:
    with llm_server(script=reply) as server:
        yield server


@pytest.fixture(scope="module")
def key(system: System) -> str:
    return key_of(system, "agents")


def program_of(name: str, folder: Path) -> list[Path]:
    """Return the example of a framework; what has to be compiled is in the folder."""
    if name == AI_SDK:
        return [NODE, compile_ai_sdk(folder) / "examples" / "chat.js"]
    return [FRAMEWORKS[name].python(), EXAMPLES / f"{name}_agent.py"]


def converse(
    program: list[Path], user_id: str, model: LlmServer, *lines: str, **variables: str
) -> str:
    """Return what an example prints in a new process."""
    ended = subprocess.run(
        [*program, user_id],
        env={
            "PATH": os.environ["PATH"],
            "OPENAI_BASE_URL": model.openai_url,
            "OPENAI_API_BASE": model.openai_url,
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": model.url,
            "GOOGLE_API_KEY": KEY,
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "MODEL": "gpt-4o-mini",  # a name that all frameworks know
            **environment(),
            **variables,
        },
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(240),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def row_of(title: str) -> list[str]:
    """Return a framework's row of the table."""
    page = (ROOT / "docs" / "integrations.md").read_text()
    [row] = re.findall(rf"^\| \[?{re.escape(title)}\b.*$", page, re.MULTILINE)
    return [cell.strip() for cell in row.strip("|").split("|")][1:5]


@pytest.mark.parametrize("name", TITLES)
def test_the_example_shows_what_the_table_says(
    name: str, tmp_path: Path, system: System, key: str, model: LlmServer
) -> None:
    program = program_of(name, tmp_path)
    # Given a user with an open alert, of which a first conversation says nothing
    user_id = f"agent:{name}"
    client = Client(system.base_url, key)
    client.users.create(user_id)
    user = client.user(user_id)
    user.add(record("work", "Task", "a", name="report", days=3), wait=60)
    user.constraints.put("late", source=RULE, tests=TESTS)
    server = {"UAC_URL": system.base_url, "UAC_KEY": key}
    # Whose memory cannot be read at first, and the agent goes on
    wrong_key = {**server, "UAC_KEY": "uac_wrong"}
    assert converse(program, user_id, model, "Hello.", **wrong_key) == "Noted.\n"
    model.requests.clear()
    first = converse(program, user_id, model, "My dentist is Dr. Brown.", **server)
    [request] = model.requests
    # When a second conversation asks for what was said, and for a number
    questions = ("Who is my dentist?", "How many days late am I?")
    second = converse(program, user_id, model, *questions, **server)
    # Then both are remembered, with their roles, and nothing else
    entries = [one for one in user.entries.list() if one.kind == "message"]
    exchanges = [(one.role, one.content) for one in entries]
    remembers = [*exchanges[:3], exchanges[4]] == [
        ("user", "My dentist is Dr. Brown."),
        ("assistant", "Noted."),
        ("user", questions[0]),
        ("user", questions[1]),
    ]
    assert [role for role, _ in exchanges] == ["user", "assistant"] * 3
    assert [one.session_id == entries[0].session_id for one in entries] == [True] * 2 + [False] * 4
    # And the table is right
    observed = {
        "remembers": remembers,
        "recalls": "Dr. Brown" in second.splitlines()[0],
        "computes": re.search(r"value\W+3\b", second) is not None,
        "is warned unasked": WARNING in request.text and WARNING not in first,
    }
    row = ["yes" if shown else "no" for shown in observed.values()]
    assert row == row_of(TITLES[name])
    assert all(observed.values()), (observed, second, request.text)


def run_script(name: str, python: Path, system: System, key: str) -> dict[str, Any]:
    """Return what a script beside this file prints."""
    ended = subprocess.run(
        [python, Path(__file__).with_name(f"{name}.py")],
        env={
            "UAC_URL": system.base_url,
            "UAC_KEY": key,
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            **environment(),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    shown: dict[str, Any] = json.loads(ended.stdout)
    return shown


def test_items_of_langgraph_are_read_as_they_were_put(system: System, key: str) -> None:
    shown = run_script("langgraph_items", FRAMEWORKS["langgraph"].python(), system, key)

    # Whatever the types of the fields became, also when another put took fields away
    assert shown["values"] == [{"food": "pizza", "since": "2026-05-31"}, {"food": "tea"}, None]
    assert shown["found"] == ["a"]
    assert shown["filtered"] == ["b"]
    assert shown["pages"] == [1, 1, 0]
    assert shown["namespaces"] == [["memories", "linus"], ["old", "plans", "linus"]]
    # An item without a collection could not be read again.
    assert shown["refused"] == [["Not A Name", "linus"], ["linus"]]
    assert shown["asynchronous"] == {"food": "tea"}
    # And queries see them
    user = Client(system.base_url, key).user("linus")
    assert user.query("[item.food for item in store.memories]").value == ["tea", "rice"]


def test_sessions_of_adk_are_remembered_once(system: System, key: str) -> None:
    shown = run_script("adk_sessions", FRAMEWORKS["google_adk"].python(), system, key)

    assert shown == {"author": "user", "text": "My dentist is Dr. Brown."}
    entries = Client(system.base_url, key).user("alan").entries.list()
    assert [(entry.role, entry.content) for entry in entries] == [
        ("user", "My dentist is Dr. Brown."),
        ("assistant", "Noted."),
        ("user", "I like tea."),
        ("assistant", "Noted."),
    ]


def test_the_same_words_in_another_turn_of_crewai_are_logged_and_briefed_anew(
    system: System, key: str
) -> None:
    shown = run_script("crewai_turns", FRAMEWORKS["crewai"].python(), system, key)

    turn = [["user", "What do I like?"], ["assistant", "Noted."]]
    between = ["user", "I like green tea."]
    # A task that failed twice is one turn, with one brief in each try
    assert shown["task"]["briefs"] == [1, 1, 1]
    assert shown["task"]["log"] == [*turn, between, *turn]
    assert "green tea" in shown["task"]["second"]
    # And so is one whose answer is refused
    assert shown["guardrail"] == {"briefs": [1, 1], "log": turn}
    # Questions without a conversation are turns of their own
    assert shown["question"]["briefs"] == [1, 1]
    assert shown["question"]["log"] == [*turn, between, *turn]
    assert "green tea" in shown["question"]["second"]


def test_files_of_claude_are_changes_that_the_gate_judges(system: System, key: str) -> None:
    client = Client(system.base_url, key)
    client.users.create("grace")
    grace = client.user("grace")
    grace.add(
        record("work", "Task", "a", name="report", days=3), "It is the annual report.", wait=60
    )

    shown = run_script("claude_files", FRAMEWORKS["claude"].python(), system, key)

    assert "/memories/domains/work/state.py" in shown["folder"]
    assert 'Task(key="a", name="report", days=3, sources=(1,))' in shown["state"]
    errors = {name for name, text in shown.items() if text.startswith("ERROR ")}
    assert errors == {"refused", "again", "gone", "outside", "root"}
    # What the gate finds is the tool's error, and what it accepts is the new version
    assert "the number 4000" in shown["refused"]
    assert grace.query("[(task.name, task.days) for task in tasks]").value == [
        {"$tuple": ["annual report", 3]}
    ]
    # Files that are not code are kept as they were written
    assert shown["read"].endswith("     1\tAda likes coffee.\n     2\tAnd rice.")
    assert grace.query("len(memory.files)").value == 0


def test_mem0s_package_for_llama_index_works_with_our_address(system: System, key: str) -> None:
    python = python_with(["llama-index-memory-mem0>=2.1,<3", "mem0ai>=2.2,<3"])

    shown = run_script("mem0_llama_index", python, system, key)

    assert "I like green tea." in shown["prompt"]


def test_streams_of_the_ai_sdk_are_remembered(tmp_path: Path) -> None:
    run_tests(compile_ai_sdk(tmp_path) / "test" / "stream.test.js")


def test_every_adapter_has_an_example_and_a_size() -> None:
    """Adapters are thin: whatever they share belongs into the core."""
    folder = PACKAGES[1] / "src" / "userascode_agents"
    lengths = {
        path.stem: sum(1 for line in path.read_text().splitlines() if line.strip())
        for path in folder.glob("*.py")
        if path.stem not in ("memory", "__init__")
    }

    assert {path.stem.removesuffix("_agent") for path in EXAMPLES.glob("*.py")} == set(FRAMEWORKS)
    assert {name: length for name, length in lengths.items() if length > 150} == {}
