"""Hints that wait in the queues of the real Redis."""

import ast
import json
from typing import Any, NamedTuple

from memory.kernel.work.hints import redis_client


class Hint(NamedTuple):
    """A hint: its task, the key of the row, and the primary keys of whose work it is."""

    task: str
    key: Any
    workspace: int | None
    user: int | None


def read_hints(queue: str) -> list[Hint]:
    """Return the hints in a queue, oldest first."""
    messages: list[bytes] = redis_client().lrange(queue, 0, -1)  # type: ignore[assignment]
    found = [json.loads(message)["headers"] for message in reversed(messages)]
    return [
        Hint(
            one["task"],
            next(iter(ast.literal_eval(one["argsrepr"])), None),
            one.get("workspace"),
            one.get("user"),
        )
        for one in found
    ]
