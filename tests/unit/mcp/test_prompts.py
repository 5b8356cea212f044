"""Prompts as a client lists and gets them."""

import asyncio
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from memory.integrations.mcp import server
from memory.integrations.mcp.tools import TOOLS, Caller

NOBODY: Any = None


def read(caller: Caller, **arguments: str) -> dict[str, str]:
    """Return the text of each prompt that is offered to a caller."""

    async def work() -> dict[str, str]:
        async with Client(server.create(lambda request: caller)) as client:
            texts = {}
            for prompt in (await client.list_prompts()).prompts:
                assert [one.name for one in prompt.arguments or ()] == [*arguments]
                assert prompt.title
                assert prompt.description
                [message] = (await client.get_prompt(prompt.name, arguments)).messages
                assert isinstance(message.content, TextContent)
                texts[prompt.name] = message.content.text
            return texts

    return asyncio.run(work())


def test_prompts_name_the_user_of_the_connection_or_the_given_one() -> None:
    bound, unbound = read(Caller(NOBODY, "ada")), read(Caller(NOBODY), user_id="bob")

    assert set(bound) == set(unbound) == {"briefing", "attention", "save_conversation"}
    assert not any("bob" in text for text in bound.values())
    assert all("the user 'bob'" in text for text in unbound.values())


def test_prompts_name_only_tools_that_exist() -> None:
    words = {
        word.strip(".,:;")
        for text in read(Caller(NOBODY, "ada")).values()
        for word in text.split()
        if "_" in word
    }

    assert words
    assert words <= set(TOOLS)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("nothing", {}), ("briefing", {"user_id": "bob"}), ("briefing", {"topic": "food"})],
)
def test_a_wrong_prompt_or_argument_is_refused(name: str, arguments: dict[str, str]) -> None:
    async def work() -> None:
        async with Client(server.create(lambda request: Caller(NOBODY, "ada"))) as client:
            with pytest.raises(MCPError):
                await client.get_prompt(name, arguments)

    asyncio.run(work())
