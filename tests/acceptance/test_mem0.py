"""The public client of mem0, unmodified, against a whole server with a language model."""

import asyncio
import importlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.llm_server import LlmServer, Reply, Request, called, llm_server, status
from tests.system import new_client, running_system
from tests.waiting import polled

FACTS = {
    "I am vegetarian and live in Lisbon.": "The user is vegetarian.",
    "My sister is called Nora.": "The user's sister is called Nora.",
}
_numbers = itertools.count(1)


def remembering(request: Request) -> Reply:
    """A model that finds known facts in messages, and cannot structure them."""
    if "remember" not in request.tools:
        return status(500)
    said = re.findall(r"^\[(\d+)\] \([^)]*\) (.*)$", _asked(request), re.MULTILINE)
    facts = [{"text": FACTS[text], "sources": [int(seq)]} for seq, text in said if text in FACTS]
    return called("remember", {"facts": facts})


def _asked(request: Request) -> str:
    text: str = request.body["messages"][1]["content"]
    return text.rpartition("Messages to remember:")[2]


@pytest.fixture(scope="module")
def llm() -> Iterator[LlmServer]:
    with llm_server(script=remembering) as server:
        yield server


@pytest.fixture(scope="module")
def system(llm: LlmServer) -> Iterator[System]:
    """A server without sandboxes, whose model works as soon as there is something to do."""
    environment = {
        **llm.environment,
        "UAC_STRUCTURE_ENTRIES": "1",
        "UAC_DISPATCH_SECONDS": "0.5",
    }
    with running_system(sandbox_workers=0, llm_workers=1, environment=environment) as system:
        yield system


@pytest.fixture(scope="module")
def mem0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The public package, which writes no files at home and calls nobody."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("mem0")
        patch.setenv("MEM0_TELEMETRY", "False")
        patch.setenv("MEM0_DIR", str(folder))
        yield importlib.import_module("mem0")  # here: it looks at those when it is imported


class InTurn:
    """The asynchronous client, with every call awaited."""

    def __init__(self, runner: asyncio.Runner, client: Any) -> None:
        self._runner = runner
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._runner.run(method(*args, **kwargs))


@pytest.fixture(scope="module")
def client(system: System) -> Client:
    return new_client(system, "mem0")


@pytest.fixture(params=["sync", "async"])
def memory(
    request: pytest.FixtureRequest, system: System, client: Client, mem0: Any
) -> Iterator[Any]:
    """The public client, of both kinds."""
    host = f"{system.base_url}/mem0"
    if request.param == "sync":
        yield mem0.MemoryClient(api_key=client.key, host=host)
        return
    with asyncio.Runner() as runner:
        yield InTurn(runner, mem0.AsyncMemoryClient(api_key=client.key, host=host))


@pytest.fixture
def ada() -> str:
    """The id of a user who does not exist yet."""
    return f"ada-{next(_numbers)}"


def test_memories_as_they_are(memory: Any, ada: str) -> None:
    # Given two memories that are told as such
    added = memory.add(
        [
            {"role": "user", "content": "I drink tea in the morning."},
            {"role": "assistant", "content": "Noted: green tea, no milk."},
        ],
        user_id=ada,
        run_id="breakfast",
        metadata={"topic": "food"},
        infer=False,
    )
    tea, green = added["results"]
    assert [one["event"] for one in added["results"]] == ["ADD", "ADD"]
    # When they are read
    got = memory.get(tea["id"])
    listed = memory.get_all(filters={"user_id": ada}, page=1, page_size=1)
    found = memory.search("What tea?", filters={"AND": [{"user_id": ada}, {"run_id": "*"}]})
    # Then each way tells the same
    assert got["memory"] == "I drink tea in the morning."
    assert (got["user_id"], got["run_id"], got["metadata"]) == (ada, "breakfast", {"topic": "food"})
    assert got["categories"] is None
    assert listed["count"] == 2
    assert [one["id"] for one in listed["results"]] == [green["id"]]
    assert "page=2" in listed["next"]
    assert {one["id"] for one in found["results"]} == {tea["id"], green["id"]}
    assert all(0 < one["score"] <= 1 for one in found["results"])

    # When one is updated
    memory.update(tea["id"], text="I drink coffee in the morning.", metadata={"topic": "drinks"})
    # Then it keeps its id, is found by what it says now, and its history has both texts
    assert memory.get(tea["id"])["memory"] == "I drink coffee in the morning."
    (coffee,) = memory.search("coffee", filters={"user_id": ada, "metadata": {"topic": "drinks"}})[
        "results"
    ]
    assert (coffee["id"], coffee["memory"]) == (tea["id"], "I drink coffee in the morning.")
    assert memory.search("tea", filters={"user_id": ada})["results"][0]["id"] == green["id"]
    first, second = memory.history(tea["id"])
    assert (first["event"], first["old_memory"]) == ("ADD", None)
    assert (second["event"], second["old_memory"]) == ("UPDATE", "I drink tea in the morning.")

    # When both are updated, and one is deleted
    memory.update(tea["id"], text="I drink water.")
    memory.update(green["id"], text="Green tea is for the evening.")
    memory.delete(green["id"])
    # Then the other is left, and of the deleted one nothing but that it was
    assert [one["memory"] for one in memory.get_all(filters={"user_id": ada})["results"]] == [
        "I drink water."
    ]
    assert memory.search("evening", filters={"user_id": ada}) == {"results": []}
    assert [one["event"] for one in memory.history(green["id"])] == ["ADD", "UPDATE", "DELETE"]
    assert {one["new_memory"] for one in memory.history(green["id"])} == {None}


