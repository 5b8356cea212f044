"""A preference that has not been confirmed for a year should be asked about again.

Raises an info alert for each preference that was last confirmed at least a year ago, starting on
the same day of the next year (28 February for 29 February). If two preferences on the same subject
have different values, the older preference is instead reported immediately, as replaced by the
newer preference. If only the month or year of the confirmation is known, the last day of that month
or year is used.

Needs preferences with a subject and the day on which they were last confirmed or stated, which may
be empty: preferences without such a day are left out.

Does not consider that differently worded subjects may be the same, or that a preference may be
permanent, such as a religious one. For a permanent preference, leave the day empty or set
`permanent`.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from uac import Alert, PartialDate, Record, info

ALSO = {
    "Preference": ("Liking", "UserPreference", "Habit", "Wish"),
    "Preference.subject": ("topic", "name", "category", "what", "about", "title"),
    "Preference.confirmed_on": (
        "last_confirmed_on",
        "confirmed_at",
        "stated_on",
        "noted_on",
        "updated_on",
        "recorded_on",
        "said_on",
        "since",
        "date",
    ),
    "Preference.value": ("preference", "choice", "likes", "answer"),
    "Preference.active": ("is_active", "current"),
    "Preference.permanent": ("is_permanent", "for_ever"),
}


@dataclass(kw_only=True)
class Preference(Record):
    """Something that the user likes, wants or avoids."""

    subject: str
    confirmed_on: datetime.date | datetime.datetime | PartialDate | None
    value: str | int | float | bool | Decimal | None = None
    active: bool = True
    permanent: bool = False


def check(today: datetime.date, preferences: Sequence[Preference]) -> Iterator[Alert]:
    """A preference that has not been confirmed for a year should be asked about again."""
    subjects: dict[str, list[tuple[datetime.date, Preference]]] = {}
    for one in preferences:
        if one.active and one.confirmed_on is not None and last(one.confirmed_on) <= today:
            subjects.setdefault(plain(one.subject), []).append((last(one.confirmed_on), one))
    for _, group in sorted(subjects.items()):
        group.sort(key=lambda item: (item[0], item[1].key))
        _, newest = group[-1]
        for day, preference in group:
            if says(preference) != says(newest):
                yield info(
                    f"{in_words(preference)} is replaced by the newer{in_words(newest)[3:]}",
                    evidence=[preference, newest],
                )
            elif preference is newest and a_year_after(day) <= today and not preference.permanent:
                yield info(
                    f"{in_words(preference)} has not been confirmed for a year",
                    evidence=[preference],
                )


def a_year_after(day: datetime.date) -> datetime.date:
    """The same day of the next year; 28 February for 29 February."""
    if (day.month, day.day) == (2, 29):
        return datetime.date(day.year + 1, 2, 28)
    return day.replace(year=day.year + 1)


def last(day: datetime.date | datetime.datetime | PartialDate) -> datetime.date:
    """The last day of a date, which may be a whole month or year."""
    if isinstance(day, PartialDate):
        return day.latest
    return day.date() if isinstance(day, datetime.datetime) else day


def says(preference: Preference) -> str:
    """The preference's value, normalised for comparison."""
    return "" if preference.value is None else plain(str(preference.value))


def in_words(preference: Preference) -> str:
    """Describe the preference, with its value and its date."""
    value = "" if preference.value is None else f" “{str(preference.value).strip()}”"
    day = preference.confirmed_on
    shown = day.date() if isinstance(day, datetime.datetime) else day
    return f"The preference for {preference.subject.strip()}{value} from {shown}"


def plain(text: str) -> str:
    """The text, normalised for comparison."""
    return " ".join(text.casefold().split())
