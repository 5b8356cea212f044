"""Tests for charge_after_cancellation: when it alerts, when it does not, and the boundary days."""

import datetime

from uac import Alert, PartialDate, Severity
from uac.testing import run_check
from workspace.constraints import charge_after_cancellation

TODAY = datetime.date(2026, 3, 20)
CANCELLED = datetime.date(2026, 3, 5)

# The subscription's name, the charge's payee, and whether they match.
NAMES = (
    ("Netflix", "NETFLIX.COM Amsterdam", True),
    ("City Gym", "Gym, City of Bonn", True),
    ("Gym", "Gymondo", False),
    ("City Gym", "City Bakery", False),
    ("", "Netflix", False),
)


def subscription(
    cancelled_on: datetime.date | PartialDate | None = CANCELLED,
    effective_on: datetime.date | None = None,
    started_on: datetime.date | None = None,
    key: str = "s-1",
) -> charge_after_cancellation.Subscription:
    return charge_after_cancellation.Subscription(
        key=key,
        name="Netflix",
        cancelled_on=cancelled_on,
        effective_on=effective_on,
        started_on=started_on,
    )


def charge(
    day: datetime.date | datetime.datetime, amount: float = 12.99, payee: str = "Netflix"
) -> charge_after_cancellation.Charge:
    return charge_after_cancellation.Charge(
        key="c-1", payee=payee, amount=amount, charged_on=day, currency="EUR"
    )


def alerts(
    taken: charge_after_cancellation.Charge,
    *subscriptions: charge_after_cancellation.Subscription,
    today: datetime.date = TODAY,
) -> list[Alert]:
    return run_check(
        charge_after_cancellation,
        today=today,
        subscriptions=list(subscriptions),
        charges=[taken],
    )


def test_says_who_charged_what_and_when() -> None:
    ended, taken = subscription(), charge(datetime.date(2026, 3, 17))
    (alert,) = alerts(taken, ended)
    assert alert.severity is Severity.WARNING
    assert alert.message == (
        "Netflix charged 12.99 EUR on 2026-03-17, but Netflix was cancelled on 2026-03-05"
    )
    assert alert.evidence == (ended, taken)


def test_boundary_the_day_of_cancellation() -> None:
    for cancelled_on, effective_on, day, speaks in (
        (CANCELLED, None, datetime.date(2026, 3, 4), False),
        (CANCELLED, None, datetime.date(2026, 3, 5), False),
        (CANCELLED, None, datetime.date(2026, 3, 6), True),
        (CANCELLED, datetime.date(2026, 3, 10), datetime.date(2026, 3, 10), False),
        (CANCELLED, datetime.date(2026, 3, 10), datetime.date(2026, 3, 11), True),
        (CANCELLED, datetime.date(2026, 3, 1), datetime.date(2026, 3, 6), True),
        (PartialDate("2026-02"), None, datetime.date(2026, 2, 28), False),
        (PartialDate("2026-02"), None, datetime.date(2026, 3, 1), True),
        (PartialDate("2026"), None, datetime.date(2026, 3, 19), False),
        (None, None, datetime.date(2026, 3, 19), False),
    ):
        ended = subscription(cancelled_on, effective_on)
        assert bool(alerts(charge(day), ended)) is speaks, (cancelled_on, effective_on, day)


def test_boundary_how_long_it_is_told() -> None:
    taken, ended = charge(datetime.date(2026, 3, 6)), subscription()
    for today, speaks in (
        (datetime.date(2026, 3, 5), False),
        (datetime.date(2026, 3, 6), True),
        (datetime.date(2026, 6, 4), True),
        (datetime.date(2026, 6, 5), False),
    ):
        assert bool(alerts(taken, ended, today=today)) is speaks, today


def test_when_it_takes_effect_is_told() -> None:
    ended = subscription(effective_on=datetime.date(2026, 3, 10))
    (alert,) = alerts(charge(datetime.date(2026, 3, 12)), ended)
    assert alert.message.endswith("was cancelled on 2026-03-05, effective 2026-03-10")
    (month,) = alerts(charge(datetime.date(2026, 3, 12)), subscription(PartialDate("2026-02")))
    assert month.message.endswith("was cancelled in 2026-02")


def test_names_by_their_words() -> None:
    for name, payee, speaks in NAMES:
        ended = charge_after_cancellation.Subscription(key="s", name=name, cancelled_on=CANCELLED)
        found = alerts(charge(datetime.date(2026, 3, 17), payee=payee), ended)
        assert bool(found) is speaks, (name, payee)


def test_boundary_a_new_subscription_of_the_same() -> None:
    for started_on, speaks in (
        (datetime.date(2026, 3, 16), False),
        (datetime.date(2026, 3, 17), False),
        (datetime.date(2026, 3, 18), True),
        (None, False),
    ):
        again = subscription(None, started_on=started_on, key="s-2")
        found = alerts(charge(datetime.date(2026, 3, 17)), subscription(), again)
        assert bool(found) is speaks, started_on


def test_of_two_that_have_ended_the_last_one_is_named() -> None:
    first = subscription(datetime.date(2025, 1, 1), key="s-9")
    (alert,) = alerts(charge(datetime.date(2026, 3, 17)), first, subscription())
    assert [record.key for record in alert.evidence] == ["s-1", "c-1"]


def test_silent_for_refunds_and_charges_of_nothing() -> None:
    day = datetime.date(2026, 3, 17)
    back = charge_after_cancellation.Charge(
        key="c", payee="Netflix", amount=5, charged_on=day, refunded=True
    )
    assert alerts(back, subscription()) == []
    assert alerts(charge(day, amount=-12.99), subscription()) == []
    assert alerts(charge(day, amount=0), subscription()) == []


def test_a_charge_with_its_time() -> None:
    assert alerts(charge(datetime.datetime(2026, 3, 5, 23, 59)), subscription()) == []
    assert alerts(charge(datetime.datetime(2026, 3, 6, 0, 0)), subscription())
