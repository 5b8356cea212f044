"""The spending in a category in a month must not exceed its budget.

Alerts on each monthly budget that the spending of the current month, up to today, exceeds: a
warning from one cent more than the budget. It is silent again when the next month begins. Refunds,
written as negative amounts, count against the spending. Amounts of another currency are left out;
one without a currency is taken to be in that of the budget.

Needs budgets with a category and an amount, and expenses with a category, an amount and a day. The
day may have a time: then the day is the one that is written.

Does not see budgets of other periods than a month, rates of exchange, categories of categories, or
what is only planned.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from uac import Alert, Record, warning

ALSO = {
    "Budget": ("MonthlyBudget", "SpendingLimit", "BudgetLine"),
    "Budget.category": ("name", "for_what", "purpose"),
    "Budget.amount": ("limit", "monthly_limit", "monthly_amount", "maximum", "cap"),
    "Budget.period": ("interval", "every"),
    "Expense": ("Transaction", "Payment", "Purchase", "Charge", "Spending", "Debit"),
    "Expense.category": ("budget", "kind", "type"),
    "Expense.amount": ("total", "price", "cost", "value"),
    "Expense.spent_on": (
        "paid_on",
        "date",
        "on",
        "booked_on",
        "transaction_date",
        "purchased_on",
        "charged_on",
        "paid_at",
        "spent_at",
    ),
}

MONTHLY = ("", "month", "monthly", "per month")
SHOWN = 20  # so many of the newest expenses are named as evidence


@dataclass(kw_only=True)
class Budget(Record):
    """The amount that may be spent in a category in a month."""

    category: str
    amount: int | float | Decimal
    currency: str = ""
    period: str = ""


@dataclass(kw_only=True)
class Expense(Record):
    """Something that was paid for."""

    category: str
    amount: int | float | Decimal
    spent_on: datetime.date | datetime.datetime
    currency: str = ""


def check(
    today: datetime.date, budgets: Sequence[Budget], expenses: Sequence[Expense]
) -> Iterator[Alert]:
    """The spending in a category in a month must not exceed its budget."""
    month = today.replace(day=1)
    spent = sorted(
        (one for one in expenses if month <= day_of(one.spent_on) <= today),
        key=lambda one: (day_of(one.spent_on), one.key),
    )
    for budget in sorted(budgets, key=lambda one: one.key):
        own = [one for one in spent if belongs(one, budget)]
        total, limit = sum(exact(one.amount) for one in own), exact(budget.amount)
        if plain(budget.period) in MONTHLY and limit.is_finite() and total > limit:
            unit = f" {budget.currency.strip()}".rstrip()
            yield warning(
                f"{budget.category.strip()}: {total:,.2f}{unit} spent in {today:%Y-%m},"
                f" {total - limit:,.2f}{unit} more than the budget of {limit:,.2f}{unit}",
                evidence=[budget, *own[-SHOWN:]],
                # The same alert while more is spent, and another one next month.
                key=f"{budget.key} {today:%Y-%m}",
            )


def belongs(expense: Expense, budget: Budget) -> bool:
    """Return whether the expense counts for the budget."""
    currencies = {plain(expense.currency), plain(budget.currency)} - {""}
    return (
        plain(expense.category) == plain(budget.category)
        and len(currencies) < 2
        and exact(expense.amount).is_finite()
    )


def exact(amount: int | float | Decimal) -> Decimal:
    """The amount as it is written: 0.1 as a tenth."""
    return Decimal(str(amount))


def day_of(moment: datetime.date | datetime.datetime) -> datetime.date:
    """The day that is written."""
    return moment.date() if isinstance(moment, datetime.datetime) else moment


def plain(text: str) -> str:
    """The text as it is compared."""
    return " ".join(text.casefold().split())
