"""The passport constraint alerts when it must, and only then."""

import datetime

from constraints import passport_validity
from domains.travel.schema import Passport, Trip
from uac import Alert, Severity
from uac.testing import run_check

TODAY = datetime.date(2025, 3, 1)


def alerts_for(country: str, returns_on: datetime.date, expires_on: datetime.date) -> list[Alert]:
    """Run the constraint over a two-week trip and a passport."""
    trip = Trip(
        key="trip",
        destination="Somewhere",
        country=country,
        departs_on=returns_on - datetime.timedelta(days=14),
        returns_on=returns_on,
        purpose="holiday",
    )
    passport = Passport(
        key="passport",
        country="Sweden",
        number="X0000000",
        issued_on=expires_on - datetime.timedelta(days=1826),
        expires_on=expires_on,
    )
    return run_check(passport_validity, today=TODAY, trips=[trip], passports=[passport])


def test_alerts_when_less_than_six_months_remain() -> None:
    """The passport expires one day too early."""
    alerts = alerts_for("Thailand", datetime.date(2025, 5, 1), datetime.date(2025, 10, 31))

    assert [alert.severity for alert in alerts] == [Severity.WARNING]
    assert [record.key for record in alerts[0].evidence] == ["trip", "passport"]
    assert "2025-11-01" in alerts[0].message


def test_alerts_when_the_passport_expires_during_the_trip() -> None:
    """Even where six months are not required, the passport must be valid until the return."""
    assert alerts_for("Portugal", datetime.date(2025, 5, 1), datetime.date(2025, 4, 30))


def test_does_not_alert_when_exactly_six_months_remain() -> None:
    """The last day of the six months counts."""
    assert not alerts_for("Thailand", datetime.date(2025, 5, 1), datetime.date(2025, 11, 1))


def test_does_not_alert_where_the_rule_does_not_apply() -> None:
    """Portugal does not require six months."""
    assert not alerts_for("Portugal", datetime.date(2025, 5, 1), datetime.date(2025, 5, 1))


def test_does_not_alert_on_trips_that_are_over() -> None:
    """Nobody can renew a passport for last year."""
    assert not alerts_for("Thailand", datetime.date(2025, 2, 1), datetime.date(2025, 2, 2))


def test_six_months_end_with_the_month() -> None:
    """There is no 31st of February."""
    end = passport_validity.six_months_after(datetime.date(2025, 8, 31))

    assert end == datetime.date(2026, 2, 28)
