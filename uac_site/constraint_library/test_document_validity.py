"""Tests for document_validity: when it alerts, when it does not, and the boundary days."""

import datetime

from uac import Alert, PartialDate, Severity
from uac.testing import run_check
from workspace.constraints import document_validity

TODAY = datetime.date(2026, 1, 1)
START = datetime.date(2026, 5, 10)
END = datetime.date(2026, 5, 20)

# The country, the day the passport expires, and whether there is an alert.
CASES = (
    ("Thailand", datetime.date(2026, 11, 9), True),  # six months after entry
    ("Thailand", datetime.date(2026, 11, 10), False),
    ("TH", datetime.date(2026, 11, 9), True),
    ("France", datetime.date(2026, 8, 19), True),  # three months after departure
    ("France", datetime.date(2026, 8, 20), False),
    (" france ", datetime.date(2026, 8, 19), True),
    ("New Zealand", datetime.date(2026, 8, 19), True),
    ("New Zealand", datetime.date(2026, 8, 20), False),
    ("South Africa", datetime.date(2026, 6, 19), True),
    ("South Africa", datetime.date(2026, 6, 20), False),
    ("Japan", datetime.date(2026, 5, 19), True),  # until departure
    ("Japan", datetime.date(2026, 5, 20), False),
    ("Atlantis", datetime.date(2026, 5, 19), True),  # not in COUNTRIES
    ("Atlantis", datetime.date(2026, 5, 20), False),
)
# The month or year the passport expires, and the severity of the alert for a trip that requires a
# passport valid until 2026-11-10.
PARTIAL = (
    ("2026-10", "critical"),
    ("2026-11", "warning"),
    ("2026", "warning"),
    ("2026-12", ""),
    ("2027", ""),
)


def trip(country: str = "Thailand") -> document_validity.Trip:
    return document_validity.Trip(key="t-1", country=country, start=START, end=END)


def passport(expires_on: datetime.date | PartialDate | None) -> document_validity.Passport:
    return document_validity.Passport(key="p-1", expires_on=expires_on)


def alerts(
    journey: document_validity.Trip,
    *passports: document_validity.Passport,
    today: datetime.date = TODAY,
) -> list[Alert]:
    return run_check(document_validity, today=today, trips=[journey], passports=list(passports))


def test_says_what_is_asked_and_rests_on_trip_and_passport() -> None:
    journey = trip()
    document = document_validity.Passport(
        key="p-1", expires_on=datetime.date(2026, 9, 1), number="X1", holder="Ann"
    )
    (alert,) = alerts(journey, document)
    assert alert.severity is Severity.CRITICAL
    assert alert.message == (
        "The passport X1 issued to Ann expires on 2026-09-01, but Thailand requires validity for 6"
        " months after entry on 2026-05-10"
    )
    assert alert.evidence == (journey, document)


def test_boundary_days_of_each_rule() -> None:
    for country, expires_on, speaks in CASES:
        assert bool(alerts(trip(country), passport(expires_on))) is speaks, (country, expires_on)


def test_an_unknown_country_is_called_unknown() -> None:
    (alert,) = alerts(trip("Atlantis"), passport(datetime.date(2026, 5, 1)))
    assert alert.message == (
        "The passport expires on 2026-05-01, but the trip to Atlantis ends on 2026-05-20"
        " (entry rule unknown)"
    )


def test_validity_until_departure_is_told_as_such() -> None:
    (alert,) = alerts(trip("Japan"), passport(datetime.date(2026, 5, 1)))
    assert "Japan requires validity until departure on 2026-05-20" in alert.message
    (alert,) = alerts(trip("South Africa"), passport(datetime.date(2026, 5, 1)))
    assert "South Africa requires validity for 1 month after departure on" in alert.message


def test_a_day_that_is_known_by_its_month_is_certain_or_a_warning() -> None:
    for text, severity in PARTIAL:
        found = alerts(trip(), passport(PartialDate(text)))
        assert "".join(alert.severity for alert in found) == severity, text
    (alert,) = alerts(trip(), passport(PartialDate("2026-11")))
    assert "expires in 2026-11, which may be too early:" in alert.message


def test_a_trip_in_a_month_is_certain_only_from_its_first_day() -> None:
    journey = document_validity.Trip(key="t", country="Thailand", start=PartialDate("2026-05"))
    for expires_on, severity in (
        (datetime.date(2026, 10, 31), "critical"),
        (datetime.date(2026, 11, 1), "warning"),
        (datetime.date(2026, 11, 29), "warning"),
        (datetime.date(2026, 11, 30), ""),
    ):
        found = alerts(journey, passport(expires_on))
        assert "".join(alert.severity for alert in found) == severity, expires_on


def test_six_months_after_the_end_of_a_month_are_the_end_of_a_shorter_one() -> None:
    journey = document_validity.Trip(
        key="t", country="China", start=datetime.date(2026, 8, 31), end=datetime.date(2026, 9, 9)
    )
    assert alerts(journey, passport(datetime.date(2027, 2, 27)))
    assert alerts(journey, passport(datetime.date(2027, 2, 28))) == []


def test_boundary_the_day_of_departure() -> None:
    for today, speaks in ((START, True), (START + datetime.timedelta(days=1), False)):
        found = alerts(trip(), passport(datetime.date(2026, 6, 1)), today=today)
        assert bool(found) is speaks, today


