"""The dates and times in a text, relative to the moment at which it was said."""

import datetime
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.language.dates_in_text import absolute_dates
from memory.language.moments_in_text import find_moments
from memory.language.times_in_text import find_times

AT = datetime.datetime(2026, 3, 4, 9, 30)  # noqa: DTZ001 - a Wednesday, on the speaker's clock


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("on 2026-05-02", "2026-05-02"),
        ("2026/5/2", "2026-05-02"),
        ("2026-05-02T10:00:00Z", "2026-05-02"),
        ("20260502", "2026-05-02"),
        ("2026年5月2日", "2026-05-02"),
        ("5/2/2026", "2026-05-02"),
        ("2/5/2026", "2026-05-02"),
        ("2.5.2026", "2026-05-02"),
        ("02.05.26", "2026-05-02"),
        ("May 2, 2026", "2026-05-02"),
        ("may 2nd 2026", "2026-05-02"),
        ("2 May 2026", "2026-05-02"),
        ("the 2nd of May, 2026", "2026-05-02"),
        ("Sept. 9, 1999", "1999-09-09"),
        ("from May 3 to 7, 2026", "2026-05-03"),
        ("from May 3 to 7, 2026", "2026-05-07"),
        ("3–7 May 2026", "2026-05-05"[:8] + "03"),
        ("May 2", "2026-05-02"),
        ("May 2, as in 1990", "1990-05-02"),
        ("on 12/24", "2026-12-24"),
        ("am 24.12.", "2025-12-24"),
        ("today", "2026-03-04"),
        ("whenever", "2026-03-04"),
        ("tomorrow", "2026-03-05"),
        ("yesterday", "2026-03-03"),
        ("last night", "2026-03-03"),
        ("the day after tomorrow", "2026-03-06"),
        ("the day before yesterday", "2026-03-02"),
        ("in 10 days", "2026-03-14"),
        ("in two weeks", "2026-03-18"),
        ("a week from now", "2026-03-11"),
        ("three days ago", "2026-03-01"),
        ("a fortnight ago", "2026-02-18"),
        ("in a month", "2026-04-04"),
        ("two years ago", "2024-03-04"),
        ("on Friday", "2026-03-06"),
        ("on Friday", "2026-02-27"),
        ("next Friday", "2026-03-06"),
        ("next Friday", "2026-03-13"),
        ("last Friday", "2026-02-27"),
        ("Tuesday next week", "2026-03-10"),
        ("this weekend", "2026-03-07"),
        ("next week", "2026-03-09"),
        ("next week", "2026-03-15"),
        ("the 15th", "2026-03-15"),
        ("end of May", "2026-05-31"),
        ("at the end of the month", "2026-03-31"),
        ("the beginning of June 2027", "2027-06-01"),
        ("the seventeenth of May", "2026-05-17"),
        ("the seventeenth of May, 2031", "2031-05-17"),
        ("on the twenty first day of June", "2026-06-21"),
        ("May the fourth", "2026-05-04"),
        ("December thirty-first", "2026-12-31"),
        ("I fly on the eleventh.", "2026-03-11"),
        ("in a fortnight", "2026-03-18"),
        ("a fortnight from now", "2026-03-18"),
        ("the first Monday in June", "2026-06-01"),
        ("the third Thursday of November 2027", "2027-11-18"),
        ("the last Friday of next month", "2026-04-24"),
        ("the 2nd Tuesday of the month", "2026-03-10"),
        ("a week from Friday", "2026-03-13"),
        ("two weeks from Tuesday", "2026-03-24"),
        ("a week from tomorrow", "2026-03-12"),
        ("Christmas Eve", "2026-12-24"),
        ("on Christmas Eve 2031", "2031-12-24"),
        ("New Year’s Eve", "2025-12-31"),
        ("the last three days of December", "2026-12-29"),
        ("the last three days of December", "2026-12-31"),
        ("the first two weeks of June", "2026-06-14"),
        ("Some time in September? Say the 14th.", "2026-09-14"),
    ],
)
def test_a_day_is_read(text: str, day: str) -> None:
    assert find_moments(text, AT).has_day(datetime.date.fromisoformat(day))


@pytest.mark.parametrize(
    ("text", "told_on", "days"),
    [
        ("last weekend", 7, {28, 1}),
        ("the past weekend", 7, {28, 1, 7}),
        ("last weekend", 8, {28, 1}),
        ("this past weekend", 8, {28, 1, 7, 8}),
        ("the past weekend", 9, {7, 8}),
        ("last friday_weekend", 8, {27, 28, 1, 6, 7, 8}),
        ("last friday_weekend", 9, {6, 7, 8}),
    ],
)
def test_last_weekend_told_on_a_weekend(text: str, told_on: int, days: set[int]) -> None:
    found = find_moments(text, AT.replace(day=told_on)).days

    assert {day.day for day in found} == {told_on, *days}


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("May 2, 2026", "2027-05-02"),
        ("May 2, 2026", "2026-05-20"),
        ("May 2, 2026", "2026-06-02"),
        ("2026-05-02", "2026-02-05"),
        ("May 2", "1990-05-02"),
        ("13/14/2026", "2026-02-01"),
        ("tomorrow", "2026-03-06"),
        ("in two weeks", "2026-03-20"),
        ("next Friday", "2026-02-27"),
        ("last Friday", "2026-03-06"),
        ("on Friday", "2026-03-20"),
        ("next week", "2026-03-11"),
        ("next month", "2026-04-01"),  # which is no day: a PartialDate says what is said
        ("30 February 2026", "2026-02-28"),
        ("the seventeenth of May", "2026-05-18"),
        ("the thirty-first of June", "2026-07-01"),
        ("the first of many", "2026-04-01"),
        ("on the first try", "2026-04-01"),
        ("the first Monday in June", "2026-06-08"),
        ("the fifth Monday in June 2027", "2027-06-28"),
        ("a week from Friday", "2026-03-20"),
        ("Christmas Eve", "2026-12-25"),
        ("the last three days of December", "2026-12-28"),
        ("the first two weeks of June", "2026-06-15"),
    ],
)
def test_a_day_that_nobody_means_is_not_read(text: str, day: str) -> None:
    assert not find_moments(text, AT).has_day(datetime.date.fromisoformat(day))


