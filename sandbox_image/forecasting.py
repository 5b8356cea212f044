"""What one constraint will find over the days to come, if nothing changes but the clock.

One that asks for the day or the moment is handed one that notes what is asked of it (see
`tracing.py`), and is called again only where its answers could have changed. Of one in which that
cannot be noted, every day is tried, or every minute. What comes back is where its findings change,
never their wording.
"""

import binascii
import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from .tracing import DAY, MINUTE, US, Clock, Day, Moment, Steps
from .uac import protocol
from .uac.alerts import Alert, TooManyAlertsError

# So often is a constraint called; more days than a year has, and more minutes than a day.
MOST_CALLS = 2000
MOST_CHANGES = 1000
MOST_ERROR = 200
# After so many looks in a row within a second each, the next one is in a minute.
MOST_HURRIED = 20
SECOND = 1_000_000
# After so many looks in a row a day apart, it is called with plain days for so many: to note what
# is asked costs more than the call, and tells nothing where each day is another one.
MOST_DAILY = 5
PLAIN_DAYS = 30

# What `check` yields when it is told that it is that day and that moment; either may be traced.
Call = Callable[[Any, Any], Sequence[Alert]]
# A finding as far as it tells it from others: key, records, and for want of those its wording.
Told = tuple[str | None, tuple[tuple[str, str, str], ...], str]


@dataclass(frozen=True)
class Horizon:
    """From when to when to look, and where the user lives."""

    start: datetime.datetime
    end: datetime.datetime
    time_zone: str

    @classmethod
    def of(cls, start: str, end: str, time_zone: str) -> "Horizon":
        """Of ISO texts with an offset; ValueError if they are none, or in the wrong order."""
        begin, last = (datetime.datetime.fromisoformat(one) for one in (start, end))
        if begin.tzinfo is None or last.tzinfo is None or last < begin:
            raise ValueError("a horizon is two moments with their offsets, the earlier one first")
        return cls(begin.astimezone(datetime.UTC), last.astimezone(datetime.UTC), time_zone)


@dataclass
class Timeline:
    """Where the findings of a constraint change; known until `until`, or all along."""

    findings: list[Told] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    until: str | None = None
    calls: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the answer has it."""
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
    """Calls one constraint again and again."""

    def __init__(
        self,
        call: Call,
        tell: Callable[[Alert], Told],
        is_unharmed: Callable[[], bool],
        *,
        follows: bool,
        seconds: float,
        most_calls: int = MOST_CALLS,
    ) -> None:
        """`tell` says what an alert is, `is_unharmed` whether a call left everything as it was;
        `follows` whether its use of a traced moment can be noted. It stops after so long."""
        self._call, self._tell, self._is_unharmed = call, tell, is_unharmed
        self._follows, self._most_calls = follows, most_calls
        self._deadline = time.perf_counter() + seconds
        self._timeline = Timeline()
        self._last: object = None
        self._places: dict[Told, int] = {}

    def once(self, start: datetime.datetime) -> Timeline:
        """Of a constraint that asks for no time."""
        self._look(start.isoformat(), lambda clock: (None, None), Clock(), MINUTE, follows=False)
        return self._timeline

    def days(self, start: datetime.date, end: datetime.date) -> Timeline:
        """Of one that asks for the day."""
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
                plain = PLAIN_DAYS if daily >= MOST_DAILY else 0
            at += clock.soonest * US
            if self._is_over(at.isoformat()):
                return self._timeline

    def moments(self, horizon: Horizon) -> Timeline:
        """Of one that asks for the moment."""
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
            if hurried > MOST_HURRIED:  # what follows the moment at its heels
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
        """Call it, and note what changed; `clock` tells then when to look again: if it `follows`
        what is asked, when that says, else after this step."""
        timeline = self._timeline
        if follows:
            found, error = self._outcome(*given(clock))
            if error is not None:
                # Was it the traced moment that was at fault? Then nothing is known of its use.
                found, really = self._outcome(*given(None))
                if really != error:
                    clock.note(step)
                error = really
        else:
            found, error = self._outcome(*given(None))
            clock.note(step)
        now = (error, found)
        if now != self._last:
            timeline.changes.append({"at": at, "error": error, "found": found})
        self._last = now

    def _outcome(self, today: Any, now: Any) -> tuple[list[list[Any]], str | None]:
        self._timeline.calls += 1
        try:
            alerts = self._call(today, now)
            told = [(self._tell(alert), str(alert.severity)) for alert in alerts]
        except MemoryError:
            raise
        except TooManyAlertsError:
            return [], "alert_limit"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return [], protocol.storable(text[:MOST_ERROR])
        places = self._timeline.findings
        found = set()
        for finding, severity in told:
            if finding not in self._places:
                self._places[finding] = len(places)
                places.append(finding)
            found.add((self._places[finding], severity))
        return [list(one) for one in sorted(found)], None

    def _is_over(self, at: str) -> bool:
        """Whether no more is found out, from that moment on."""
        over = (
            self._timeline.calls >= self._most_calls
            or len(self._timeline.changes) >= MOST_CHANGES
            or time.perf_counter() > self._deadline
            or not self._is_unharmed()
        )
        if over:
            self._timeline.until = at
        return over


def wording_of(message: str) -> str:
    """What stands for a wording by which alone a finding is told from what it was."""
    # No cryptography: it would take 4 MB of every sandbox.
    text = message.encode("utf-8", "replace")
    return f"{binascii.crc32(text):08x}{binascii.crc32(text[::-1]):08x}"


def _day(at: datetime.date, clock: Clock | None) -> Any:
    return at if clock is None else Day(at, Steps.days(clock))


def _of_minute(at: datetime.datetime) -> int:
    return at.second * 1_000_000 + at.microsecond
