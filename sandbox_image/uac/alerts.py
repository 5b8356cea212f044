"""Alerts: what a constraint yields."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from .records import Record


class Severity(enum.StrEnum):
    """How much an alert matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A finding. Its identity is its constraint and either `key` or the keys of its evidence."""

    severity: Severity
    message: str
    evidence: tuple[Record, ...] = ()
    key: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.severity, Severity):
            raise TypeError(f"an alert's severity is a Severity, not {self.severity!r}")
        if not isinstance(self.message, str) or not self.message.strip():
            raise TypeError(f"an alert's message is a non-empty text, not {self.message!r}")
        if not all(isinstance(record, Record) for record in self.evidence):
            raise TypeError("an alert's evidence is a list of records: evidence=[trip, passport]")
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise TypeError(f"an alert's key is a non-empty text, not {self.key!r}")
        if not self.evidence and self.key is None:
            raise TypeError(
                "an alert needs evidence=[…], the records it rests on, or key='…', a name that"
                " tells it from the other alerts of its constraint"
            )


def info(message: str, *, evidence: Sequence[Record] = (), key: str | None = None) -> Alert:
    """An alert that is good to know."""
    return _alert(Severity.INFO, message, evidence, key)


def warning(message: str, *, evidence: Sequence[Record] = (), key: str | None = None) -> Alert:
    """An alert that calls for action some day soon."""
    return _alert(Severity.WARNING, message, evidence, key)


def critical(message: str, *, evidence: Sequence[Record] = (), key: str | None = None) -> Alert:
    """An alert that calls for action now."""
    return _alert(Severity.CRITICAL, message, evidence, key)


def _alert(severity: Severity, message: str, evidence: Sequence[Record], key: str | None) -> Alert:
    if not isinstance(evidence, (list, tuple)):
        raise TypeError("an alert's evidence is a list of records: evidence=[trip, passport]")
    return Alert(severity=severity, message=message, evidence=tuple(evidence), key=key)
