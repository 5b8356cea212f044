"""The same payment must not be made twice.

Raises a warning for two payments to the same payee, of the same amount in the same currency, that
are at most three days apart. There is no alert if both have a reference, such as an invoice number,
and the references differ; if one of them was refunded, that is, marked as refunded or followed by a
returned payment of the same amount; if the amount is below 10, as for coffee and tickets; or if the
later payment is more than 60 days old.

Needs payments with a payee, an amount and a day.

Does not consider a payment in two currencies or in parts, two names for one payee, or whether two
equal payments were intended: instalments at most three days apart are reported once.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from uac import Alert, Record, warning

ALSO = {
    "Payment": ("Transaction", "Charge", "Expense", "Purchase", "Transfer", "Debit"),
    "Payment.payee": ("merchant", "vendor", "recipient", "provider", "to", "name", "beneficiary"),
    "Payment.amount": ("total", "price", "value"),
    "Payment.paid_on": (
        "date",
        "on",
        "booked_on",
        "charged_on",
        "transaction_date",
        "spent_on",
        "paid_at",
        "charged_at",
    ),
    "Payment.reference": ("invoice", "invoice_number", "order_number", "transaction_id", "number"),
    "Payment.refunded": ("is_refunded", "reversed", "cancelled"),
}

DAYS_APART = 3
SMALLEST = Decimal(10)
TOLD_DAYS = 60


@dataclass(kw_only=True)
class Payment(Record):
    """Money that was paid; a negative amount is money that was paid back."""

    payee: str
    amount: int | float | Decimal
    paid_on: datetime.date | datetime.datetime
    currency: str = ""
    reference: str | int | None = None
    refunded: bool = False


def check(today: datetime.date, payments: Sequence[Payment]) -> Iterator[Alert]:
    """The same payment must not be made twice."""
    ordered = sorted(payments, key=lambda one: (day_of(one.paid_on), one.key))
    earlier: dict[tuple[str, Decimal, str], list[Payment]] = {}
    returned = returns(ordered)
    for payment in ordered:
        amount = exact(payment.amount)
        if payment.refunded or not amount.is_finite() or amount < SMALLEST:
            continue
        alike = earlier.setdefault(kind(payment, amount), [])
        twin = next((one for one in reversed(alike) if is_twin(one, payment)), None)
        alike.append(payment)
        if twin is None or (today - day_of(payment.paid_on)).days > TOLD_DAYS:
            continue
        back = returned.get(kind(payment, amount), [])
        if any(day >= day_of(twin.paid_on) for day in back):
            continue
        unit = f" {payment.currency.strip()}".rstrip()
        yield warning(
            f"{payment.payee.strip()} was paid {amount:,.2f}{unit} twice: on"
            f" {day_of(twin.paid_on)} and on {day_of(payment.paid_on)}",
            evidence=[twin, payment],
        )


def is_twin(earlier: Payment, later: Payment) -> bool:
    """Return whether two similar payments may be one payment that was made twice."""
    days = (day_of(later.paid_on) - day_of(earlier.paid_on)).days
    references = {str(one.reference).strip() for one in (earlier, later) if one.reference}
    return days <= DAYS_APART and len(references) < 2


def returns(payments: Sequence[Payment]) -> dict[tuple[str, Decimal, str], list[datetime.date]]:
    """The days on which money was paid back, keyed by the `kind` of the original payment."""
    days: dict[tuple[str, Decimal, str], list[datetime.date]] = {}
    for one in payments:
        amount = exact(one.amount)
        if amount.is_finite() and amount < 0:
            days.setdefault(kind(one, -amount), []).append(day_of(one.paid_on))
    return days


def kind(payment: Payment, amount: Decimal) -> tuple[str, Decimal, str]:
    """Return what similar payments have in common: payee, amount and currency."""
    return plain(payment.payee), amount, plain(payment.currency)


def exact(amount: int | float | Decimal) -> Decimal:
    """The amount exactly as written: 0.1 is exactly one tenth."""
    return Decimal(str(amount))


def day_of(moment: datetime.date | datetime.datetime) -> datetime.date:
    """The date as written, without its time."""
    return moment.date() if isinstance(moment, datetime.datetime) else moment


def plain(text: str) -> str:
    """The text, normalised for comparison."""
    return " ".join(text.casefold().split())
