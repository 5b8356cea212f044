"""A cancelled subscription must not be charged any more.

Raises a warning for each charge by a subscription's payee after the day on which the subscription
was cancelled or, if it is later, the day on which the cancellation took effect. A charge is
reported for 90 days, unless it was refunded or the user subscribed to the same service again on or
before the day of the charge. A payee matches a subscription if it contains all words of the
subscription's name: "Netflix" is in "NETFLIX.COM Amsterdam". If only the month or year of the
cancellation is known, the end of that month or year is used.

Needs subscriptions with a name and a day of cancellation, which may be empty, and charges with a
payee, an amount and a day.

Does not consider payees that charge under a different name, or charges for use before the
cancellation. If one of two subscriptions with the same payee continues, it must be recorded without
a cancellation.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from uac import Alert, PartialDate, Record, warning

ALSO = {
    "Subscription": ("Membership", "Contract", "Cancellation", "Plan", "Service"),
    "Subscription.name": ("service", "provider", "merchant", "vendor", "payee", "product", "title"),
    "Subscription.cancelled_on": (
        "canceled_on",
        "cancellation_date",
        "cancelled_at",
        "canceled_at",
        "ended_on",
    ),
    "Subscription.effective_on": ("effective_date", "paid_until", "runs_until", "access_until"),
    "Subscription.started_on": ("start_date", "subscribed_on", "since"),
    "Charge": ("Payment", "Transaction", "Expense", "Debit", "Invoice"),
    "Charge.payee": ("merchant", "vendor", "provider", "service", "recipient", "name", "to"),
    "Charge.amount": ("total", "price", "value"),
    "Charge.charged_on": (
        "paid_on",
        "date",
        "on",
        "booked_on",
        "transaction_date",
        "spent_on",
        "charged_at",
        "paid_at",
    ),
    "Charge.refunded": ("is_refunded", "reversed"),
}

TOLD_DAYS = 90


@dataclass(kw_only=True)
class Subscription(Record):
    """A service for which the user is charged repeatedly until it is cancelled."""

    name: str
    cancelled_on: datetime.date | datetime.datetime | PartialDate | None
    effective_on: datetime.date | PartialDate | None = None
    started_on: datetime.date | PartialDate | None = None


@dataclass(kw_only=True)
class Charge(Record):
    """Money that a payee took from the user."""

    payee: str
    amount: int | float | Decimal
    charged_on: datetime.date | datetime.datetime
    currency: str = ""
    refunded: bool = False


def check(
    today: datetime.date, subscriptions: Sequence[Subscription], charges: Sequence[Charge]
) -> Iterator[Alert]:
    """A cancelled subscription must not be charged any more."""
    recent = sorted(
        (one for one in charges if is_recent(one, today)),
        key=lambda one: (last(one.charged_on), one.key),
    )
    for charge in recent:
        owed = [one for one in subscriptions if is_same(one.name, charge.payee)]
        if not owed or any(runs_on(one, last(charge.charged_on)) for one in owed):
            continue
        # If several subscriptions have ended, name the subscription that ended last.
        ended = max(owed, key=lambda one: (ends_on(one) or datetime.date.min, one.key))
        unit = f" {charge.currency.strip()}".rstrip()
        yield warning(
            f"{charge.payee.strip()} charged {Decimal(str(charge.amount)):,.2f}{unit} on"
            f" {last(charge.charged_on)}, but {ended.name.strip()} was cancelled"
            f" {in_words(ended)}",
            evidence=[ended, charge],
        )


def is_recent(charge: Charge, today: datetime.date) -> bool:
    """Return whether the charge is recent enough to be reported."""
    days = (today - last(charge.charged_on)).days
    return 0 <= days <= TOLD_DAYS and not charge.refunded and charge.amount > 0


def runs_on(subscription: Subscription, day: datetime.date) -> bool:
    """Return whether the subscription may be charged on this day."""
    end = ends_on(subscription)
    started = subscription.started_on
    begun = (
        started is None
        or (started.earliest if isinstance(started, PartialDate) else started) <= day
    )
    return (end is None or day <= end) and (begun or end is not None)


def ends_on(subscription: Subscription) -> datetime.date | None:
    """The last day on which the subscription may be charged; None if it was not cancelled."""
    if subscription.cancelled_on is None:
        return None
    cancelled = last(subscription.cancelled_on)
    effective = subscription.effective_on
    return cancelled if effective is None else max(cancelled, last(effective))


def last(day: datetime.date | datetime.datetime | PartialDate) -> datetime.date:
    """The last day of a date, which may be a whole month or year."""
    if isinstance(day, PartialDate):
        return day.latest
    return day.date() if isinstance(day, datetime.datetime) else day


def in_words(subscription: Subscription) -> str:
    """Describe when the subscription was cancelled, and when its cancellation takes effect."""
    day = subscription.cancelled_on
    if isinstance(day, PartialDate) and day.earliest != day.latest:
        text = f"in {day}"
    else:
        text = "" if day is None else f"on {last(day)}"
    end = ends_on(subscription)
    effective = subscription.effective_on
    if effective is not None and end == last(effective):
        text += f", effective {effective}"
    return text


def is_same(name: str, payee: str) -> bool:
    """Return whether all words of the name are among those of the payee."""
    wanted = words(name)
    return bool(wanted) and wanted <= words(payee)


def words(text: str) -> set[str]:
    """The words of a text, normalised for comparison."""
    return set(re.findall(r"\w+", text.casefold()))
