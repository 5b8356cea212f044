"""Tests for missing_follow_up: when it alerts, when it does not, and the boundary days."""

import datetime

from uac import Alert, PartialDate, Severity
from uac.testing import run_check
from workspace.constraints import missing_follow_up

OPENED = datetime.date(2026, 2, 1)
DUE = datetime.date(2026, 3, 10)
AFTER = datetime.date(2026, 3, 11)


def case(
    follow_up_by: datetime.date | PartialDate | None = DUE,
    followed_up_on: datetime.date | None = None,
    status: str = "",
) -> missing_follow_up.Case:
    return missing_follow_up.Case(
        key="lab-1",
        title="Blood test",
        follow_up_by=follow_up_by,
        opened_on=OPENED,
        followed_up_on=followed_up_on,
        status=status,
    )


def follow_up(about: str, done_on: datetime.date | None = DUE) -> missing_follow_up.FollowUp:
    return missing_follow_up.FollowUp(key="f-1", about=about, done_on=done_on)


def alerts(
    asked: missing_follow_up.Case,
    *done: missing_follow_up.FollowUp,
    today: datetime.date = AFTER,
) -> list[Alert]:
    return run_check(missing_follow_up, today=today, cases=[asked], follow_ups=list(done))


def test_says_what_waits_and_since_when() -> None:
    asked = case()
    (alert,) = alerts(asked)
    assert alert.severity is Severity.WARNING
    assert alert.message == ("Blood test: no follow-up is recorded; one was due by 2026-03-10")
    assert alert.evidence == (asked,)


def test_boundary_days() -> None:
    for by, today, speaks in (
        (DUE, DUE, False),
        (DUE, AFTER, True),
        (DUE, DUE + datetime.timedelta(days=180), True),
        (DUE, DUE + datetime.timedelta(days=181), False),
        (PartialDate("2026-03"), datetime.date(2026, 3, 31), False),
        (PartialDate("2026-03"), datetime.date(2026, 4, 1), True),
        (None, AFTER, False),
    ):
        assert bool(alerts(case(by), today=today)) is speaks, (by, today)


def test_a_month_is_told_as_such() -> None:
    (alert,) = alerts(case(PartialDate("2026-03")), today=datetime.date(2026, 4, 1))
    assert alert.message.endswith("one was due in 2026-03")


def test_boundary_what_counts_as_a_follow_up() -> None:
    for done, speaks in (
        (follow_up("lab-1"), False),
        (follow_up(" blood TEST "), False),
        (follow_up("blood test", None), False),
        (follow_up("blood test", OPENED), False),
        (follow_up("blood test", datetime.date(2026, 1, 31)), True),  # earlier than the case
        (follow_up("blood test", AFTER), False),
        (follow_up("blood test", datetime.date(2026, 3, 12)), True),  # follow-up in the future
        (follow_up("X-ray"), True),
    ):
        assert bool(alerts(case(), done)) is speaks, done


def test_boundary_the_day_on_which_it_was_closed() -> None:
    assert alerts(case(followed_up_on=AFTER)) == []
    assert alerts(case(followed_up_on=datetime.date(2026, 3, 12)))


def test_silent_where_it_is_marked_as_done() -> None:
    done = missing_follow_up.Case(key="c", title="Test", follow_up_by=DUE, followed_up=True)
    assert alerts(done) == []
    assert alerts(case(status="Closed")) == []
    assert alerts(case(status="open"))


def test_the_order_is_that_of_the_days() -> None:
    cases = [
        missing_follow_up.Case(key=key, title=key, follow_up_by=day)
        for key, day in (("b", DUE), ("c", OPENED), ("a", DUE))
    ]
    found = run_check(missing_follow_up, today=AFTER, cases=cases)
    assert [alert.evidence[0].key for alert in found] == ["c", "a", "b"]
