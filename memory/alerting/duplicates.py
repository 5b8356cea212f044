"""Duplicates: what a user's own constraint and one of the workspace both find is one alert.

The alert that opened first is listed. The other one is its duplicate, and a row of its own: it is
kept and resolved by what its own constraint finds, like any alert, so neither constraint can
silence the other. But it has no events and is listed nowhere; its constraint is another cause of
the listed alert. As soon as that one no longer tells all that the duplicate has to tell, the
duplicate is listed by itself, and is open: in doubt an alert is told twice, and never missed.
"""

import re
import unicodedata
from collections.abc import Iterable

from memory.canonical import canonical_json
from memory.models import Alert
from memory.models.alerts import AlertKind, AlertState
from memory.models.workspace_constraints import FOLDER

# A hyphen that is a minus is no punctuation.
_MINUS = re.compile(r"(?<!\w)-(?=\d)")


def find_original(alert: Alert, listed: Iterable[Alert]) -> Alert | None:
    """Return the first of these listed alerts that an alert can be a duplicate of.

    It is of the other kind of constraint (the user's own, or the workspace's), and as severe, and
    it rests on the same records and entries. Without records nothing tells that it is the same.
    Whether they tell the same problem of these, the findings say.
    """
    if alert.kind != AlertKind.FINDING or not alert.evidence:
        return None
    for other in listed:
        if (
            other.kind == AlertKind.FINDING
            and other.severity == alert.severity
            and _is_of_workspace(other) != _is_of_workspace(alert)
            and _records(other) == _records(alert)
        ):
            return other
    return None


def covers(original: Alert, duplicate: Alert) -> bool:
    """Return whether a listed alert still tells all that its duplicate has to tell."""
    return (
        original.state != AlertState.RESOLVED
        and bool(duplicate.evidence)
        and original.rank >= duplicate.rank
        and _records(original) >= _records(duplicate)
    )


def say_the_same(message: str, other: str) -> bool:
    """Return whether two messages have the same words, whatever their case and punctuation."""
    return _words(message) == _words(other)


def _words(message: str) -> list[str]:
    text = _MINUS.sub("\N{MINUS SIGN}", message.casefold())
    return "".join(" " if unicodedata.category(one)[0] == "P" else one for one in text).split()


def _is_of_workspace(alert: Alert) -> bool:
    return alert.constraint.startswith(FOLDER)


def _records(alert: Alert) -> set[str]:
    return {canonical_json(dict(item)) for item in alert.evidence}
