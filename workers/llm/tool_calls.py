"""Read a model's tool calls: validate what the model sent before anything is carried out."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from memory.kernel.json_schema import misfit
from workers.llm.interface import Tool, ToolCall

# An escaped NUL in JSON. An even number of backslashes before the escape does not change its
# meaning.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def read_call(id: str, name: str, sent: str | Mapping[str, Any], tools: Sequence[Tool]) -> ToolCall:
    """Return the tool call, with its problem if there is one. `sent` is meant to be JSON."""
    text = sent if isinstance(sent, str) else json.dumps(sent)
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        choices = ", ".join(tool.name for tool in tools) or "none"
        return ToolCall(id, name, {}, text, f"There is no tool {name!r}. The tools are: {choices}.")
    try:
        # Some models send no arguments at all for a function without parameters.
        arguments = json.loads(text or "{}", parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        problem = (
            f"The arguments are not valid JSON ({error}). Call the tool again with a JSON object."
        )
        return ToolCall(id, name, {}, text, problem)
    if not isinstance(arguments, dict):
        problem = "The arguments must be a JSON object. Call the tool again with one."
        return ToolCall(id, name, {}, text, problem)
    if not _storable(arguments):
        problem = (
            "The arguments contain NUL or an unpaired surrogate (half of a character). Remove it,"
            " and call the tool again."
        )
        return ToolCall(id, name, {}, text, problem)
    return ToolCall(id, name, arguments, text, misfit(arguments, tool.parameters))


def _storable(arguments: Mapping[str, Any]) -> bool:
    """Return whether the database can store all the strings in the arguments."""
    try:
        text = json.dumps(arguments, ensure_ascii=False)
        text.encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return NUL.search(text) is None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")
