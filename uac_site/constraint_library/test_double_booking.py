"""Tests for double_booking: when it alerts, when it does not, and the boundary minutes."""

import datetime
from zoneinfo import ZoneInfo

from uac import Alert, Severity
from uac.testing import run_check
from workspace.constraints import double_booking

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime.datetime(2026, 3, 2, 9, 0, tzinfo=BERLIN)


def at(day: int, hour: int, minute: int = 0) -> datetime.datetime:
    """A time in March 2026 on the user's clock, without a time zone."""
    return datetime.datetime(2026, 3, day, hour, minute)


def appointment(
    key: str,
    starts_at: datetime.datetime,
    ends_at: datetime.datetime | None = None,
    person: str | None = None,
    repeats: str = "",
) -> double_booking.Appointment:
    return double_booking.Appointment(
        key=key, title=key, starts_at=starts_at, ends_at=ends_at, person=person, repeats=repeats
    )


def alerts(*appointments: double_booking.Appointment, now: datetime.datetime = NOW) -> list[Alert]:
    return run_check(double_booking, now=now, appointments=list(appointments))


def test_says_which_two_overlap_and_when() -> None:
    dentist = appointment("dentist", at(10, 14), at(10, 16))
    meeting = appointment("meeting", at(10, 13), at(10, 15))
    (alert,) = alerts(dentist, meeting)
    assert alert.severity is Severity.WARNING
    assert alert.message == (
        "meeting (2026-03-10 13:00–15:00) overlaps dentist (2026-03-10 14:00–16:00)"
    )
    assert alert.evidence == (meeting, dentist)


def test_boundary_minutes() -> None:
    first = appointment("a", at(10, 14), at(10, 16))
    for start, end, speaks in (
        (at(10, 16), at(10, 17), False),
        (at(10, 15, 59), at(10, 17), True),
        (at(10, 13), at(10, 14), False),
        (at(10, 13), at(10, 14, 1), True),
        (at(10, 14, 30), at(10, 15), True),
        (at(11, 14), at(11, 16), False),
    ):
        assert bool(alerts(first, appointment("b", start, end))) is speaks, (start, end)


def test_boundary_one_day_before_and_the_end() -> None:
    pair = [appointment("a", at(10, 14), at(10, 16)), appointment("b", at(10, 15), at(10, 16))]
    for now, severity in (
        (at(9, 14, 59), "warning"),
        (at(9, 15), "critical"),
        (at(10, 15, 59), "critical"),
        (at(10, 16), ""),
    ):
        found = alerts(*pair, now=now.replace(tzinfo=BERLIN))
        assert "".join(alert.severity for alert in found) == severity, now


def test_an_end_that_is_not_known_is_assumed_and_told() -> None:
    open_end = appointment("dinner", at(10, 19))
    (alert,) = alerts(open_end, appointment("call", at(10, 19, 59), at(10, 20, 30)))
    assert "dinner (2026-03-10 19:00–20:00, end assumed)" in alert.message
    assert alerts(open_end, appointment("call", at(10, 20), at(10, 20, 30))) == []


def test_a_duration_in_minutes() -> None:
    long = double_booking.Appointment(key="a", title="a", starts_at=at(10, 9), minutes=90)
    assert alerts(long, appointment("b", at(10, 10, 29)))
    assert alerts(long, appointment("b", at(10, 10, 30))) == []


def test_a_duration_that_is_none_is_assumed() -> None:
    for minutes in (-5, 10**12, float("inf"), float("nan")):
        odd = double_booking.Appointment(key="a", title="a", starts_at=at(10, 9), minutes=minutes)
        (alert,) = alerts(odd, appointment("b", at(10, 9, 59)))
        assert "a (2026-03-10 09:00–10:00, end assumed)" in alert.message, minutes


def test_boundary_a_duration_of_nothing_and_of_a_week() -> None:
    for minutes, speaks in ((0, False), (1, True), (7 * 24 * 60, True)):
        odd = double_booking.Appointment(key="a", title="a", starts_at=at(10, 9), minutes=minutes)
        found = alerts(odd, appointment("b", at(10, 8, 30), at(10, 9, 30)))
        assert bool(found) is speaks, minutes
        assert all("assumed" not in alert.message for alert in found), minutes


def test_boundary_years_beyond_those_of_a_calendar() -> None:
    for year, speaks in ((1, False), (1899, False), (1900, True), (2020, True)):
        start = datetime.datetime(year, 3, 10, 9, 0)
        old = appointment("a", start, start + datetime.timedelta(minutes=30), repeats="daily")
        assert bool(alerts(old, appointment("b", at(10, 9)))) is speaks, year
    for year, speaks in ((2030, True), (9000, True), (9001, False), (9999, False)):
        far = [appointment(key, datetime.datetime(year, 12, 31, 23, 59)) for key in ("a", "b")]
        assert bool(alerts(*far)) is speaks, year


def test_times_with_a_zone_are_compared_as_moments() -> None:
    new_york = datetime.datetime(2026, 3, 10, 10, 0, tzinfo=ZoneInfo("America/New_York"))
    call = appointment("call", new_york, new_york + datetime.timedelta(minutes=30))
    # 10:00 in New York, where daylight saving time has begun, is 15:00 in Berlin, where it has not.
    assert alerts(call, appointment("dentist", at(10, 15), at(10, 16)))
    assert alerts(call, appointment("dentist", at(10, 16), at(10, 17))) == []


