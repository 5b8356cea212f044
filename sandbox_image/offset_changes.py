"""Find when a time zone's UTC offset changes."""

import datetime
import functools
from collections.abc import Iterator
from contextlib import suppress

from .traced_values import DAY, US


def list_offset_changes(moment: datetime.datetime) -> Iterator[int]:
    """Yield how soon after a given point in time its time zone's UTC offset changes.

    Yields up to two durations, in microseconds: one by the zone's wall clock and one in UTC.
    """
    zone = moment.tzinfo
    if zone is None or isinstance(zone, datetime.timezone):
        return
    wall = moment.replace(tzinfo=None)
    yield from _soonest_change(zone, True, wall)
    with suppress(OverflowError):
        yield from _soonest_change(
            zone, False, moment.astimezone(datetime.UTC).replace(tzinfo=None)
        )


def _soonest_change(
    zone: datetime.tzinfo, by_wall: bool, after: datetime.datetime
) -> Iterator[int]:
    for year in (after.year, after.year + 1):
        for change in _changes(zone, by_wall, year):
            if change > after:
                yield (change - after) // US
                return


@functools.lru_cache(maxsize=256)
def _changes(zone: datetime.tzinfo, by_wall: bool, year: int) -> tuple[datetime.datetime, ...]:
    """Return the times in a year when the zone's offset changes, by wall clock or in UTC."""
    if not datetime.MINYEAR < year < datetime.MAXYEAR:
        return ()

    def offset(at: datetime.datetime) -> datetime.timedelta | None:
        if by_wall:
            return at.replace(tzinfo=zone).utcoffset()
        return at.replace(tzinfo=datetime.UTC).astimezone(zone).utcoffset()

    changes = []
    day = datetime.timedelta(days=1)
    at = datetime.datetime(year, 1, 1)  # noqa: DTZ001
    while at.year == year:
        if offset(at) != offset(at + day):
            before, after = 0, DAY
            while after - before > 1:
                middle = (before + after) // 2
                same = offset(at + middle * US) == offset(at)
                before, after = (middle, after) if same else (before, middle)
            changes.append(at + after * US)
        at += day
    return tuple(changes)
