"""Edits that cite facts by the log numbers that the facts were predicted to get."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.authoring.tools import TOOLS
from workers.llm.interface import ToolCall
from workers.llm.tool_calls import read_call

# No log ever gets this long.
NO_ENTRY = 2**31 - 1


def edit_calls(
    sent: Sequence[ToolCall], first: int, numbers: Sequence[int | None]
) -> list[ToolCall]:
    """Return the edits that came with facts as calls of the tool `edit`; the last one finishes.

    The facts were predicted to be numbered from `first` on. `numbers` has the numbers that they
    actually got in the log, in order; None for a fact that was not appended.
    """
    renumbered = [(call.id, _renumbered(call.arguments["edits"], first, numbers)) for call in sent]
    rest = [(id, edits) for id, edits in renumbered if edits]
    return [
        read_call(id, "edit", {"edits": edits, "finish": place == len(rest)}, TOOLS)
        for place, (id, edits) in enumerate(rest, 1)
    ]


def _renumbered(edits: Any, first: int, numbers: Sequence[int | None]) -> Any:
    """Return the edits with the facts' actual log numbers; anything but a list stays as it is.

    Facts that were not appended are no longer cited, and edits that cite nothing else are left out.
    """
    if not isinstance(edits, list):
        return edits
    found = []
    for edit in edits:
        sources = edit.get("sources") if isinstance(edit, Mapping) else None
        if isinstance(sources, list) and sources:
            known = [_number(source, first, numbers) for source in sources]
            kept = [source for source in known if source is not None]
            if not kept:
                continue
            edit = {**edit, "sources": kept}
        found.append(edit)
    return found


def _number(source: Any, first: int, numbers: Sequence[int | None]) -> Any:
    """Return the log number of a cited entry; None for a fact that was not appended.

    A predicted number that no fact has is replaced by one that no entry has: by now it may be the
    number of an entry that the model has not seen.
    """
    if type(source) is not int or source < first:
        return source
    place = source - first
    return numbers[place] if place < len(numbers) else NO_ENTRY
