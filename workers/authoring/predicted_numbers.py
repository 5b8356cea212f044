"""Renumber the facts that edits cite, from the predicted log numbers to the actual ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.authoring.tools import TOOLS
from workers.llm.interface import ToolCall
from workers.llm.tool_calls import read_call

# A number that no entry has, since no log ever gets this long.
NO_ENTRY = 2**31 - 1


def edit_calls(
    sent: Sequence[ToolCall], first: int, numbers: Sequence[int | None]
) -> list[ToolCall]:
    """Convert edits that were sent along with facts to calls of the tool `edit`.

    The last of these calls also asks to finish. The edits cite the facts by predicted log numbers,
    which begin at `first`. `numbers` has the facts' actual log numbers, in order, with None for a
    fact that was not appended.
    """
    renumbered = [(call.id, _renumbered(call.arguments["edits"], first, numbers)) for call in sent]
    rest = [(id, edits) for id, edits in renumbered if edits]
    return [
        read_call(id, "edit", {"edits": edits, "finish": place == len(rest)}, TOOLS)
        for place, (id, edits) in enumerate(rest, 1)
    ]


def _renumbered(edits: Any, first: int, numbers: Sequence[int | None]) -> Any:
    """Return the edits with the facts' actual log numbers, or unchanged if they are not a list.

    Citations of facts that were not appended are dropped, as are edits that cite nothing else.
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

    A number beyond those predicted for the facts is replaced by NO_ENTRY, because by now it may
    belong to an entry that the model has not seen.
    """
    if type(source) is not int or source < first:
        return source
    place = source - first
    return numbers[place] if place < len(numbers) else NO_ENTRY
