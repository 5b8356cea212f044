"""Tests for deadline_window: when it alerts, when it does not, and the boundary days."""

import datetime

from uac import Alert, PartialDate, Severity
from uac.testing import run_check
from workspace.constraints import deadline_window

DUE = datetime.date(2026, 4, 15)

# The number of days left until the last day, and the severity that the alert has on that day.
DAYS = (
    (31, ""),
    (30, "info"),
    (8, "info"),
    (7, "warning"),
    (2, "warning"),
    (1, "critical"),
    (0, "critical"),
    (-1, "critical"),
    (-30, "critical"),
    (-31, ""),
)


def alerts(deadline: deadline_window.Deadline, today: datetime.date) -> list[Alert]:
    return run_check(deadline_window, today=today, deadlines=[deadline])


def filing(notice_days: int | None = None) -> deadline_window.Deadline:
    return deadline_window.Deadline(
        key="d-1", title="Tax return", due_on=DUE, notice_days=notice_days
    )


def before(days: int, day: datetime.date = DUE) -> datetime.date:
    return day - datetime.timedelta(days=days)


def test_boundary_days_of_each_window() -> None:
    for days, severity in DAYS:
        found = alerts(filing(), before(days))
        assert "".join(alert.severity for alert in found) == severity, days


def test_says_what_is_due_and_rests_on_it() -> None:
    deadline = filing()
    (alert,) = alerts(deadline, before(3))
    assert alert.message == "Tax return is due on 2026-04-15"
    assert alert.evidence == (deadline,)
    (late,) = alerts(deadline, before(-3))
    assert late.message == "Tax return was due on 2026-04-15"


def test_boundary_days_of_a_notice() -> None:
    lease = filing(notice_days=60)
    notice = before(60)
    for days, severity in DAYS:
        found = alerts(lease, before(days, notice))
        assert "".join(alert.severity for alert in found) == severity, days
    (alert,) = alerts(lease, notice)
    assert alert.message == "Tax return: 60 days' notice for 2026-04-15 is due by 2026-02-14"
    (alert,) = alerts(filing(notice_days=1), before(1))
    assert alert.message == "Tax return: 1 day's notice for 2026-04-15 is due by 2026-04-14"


def test_a_notice_of_no_days_is_none() -> None:
    assert [alert.message for alert in alerts(filing(notice_days=0), DUE)] == [
        "Tax return is due on 2026-04-15"
    ]


def test_silent_about_days_beyond_the_calendar() -> None:
    assert alerts(filing(notice_days=10**12), DUE) == []
    never = deadline_window.Deadline(key="d", title="Tax", due_on=datetime.date.max)
    assert alerts(never, DUE) == []


def test_of_a_month_the_first_day_counts() -> None:
    deadline = deadline_window.Deadline(key="d", title="Permit", due_on=PartialDate("2026-04"))
    for today, severity in (
        (datetime.date(2026, 3, 1), ""),
        (datetime.date(2026, 3, 2), "info"),
        (datetime.date(2026, 3, 25), "warning"),
        (datetime.date(2026, 4, 1), "critical"),
    ):
        found = alerts(deadline, today)
        assert "".join(alert.severity for alert in found) == severity, today
    assert alerts(deadline, datetime.date(2026, 4, 1))[0].message == "Permit is due in 2026-04"


def test_silent_where_it_is_done_or_has_no_day() -> None:
    for settled in (
        deadline_window.Deadline(key="d", title="Tax", due_on=DUE, done=True),
        deadline_window.Deadline(key="d", title="Tax", due_on=DUE, done_on=before(9)),
        deadline_window.Deadline(key="d", title="Tax", due_on=DUE, status="Filed"),
        deadline_window.Deadline(key="d", title="Tax", due_on=None),
    ):
        assert alerts(settled, DUE) == []


def test_open_by_its_status() -> None:
    pending = deadline_window.Deadline(key="d", title="Tax", due_on=DUE, status="pending")
    assert [alert.severity for alert in alerts(pending, DUE)] == [Severity.CRITICAL]


def test_the_order_is_that_of_the_days() -> None:
    deadlines = [
        deadline_window.Deadline(key=key, title=key, due_on=before(days))
        for key, days in (("b", 0), ("c", 2), ("a", 0))
    ]
    found = run_check(deadline_window, today=before(3), deadlines=deadlines)
    assert [alert.evidence[0].key for alert in found] == ["c", "a", "b"]
