"""Passports and trips."""

import datetime
from collections.abc import Iterator

from domains.travel.state import passports, trips
from uac import Alert, warning

# Countries that require a passport to be valid for six months beyond the stay.
SIX_MONTHS_BEYOND = frozenset({"Indonesia", "Kenya", "Thailand", "Vietnam"})


def six_months_after(day: datetime.date) -> datetime.date:
    """Return the same day half a year later, or the last day of that month."""
    year, month = day.year + (day.month + 5) // 12, (day.month + 5) % 12 + 1
    next_month = datetime.date(year + month // 12, month % 12 + 1, 1)
    last_day = (next_month - datetime.timedelta(days=1)).day
    return datetime.date(year, month, min(day.day, last_day))


def check(today: datetime.date) -> Iterator[Alert]:
    """The passport must be valid long enough for every upcoming trip."""
    for trip in trips:
        if trip.departs_on < today:
            continue
        needed = trip.returns_on
        if trip.country in SIX_MONTHS_BEYOND:
            needed = six_months_after(trip.returns_on)
        for passport in passports:
            if passport.expires_on < needed:
                yield warning(
                    f"The passport expires on {passport.expires_on}, but the trip to "
                    f"{trip.destination} needs it to be valid until {needed}",
                    evidence=[trip, passport],
                )
