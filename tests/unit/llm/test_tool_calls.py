"""A model's tool calls are read strictly, and the model is told what is wrong with them."""

import json
from typing import Any

import pytest

from workers.llm.interface import Tool
from workers.llm.tool_calls import read_call

TOOL = Tool(
    "add",
    "Add a record.",
    {
        "type": "object",
        "properties": {
            "key": {"type": "string"},
            "fields": {"type": "object"},
            "sources": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["key"],
        "additionalProperties": False,
    },
)


def read(sent: str | dict[str, Any], name: str = "add") -> Any:
    return read_call("call-1", name, sent, [TOOL])


@pytest.mark.parametrize(
    "arguments",
    [
        {"key": "a"},
        {"key": "ä\U0001f600", "fields": {"to": [1, {"x": None}]}, "sources": [1, 2]},
        {"key": "\\u0000"},
    ],
)
def test_valid_call_is_read(arguments: dict[str, Any]) -> None:
    for sent in (arguments, json.dumps(arguments)):
        call = read(sent)
        assert (call.arguments, call.problem) == (arguments, "")
        assert json.loads(call.text) == arguments


def test_a_tool_without_parameters_may_be_called_with_nothing() -> None:
    tool = Tool("finish", "Finish.", {"type": "object", "properties": {}})

    nothing: list[str | dict[str, Any]] = ["", "{}", {}]
    for sent in nothing:
        assert read_call("1", "finish", sent, [tool]).problem == ""


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ('{"key": "a', "The arguments are not valid JSON (Unterminated string"),
        ("{'key': 'a'}", "The arguments are not valid JSON"),
        ('{"key": "a"} and more', "The arguments are not valid JSON (Extra data"),
        ("Sure, I will add it.", "The arguments are not valid JSON"),
        ('{"key": NaN}', "NaN is not valid JSON"),
        ('{"sources": [-Infinity]}', "-Infinity is not valid JSON"),
        ("[" * 100_000, "The arguments are not valid JSON"),
        ('{"key": "\\ud83d"}', "half of a character"),
        ('{"key": ["a", {"b\\u0000": 1}]}', "The arguments contain NUL"),
        ('["key"]', "The arguments must be a JSON object."),
        ('"key"', "The arguments must be a JSON object."),
        ("null", "The arguments must be a JSON object."),
        ("{}", "$: 'key' is a required property."),
        ('{"key": 1}', "$.key: 1 is not of type 'string'."),
        ('{"key": "a", "sources": [1, "2"]}', "$.sources[1]: '2' is not of type 'integer'."),
        ('{"key": "a", "sources": [1.0]}', "$.sources[0]: 1.0 is not of type 'integer'."),
        ('{"key": "a", "colour": 1}', "('colour' was unexpected)."),
    ],
)
def test_invalid_call_is_reported(sent: str, problem: str) -> None:
    call = read(sent)

    assert problem in call.problem
    assert call.text == sent


def test_a_tool_that_there_is_not_is_told_with_those_that_there_are() -> None:
    problem = read("{}", "delete_all").problem
    assert "'delete_all'" in problem
    assert problem.endswith(": add.")
    assert read_call("1", "add", "{}", []).problem.endswith(": none.")


def test_first_problems_are_reported_briefly() -> None:
    call = read({"key": "x" * 5000, "sources": ["y" * 5000] * 20})

    assert "; and 15 more." in call.problem
    assert len(call.problem) < 2500
