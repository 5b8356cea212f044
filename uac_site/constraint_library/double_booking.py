"""Appointments must not overlap, and those at home must not fall within an absence.

Raises an alert for each pair of appointments of the same person that overlap by a minute or more
and are not over. The alert is a warning at first, and critical from 24 hours before the overlap
begins. An appointment that ends when the next one begins does not overlap with it. Times without a
time zone are in the user's time zone. Times are compared as absolute points in time, so changes
between standard and daylight saving time are taken into account. An appointment without an end or a
duration is assumed to last one hour, and the alert says so. Daily and weekly repetitions are
considered for the next 13 weeks. Also raises a warning for an appointment that is marked as taking
place at the user's home, such as a plumber's visit, on a day between the first and the last day of
a trip or vacation. On the first and the last day themselves, the user may be at home.

Needs appointments with a title and a start that has a time. The end, the duration, the person, a
cancellation, and absences with their days are used if they are recorded. Appointments of people
with different names do not overlap.

Does not consider travel between two places, all-day appointments, repetitions other than daily and
weekly ones, or single occurrences that were moved.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, Record, critical, warning

ALSO = {
    "Appointment": (
        "Meeting",
        "Event",
        "CalendarEvent",
        "Booking",
        "Reservation",
        "Visit",
        "Lesson",
        "Flight",
        "Exam",
    ),
    "Appointment.title": ("name", "subject", "what", "summary", "description", "place", "venue"),
    "Appointment.starts_at": (
        "start",
        "start_at",
        "start_time",
        "begins_at",
        "at",
        "departs_at",
        "scheduled_at",
        "scheduled_for",
        "when",
    ),
    "Appointment.ends_at": ("end", "end_at", "end_time", "finishes_at", "arrives_at", "until"),
    "Appointment.minutes": ("duration_minutes", "duration_min", "length_minutes"),
    "Appointment.person": ("attendee", "participant", "who", "for_whom"),
    "Appointment.repeats": ("recurrence", "repeat", "frequency"),
    "Appointment.repeats_until": ("recurs_until", "last_on"),
    "Appointment.cancelled": ("canceled", "is_cancelled"),
    "Appointment.at_home": ("is_at_home", "home_visit"),
    "Absence": ("Vacation", "Holiday", "Trip", "Journey", "Travel", "Leave"),
    "Absence.title": ("name", "destination", "to", "where", "country", "reason"),
    "Absence.start": ("starts_on", "start_date", "departs_on", "departure_date", "first_day"),
    "Absence.end": ("ends_on", "end_date", "returns_on", "return_date", "last_day"),
    "Absence.person": ("traveller", "traveler", "who"),
    "Absence.cancelled": ("canceled", "is_cancelled"),
}

OFF = ("cancelled", "canceled", "declined", "rejected")
ASSUMED = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)
HORIZON = datetime.timedelta(weeks=13)
EVERY = {"daily": 1, "weekly": 7}


@dataclass(kw_only=True)
class Appointment(Record):
    """Something that the user, or somebody else, has to attend."""

    title: str
    starts_at: datetime.datetime
    ends_at: datetime.datetime | None = None
    minutes: int | float | None = None
    person: str | None = None
    repeats: str = ""
    repeats_until: datetime.date | None = None
    cancelled: bool = False
    status: str = ""
    at_home: bool = False


@dataclass(kw_only=True)
class Absence(Record):
    """Days on which the user is not at home."""

    title: str
    start: datetime.date
    end: datetime.date
    person: str | None = None
    cancelled: bool = False


@dataclass(frozen=True)
class Slot:
    """One occurrence of an appointment, with its start and end in UTC."""

    start: datetime.datetime
    end: datetime.datetime
    appointment: Appointment


def check(
    now: datetime.datetime,
    appointments: Sequence[Appointment],
    absences: Sequence[Absence] = (),
) -> Iterator[Alert]:
    """Appointments must not overlap, and those at home must not fall within an absence."""
    slots = sorted(
        (slot for one in appointments if is_on(one) for slot in slots_of(one, now)),
        key=lambda slot: (slot.start, slot.end, slot.appointment.key),
    )
    reported: set[tuple[str, ...]] = set()
    lasting: list[Slot] = []
    for slot in slots:
        lasting = [other for other in lasting if other.end > slot.start]
        for other in lasting:
            pair = tuple(sorted((other.appointment.key, slot.appointment.key)))
            if pair not in reported and are_one_person(other.appointment, slot.appointment):
                reported.add(pair)
                raised = critical if slot.start - now <= DAY else warning
                yield raised(
                    f"{in_words(other, now)} overlaps {in_words(slot, now)}",
                    evidence=[other.appointment, slot.appointment],
                )
        lasting.append(slot)
    away = sorted((one for one in absences if not one.cancelled), key=lambda one: one.key)
    yield from check_absences(slots, away, now)


def check_absences(
    slots: Sequence[Slot], absences: Sequence[Absence], now: datetime.datetime
) -> Iterator[Alert]:
    """Yield a warning for each appointment at home between an absence's first and last day."""
    reported: set[tuple[str, str]] = set()
    for slot in slots:
        one, day = slot.appointment, slot.start.astimezone(now.tzinfo).date()
        for absence in absences if one.at_home else ():
            away = absence.start < day < absence.end and (
                not one.person or not absence.person or plain(one.person) == plain(absence.person)
            )
            if away and (one.key, absence.key) not in reported:
                reported.add((one.key, absence.key))
                yield warning(
                    f"{in_words(slot, now)} takes place at home during the absence"
                    f" “{absence.title.strip()}” ({absence.start} to {absence.end})",
                    evidence=[one, absence],
                )


