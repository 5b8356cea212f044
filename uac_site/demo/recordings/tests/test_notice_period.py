"""The notice period constraint alerts when it must, and only then."""

import datetime
import decimal

from constraints import notice_period
from domains.contracts.schema import Contract
from uac import Alert, Severity
from uac.testing import run_check

ENDS_ON = datetime.date(2025, 5, 31)  # three months before: the last day of February
DEADLINE = datetime.date(2025, 2, 28)


def alerts_on(
    today: datetime.date,
    wanted: bool | None,
    cancelled_on: datetime.date | None = None,
    *,
    notice_months: int | None = 3,
    renewed_months: int | None = 12,
) -> list[Alert]:
    """Run the constraint over one contract."""
    contract = Contract(
        key="gym",
        subject="membership of the gym",
        monthly_cost_eur=decimal.Decimal(30),
        ends_on=ENDS_ON,
        notice_months=notice_months,
        renewed_months=renewed_months,
        wanted_after_end=wanted,
        cancelled_on=cancelled_on,
    )
    return run_check(notice_period, today=today, contracts=[contract])


def test_speaks_when_the_last_day_comes_near() -> None:
    """With the day and the money."""
    (alert,) = alerts_on(DEADLINE - datetime.timedelta(days=30), False)

    assert alert.severity == Severity.CRITICAL
    assert "2025-02-28" in alert.message
    assert "360 euros" in alert.message


def test_is_silent_while_there_is_time() -> None:
    """A day earlier nobody needs to hear of it."""
    assert alerts_on(DEADLINE - datetime.timedelta(days=31), False) == []


def test_is_silent_about_what_is_wanted_or_may_be() -> None:
    """It may renew itself then."""
    assert alerts_on(DEADLINE, True) == []
    assert alerts_on(DEADLINE, None) == []


def test_is_silent_about_what_is_cancelled() -> None:
    """It is done."""
    assert alerts_on(DEADLINE, False, DEADLINE) == []


def test_is_silent_where_the_terms_are_not_known() -> None:
    """Nobody can say by when."""
    assert alerts_on(DEADLINE, False, notice_months=None) == []
    assert alerts_on(DEADLINE, False, renewed_months=None) == []


def test_speaks_until_it_is_over() -> None:
    """On the last day somebody may still be reached."""
    assert alerts_on(ENDS_ON, False)


def test_is_silent_when_it_is_over() -> None:
    """Too late."""
    assert alerts_on(ENDS_ON + datetime.timedelta(days=1), False) == []