def test_the_hour_that_the_clocks_skip_is_none() -> None:
    # On 29 March in Berlin, 01:30 to 03:30 is one hour.
    night = appointment("shift", at(29, 1, 30), at(29, 3, 30))
    moment = datetime.datetime(2026, 3, 29, 1, 0, tzinfo=datetime.UTC)  # 03:00 in Berlin
    ends = moment + datetime.timedelta(minutes=30)
    assert alerts(night, appointment("call", moment, ends))
    assert alerts(night, appointment("call", ends, ends + datetime.timedelta(hours=1))) == []


def test_silent_for_two_people_or_what_is_cancelled() -> None:
    start, end = at(10, 14), at(10, 16)
    ann, ben = appointment("a", start, end, "Ann"), appointment("b", start, end, "Ben")
    off = double_booking.Appointment(key="c", title="c", starts_at=start, cancelled=True)
    declined = double_booking.Appointment(key="d", title="d", starts_at=start, status="Declined")
    assert alerts(ann, ben) == []
    assert alerts(ann, off, declined) == []
    assert alerts(ann, appointment("e", start, end))  # the third appointment does not name a person


def test_what_repeats_overlaps_once_and_within_thirteen_weeks() -> None:
    board = appointment("board", at(3, 14), at(3, 16), repeats="weekly")
    (alert,) = alerts(board, appointment("flight", at(24, 14, 30)))
    assert alert.message.startswith("board (2026-03-24 14:00–16:00) overlaps flight")
    other = appointment("lesson", at(3, 15), at(3, 17), repeats="Weekly")
    assert len(alerts(board, other)) == 1
    assert alerts(board, appointment("flight", at(25, 14, 30))) == []
    # A weekly appointment that began years ago.
    old = appointment("old", datetime.datetime(2020, 3, 3, 14), repeats="weekly")
    assert alerts(old, appointment("flight", at(24, 14, 30)))


def test_boundary_the_last_day_and_the_thirteenth_week_of_what_repeats() -> None:
    for until, speaks in ((datetime.date(2026, 3, 23), False), (datetime.date(2026, 3, 24), True)):
        ended = double_booking.Appointment(
            key="a",
            title="a",
            starts_at=at(3, 14),
            repeats="weekly",
            repeats_until=until,
        )
        assert bool(alerts(ended, appointment("flight", at(24, 14, 30)))) is speaks, until
    standup = appointment("standup", at(2, 9), repeats="weekly")
    for week, speaks in ((13, True), (14, False)):
        later = at(2, 9) + datetime.timedelta(weeks=week)
        assert bool(alerts(standup, appointment("flight", later))) is speaks, week


def test_what_repeats_daily() -> None:
    pill = appointment("pill", at(3, 8), at(3, 8, 10), repeats="daily")
    assert alerts(pill, appointment("call", at(6, 8)))
    assert alerts(pill, appointment("call", at(6, 8, 10))) == []


def test_an_end_before_the_start_is_no_time() -> None:
    wrong = appointment("a", at(10, 14), at(10, 13))
    assert alerts(wrong, appointment("b", at(10, 13), at(10, 15))) == []


def test_what_takes_no_time_overlaps_nothing() -> None:
    moment = appointment("reminder", at(10, 14), at(10, 14))
    assert alerts(moment, appointment("b", at(10, 13), at(10, 15))) == []


def absence_alerts(
    visit: double_booking.Appointment, person: str | None = None, *, cancelled: bool = False
) -> list[Alert]:
    away = double_booking.Absence(
        key="trip",
        title="Costa Rica",
        start=datetime.date(2026, 3, 10),
        end=datetime.date(2026, 3, 20),
        person=person,
        cancelled=cancelled,
    )
    return run_check(double_booking, now=NOW, appointments=[visit], absences=[away])


def plumber(day: int, person: str | None = None, repeats: str = "") -> double_booking.Appointment:
    return double_booking.Appointment(
        key="plumber",
        title="Plumber",
        starts_at=at(day, 10),
        minutes=60,
        at_home=True,
        person=person,
        repeats=repeats,
    )


def test_boundary_days_of_an_absence() -> None:
    for day, speaks in ((10, False), (11, True), (19, True), (20, False)):
        assert bool(absence_alerts(plumber(day))) is speaks, day
    visit = plumber(15)
    (alert,) = absence_alerts(visit)
    assert alert.severity is Severity.WARNING
    assert alert.message == (
        "Plumber (2026-03-15 10:00–11:00) takes place at home during the absence “Costa Rica”"
        " (2026-03-10 to 2026-03-20)"
    )
    assert [record.key for record in alert.evidence] == ["plumber", "trip"]


def test_silent_where_nobody_or_somebody_else_is_away() -> None:
    assert absence_alerts(appointment("dinner", at(15, 19))) == []  # an appointment away from home
    assert absence_alerts(plumber(15, "Ann"), "Ben") == []
    assert len(absence_alerts(plumber(15, "Ann"), " ann ")) == 1
    assert absence_alerts(plumber(15), cancelled=True) == []


def test_what_repeats_during_an_absence_is_told_once() -> None:
    assert len(absence_alerts(plumber(11, repeats="daily"))) == 1
