"""Calls as agents' frameworks make them, with the official client, over each transport."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.mcp.conftest import Agents, told
from tests.acceptance.mcp.test_events import Stream, stream
from tests.acceptance.mcp.test_gate import ask
from tests.acceptance.mcp.test_tools import Tools
from tests.system import Person, record
from tests.waiting import scaled

# What n8n sends along with a model's arguments.
N8N = {
    "toolCallId": "call_1",
    "sessionId": "s-1",
    "chatInput": "What did I spend?",
    "action": "sendMessage",
}
SPENT = "sum(trip.cost for trip in trips)"


def size_of(result: Any) -> int:
    return len(told(result)) + len(json.dumps(result.structured_content, ensure_ascii=False))


@pytest.fixture
def traveller(person: Person) -> Person:
    person.log(*(record("Trip", f"t{n}", domain="travel", to="Rome", cost=1) for n in range(900)))
    return person


def test_nulls_of_crewai_are_arguments_left_out(agents: Agents, person: Person) -> None:
    person.log(record("Trip", "rome", domain="travel", to="Rome", cost=840))

    async def work() -> None:
        async with agents.connected() as client:
            tools = Tools(client)
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}

            async def call(name: str, **given: Any) -> dict[str, Any]:
                every = dict.fromkeys(listed[name].input_schema["properties"])
                return await tools(name, **{**every, **given})

            who = {"user_id": person.user_id}
            entry = dict.fromkeys(("role", "session_id", "occurred_at", "type", "data", "key"))
            fact = {**entry, "kind": "fact", "content": "She likes tea."}
            added = await call("add_memory", **who, entries=[fact])
            assert (added["pending"], added["rejected"]) == (1, [])
            assert (await call("run_query", **who, code=SPENT))["value"] == 840
            assert (await call("search_memory", **who, query="tea"))["hits"]
            assert (await call("get_context", **who, query="tea"))["text"]
            assert (await call("get_manifest", **who))["version"] == 1
            assert (await call("open_domain", **who, domain="travel"))["collections"]
            assert (await call("list_alerts"))["alerts"] is not None
            assert (await call("forecast", **who))["events"] == []

    asyncio.run(work())


def test_n8n_adds_arguments_of_its_own(agents: Agents, person: Person) -> None:
    person.log(record("Trip", "rome", domain="travel", to="Rome", cost=840))

    async def work() -> None:
        async with agents.connected(person.user_id) as client:
            tools = Tools(client)
            answer = await tools("run_query", code=SPENT, **N8N)
            assert (answer["value"], answer["ignored_arguments"]) == (840, [*N8N])
            context = await client.call_tool("get_context", {"query": "Rome", **N8N})
            assert "(Ignored arguments: toolCallId, sessionId" in told(context)
            assert "Rome" in told(context)
            assert "toolCallId" in await tools.refused("run_query", **N8N)

    asyncio.run(work())


def test_a_model_writes_lists_and_numbers_as_text(agents: Agents, person: Person) -> None:
    # As LangChain and others pass on what a model wrote into a field that is declared as text.
    trip = {"kind": "record", "domain": "travel", "type": "Trip", "key": "rome"}

    async def work() -> None:
        async with agents.connected() as client:
            tools = Tools(client)
            who = {"user_id": person.user_id}
            entry = {**trip, "data": json.dumps({"to": "Rome", "cost": 840})}
            added = await tools("add_memory", **who, entries=json.dumps([entry]))
            assert added["covered"] == 1
            assert (await tools("run_query", **who, code=SPENT, as_of="1"))["value"] == 840
            found = await tools(
                "search_memory", **who, query="Rome", top_k="1", corpora='["facts"]', filters="{}"
            )
            assert len(found["hits"]) == 1
            edit = {"op": "update", "domain": "travel", "collection": "trips", "key": "rome"}
            await tools("remember", **who, text="That trip: write Roma.")
            roma = {**edit, "fields": '{"to": "Roma"}', "sources": "[2]", "derived": "null"}
            assert (await tools("propose_edits", **who, edits=json.dumps([roma])))["accepted"]

    asyncio.run(work())


def test_sum_counts_evidence_and_pages_the_rest(agents: Agents, traveller: Person) -> None:
    async def work() -> None:
        async with agents.connected(traveller.user_id) as client:
            tools = Tools(client)
            result = await client.call_tool("run_query", {"code": SPENT})
            assert size_of(result) < 4_000
            assert isinstance(result.structured_content, dict)
            evidence = result.structured_content["evidence"]
            assert evidence["records"][0]["count"] == evidence["count"] == 900
            assert len(evidence["records"][0]["keys"]) == 20

            run = result.structured_content["id"]
            keys: list[str] = []
            while len(keys) < 900:
                rest = await tools("get_run", run_id=run, part="evidence", offset=len(keys))
                assert rest["count"] == 900
                keys += [one["key"] for one in rest["evidence"]]
            assert keys == [f"t{n}" for n in range(900)]
            assert (await tools("get_run", run_id=run, part="value"))["value"] == 900

    asyncio.run(work())


def test_an_argument_cannot_name_another_user(agents: Agents, person: Person) -> None:
    async def work() -> None:
        async with agents.connected(person.user_id) as client:
            tools = Tools(client)
            for nobody in (None, "", person.user_id):
                assert "text" in await tools("get_manifest", user_id=nobody)
            assert "bound" in await tools.refused("get_manifest", user_id="somebody")

    asyncio.run(work())


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/users/ada/mcp", "/users/ada/mcp/"])
def test_address_answers_with_and_without_slash(system: System, client: Client, path: str) -> None:
    client.post("users/", {"user_id": "ada"})
    status, _, answer = ask(system, "POST", path, Authorization=f"Bearer {client.key}")
    assert (status, len(answer["result"]["tools"]) > 10) == (200, True)


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/openid-configuration",
    ],
)
def test_there_is_no_other_metadata_to_be_found(system: System, path: str) -> None:
    assert ask(system, "GET", path)[0] == 404
    web = http.client.HTTPConnection(urlsplit(system.base_url).netloc, timeout=scaled(60))
    web.request("GET", path)
    assert web.getresponse().status == 404
    web.close()


def parsed(lines: Iterator[str]) -> Iterator[Any]:
    """Yield the data of each event as clients do that take every event's data for JSON."""
    data = ""
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            data = value if name == "data" else data
        else:  # once an event had an id, some clients yield one for every empty line
            yield json.loads(data)
            data = ""


def test_every_event_of_a_stream_is_json(system: System, client: Client, person: Person) -> None:
    mark = client.get("events/?after=now")[1]["next"]
    with stream(system, client, f"/events/?after={mark}") as opened:
        assert isinstance(opened, Stream)  # which has checked the first event
        lines = (one.decode().rstrip("\n") for one in opened.response)
        events = parsed(lines)
        assert next(lines).startswith(":")  # a heartbeat is no event
        task = {"kind": "record", "domain": "work", "collection": "tasks", "data": {"title": "a"}}
        entries = [{**task, "type": "Task"}, {**task, "type": "Trip"}]
        client.post(f"users/{person.user_id}/entries/", {"entries": entries})
        assert next(events)["type"] == "entry.rejected"
