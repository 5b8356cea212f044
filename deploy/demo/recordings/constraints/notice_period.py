"""Contracts that renew themselves unless they are cancelled in time."""

import datetime
from collections.abc import Iterator

from domains.contracts.state import contracts
from uac import Alert, critical

# The alert begins this long before the last day for cancelling the contract.
NOTICE = datetime.timedelta(days=30)


def months_before(day: datetime.date, months: int) -> datetime.date:
    """Return the same day `months` months earlier, or the last day of that month."""
    year, month = divmod(day.year * 12 + day.month - 1 - months, 12)
    next_year, next_month = divmod(year * 12 + month + 1, 12)
    last = datetime.date(next_year, next_month + 1, 1) - datetime.timedelta(days=1)
    return datetime.date(year, month + 1, min(day.day, last.day))


def check(today: datetime.date) -> Iterator[Alert]:
    """A contract that is not wanted after its end must be cancelled before it renews itself."""
    for contract in contracts:
        if contract.wanted_after_end is not False or contract.cancelled_on is not None:
            continue
        if contract.notice_months is None or contract.renewed_months is None:
            continue
        deadline = months_before(contract.ends_on, contract.notice_months)
        if deadline - NOTICE <= today <= contract.ends_on:
            costs = contract.monthly_cost_eur * contract.renewed_months
            yield critical(
                f"The {contract.subject} must be cancelled in writing by {deadline}, or it goes "
                f"on for {contract.renewed_months} months and costs {costs} euros",
                evidence=[contract],
            )
