"""Alerts: of a user, or of a whole workspace.

Generated from `_async/alerts.py`.
"""

import datetime
import time
from collections.abc import Iterator

from userascode import models, params
from userascode._sync.transport import Pages, Transport
from userascode.protocol import FEED_PAUSE, MAX_WAIT, path, read, write


class Alerts:
    """The alerts below a path: `users/ada/`, or nothing for the workspace's."""

    def __init__(self, transport: Transport, below: str) -> None:
        self._transport = transport
        self._below = below

    def list(
        self,
        *,
        state: str | None = None,
        severity: params.SeverityEnum | None = None,
        kind: params.AlertKindEnum | None = None,
        constraint: str | None = None,
        as_of: str | None = None,
        page_size: int | None = None,
    ) -> Pages[models.AlertThen]:
        """Return the alerts, newest first; with `as_of`, those that were unresolved then."""
        request = read(
            f"{self._below}alerts/",
            state=state,
            severity=severity,
            kind=kind,
            constraint=constraint,
            as_of=as_of,
            page_size=page_size,
        )
        return Pages(self._transport, request, models.PaginatedAlertThenList)

    def stream(
        self,
        *,
        after: int | str = "now",
        state: str | None = None,
        severity: params.SeverityEnum | None = None,
        kind: params.AlertKindEnum | None = None,
        constraint: str | None = None,
    ) -> Iterator[models.AlertNews]:
        """Yield alerts as they open, change and end, and wait for the next, without an end.

        `after` is the number of an event (0: all that ever happened); to go on later, keep that of
        `alert.events[-1].seq`.
        """
        while True:
            feed = self.feed(
                after=after,
                wait=MAX_WAIT,
                state=state,
                severity=severity,
                kind=kind,
                constraint=constraint,
            )
            for alert in feed.results:
                yield alert
            after = feed.next
            if not feed.waited:  # too many others wait
                time.sleep(FEED_PAUSE)

    def feed(
        self,
        *,
        after: int | str = "now",
        wait: float | None = None,
        state: str | None = None,
        severity: params.SeverityEnum | None = None,
        kind: params.AlertKindEnum | None = None,
        constraint: str | None = None,
    ) -> models.AlertFeed:
        """Return a page of events; without filters also of entries that were rejected."""
        request = read(
            f"{self._below}events/",
            after=after,
            wait=wait,
            state=state,
            severity=severity,
            kind=kind,
            constraint=constraint,
        )
        return self._transport.fetch(request, models.AlertFeed)

    def get(self, alert_id: str) -> models.AlertDetail:
        """Return an alert with its history."""
        return self._transport.fetch(read(path("alerts", alert_id)), models.AlertDetail)

    def acknowledge(self, alert_id: str, note: str | None = None) -> models.AlertDetail:
        """Mark an alert as seen."""
        return self._change(alert_id, "acknowledge", note=note)

    def snooze(
        self,
        alert_id: str,
        until: datetime.datetime | str | None = None,
        note: str | None = None,
    ) -> models.AlertDetail:
        """Silence an alert until a moment, or until it changes."""
        moment = until.isoformat() if isinstance(until, datetime.datetime) else until
        return self._change(alert_id, "snooze", until=moment, note=note)

    def resolve(self, alert_id: str, reason: str) -> models.AlertDetail:
        """Close an alert although its cause is still there."""
        return self._change(alert_id, "resolve", reason=reason)

    def reopen(self, alert_id: str, note: str | None = None) -> models.AlertDetail:
        """Open an alert again."""
        return self._change(alert_id, "reopen", note=note)

    def give_feedback(
        self, alert_id: str, verdict: params.VerdictEnum, note: str | None = None
    ) -> models.AlertDetail:
        """Say whether an alert was useful."""
        return self._change(alert_id, "feedback", verdict=verdict, note=note)

    def _change(self, alert_id: str, verb: str, **body: str | None) -> models.AlertDetail:
        request = write("POST", path("alerts", alert_id, verb), body)
        return self._transport.fetch(request, models.AlertDetail)
