"""Renumber the facts cited by edits, from predicted log numbers to the actual ones."""

from collections.abc import Mapping
from typing import Any

from memory.project import Dismiss, Note

# A log number that no entry has, since no log will ever be this long.
NO_ENTRY = 2**31 - 1
# The attributes that cite entries: see `workers.authoring.taken_over`.
_CITING = ("sources", "from")
# The operations whose value may be the cited entries: see `workers.authoring.short_forms`.
_OPERATIONS = (Note.op, Dismiss.op)


def renumber(edits: Any, first: int, numbers: Mapping[int, int | None]) -> Any:
    """Return edits that cite facts by actual log numbers instead of the predicted ones.

    The predicted numbers start at `first`; `numbers` maps them to the actual ones, or to None for a
    fact that was not appended. Citations of such facts are dropped, as are edits that cite only
    them.
    """
    if not isinstance(edits, list):
        return edits
    return [one for one in (_edit(edit, first, numbers) for edit in edits) if one is not None]


def _edit(edit: Any, first: int, numbers: Mapping[int, int | None]) -> Any:
    """Return an edit with actual numbers; None if it cites only facts that were not appended."""
    if not isinstance(edit, Mapping):
        return edit
    operations = [name for name in _OPERATIONS if isinstance(edit.get(name), int | list)]
    given = [*operations, *(name for name in _CITING if edit.get(name))]
    edit = _numbers_in(edit, first, numbers)
    edit |= {name: _actual(edit[name], first, numbers) for name in operations}
    cited = {name: _kept(edit[name]) for name in given}
    if given and not any(cited.values()):
        return None
    rest = {name: value for name, value in edit.items() if name not in cited}
    return {**rest, **{name: value for name, value in cited.items() if value}}


def _numbers_in(value: Any, first: int, numbers: Mapping[int, int | None]) -> Any:
    """Replace the numbers in all attributes that cite entries, at any depth."""
    match value:
        case dict():
            return {
                name: _actual(item, first, numbers)
                if name in _CITING
                else _numbers_in(item, first, numbers)
                for name, item in value.items()
            }
        case list():
            return [_numbers_in(item, first, numbers) for item in value]
    return value


def _actual(cited: Any, first: int, numbers: Mapping[int, int | None]) -> Any:
    """Return the actual log numbers, with None for each fact that was not appended.

    A number that stands for no fact is replaced with NO_ENTRY, because by now it may belong to an
    entry that the model hasn't seen.
    """
    if isinstance(cited, list):
        return [_actual(one, first, numbers) for one in cited]
    if type(cited) is not int or cited < first:
        return cited
    return numbers.get(cited, NO_ENTRY)


def _kept(cited: Any) -> Any:
    return [one for one in cited if one is not None] if isinstance(cited, list) else cited
