"""A forecast from traced uses of the clock equals the result of trying every day."""

import ast
import datetime
from typing import Any

import pytest
from hypothesis import strategies as st

from sandbox_image.forecasting import Horizon
from sandbox_image.traced_values import DAY, Clock, Steps
from sandbox_image.tracing import Day, can_follow
from tests.unit.sandbox.test_tracing import END, START, forecaster, really


class TestDays:
    @pytest.mark.parametrize(
        ("question", "most"),
        [
            ("today > date(2028, 5, 1)", 3),
            ("(date(2028, 5, 1) - today).days <= 30", 5),
            ("today + timedelta(days=90) >= date(2028, 5, 1)", 3),
            ("today.month == 5", 14),
        ],
    )
    def test_only_days_that_can_change_answers_are_tried(self, question: str, most: int) -> None:
        assert forecaster([question]).days(START, END).calls <= most

    def test_error_on_29_february_alone_ends_nothing_else(self) -> None:
        questions = ["1 / (today.month != 2 or today.day != 29)", "today > date(2028, 3, 5)"]
        timeline = forecaster(questions).days(START, END)
        assert [(change["at"], change["error"]) for change in timeline.changes] == [
            ("2027-11-20", None),
            ("2028-02-29", "ZeroDivisionError: division by zero"),
            ("2028-03-01", None),
            ("2028-03-06", None),
        ]

    @pytest.mark.parametrize("day", ["0001-01-01", "9999-12-25", "9999-12-31"])
    def test_the_ends_of_the_calendar(self, day: str) -> None:
        start = datetime.date.fromisoformat(day)
        end = min(start, datetime.date.max - datetime.timedelta(days=9))
        end = max(start, end + datetime.timedelta(days=9))
        questions = ["today + timedelta(days=3) > today", "today - timedelta(days=2) < today"]
        timeline = forecaster(questions).days(start, end)
        told = {change["at"]: change["error"] for change in timeline.changes}
        error: str | None = None
        for number in range((end - start).days + 1):
            at = start + datetime.timedelta(days=number)
            error = told.get(at.isoformat(), error)
            raised = really(questions, at)
            assert error == (raised if isinstance(raised, str) else None)

    def test_forecast_past_its_calls_has_an_end(self) -> None:
        timeline = forecaster(["str(today) == ''"], most_calls=10).days(START, END)
        assert timeline.until == "2027-11-30"

    def test_where_nothing_can_be_noted_every_day_is_tried(self) -> None:
        timeline = forecaster(["today > date(2028, 5, 1)"], follows=False).days(START, END)
        assert timeline.calls == (END - START).days + 1
        assert [change["at"] for change in timeline.changes] == ["2027-11-20", "2028-05-02"]


# Berlin puts its clocks forward in the night of the second day.
ZONE = "Europe/Berlin"
BEGIN = datetime.datetime(2028, 3, 25, 9, 17, 30, tzinfo=datetime.UTC)
LAST = BEGIN + datetime.timedelta(days=2)
moments = st.integers(0, 80 * 60).map(
    lambda minutes: (BEGIN + datetime.timedelta(minutes=minutes - 15 * 60)).replace(
        second=0, tzinfo=None
    )
)
hours = st.integers(-30, 60)


class TestMoments:
    def test_the_very_moment_is_found(self) -> None:
        question = "datetime(2028, 3, 26, 12, 0, 0, 7, tzinfo=UTC) - now < timedelta(hours=2)"
        timeline = forecaster([question]).moments(Horizon(BEGIN, LAST, ZONE))
        assert [change["at"] for change in timeline.changes] == [
            BEGIN.isoformat(),
            "2028-03-26T10:00:00.000008+00:00",
        ]
        assert timeline.calls <= 6


def code_of(text: str) -> Any:
    return compile(ast.parse(text), "<test>", "exec")


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("def check(today):\n    return [one for one in (1, 2) if today]", True),
        ("def check(today):\n    yield today.type", True),
        (
            "def check(today):\n    try:\n        yield 1\n    except TypeError:\n        pass",
            False,
        ),
        (
            "def check(today):\n    def inner():\n        try:\n            1\n        except: 2",
            False,
        ),
        ("def check(today):\n    return type(today)", False),
        ("def check(today):\n    with today:\n        yield 1", False),
        ("from builtins import type as kind\ndef check(today):\n    return kind(today)", False),
        ("import builtins\ndef check(today):\n    return builtins.type(today)", False),
        ("import builtins\ndef check(today):\n    return builtins.int(today.day)", True),
        ("def check(today):\n    left = today.left\n    return left is 5", False),
        ("def check(today):\n    return today is None or today.done is True", True),
    ],
)
@pytest.mark.filterwarnings("ignore:.is. with")
def test_code_that_could_hide_the_use_of_a_moment_is_not_followed(text: str, can: bool) -> None:
    assert can_follow(code_of(text)) is can


def test_a_day_is_a_date_to_whoever_asks() -> None:
    day: object = Day(START, Steps.days(Clock(), DAY))
    assert isinstance(day, datetime.date)
    assert not isinstance(day, datetime.datetime)
