"""Tools' schemas as strict clients read them, and tools' descriptions."""

import dataclasses
import keyword
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from memory.integrations.mcp import arguments, server, tools
from memory.integrations.mcp.tools import TOOLS, Caller
from memory.kernel.json_schema import misfit
from memory.project.edits import Edit, RetireEarlier

ROOT = Path(__file__).parents[3]
NOBODY: Any = None
BOUND, UNBOUND = Caller(NOBODY, "ada"), Caller(NOBODY)

ALL = [
    pytest.param(tool.offered(caller), id=f"{tool.name}, {name}")
    for tool in TOOLS.values()
    for name, caller in (("bound", BOUND), ("for all users", UNBOUND))
]


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas within it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for one in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from parts_of(one)


def as_openai_wants_it(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as OpenAI's clients convert it to their strict mode.

    All properties are required, and there are no others.
    """
    found = dict(schema)
    if found.get("type") == "object":
        found |= {"additionalProperties": False, "required": list(found["properties"])}
        found["properties"] = {
            name: as_openai_wants_it(one) for name, one in found["properties"].items()
        }
    if "items" in found:
        found["items"] = as_openai_wants_it(found["items"])
    if "anyOf" in found:
        found["anyOf"] = [as_openai_wants_it(one) for one in found["anyOf"]]
    return found


@pytest.mark.parametrize("tool", ALL)
def test_every_object_names_its_keys_and_every_value_its_type(tool: Any) -> None:
    for part in parts_of(tool.input_schema):
        if "anyOf" in part:
            assert part["anyOf"][1:] == [{"type": "null"}]
            continue
        assert part["type"] in (
            *("object", "array", "string", "integer", "number", "boolean", "null"),
        )
        assert part["type"] != "object" or part["properties"], tool.name
        assert part["type"] != "array" or part["items"], tool.name
        # Google's client takes no boolean there; OpenAI's set it themselves.
        assert "additionalProperties" not in part


@pytest.mark.parametrize("tool", ALL)
def test_no_parameter_is_a_keyword_and_all_are_described(tool: Any) -> None:
    for part in parts_of(tool.input_schema):
        for name, one in part.get("properties", {}).items():
            assert re.fullmatch(r"[a-z][a-z_]*", name)
            assert not keyword.iskeyword(name)
            assert (
                one.get("description")
                or one.get("anyOf", [{}])[0].get("description")
                or (
                    name in ("domain", "collection", "key")  # of a record in a conflict
                )
            ), name


@pytest.mark.parametrize("tool", ALL)
def test_a_strict_client_can_leave_out_what_is_optional(tool: Any) -> None:
    strict = as_openai_wants_it(tool.input_schema)
    optional = set(strict["required"]) - set(tool.input_schema["required"])
    examples: dict[str, Any] = {
        "entries": [{"kind": "fact", "content": "She is vegan."}],
        "edits": [{"op": "dismiss", "reason": "x", "sources": [1]}],
    }
    numbers = {"entry": 1}
    sent: dict[str, Any] = {
        name: [
            {**dict.fromkeys(strict["properties"][name]["items"]["properties"]), **one}
            for one in examples[name]
        ]
        if name in examples
        else numbers.get(name, "x")
        for name in tool.input_schema["required"]
    } | dict.fromkeys(optional)
    assert misfit(sent, strict) == ""

    caller = BOUND if "user_id" not in strict["properties"] else UNBOUND
    schema = TOOLS[tool.name].schema(caller)
    read = arguments.read(sent, schema)
    assert set(read) == set(tool.input_schema["required"])
    assert misfit(read, schema) == ""
    for name, example in examples.items():
        assert read.get(name, example) == example


@pytest.mark.parametrize("tool", ALL)
def test_every_tool_has_a_title_and_true_hints(tool: Any) -> None:
    assert tool.title == tool.annotations.title
    assert tool.title != tool.name
    writes = {"add_memory", "remember", "propose_edits", "acknowledge_alert", "forget"}
    assert tool.annotations.read_only_hint == (tool.name not in writes)
    assert tool.annotations.destructive_hint == (tool.name in ("propose_edits", "forget"))
    assert tool.output_schema is None  # a large context comes as text alone


def test_the_tool_for_edits_knows_every_attribute_of_every_edit() -> None:
    proposed = [edit for edit in get_args(Edit) if edit is not RetireEarlier]
    attributes = {one.name for edit in proposed for one in dataclasses.fields(edit)}
    # The server alone knows the names in a caller's data.
    assert attributes - {"original"} | {"op"} == set(tools.EDIT["properties"])


def test_the_server_tells_its_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert server.create(lambda _: UNBOUND).version == version
    assert "!pyproject.toml" in (ROOT / ".dockerignore").read_text().splitlines()