@pytest.mark.parametrize(
    ("text", "month", "said"),
    [
        ("May 2026", (2026, 5), True),
        ("2026-05", (2026, 5), True),
        ("May 2, 2026", (2026, 5), True),
        ("in May", (2026, 5), True),
        ("in May", (2025, 5), True),
        ("next month", (2026, 4), True),
        ("last month", (2026, 2), True),
        ("in a month", (2026, 4), True),
        ("May 2026", (2027, 5), False),
        ("May 2, 2026", (2025, 5), False),
        ("next month", (2026, 5), False),
        ("in May", (2019, 5), False),
    ],
)
def test_a_month_is_read(text: str, month: tuple[int, int], said: bool) -> None:
    assert find_moments(text, AT).has_month(*month) is said


@pytest.mark.parametrize(
    ("text", "year", "said"),
    [
        ("in 1999", 1999, True),
        ("the summer of '69", 1969, True),
        ("last year", 2025, True),
        ("five years ago", 2021, True),
        ("May 2, 2019", 2019, True),
        ("in 1999", 1998, False),
        ("room 2026b of 99", 1999, False),
    ],
)
def test_a_year_is_read(text: str, year: int, said: bool) -> None:
    assert find_moments(text, AT).has_year(year) is said


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("14:30", {(14, 30)}),
        ("at 2:30 pm", {(14, 30)}),
        ("at 12 am", {(0, 0)}),
        ("2:30", {(2, 30), (14, 30)}),
        ("at 7", {(7, 0), (19, 0)}),
        ("7pm", {(19, 0)}),
        ("19 Uhr", {(19, 0)}),
        ("14h15", {(14, 15)}),
        ("at seven", {(7, 0), (19, 0)}),
        ("half past seven", {(7, 30), (19, 30)}),
        ("quarter to six", {(5, 45), (17, 45)}),
        ("ten past 8", set()),
        ("10 past 8", {(8, 10), (20, 10)}),
        ("at noon", {(12, 0)}),
        ("midnight", {(0, 0)}),
    ],
)
def test_a_time_is_read(text: str, times: set[tuple[int, int]]) -> None:
    assert find_times(text) == times
    assert find_moments(text, AT).times == {(9, 30), *times}


def test_the_moment_itself_is_said() -> None:
    assert find_moments("", AT).times == {(9, 30)}


DAYS = st.dates(datetime.date(1900, 1, 1), datetime.date(2199, 12, 31))
FORMATS = [
    *("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%B %d, %Y", "%d %B %Y", "%b %d %Y"),
    *("the %dth of %B %Y", "%Y/%m/%d", "%d %b, %Y"),
]


@given(DAYS, st.sampled_from(FORMATS))
def test_every_way_to_write_a_date_is_read(day: datetime.date, form: str) -> None:
    text = f"So on {day.strftime(form)} we met."
    assert find_moments(text, AT).has_day(day)
    assert any(day in dated.days for dated in absolute_dates(text))


@given(DAYS, DAYS)
def test_a_date_does_not_stand_for_another(said: datetime.date, other: datetime.date) -> None:
    if other not in (said, AT.date()):
        assert not find_moments(said.isoformat(), AT).has_day(other)


@given(st.integers(1, 3000))
def test_a_number_of_days_is_counted(days: int) -> None:
    distance = datetime.timedelta(days=days)
    assert find_moments(f"in {days} days", AT).has_day(AT.date() + distance)
    assert find_moments(f"{days} days ago", AT).has_day(AT.date() - distance)


@given(st.text(alphabet=st.sampled_from("0123456789.-/: ,'thndMayJunin agoweks年月")) | st.text())
def test_no_text_is_too_odd(text: str) -> None:
    find_moments(text, AT)
    list(absolute_dates(text))


@pytest.mark.parametrize(
    "text", ["9999999999999 years ago", "in 99999 years", "in 99999999 days", "0000-00-00", "1/0"]
)
def test_date_outside_the_calendar_is_not_read(text: str) -> None:
    assert find_moments(text, AT) == find_moments("", AT)


def test_a_long_text_takes_no_long_time() -> None:
    years = " ".join(map(str, range(1900, 2100)))
    parts = [
        "first Monday in ",
        "May the first ",
        "last two days of June ",
        "Christmas Eve ",
        "1,1 ",
        "May 1 ",
        "May 1 2026 ",
        "2026",
        "in 3 days ",
        "1/1 ",
        "next Friday ",
        "de ",
    ]
    for part in parts:
        started = time.process_time()
        find_moments(f"{part * (50_000 // len(part))} {years}", AT)
        assert time.process_time() - started < 5, part
