"""Numbered items that a model sends in parts: all of them first, then only what changes.

In its first answer, a model sends a list of facts or edits. If some are refused, the others are
kept, and the next answer is an object that names only the changes, by number: `{"5": "new text"}`,
`{"5": {"fields": {"to": "Rome"}}}`, or `{"5": null}` to leave an item out.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

# The attributes of an item that a change is merged into instead of replacing them.
_MERGED = ("fields", "derived")


class WrongChange(Exception):
    """A change names no item; the message tells the model which numbers there are."""


def take_items(
    kept: Mapping[int, Any], sent: Sequence[Any], first: int, noun: str
) -> dict[int, Any]:
    """Return the items, by number, after an answer in which these lists and changes were sent.

    The lists of one answer are taken together, and replace all that was kept.
    """
    lists = [part for part in sent if isinstance(part, list)]
    items = dict(enumerate(itertools.chain(*lists), first)) if lists else dict(kept)
    for changes in sent:
        if isinstance(changes, Mapping):
            items = change_items(items, changes, first, noun)
    return items


def change_items(
    kept: Mapping[int, Any], changes: Mapping[str, Any], first: int, noun: str
) -> dict[int, Any]:
    """Return the kept items with these changes; raise WrongChange if one can't be made.

    A string replaces an item's text, and an object those attributes that it has. The number after
    the last one adds an item; `first` is the number of the first one.
    """
    items = dict(kept)
    for name, change in changes.items():
        following = max(items, default=first - 1) + 1
        number = int(name) if name.isascii() and name.isdecimal() else -1
        if number not in items and number != following:
            choices = f"{min(items)} to {following - 1}" if items else "none yet"
            raise WrongChange(
                f"There is no {noun} {name!r} to change: they are numbered {choices}; a further one"
                f" would be {following}."
            )
        if change is None:
            items.pop(number, None)
        else:
            items[number] = _changed(items.get(number), change)
    return items


def _changed(item: Any, change: Any) -> Any:
    if isinstance(change, str):
        change = {"text": change}
    if not isinstance(item, Mapping) or not isinstance(change, Mapping):
        return change
    if change.get("op", item.get("op")) != item.get("op"):
        return change  # another operation, which has other attributes
    merged = {
        name: {**item[name], **value}
        for name, value in change.items()
        if name in _MERGED and isinstance(value, Mapping) and isinstance(item.get(name), Mapping)
    }
    return {**item, **change, **merged}
