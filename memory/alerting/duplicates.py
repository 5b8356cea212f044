"""Duplicates: a finding that a user's own and a workspace constraint share is one alert.

The alert that opened first is listed. The other one is its duplicate, with a row of its own: it is
kept and resolved by the findings of its own constraint, like any alert, so neither constraint can
silence the other. But it has no events and is not listed; its constraint is another cause of the
listed alert. As soon as the listed alert no longer covers the duplicate, the duplicate is listed by
itself, and is open: in doubt an alert is shown twice, and never missed.
"""

import re
import unicodedata
from collections.abc import Iterable

from memory.canonical import canonical_json
from memory.models import Alert
from memory.models.alerts import AlertKind, AlertState
from memory.models.workspace_constraints import FOLDER

# A hyphen that is a minus sign is no punctuation.
_MINUS = re.compile(r"(?<!\w)-(?=\d)")


def find_original(alert: Alert, listed: Iterable[Alert]) -> Alert | None:
    """Return the first of these listed alerts that an alert can be a duplicate of.

    The original belongs to the other kind of constraint (the user's own, or the workspace's) and
    has the same severity, records and entries. Without records, alerts cannot be matched. Whether
    they are about the same problem of these records is decided from the findings.
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
    """Return whether a listed alert still covers its duplicate."""
    return (
        original.state != AlertState.RESOLVED
        and bool(duplicate.evidence)
        and original.rank >= duplicate.rank
        and _records(original) >= _records(duplicate)
    )


def say_the_same(message: str, other: str) -> bool:
    """Return whether two messages have the same words, ignoring case and punctuation."""
    return _words(message) == _words(other)


def _words(message: str) -> list[str]:
    text = _MINUS.sub("\N{MINUS SIGN}", message.casefold())
    return "".join(" " if unicodedata.category(one)[0] == "P" else one for one in text).split()


def _is_of_workspace(alert: Alert) -> bool:
    return alert.constraint.startswith(FOLDER)


def _records(alert: Alert) -> set[str]:
    return {canonical_json(dict(item)) for item in alert.evidence}