def test_memories_that_a_model_finds(memory: Any, ada: str) -> None:
    # Given messages in which a model finds something
    text = "I am vegetarian and live in Lisbon."
    added = memory.add(text, user_id=ada, run_id="hello", agent_id="cook", metadata={"n": 1})
    assert added["status"] == "PENDING"
    # When it has done so
    (result,) = polled(lambda: memory.get_all(filters={"user_id": ada})["results"], bool)
    # Then the memory is the fact, with what was said of its message
    assert result["memory"] == "The user is vegetarian."
    (found,) = memory.search(
        "vegetarian?",
        filters={"AND": [{"user_id": ada}, {"agent_id": "cook"}, {"metadata": {"n": 1}}]},
        top_k=5,
        threshold=0.1,
    )["results"]
    assert (found["id"], found["run_id"]) == (result["id"], "hello")
    assert memory.history(result["id"])[0]["input"] == [{"role": "user", "content": text}]
    assert memory.get_all(filters={"user_id": ada, "run_id": "other"})["results"] == []


def test_all_of_a_user(memory: Any, ada: str) -> None:
    for text in ("one", "two", "three", "four"):
        memory.add(text, user_id=ada, run_id="a" if text == "one" else "b", infer=False)
    by_text = {
        one["memory"]: one["id"] for one in memory.get_all(filters={"user_id": ada})["results"]
    }
    (row,) = [one for one in memory.users()["results"] if one["name"] == ada]
    assert (row["type"], row["total_memories"]) == ("user", 4)

    memory.delete(by_text["two"])
    memory.delete(by_text["three"])
    memory.delete_all(filters={"AND": [{"user_id": ada}, {"run_id": "a"}]})
    left = memory.get_all(filters={"user_id": ada})["results"]
    memory.delete_all(user_id=ada)

    assert [one["memory"] for one in left] == ["four"]
    assert memory.get_all(filters={"user_id": ada})["count"] == 0


def test_unsupported_call_raises_its_error(
    memory: Any, mem0: Any, system: System, ada: str
) -> None:
    errors = mem0.exceptions
    mine = memory.add("mine", user_id=ada, infer=False)["results"][0]["id"]
    stranger = mem0.MemoryClient(
        api_key=new_client(system, "others").key, host=f"{system.base_url}/mem0"
    )

    for other, memory_id in ((stranger, mine), (memory, "a/b"), (memory, "x"), (memory, "..%2f")):
        for call in (other.get, other.delete, other.history):
            with pytest.raises(errors.MemoryNotFoundError, match="There is no memory"):
                call(memory_id)
    with pytest.raises(errors.MemoryNotFoundError, match="this server has add, search"):
        memory.feedback(mine, "POSITIVE")
    with pytest.raises(errors.ValidationError, match="wrong_field: Unknown field"):
        memory.add("x", user_id=ada, wrong_field=1)
    with pytest.raises(ValueError, match="The API key is unknown"):
        mem0.MemoryClient(api_key="uac_0_0", host=f"{system.base_url}/mem0")

    assert memory.get(mine)["memory"] == "mine"
