"""The official client runs every tool and reads every resource, over each transport."""

import asyncio
from typing import Any

import pytest
from mcp.client import Client as McpClient
from mcp.shared.exceptions import MCPError
from mcp_types import TextResourceContents

from benchmarks.harness import Client
from memory.integrations.mcp.tools import TOOLS
from tests.acceptance.mcp.conftest import SPENT, Agents, told, with_alerts
from tests.system import Person, create_person, new_client, record
from tests.waiting import polled

ROME = {"kind": "record", "domain": "travel", "type": "Trip", "key": "rome"}
ENTRIES = [
    {**ROME, "data": {"to": "Rome", "on": "2026-05-02", "cost": 840}},
    {"kind": "message", "role": "user", "content": "I flew to Rome in May."},
]


class Tools:
    """Calls tools and records which."""

    def __init__(self, client: McpClient) -> None:
        self._client = client
        self.used: set[str] = set()

    async def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        self.used.add(name)
        result = await self._client.call_tool(name, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def refused(self, name: str, **arguments: Any) -> str:
        result = await self._client.call_tool(name, arguments)
        assert result.is_error, result.structured_content
        return told(result)


async def text_at(client: McpClient, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def uses_context(client: McpClient, tools: Tools, who: dict[str, str]) -> None:
    context = await client.call_tool("get_context", {**who, "query": "Rome"})
    tools.used.add("get_context")
    # What a model reads is the block itself, what a program reads is the answer.
    assert told(context) == context.structured_content["text"]
    assert "I flew to Rome" in told(context)


async def opens_the_project(tools: Tools, who: dict[str, str]) -> None:
    manifest = await tools("get_manifest", **who)
    assert "trips: 1 Trip(to, on:date, cost:int)" in manifest["text"]
    domain = await tools("open_domain", **who, domain="travel")
    assert domain["collections"] == {"trips": {"class": "Trip", "count": 1}}
    records = await tools("open_domain", **who, domain="travel", collection="trips")
    assert [one["$record"] for one in records["records"]] == ["Trip"]
    assert "travel, work" in await tools.refused("open_domain", **who, domain="x")


async def searches(tools: Tools, who: dict[str, str]) -> None:
    found = await tools("search_memory", **who, query="flew", corpora=["archive"])
    assert [hit["text"] for hit in found["hits"]] == ["I flew to Rome in May."]

    found = await tools("search_memory", **who, query="Was habe ich gestern gesagt?")
    assert found["dates"]["first"] == found["dates"]["last"]

    before = [{"role": "user", "content": "Where did I fly in May?"}]
    found = await tools("search_memory", **who, query="And when?", messages=before)
    assert "fly" in found["taken_as"]


async def computes(tools: Tools, who: dict[str, str]) -> None:
    answer = await tools("run_query", **who, code=SPENT)
    assert (answer["value"], answer["evidence"]["records"][0]["keys"]) == (840, ["rome"])
    asked = await tools("ask", **who, question="What did I spend on trips in 2026?")
    assert (asked["value"], asked["code"]) == (840, SPENT)
    run = await tools("get_run", run_id=answer["id"])
    assert (run["status"], run["output"]["value"]) == ("done", 840)


async def proposes(tools: Tools, who: dict[str, str], seq: int) -> None:
    said = {"kind": "message", "role": "user", "content": "That trip: write Roma."}
    added = await tools("add_memory", **who, entries=[said])
    told_in = [added["entries"][0]["seq"]]
    edit = {"op": "update", "domain": "travel", "collection": "trips", "key": "rome"}
    roma = {**edit, "fields": {"to": "Roma"}, "sources": told_in}
    decided = await tools("propose_edits", **who, edits=[roma])
    assert decided["accepted"], decided
    wrong = {**edit, "fields": {"cost": 99}, "sources": [seq]}
    assert "99" in await tools.refused("propose_edits", **who, edits=[wrong])


def test_every_tool_does_what_it_says(agents: Agents, person: Person) -> None:
    with_alerts(person, 3)
    (alert,) = polled(lambda: person.alerts("open"), bool)
    who = {"user_id": person.user_id}

    async def work() -> None:
        async with agents.connected() as client:
            tools = Tools(client)
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}

            assert (await tools("remember", **who, text="She likes tea."))["entries"]
            added = await tools("add_memory", **who, entries=ENTRIES)
            assert (len(added["entries"]), added["covered"]) == (2, 1)
            seq = added["entries"][0]["seq"]

            await uses_context(client, tools, who)
            await opens_the_project(tools, who)
            await computes(tools, who)
            await searches(tools, who)
            await proposes(tools, who, seq)

            listing = await tools("list_alerts", **who, state="open")
            assert [one["id"] for one in listing["alerts"]] == [alert["id"]]
            assert listing["next_cursor"] is None
            seen = await tools("acknowledge_alert", alert_id=alert["id"], note="told her")
            assert seen["state"] == "acknowledged"

            foreseen = await tools("forecast", **who)
            assert foreseen["events"] == []

            # This key may not: tests/integration/agents/test_forget.py has one that may.
            assert "manage" in await tools.refused("forget", **who, entry=seq)
            assert tools.used - {"forget"} == set(listed) == set(TOOLS) - {"forget"}
            assert all(
                "user_id" in listed[name].input_schema["properties"]
                for name in tools.used - {"acknowledge_alert", "get_run"}
            )

    asyncio.run(work())


def test_a_list_is_read_page_by_page(agents: Agents, person: Person) -> None:
    with_alerts(person, 1, 2, 3)
    polled(lambda: person.alerts("open"), lambda found: len(found) == 3)

    async def work() -> None:
        async with agents.connected(person.user_id) as client:
            tools = Tools(client)
            first = await tools("list_alerts", limit=2)
            rest = await tools("list_alerts", limit=2, cursor=first["next_cursor"])

            assert (len(first["alerts"]), len(rest["alerts"]), rest["next_cursor"]) == (2, 1, None)
            assert len({one["id"] for one in first["alerts"] + rest["alerts"]}) == 3

    asyncio.run(work())


def test_every_resource_is_read(agents: Agents, person: Person) -> None:
    person.log(record("Trip", "rome", domain="travel", to="Rome"))

    async def work() -> None:
        async with agents.connected(person.user_id) as client:
            listed = {one.name: str(one.uri) for one in (await client.list_resources()).resources}
            texts = {name: await text_at(client, uri) for name, uri in listed.items()}

            assert "trips: 1 Trip(to)" in texts.pop("manifest")
            assert texts.pop("alerts") == "[]"
            assert texts == {path: person.file(path) for path in texts}
            domain = {"domains/travel/schema.py", "domains/travel/state.py"}
            assert {"manifest.py"} | domain <= set(texts)

        async with agents.connected() as client:
            assert (await client.list_resources()).resources == []
            templates = (await client.list_resource_templates()).resource_templates
            uris = [
                one.uri_template.replace("{user_id}", person.user_id).replace(
                    "{+path}", "domains/travel/state.py"
                )
                for one in templates
            ]
            manifest, alerts, file = uris
            assert alerts == listed["alerts"]
            assert [manifest, file] == [listed["manifest"], listed["domains/travel/state.py"]]
            for uri in (manifest, file):
                assert "Trip" in await text_at(client, uri)

    asyncio.run(work())


def test_bound_connection_reaches_no_other(agents: Agents, person: Person, client: Client) -> None:
    other = create_person(client, f"{person.user_id}-other")
    with_alerts(other, 3)
    (alert,) = polled(lambda: other.alerts("open"), bool)
    (run, *_) = other.get("runs/")["results"]

    async def work() -> None:
        async with agents.connected(person.user_id) as bound:
            tools = Tools(bound)
            for tool in (await bound.list_tools()).tools:
                assert "user_id" not in tool.input_schema["properties"]
                assert "user_id" not in tool.input_schema["required"]

            assert (await tools("list_alerts"))["alerts"] == []
            refused = await tools.refused("get_manifest", user_id=other.user_id)
            assert "'user_id' was unexpected" in refused
            await tools.refused("acknowledge_alert", alert_id=alert["id"])
            await tools.refused("get_run", run_id=run["id"])
            for way_out in (f"../../{other.user_id}/state", "..", "", "a/b", "%2e%2e"):
                await tools.refused("open_domain", domain="work", collection=way_out)
                await tools.refused("open_domain", domain=way_out, collection="tasks")
            for uri in (
                f"uac://users/{other.user_id}/manifest",
                f"uac://users/{person.user_id}/files/../../{other.user_id}/manifest",
                f"uac://users/{person.user_id}/files/%2e%2e/manifest.py",
            ):
                with pytest.raises(MCPError):
                    await bound.read_resource(uri)

    asyncio.run(work())
    assert other.alerts("open") == [alert]


def test_wrong_arguments_are_answered_with_what_to_mend(agents: Agents, person: Person) -> None:
    who = {"user_id": person.user_id}

    async def work() -> None:
        async with agents.connected() as client:
            tools = Tools(client)
            assert "'code' is a required property" in await tools.refused("run_query", **who)
            assert "5 is not of type 'string'" in await tools.refused("run_query", **who, code=5)
            misspelt = await tools.refused("run_query", **who, cod="1")
            assert "'code' is a required property" in misspelt
            assert "Ignored arguments: cod" in misspelt
            assert "The tools are: get_context" in await tools.refused("run_sql", sql="DROP")
            # Arguments that fit the schema are validated by the API, which names the field, too.
            assert (
                "entries.0.content: An entry of kind message, fact or correction needs `content`."
                in await tools.refused("add_memory", **who, entries=[{"kind": "message"}])
            )
            assert "as_of: " in await tools.refused("get_manifest", **who, as_of="soon")
            assert "no checkpoint yet" in await tools.refused("run_query", **who, code="1")
            assert "no such user" in await tools.refused("get_manifest", user_id="nobody")
            for nobody in ("é中", "", "..", "a/b", "a" * 200):
                assert "no" in await tools.refused("get_manifest", user_id=nobody)
            assert "alert_id" not in await tools.refused("acknowledge_alert", alert_id="x")
            person.log(record("Trip", "rome", domain="travel", to="Rome"))
            failed = await tools.refused("run_query", **who, code="[t.price for t in trips]")
            assert "fields of Trip are key, sources, to" in failed
            with pytest.raises(MCPError, match="No such resource"):
                await client.read_resource("file:///etc/passwd")
            with pytest.raises(MCPError, match=r"has no file 'domains/x\.py'"):
                await client.read_resource(f"uac://users/{person.user_id}/files/domains/x.py")

    asyncio.run(work())


def test_a_key_that_only_reads_writes_nothing(agents: Agents, person: Person) -> None:
    key = new_client(agents.system, "agents", "read").key
    reading = Agents(agents.system, key, agents.transport)

    async def work() -> None:
        async with reading.connected(person.user_id) as client:
            tools = Tools(client)
            assert (await tools("list_alerts"))["alerts"] == []
            assert "scope" in await tools.refused("add_memory", entries=ENTRIES)

    asyncio.run(work())
    assert person.get()["entries"]["total"] == 0
