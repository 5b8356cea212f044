"""Tests for budget_exceeded: when it alerts, when it does not, and the boundary days."""

import datetime
from decimal import Decimal

from uac import Alert, Severity
from uac.testing import run_check
from workspace.constraints import budget_exceeded

TODAY = datetime.date(2026, 3, 15)


def expense(
    amount: int | float | Decimal,
    day: datetime.date | datetime.datetime = TODAY,
    key: str = "e-1",
    category: str = "groceries",
    currency: str = "EUR",
) -> budget_exceeded.Expense:
    return budget_exceeded.Expense(
        key=key, category=category, amount=amount, spent_on=day, currency=currency
    )


def groceries(amount: int | float | Decimal = 100) -> budget_exceeded.Budget:
    return budget_exceeded.Budget(key="b-1", category="Groceries", amount=amount, currency="EUR")


def alerts(*expenses: budget_exceeded.Expense, today: datetime.date = TODAY) -> list[Alert]:
    return run_check(budget_exceeded, today=today, budgets=[groceries()], expenses=list(expenses))


def test_says_how_much_and_rests_on_budget_and_expenses() -> None:
    first, second = expense(1070.25, key="e-1"), expense(Decimal("20.10"), key="e-2")
    (alert,) = alerts(second, first)
    assert alert.severity is Severity.WARNING
    assert alert.message == (
        "Groceries: 1,090.35 EUR spent in 2026-03, 990.35 EUR more than the budget of 100.00 EUR"
    )
    assert [record.key for record in alert.evidence] == ["b-1", "e-1", "e-2"]
    assert alert.key == "b-1 2026-03"


def test_boundary_one_cent() -> None:
    for amount, speaks in ((99.99, False), (100, False), (100.00, False), (100.01, True)):
        assert bool(alerts(expense(amount))) is speaks, amount
    # Ten times 0.1 is exactly 1, except in floating point.
    tenths = [expense(10.1, key=f"e-{number}") for number in range(10)]
    assert alerts(*tenths, expense(-1, key="refund")) == []


def test_boundary_days_of_the_month() -> None:
    for day, today, speaks in (
        (datetime.date(2026, 3, 1), datetime.date(2026, 3, 1), True),
        (datetime.date(2026, 3, 1), datetime.date(2026, 3, 31), True),
        (datetime.date(2026, 3, 31), datetime.date(2026, 4, 1), False),
        (datetime.date(2026, 2, 28), datetime.date(2026, 3, 1), False),
        (datetime.date(2026, 3, 16), datetime.date(2026, 3, 15), False),  # not spent yet
        (datetime.datetime(2026, 3, 15, 23, 59), datetime.date(2026, 3, 15), True),
        (datetime.datetime(2026, 3, 16, 0, 0), datetime.date(2026, 3, 15), False),
    ):
        assert bool(alerts(expense(101, day), today=today)) is speaks, (day, today)


def test_a_refund_counts_against_it() -> None:
    assert alerts(expense(150), expense(-50, key="e-2")) == []


def test_silent_for_other_categories_and_currencies() -> None:
    assert alerts(expense(500, category="rent")) == []
    assert alerts(expense(500, currency="USD")) == []
    assert len(alerts(expense(500, currency=""))) == 1
    assert len(alerts(expense(500, currency=" eur ", category=" GROCERIES"))) == 1


def test_silent_for_another_period() -> None:
    yearly = budget_exceeded.Budget(key="b", category="groceries", amount=1, period="yearly")
    assert run_check(budget_exceeded, today=TODAY, budgets=[yearly], expenses=[expense(9)]) == []
    monthly = budget_exceeded.Budget(key="b", category="groceries", amount=1, period="Monthly")
    assert run_check(budget_exceeded, today=TODAY, budgets=[monthly], expenses=[expense(9)])


def test_what_is_no_number_is_left_out() -> None:
    assert alerts(expense(float("nan")), expense(float("inf"), key="e-2")) == []
    assert (
        run_check(
            budget_exceeded, today=TODAY, budgets=[groceries(float("nan"))], expenses=[expense(5)]
        )
        == []
    )


def test_names_the_newest_expenses_alone() -> None:
    many = [expense(10, key=f"e-{number:02}") for number in range(30)]
    (alert,) = alerts(*many)
    assert [record.key for record in alert.evidence] == [
        "b-1",
        *(f"e-{number:02}" for number in range(10, 30)),
    ]