def is_on(appointment: Appointment) -> bool:
    """Return whether the appointment will take place, at a time within the supported range."""
    moments = (appointment.starts_at, appointment.ends_at or appointment.starts_at)
    written = all(1900 <= moment.year <= 9000 for moment in moments)
    return (
        written and not appointment.cancelled and appointment.status.strip().casefold() not in OFF
    )


def slots_of(appointment: Appointment, now: datetime.datetime) -> Iterator[Slot]:
    """Yield the occurrences of an appointment that are not over yet."""
    step = EVERY.get(appointment.repeats.strip().casefold(), 0)
    last = appointment.repeats_until
    start = appointment.starts_at
    if step:
        # Start with the first occurrence that may still be in progress.
        missed = (in_utc(now, now) - in_utc(start, now)).days // step - 1
        start += datetime.timedelta(days=max(missed, 0) * step)
    while True:
        begins = in_utc(start, now)
        ends = begins + length(appointment, now)
        if step and (begins > now + HORIZON or (last is not None and start.date() > last)):
            return
        if ends > begins and ends > now:
            yield Slot(begins, ends, appointment)
        if not step:
            return
        start += datetime.timedelta(days=step)


def length(appointment: Appointment, now: datetime.datetime) -> datetime.timedelta:
    """Return how long the appointment lasts."""
    if appointment.ends_at is not None:
        return in_utc(appointment.ends_at, now) - in_utc(appointment.starts_at, now)
    if has_minutes(appointment):
        return datetime.timedelta(minutes=appointment.minutes or 0)
    return ASSUMED


def has_minutes(appointment: Appointment) -> bool:
    """Return whether a plausible duration (at most a week) is recorded."""
    return appointment.minutes is not None and 0 <= appointment.minutes <= 7 * 24 * 60


def in_utc(moment: datetime.datetime, now: datetime.datetime) -> datetime.datetime:
    """The time in UTC. A time without a time zone is in the user's time zone, which is `now`'s."""
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=now.tzinfo)
    return zoned.astimezone(datetime.UTC)


def are_one_person(one: Appointment, other: Appointment) -> bool:
    """Return whether two appointments are different and may be for the same person."""
    same = not one.person or not other.person or plain(one.person) == plain(other.person)
    return same and one is not other


def in_words(slot: Slot, now: datetime.datetime) -> str:
    """Describe the appointment, with its start and end in the user's time zone."""
    start, end = slot.start.astimezone(now.tzinfo), slot.end.astimezone(now.tzinfo)
    until = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%Y-%m-%d %H:%M}"
    one = slot.appointment
    assumed = ", end assumed" if one.ends_at is None and not has_minutes(one) else ""
    return f"{one.title.strip()} ({start:%Y-%m-%d %H:%M}–{until}{assumed})"


def plain(text: str) -> str:
    """The text, normalised for comparison."""
    return " ".join(text.casefold().split())
