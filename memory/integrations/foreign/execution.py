"""Executing a foreign project: the code that a sandbox runs, and its answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.integrations.foreign.graph import ForeignError

_READER = Path(__file__).with_name("in_sandbox.py").read_text(encoding="utf-8")


def reading_code(files: Mapping[str, str], modules: Sequence[str]) -> str:
    """Return a query that executes these modules of a project and returns their objects."""
    return (
        "reader = {'__name__': 'reader'}\n"
        f"exec({_READER!r}, reader)\n"
        f"reader['read']({dict(files)!r}, {list(modules)!r}, now)\n"
    )


def graph_in(answer: Any) -> Mapping[str, Any]:
    """Return the graph in a query's answer, which the foreign code may have forged.

    Raises ForeignError if the code raised an error.
    """
    if not isinstance(answer, dict):
        return {}
    error, graph = answer.get("error"), answer.get("graph")
    if isinstance(error, dict):
        path, line = error.get("path"), error.get("line")
        raise ForeignError(
            "execution",
            f"{error.get('type')}: {error.get('message')}"[:2000],
            path[:300] if isinstance(path, str) else None,
            line if type(line) is int and 0 <= line < 2**31 else None,
        )
    return graph if isinstance(graph, dict) else {}
