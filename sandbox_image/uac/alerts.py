"""Alerts, which constraints yield."""

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .records import Record


class Severity(enum.StrEnum):
    """The severity of an alert: for information only, or requiring action soon or now."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A constraint's finding.

    Findings from the same constraint are the same alert if they have the same `key` or, if they
    have no key, the same evidence.
    """

    severity: Severity
    message: str
    evidence: tuple[Record, ...] = ()
    key: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.severity, Severity):
            raise TypeError(f"an alert's severity must be a Severity, not {self.severity!r}")
        if not isinstance(self.message, str) or not self.message.strip():
            raise TypeError(f"an alert's message must be non-empty text, not {self.message!r}")
        if not all(isinstance(record, Record) for record in self.evidence):
            raise TypeError(
                "an alert's evidence must be a list of records: evidence=[trip, passport]"
            )
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise TypeError(f"an alert's key must be non-empty text, not {self.key!r}")
        if not self.evidence and self.key is None:
            raise TypeError(
                "an alert needs evidence=[…] (the records it is based on) or key='…' (a name that"
                " distinguishes it from the constraint's other alerts)"
            )
        if _room is not None:
            _room.take(self)


class TooManyAlertsError(Exception):
    """A check raised more alerts than its limit allows; `alerts` contains the first ones."""

    def __init__(self, alerts: Sequence[Alert]) -> None:
        super().__init__(
            f"more than {len(alerts)} alerts at once: combine alerts that have a common cause"
        )
        self.alerts = alerts


class _Room:
    """Limits how many Alert objects one check may create, so that it can't exhaust the memory."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most * MADE_FOR_EACH
        self.first: list[Alert] = []

    def take(self, alert: Alert) -> None:
        if len(self.first) < self.most:
            self.first.append(alert)
        self.left -= 1
        if self.left < 0:
            raise TooManyAlertsError(self.first)


# How many alerts a check may create for each alert that it may yield, since it may discard some.
MADE_FOR_EACH = 10
_room: _Room | None = None


@contextmanager
def room_for(most: int) -> Iterator[None]:
    """In this context, raise TooManyAlertsError if far more than `most` alerts are created."""
    global _room
    _room = _Room(most)
    try:
        yield
    finally:
        _room = None


def info(message: str, *, evidence: Sequence[Record] = (), key: str | None = None) -> Alert:
    """Return an alert that is for information only."""
    return _alert(Severity.INFO, message, evidence, key)


def warning(message: str, *, evidence: Sequence[Record] = (), key: str | None = None) -> Alert:
    """Return an alert that requires action soon."""
    return _alert(Severity.WARNING, message, evidence, key)


def critical(message: str, *, evidence: Sequence[Record] = (), key: str | None = None) -> Alert:
    """Return an alert that requires action now."""
    return _alert(Severity.CRITICAL, message, evidence, key)


def _alert(severity: Severity, message: str, evidence: Sequence[Record], key: str | None) -> Alert:
    if not isinstance(evidence, (list, tuple)):
        raise TypeError("an alert's evidence must be a list of records: evidence=[trip, passport]")
    return Alert(severity=severity, message=message, evidence=tuple(evidence), key=key)