def test_one_passport_that_is_valid_is_enough() -> None:
    old = document_validity.Passport(key="old", expires_on=datetime.date(2020, 1, 1))
    assert alerts(trip(), old, passport(datetime.date(2030, 1, 1))) == []


def test_silent_without_a_passport_or_with_one_of_somebody_else() -> None:
    journey = document_validity.Trip(key="t", country="China", start=START, traveller="Ann")
    other = document_validity.Passport(key="p", expires_on=datetime.date(2026, 6, 1), holder="Ben")
    licence = document_validity.Passport(
        key="p", expires_on=datetime.date(2026, 6, 1), kind="driving licence"
    )
    assert alerts(journey) == []
    assert alerts(journey, other) == []
    assert alerts(journey, licence) == []
    assert alerts(journey, passport(None)) == []


def test_silent_where_the_trip_was_cancelled() -> None:
    off = document_validity.Trip(key="t", country="China", start=START, cancelled=True)
    assert alerts(off, passport(datetime.date(2026, 6, 1))) == []


def visa_alerts(visas: list[document_validity.Visa], *others: document_validity.Trip) -> list[str]:
    found = run_check(document_validity, today=TODAY, trips=[*others, trip("France")], visas=visas)
    return [alert.message for alert in found]


def visa(
    valid_from: datetime.date = START,
    valid_until: datetime.date = END,
    entries: int | None = None,
) -> document_validity.Visa:
    return document_validity.Visa(
        key="v-1",
        country="Schengen",
        valid_from=valid_from,
        valid_until=valid_until,
        entries=entries,
    )


def test_boundary_days_of_a_visa() -> None:
    day = datetime.timedelta(days=1)
    assert visa_alerts([visa()]) == []
    assert visa_alerts([visa(valid_from=START + day)]) == [
        "The visa for Schengen is valid from 2026-05-11, but the trip to France starts on"
        " 2026-05-10"
    ]
    assert visa_alerts([visa(valid_until=END - day)]) == [
        "The visa for Schengen is valid until 2026-05-19, but the trip to France ends on 2026-05-20"
    ]


def test_a_visa_whose_entries_are_used_up() -> None:
    earlier = document_validity.Trip(
        key="t-0", country="Spain", start=datetime.date(2026, 5, 1), end=datetime.date(2026, 5, 3)
    )
    may = visa(valid_from=datetime.date(2026, 5, 1), entries=1)
    assert visa_alerts([may]) == []
    assert visa_alerts([may], earlier) == [
        "The visa for Schengen allows 1 entry, used for Spain on 2026-05-01: none is left for the"
        " trip to France on 2026-05-10"
    ]
    assert visa_alerts([visa(valid_from=datetime.date(2026, 5, 1), entries=2)], earlier) == []
    # A trip that starts before the visa does uses up none of its entries, but gets its own alert.
    (message,) = visa_alerts([visa(valid_from=datetime.date(2026, 5, 2), entries=1)], earlier)
    assert "is valid from 2026-05-02, but the trip to Spain starts" in message


def test_boundary_a_trip_that_goes_on_from_another_is_no_entry_of_its_own() -> None:
    for end, speaks in ((START, False), (datetime.date(2026, 5, 9), True)):
        before = document_validity.Trip(
            key="t-0", country="Spain", start=datetime.date(2026, 5, 1), end=end
        )
        may = visa(valid_from=datetime.date(2026, 5, 1), entries=1)
        assert bool(visa_alerts([may], before)) is speaks, end


def test_a_visa_is_a_warning_where_the_days_are_not_certain() -> None:
    journey = document_validity.Trip(
        key="t", country="France", start=PartialDate("2026-05"), end=PartialDate("2026-05")
    )
    for valid_from, valid_until, severity in (
        (datetime.date(2026, 5, 1), datetime.date(2026, 5, 31), ""),
        (datetime.date(2026, 5, 2), datetime.date(2026, 5, 31), "warning"),
        (datetime.date(2026, 5, 31), datetime.date(2026, 5, 31), "warning"),
        (datetime.date(2026, 6, 1), datetime.date(2026, 6, 30), "critical"),
        (datetime.date(2026, 5, 1), datetime.date(2026, 5, 30), "warning"),
        (datetime.date(2026, 5, 1), datetime.date(2026, 5, 1), "warning"),
        (datetime.date(2026, 4, 1), datetime.date(2026, 4, 30), "critical"),
    ):
        found = run_check(
            document_validity, today=TODAY, trips=[journey], visas=[visa(valid_from, valid_until)]
        )
        assert "".join(alert.severity for alert in found) == severity, (valid_from, valid_until)


def test_another_visa_that_allows_the_trip_is_enough() -> None:
    late = document_validity.Visa(
        key="v-2", country="Schengen", valid_from=END, valid_until=datetime.date(2027, 1, 1)
    )
    assert visa_alerts([late, visa()]) == []
    assert len(visa_alerts([late])) == 1


def test_silent_for_a_visa_of_another_country() -> None:
    other = document_validity.Visa(key="v", country="Japan", valid_until=datetime.date(2026, 1, 2))
    assert visa_alerts([other]) == []
