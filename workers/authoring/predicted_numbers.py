"""Renumber the facts cited by edits, from predicted log numbers to the actual ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.authoring.tools import TOOLS
from workers.llm.interface import ToolCall
from workers.llm.tool_calls import read_call

# A log number that no entry has, since no log will ever be this long.
NO_ENTRY = 2**31 - 1


def edit_calls(
    sent: Sequence[ToolCall], first: int, numbers: Sequence[int | None]
) -> list[ToolCall]:
    """Convert edits that were sent along with facts into calls to the `edit` tool.

    The last call also asks to finish. The edits cite the facts by predicted log numbers, starting
    at `first`. `numbers` contains the facts' actual log numbers, in order, with None for each fact
    that was not appended.
    """
    renumbered = [(call.id, _renumbered(call.arguments["edits"], first, numbers)) for call in sent]
    rest = [(id, edits) for id, edits in renumbered if edits]
    return [
        read_call(id, "edit", {"edits": edits, "finish": place == len(rest)}, TOOLS)
        for place, (id, edits) in enumerate(rest, 1)
    ]


def _renumbered(edits: Any, first: int, numbers: Sequence[int | None]) -> Any:
    """Return the edits with the facts' actual log numbers, or unchanged if they aren't a list.

    Citations of facts that were not appended are dropped, as are edits that cite only such facts.
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
    """Return a cited entry's actual log number; None for a fact that was not appended.

    A number beyond those predicted for the facts is replaced with NO_ENTRY, because by now that
    number may belong to an entry that the model hasn't seen.
    """
    if type(source) is not int or source < first:
        return source
    place = source - first
    return numbers[place] if place < len(numbers) else NO_ENTRY
