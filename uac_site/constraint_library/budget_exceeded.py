"""A month's spending in a category must not exceed the category's budget.

Raises a warning for each monthly budget that this month's spending so far exceeds by at least one
cent. The alert ends when the next month begins. Refunds, recorded as negative amounts, reduce the
spending. Amounts in another currency are left out; amounts without a currency are assumed to be in
the budget's currency.

Needs budgets with a category and an amount, and expenses with a category, an amount and a day. If
an expense's day has a time, the date is used as written, without conversion to another time zone.

Does not consider budgets for periods other than a month, exchange rates, subcategories, or planned
expenses.
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
SHOWN = 20  # maximum number of expenses listed as evidence; the newest are listed


@dataclass(kw_only=True)
class Budget(Record):
    """The amount that may be spent on a category per month."""

    category: str
    amount: int | float | Decimal
    currency: str = ""
    period: str = ""


@dataclass(kw_only=True)
class Expense(Record):
    """A purchase or other expense that was paid."""

    category: str
    amount: int | float | Decimal
    spent_on: datetime.date | datetime.datetime
    currency: str = ""


def check(
    today: datetime.date, budgets: Sequence[Budget], expenses: Sequence[Expense]
) -> Iterator[Alert]:
    """A month's spending in a category must not exceed the category's budget."""
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
                # The alert stays the same as more is spent; next month gets a new alert.
                key=f"{budget.key} {today:%Y-%m}",
            )


def belongs(expense: Expense, budget: Budget) -> bool:
    """Return whether the expense counts towards the budget."""
    currencies = {plain(expense.currency), plain(budget.currency)} - {""}
    return (
        plain(expense.category) == plain(budget.category)
        and len(currencies) < 2
        and exact(expense.amount).is_finite()
    )


def exact(amount: int | float | Decimal) -> Decimal:
    """The amount exactly as written: 0.1 is exactly one tenth."""
    return Decimal(str(amount))


def day_of(moment: datetime.date | datetime.datetime) -> datetime.date:
    """The date as written, without its time."""
    return moment.date() if isinstance(moment, datetime.datetime) else moment


def plain(text: str) -> str:
    """The text, normalised for comparison."""
    return " ".join(text.casefold().split())
