"""Forecast one constraint's findings over the coming days, assuming that only the clock changes.

A constraint that takes the day or the time is given a traced date or datetime, which records how it
is used (see `tracing.py`), so the constraint needs to be called again only when its answers could
have changed. If the use can't be recorded, the constraint is called for every day or every minute.
The result says when the findings change, but not how they are worded.
"""

import binascii
import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from .traced_values import DAY, MINUTE, US, Clock, Steps
from .tracing import Day, Moment
from .uac import protocol
from .uac.alerts import Alert, TooManyAlertsError

# Maximum number of calls to a constraint: more than there are days in a year or minutes in a day.
MAX_CALLS = 2000
MAX_CHANGES = 1000
MAX_ERROR = 200
# After more than this many consecutive calls for times less than a second apart, skip to the start
# of the next minute.
MAX_HURRIED = 20
SECOND = 1_000_000
# After MAX_DAILY consecutive calls that were one day apart, the constraint is called with plain
# dates instead of traced ones for PLAIN_DAYS days: tracing costs more than a call, and saves
# nothing while the constraint has to be called for every day anyway.
MAX_DAILY = 5
PLAIN_DAYS = 30

# Calls `check` with a day and a time, either of which may be traced, and returns its alerts.
Call = Callable[[Any, Any], Sequence[Alert]]
# A finding's identity: key, records, and a hash of the wording if there are no records.
Told = tuple[str | None, tuple[tuple[str, str, str], ...], str]


class Horizon(NamedTuple):
    """The start and end of the period to forecast, and the user's time zone."""

    start: datetime.datetime
    end: datetime.datetime
    time_zone: str

    @classmethod
    def parse(cls, start: str, end: str, time_zone: str) -> "Horizon":
        """Build a horizon from two ISO 8601 timestamps with UTC offsets.

        Raises ValueError if an offset is missing or the timestamps are in the wrong order.
        """
        begin, last = (datetime.datetime.fromisoformat(one) for one in (start, end))
        if begin.tzinfo is None or last.tzinfo is None or last < begin:
            raise ValueError("a horizon must be two datetimes with offsets, the earlier one first")
        return cls(begin.astimezone(datetime.UTC), last.astimezone(datetime.UTC), time_zone)


