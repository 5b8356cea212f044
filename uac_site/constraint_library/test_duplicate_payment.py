"""Tests for duplicate_payment: when it alerts, when it does not, and the boundary days."""

import datetime
from decimal import Decimal

from uac import Alert, Severity
from uac.testing import run_check
from workspace.constraints import duplicate_payment

TODAY = datetime.date(2026, 3, 20)
FIRST = datetime.date(2026, 3, 10)


def payment(
    key: str,
    day: datetime.date | datetime.datetime = FIRST,
    amount: int | float | Decimal = 120,
    payee: str = "Stadtwerke",
    currency: str = "EUR",
    reference: str | int | None = None,
) -> duplicate_payment.Payment:
    return duplicate_payment.Payment(
        key=key, payee=payee, amount=amount, paid_on=day, currency=currency, reference=reference
    )


def alerts(*payments: duplicate_payment.Payment, today: datetime.date = TODAY) -> list[Alert]:
    return run_check(duplicate_payment, today=today, payments=list(payments))


def later(days: int) -> datetime.date:
    return FIRST + datetime.timedelta(days=days)


def test_says_who_was_paid_what_and_when() -> None:
    first, second = payment("p-1"), payment("p-2", later(1), Decimal("120.00"), " STADTWERKE ")
    (alert,) = alerts(second, first)
    assert alert.severity is Severity.WARNING
    assert alert.message == (
        "STADTWERKE was paid 120.00 EUR twice: on 2026-03-10 and on 2026-03-11"
    )
    assert alert.evidence == (first, second)


def test_boundary_days_apart() -> None:
    for days, speaks in ((0, True), (1, True), (3, True), (4, False), (30, False)):
        assert bool(alerts(payment("a"), payment("b", later(days)), today=later(30))) is speaks, (
            days
        )


def test_boundary_how_long_it_is_told() -> None:
    pair = payment("a"), payment("b", later(1))
    for days, speaks in ((61, True), (62, False)):
        assert bool(alerts(*pair, today=later(days))) is speaks, days


def test_boundary_the_smallest_amount() -> None:
    for amount, speaks in ((9.99, False), (10, True)):
        assert bool(alerts(payment("a", amount=amount), payment("b", amount=amount))) is speaks


def test_silent_where_something_differs() -> None:
    for other in (
        payment("b", amount=120.01),
        payment("b", payee="Netflix"),
        payment("b", currency="USD"),
        payment("b", reference="R-2"),
    ):
        assert alerts(payment("a", reference="R-1"), other) == [], other


def test_one_reference_or_the_same_tells_nothing_apart() -> None:
    assert alerts(payment("a", reference="R-1"), payment("b"))
    assert alerts(payment("a", reference="R-1"), payment("b", reference="R-1 "))
    assert alerts(payment("a", reference="1"), payment("b", reference=1))


def test_silent_where_it_was_paid_back() -> None:
    marked = duplicate_payment.Payment(
        key="b", payee="Stadtwerke", amount=120, paid_on=FIRST, currency="EUR", refunded=True
    )
    assert alerts(payment("a"), marked) == []
    twice = payment("a"), payment("b", later(1))
    assert alerts(*twice, payment("c", later(5), -120)) == []
    assert alerts(*twice, payment("c", FIRST, -120)) == []
    assert alerts(*twice, payment("c", later(-1), -120))  # an earlier refund was for something else
    assert alerts(*twice, payment("c", later(5), -60))


def test_three_are_two_pairs() -> None:
    found = alerts(payment("a"), payment("b", later(2)), payment("c", later(4)))
    pairs = [tuple(record.key for record in alert.evidence) for alert in found]
    assert pairs == [("a", "b"), ("b", "c")]


def test_payments_with_their_times() -> None:
    noon = datetime.datetime(2026, 3, 10, 12, 0)
    assert alerts(payment("a", noon), payment("b", later(3)))
    assert alerts(payment("a", noon), payment("b", later(4))) == []


def test_what_is_no_number_is_left_out() -> None:
    nan = float("nan")
    assert alerts(payment("a", amount=nan), payment("b", amount=nan)) == []
