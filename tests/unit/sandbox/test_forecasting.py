"""A forecast from traced uses of the clock equals the result of trying every day."""

import ast
import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_image.forecasting import Forecaster, Horizon
from sandbox_image.traced_values import DAY, Clock, Steps
from sandbox_image.tracing import Day, can_follow
from sandbox_image.uac.alerts import Alert, Severity
from tests.properties import examples
from tests.unit.sandbox.test_tracing import END, START, forecaster, foreseen, really, tell, tried

operators = st.sampled_from(["<", "<=", "==", "!=", ">", ">="])
dates = st.dates(datetime.date(2027, 10, 1), datetime.date(2029, 1, 1)).map(
    lambda day: f"date({day.year}, {day.month}, {day.day})"
)
numbers = st.integers(-40, 400)


def template(text: str, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """A strategy for a text with these parts."""
    return st.fixed_dictionaries(parts).map(lambda found: text.format(**found))


questions_of_the_day = st.one_of(
    template("today {o} {d}", o=operators, d=dates),
    template("{d} {o} today", o=operators, d=dates),
    template("({d} - today).days {o} {n}", o=operators, d=dates, n=numbers),
    template("0 <= (today - {d}).days <= {n}", d=dates, n=numbers),
    template("({d} - today).days in (30, 7, 1)", d=dates),
    template("abs((today - {d}).days) {o} {n}", o=operators, d=dates, n=numbers),
    template("2 * ({d} - today).days - 5 {o} {n}", o=operators, d=dates, n=numbers),
    template("({d} - today).days / 7 {o} {n}", o=operators, d=dates, n=st.integers(-5, 50)),
    template("({d} - today).days // 7 {o} {n}", o=operators, d=dates, n=st.integers(-5, 50)),
    template("({d} - today).days % 7 == 3", d=dates),
    template("round(({d} - today).days / 30) {o} {n}", o=operators, d=dates, n=st.integers(0, 9)),
    template("not ({d} - today)", d=dates),
    template("not (today - {d}).days", d=dates),
    template("{d} - today {o} timedelta(days={n}, hours=5)", o=operators, d=dates, n=numbers),
    template("-(today - {d}) {o} timedelta(days={n})", o=operators, d=dates, n=numbers),
    template("(today - {d}).total_seconds() {o} 86400 * {n}", o=operators, d=dates, n=numbers),
    template("(today - {d}) / timedelta(weeks=1) {o} {n}", o=operators, d=dates, n=numbers),
    template("(today - {d}) // timedelta(weeks=1) {o} {n}", o=operators, d=dates, n=numbers),
    template("today + timedelta(days={n}) {o} {d}", o=operators, d=dates, n=numbers),
    template("timedelta(days={n}) + today {o} {d}", o=operators, d=dates, n=numbers),
    template("today - timedelta(days={n}) {o} {d}", o=operators, d=dates, n=numbers),
    template("today + ({d} - today) == {e}", d=dates, e=dates),
    template("(today + timedelta(days=9)) - today == timedelta(days=9) and today > {d}", d=dates),
    template("today.month in (2, {n})", n=st.integers(1, 12)),
    template("today.year {o} 2028", o=operators),
    template("today.weekday() == {n}", n=st.integers(0, 6)),
    template("today.day {o} {n}", o=operators, n=st.integers(1, 31)),
    template("today.isocalendar().week == {n}", n=st.integers(1, 53)),
    template("today.replace(day=1) {o} {d}", o=operators, d=dates),
    template("str(today) {o} str({d})", o=operators, d=dates),
    template("f'{{today:%m-%d}}' == '02-29' or today == {d}", d=dates),
    template("today in ({d}, {e})", d=dates, e=dates),
    template("today in {{{d}, {e}}}", d=dates, e=dates),
    template("sorted([today, {d}])[0] == {d}", d=dates),
    template("max(today, {d}).month == {n}", d=dates, n=st.integers(1, 12)),
    template("PartialDate('2028-{n:02}') {o} today", o=operators, n=st.integers(1, 12)),
    template("today {o} PartialDate('2028')", o=st.sampled_from(["<", "<=", ">", ">="])),
    template("datetime.combine(today, time(0)) > datetime(2028, {n}, 1)", n=st.integers(1, 12)),
    template(
        "isinstance(today, date) and not isinstance(today, datetime) and today > {d}", d=dates
    ),
    template("date(2028, {n}, 3).toordinal() < today.toordinal()", n=st.integers(1, 12)),
    template("1 / (today.day - {n})", n=st.integers(29, 31)),
    template("[1, 2, 3][({d} - today).days]", d=dates),
    template("len(range((today - {d}).days)) > 20", d=dates),
    template("today + timedelta(days=2_913_{n:03}) > {d}", n=st.integers(0, 999), d=dates),
    template("date(1, 1, {n}) < today < date(9999, 12, {n})", n=st.integers(1, 31)),
    template("today > 5 or {d}", d=dates),
)


class TestDays:
    @settings(max_examples=examples(50), deadline=None)
    @given(questions=st.lists(questions_of_the_day, min_size=1, max_size=4))
    def test_every_day_is_as_if_it_were_tried(self, questions: list[str]) -> None:
        timeline = forecaster(questions).days(START, END)

        assert timeline.until is None
        assert foreseen(timeline) == tried(questions, START, END)

    @pytest.mark.parametrize(
        ("question", "most"),
        [
            ("today > date(2028, 5, 1)", 3),
            ("(date(2028, 5, 1) - today).days <= 30", 5),
            ("today + timedelta(days=90) >= date(2028, 5, 1)", 3),
            ("today.month == 5", 14),
        ],
    )
    def test_only_days_on_which_an_answer_can_change_are_tried(
        self, question: str, most: int
    ) -> None:
        assert forecaster([question]).days(START, END).calls <= most

    def test_where_each_day_is_another_one_little_is_noted(self) -> None:
        """Tracing resumes once the days no longer differ, and finds that no more calls are due."""
        noted: list[datetime.date] = []

        def call(today: Any, now: Any) -> list[Alert]:
            if type(today) is Day:
                noted.append(datetime.date.fromisoformat(str(today._real)))
            left = (datetime.date(2028, 5, 1) - today).days
            return [Alert(severity=Severity.INFO, message="m", key=f"{left}")] if left >= 0 else []

        one = Forecaster(call, tell, lambda: True, follows=True, seconds=60)
        timeline = one.days(START, END)

        assert len(timeline.changes) == (datetime.date(2028, 5, 2) - START).days + 1
        assert len(noted) <= 12
        assert timeline.calls < 210
        assert max(noted) < datetime.date(2028, 6, 10)

    def test_what_raises_on_29_february_alone_ends_nothing_else(self) -> None:
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

    def test_it_stops_where_it_takes_too_long_and_says_until_when_it_knows(self) -> None:
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
zoned = st.one_of(
    moments.map(lambda at: f"datetime.fromisoformat('{at.isoformat()}').replace(tzinfo=UTC)"),
    moments.map(
        lambda at: f"datetime.fromisoformat('{at.isoformat()}').replace(tzinfo=ZoneInfo('{ZONE}'))"
    ),
)
hours = st.integers(-30, 60)
days_near = moments.map(lambda at: f"date({at.year}, {at.month}, {at.day})")

questions_of_the_moment = st.one_of(
    template("now {o} {m}", o=operators, m=zoned),
    template("{m} {o} now", o=operators, m=zoned),
    template("{m} - now {o} timedelta(hours={n})", o=operators, m=zoned, n=hours),
    template("now - {m} {o} timedelta(hours={n})", o=operators, m=zoned, n=hours),
    template("now + timedelta(hours={n}) {o} {m}", o=operators, m=zoned, n=hours),
    template("now - timedelta(hours={n}) {o} {m}", o=operators, m=zoned, n=hours),
    template("({m} - now).total_seconds() {o} 3600 * {n}", o=operators, m=zoned, n=hours),
    template("({m} - now).total_seconds() / 3600 {o} {n}", o=operators, m=zoned, n=hours),
    template("({m} - now) / timedelta(hours=1) {o} {n}", o=operators, m=zoned, n=hours),
    template("({m} - now) // timedelta(hours=1) {o} {n}", o=operators, m=zoned, n=hours),
    template("({m} - now).days == {n}", m=zoned, n=st.integers(-3, 3)),
    template("({m} - now).seconds // 3600 == {n}", m=zoned, n=st.integers(0, 23)),
    template("abs({m} - now) {o} timedelta(hours={n})", o=operators, m=zoned, n=hours),
    template("now.date() {o} {d}", o=operators, d=days_near),
    template("today {o} {d}", o=operators, d=days_near),
    template("(now.date() - {d}).days {o} {n}", o=operators, d=days_near, n=st.integers(-3, 3)),
    template("now.time() {o} time({n}, 30)", o=operators, n=st.integers(0, 23)),
    template("now.hour {o} {n}", o=operators, n=st.integers(0, 23)),
    template("now.minute == {n}", n=st.integers(0, 59)),
    template("now.weekday() == {n}", n=st.integers(0, 6)),
    template("(now + timedelta(hours={h})).hour == {n}", h=hours, n=st.integers(0, 23)),
    template("(now + timedelta(days=1)).date() {o} {d}", o=operators, d=days_near),
    template("now.astimezone(UTC).hour == {n}", n=st.integers(0, 23)),
    template("now.astimezone(ZoneInfo('Asia/Tokyo')).date() {o} {d}", o=operators, d=days_near),
    template("now.replace(tzinfo=None) {o} {m}.replace(tzinfo=None)", o=operators, m=zoned),
    template("now.timestamp() {o} {m}.timestamp()", o=operators, m=zoned),
    template("now.utcoffset() == timedelta(hours={n})", n=st.integers(1, 2)),
    template("f'{{now:%H:%M}}' {o} '{n:02}:15'", o=operators, n=st.integers(0, 23)),
    template("now.replace(hour={n}, minute=0) < now", n=st.integers(4, 23)),
    template("datetime.combine(now.date(), time({n}), now.tzinfo) < now", n=st.integers(4, 23)),
)


class TestMoments:
    @settings(max_examples=examples(5), deadline=None)
    @given(questions=st.lists(questions_of_the_moment, min_size=1, max_size=3))
    def test_every_minute_is_as_if_it_were_tried(self, questions: list[str]) -> None:
        timeline = forecaster(questions).moments(Horizon(BEGIN, LAST, ZONE))

        zone = ZoneInfo(ZONE)
        ends = [datetime.datetime.fromisoformat(change["at"]) for change in timeline.changes]
        instants = [BEGIN + datetime.timedelta(minutes=n) for n in range(0, 48 * 60, 5)]
        instants = sorted({*instants, *(at.replace(second=0) for at in instants[1:]), *ends})
        outcomes = list(foreseen(timeline).values())
        assert len(outcomes) == len(ends)
        place = 0
        for at in instants:
            while place + 1 < len(ends) and ends[place + 1] <= at:
                place += 1
            local = at.astimezone(zone)
            assert outcomes[place] == really(questions, local.date(), local), f"at {local}"
        for earlier, later in pairwise(outcomes):
            assert earlier != later

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
