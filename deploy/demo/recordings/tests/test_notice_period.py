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


def test_alerts_when_the_last_day_approaches() -> None:
    """The alert names the day and the cost."""
    (alert,) = alerts_on(DEADLINE - datetime.timedelta(days=30), False)

    assert alert.severity == Severity.CRITICAL
    assert "2025-02-28" in alert.message
    assert "360 euros" in alert.message


def test_does_not_alert_while_there_is_time() -> None:
    """A day earlier, nobody needs to know yet."""
    assert alerts_on(DEADLINE - datetime.timedelta(days=31), False) == []


def test_does_not_alert_on_a_contract_that_may_be_wanted() -> None:
    """Such a contract may renew itself."""
    assert alerts_on(DEADLINE, True) == []
    assert alerts_on(DEADLINE, None) == []


def test_does_not_alert_on_a_cancelled_contract() -> None:
    """Nothing is left to do."""
    assert alerts_on(DEADLINE, False, DEADLINE) == []


def test_does_not_alert_where_the_terms_are_not_known() -> None:
    """The last day for cancelling is unknown."""
    assert alerts_on(DEADLINE, False, notice_months=None) == []
    assert alerts_on(DEADLINE, False, renewed_months=None) == []


def test_alerts_until_it_is_over() -> None:
    """On the last day, the contract can still be cancelled."""
    assert alerts_on(ENDS_ON, False)


def test_does_not_alert_when_it_is_over() -> None:
    """It is too late to cancel."""
    assert alerts_on(ENDS_ON + datetime.timedelta(days=1), False) == []
