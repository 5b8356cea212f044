"""Numbered items that a model sends in parts: all of them first, then only what changes.

In its first answer, a model sends a list of facts or edits. If some are refused, the others are
kept, and the next answer is an object that names only the changes, by number: `{"5": "new text"}`,
`{"5": {"fields": {"to": "Rome"}}}`, or `{"5": null}` to leave an item out. Inside an item, null
takes out what was kept: `{"5": {"fields": {"on": null}}}`.

Items are kept in the form in which the model wrote them, so that it changes what it knows.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from workers.authoring.short_forms import operation_of


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

    A string replaces an item's text, and an object those attributes that it has. Of a list, the
    first item takes the number, and the others those after the last one. The number after the last
    one adds an item; `first` is the number of the first one.
    """
    items = dict(kept)
    further: list[Any] = []
    for name, change in changes.items():
        following = max(items, default=first - 1) + 1
        number = int(name) if name.isascii() and name.isdecimal() else -1
        if number not in items and number != following:
            choices = f"{min(items)} to {following - 1}" if items else "none yet"
            raise WrongChange(
                f"There is no {noun} {name!r} to change: they are numbered {choices}; a further one"
                f" would be {following}."
            )
        parts = change if isinstance(change, list) else [change]
        before = items.pop(number, None)
        changed = [_changed(before, part) for part in parts if part is not None]
        if changed:
            items[number], *others = changed
            further += others
    items |= dict(enumerate(further, max(items, default=first - 1) + 1))
    return dict(sorted(items.items()))


def _changed(item: Any, change: Any) -> Any:
    if isinstance(change, str):
        change = {"text": change}
    if not isinstance(item, Mapping) or not isinstance(change, Mapping):
        return change
    if operation_of(change) not in (None, operation_of(item)):
        return change  # another operation, which has other attributes
    inner = {
        name: _merged(item[name], value)
        for name, value in change.items()
        if isinstance(value, Mapping) and isinstance(item.get(name), Mapping)
    }
    return _merged(item, {**change, **inner})


def _merged(kept: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kept attributes with a change, without those that it sets to None.

    None for an attribute that was not kept remains: in an update, it clears a field.
    """
    taken_out = {name for name in kept if name in change and change[name] is None}
    return {name: one for name, one in {**kept, **change}.items() if name not in taken_out}