@dataclass(eq=False, repr=False)
class Timeline:
    """The changes in a constraint's findings up to `until`, or all future changes if it is None."""

    findings: list[Told] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    until: str | None = None
    calls: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the timeline in the form used in answers."""
        return {
            "findings": [
                {"key": key, "records": [list(record) for record in records], "wording": wording}
                for key, records, wording in self.findings
            ],
            "changes": self.changes,
            "until": self.until,
            "calls": self.calls,
        }


class Forecaster:
    """Calls one constraint as often as needed to forecast it, and builds the timeline."""

    def __init__(
        self,
        call: Call,
        summarize: Callable[[Alert], Told],
        is_unharmed: Callable[[], bool],
        *,
        follows: bool,
        seconds: float,
        most_calls: int = MAX_CALLS,
    ) -> None:
        """Prepare to forecast the constraint that `call` calls.

        `summarize` returns an alert's identity. `is_unharmed` returns whether all calls have left
        everything as it was. `follows` says whether the constraint's use of a traced datetime can
        be recorded. The forecast stops after `seconds`.
        """
        self._call, self._summarize, self._is_unharmed = call, summarize, is_unharmed
        self._follows, self._most_calls = follows, most_calls
        self._deadline = time.perf_counter() + seconds
        self._timeline = Timeline()
        self._last: object = None
        self._places: dict[Told, int] = {}

    def once(self, start: datetime.datetime) -> Timeline:
        """Forecast a constraint that takes neither the day nor the time."""
        self._look(start.isoformat(), lambda clock: (None, None), Clock(), MINUTE, follows=False)
        return self._timeline

    def days(self, start: datetime.date, end: datetime.date) -> Timeline:
        """Forecast a constraint that takes the day."""
        at, daily, plain = start, 0, 0
        while True:
            clock = Clock()

            def given(clock: Clock | None, at: datetime.date = at) -> tuple[Any, Any]:
                return _day(at, clock), None

            self._look(at.isoformat(), given, clock, DAY, follows=self._follows and not plain)
            if clock.soonest is None or (end - at) < clock.soonest * US:
                return self._timeline
            if plain:
                plain -= 1
            else:
                daily = daily + 1 if clock.soonest == DAY else 0
                plain = PLAIN_DAYS if daily >= MAX_DAILY else 0
            at += clock.soonest * US
            if self._is_over(at.isoformat()):
                return self._timeline

    def moments(self, horizon: Horizon) -> Timeline:
        """Forecast a constraint that takes the time."""
        zone = ZoneInfo(horizon.time_zone)
        at, hurried = horizon.start, 0
        while True:
            clock = Clock()

            def given(clock: Clock | None, at: datetime.datetime = at) -> tuple[Any, Any]:
                now = at.astimezone(zone)
                if clock is None:
                    return now.date(), now
                traced = Moment(now, clock)
                return traced.date(), traced

            wait = MINUTE - _of_minute(at)
            self._look(at.isoformat(), given, clock, wait, follows=self._follows)
            if clock.soonest is None or (horizon.end - at) < clock.soonest * US:
                return self._timeline
            hurried = hurried + 1 if clock.soonest < SECOND else 0
            if hurried > MAX_HURRIED:  # some comparison could change at any time
                clock.soonest = MINUTE - _of_minute(at)
            at += clock.soonest * US
            if self._is_over(at.isoformat()):
                return self._timeline

    def _look(
        self,
        at: str,
        given: Callable[[Clock | None], tuple[Any, Any]],
        clock: Clock,
        step: int,
        *,
        follows: bool,
    ) -> None:
        """Call the constraint and record any change in its findings.

        Afterwards, `clock` says when to call it again: when an answer could change if `follows` is
        set, otherwise after `step` microseconds.
        """
        timeline = self._timeline
        if follows:
            findings, error = self._outcome(*given(clock))
            if error is not None:
                # If tracing caused the error, we don't know how the constraint uses the time.
                findings, really = self._outcome(*given(None))
                if really != error:
                    clock.note(step)
                error = really
        else:
            findings, error = self._outcome(*given(None))
            clock.note(step)
        now = (error, findings)
        if now != self._last:
            timeline.changes.append({"at": at, "error": error, "found": findings})
        self._last = now

    def _outcome(self, today: Any, now: Any) -> tuple[list[list[Any]], str | None]:
        self._timeline.calls += 1
        try:
            alerts = self._call(today, now)
            summaries = [(self._summarize(alert), str(alert.severity)) for alert in alerts]
        except MemoryError:
            raise
        except TooManyAlertsError:
            return [], "alert_limit"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return [], protocol.storable(text[:MAX_ERROR])
        places = self._timeline.findings
        findings = set()
        for finding, severity in summaries:
            if finding not in self._places:
                self._places[finding] = len(places)
                places.append(finding)
            findings.add((self._places[finding], severity))
        return [list(one) for one in sorted(findings)], None

    def _is_over(self, at: str) -> bool:
        """Return whether the forecast must end at this time; if so, record the time as the end."""
        over = (
            self._timeline.calls >= self._most_calls
            or len(self._timeline.changes) >= MAX_CHANGES
            or time.perf_counter() > self._deadline
            or not self._is_unharmed()
        )
        if over:
            self._timeline.until = at
        return over


def wording_of(message: str) -> str:
    """Return a hash of a message, for findings that are identified only by their wording."""
    # Not a cryptographic hash: loading a library for that would cost 4 MB in every sandbox.
    text = message.encode("utf-8", "replace")
    return f"{binascii.crc32(text):08x}{binascii.crc32(text[::-1]):08x}"


def _day(at: datetime.date, clock: Clock | None) -> Any:
    return at if clock is None else Day(at, Steps.days(clock))


def _of_minute(at: datetime.datetime) -> int:
    return at.second * 1_000_000 + at.microsecond
