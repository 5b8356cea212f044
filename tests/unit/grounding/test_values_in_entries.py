"""Claims of a record are found in the entries that it cites, or reported by field and value."""

import datetime
import zoneinfo
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.project import EnumMember, PartialDate, Record, RecordId, Ref, Struct
from memory.project.values import Value
from workers.findings import Finding
from workers.grounding.values_in_entries import (
    Claim,
    Source,
    claims_of,
    supports,
    ungrounded,
)

AT = datetime.datetime(2026, 3, 4, 22, 30, tzinfo=datetime.UTC)  # in Tokyo it is Thursday the 5th
UTC = zoneinfo.ZoneInfo("UTC")
TRIP = RecordId("travel", "trips", "rome")


def findings(
    text: str,
    value: Value,
    *,
    data: Any = None,
    zone: str = "UTC",
    derived: Sequence[str] = (),
    sources: Sequence[int] = (1,),
) -> list[Finding]:
    claim = Claim(TRIP, sources, {"what": value}, dict.fromkeys(derived, "because"))
    said = Source(1, text, AT, data, speaker="Ada Byron")
    return list(ungrounded([claim], {1: said}, zone))


def codes(found: Sequence[Finding]) -> list[str]:
    return [finding.code for finding in found]


GROUNDED: list[tuple[str, Value]] = [
    # Names with the endings of their language
    ("Ich wohne jetzt in der Kölner Altstadt.", "the flat in Köln"),
    ("Ich fliege morgen nach Rom.", "the flight to Rome"),
    ("Мы едем в Москву.", "это Москва"),
    ("Dün İzmir'e gittik.", "the trip to IZMIR"),
    ("来週、上海へ行きます。", "出張は上海"),
    ("it was 1,200 € in all", 1200),
    ("it was 1,200 € in all", Decimal("1200.00")),
    ("twelve hundred, I think", 1200),
    ("12,50 €", 12.5),
    ("15% off", 0.15),
    ("I owe 300", -300),
    ("I have a dog", 1),
    ("we moved last year", 2025),
    ("call +49 170 123-4567", 491701234567),
    ("on May 2, 2026", datetime.date(2026, 5, 2)),
    ("tomorrow!", datetime.date(2026, 3, 5)),
    ("next Friday at 7", datetime.datetime(2026, 3, 6, 19, 0)),  # noqa: DTZ001
    ("at 14:30 tomorrow", datetime.datetime(2026, 3, 5, 14, 30, tzinfo=datetime.UTC)),
    ("tomorrow", datetime.datetime(2026, 3, 5)),  # noqa: DTZ001 - no time is claimed
    ("half past two", datetime.time(14, 30)),
    ("some day in May 2026", PartialDate("2026-05")),
    ("back in '99", PartialDate("1999")),
    ("on 2 May 2026", PartialDate("2026-05-02")),
    ("around 1995", PartialDate("1995~")),
    ("since about 2019", PartialDate("2019~/..")),
    ("the weekend of 15 July 2023", PartialDate("2023-07-15/2023-07-16")),
    ("in early May 2026", PartialDate("2026-05-01/2026-05-10")),
    ("from 2 to 20 May 2026", PartialDate("2026-05-02/2026-05-20")),
    ("my amoxicillin, 500 mg", "Amoxicillin 500mg"),
    ("Flight LH 2370 at noon", "LH2370"),
    ("passport c01x-00t47", "C01X00T47"),
    ("call +49 170 123-4567", "+49 (170) 1234567"),
    ("We go to Rome on May 2, 2026", "Rome, 2026-05-02"),
    ("We fly to Rome", "The flight goes to Rome"),
    ("last week was busy", "busy from February 23 to March 1, 2026"),
    ("last week was busy", "busy in the week of 22 February"),
    ("this summer", "the summer of 2026"),
    ("last summer", "last summer (2025)"),
    ("last winter", "the winter of 2024 to 2025"),
    ("next spring", "the spring of 2027"),
    ("a year ago", "about March 2025"),
    ("an Italian place", "Italy Italian"[6:]),
    ("I live with Zoë", "Zoe"),
    ("nothing of note", "small letters need nothing"),
    ("x", True),
    ("x", None),
    ("x", EnumMember("Color", "RED")),
    ("x", Ref("Passport", "p-1999")),
    ("7 and 8", [7, 8]),
    ("7 and 8", Struct("Pair", {"left": 7, "right": [8]})),
    ("me", "Ada"),  # who said it
    ("明日 東京 へ 行く", "東京"),
]


@pytest.mark.parametrize(("text", "value"), GROUNDED, ids=lambda part: str(part)[:40])
def test_stated_value_is_grounded(text: str, value: Value) -> None:
    assert findings(text, value) == []


WRONG: list[tuple[str, Value, str, bool]] = [
    ("it was 1,200 € in all", 1300, "ungrounded_number", True),
    ("it was 1,200 € in all", 12000, "ungrounded_number", True),
    ("it was 1,200 € in all", Decimal("1200.01"), "ungrounded_number", True),
    ("twelve hundred", 1201, "ungrounded_number", True),
    ("it was 1,200 € in all", Decimal("1E+999999999"), "ungrounded_number", True),
    ("it was 1,200 € in all", Decimal("1E-999999999"), "ungrounded_number", True),
    ("call +49 170 123-4567", 491701234568, "ungrounded_number", True),
    ("on May 2, 2026", datetime.date(2026, 5, 3), "ungrounded_date", True),
    ("on May 2, 2026", datetime.date(2027, 5, 2), "ungrounded_date", True),
    ("tomorrow", datetime.date(2026, 3, 6), "ungrounded_date", True),
    ("at 14:30 tomorrow", datetime.datetime(2026, 3, 6, 14, 30), "ungrounded_date", True),  # noqa: DTZ001
    ("at 14:30 tomorrow", datetime.datetime(2026, 3, 5, 15, 30), "ungrounded_time", True),  # noqa: DTZ001
    ("half past two", datetime.time(14, 0), "ungrounded_time", True),
    ("in May 2026", PartialDate("2026-06"), "ungrounded_date", True),
    ("around 1995", PartialDate("1996~"), "ungrounded_date", True),
    ("in May 2026", PartialDate("2026-05-03/2026-05-04"), "ungrounded_date", True),
    ("in May 2026", PartialDate("2026-05-20/2026-06-10"), "ungrounded_date", True),
    ("on 2 May 2026", PartialDate("2026-05-02/2026-07-01"), "ungrounded_date", True),
    ("in May 2026", datetime.date(2026, 5, 1), "ungrounded_date", True),
    ("my amoxicillin, 500 mg", "Amoxicillin 50 mg", "ungrounded_number", True),
    ("Flight LH 2370", "LH2371", "ungrounded_code", True),
    ("call +49 170 123-4567", "+49 170 123-4568", "ungrounded_number", True),
    ("on May 2, 2026", "Rome, 2026-05-03", "ungrounded_date", True),
    ("in the week from May 3 to 9, 2026", "from May 3 to May 10", "ungrounded_date", True),
    ("at 14:30", "at 14:45", "ungrounded_time", True),
    ("last summer", "last summer (2023)", "ungrounded_number", True),
    ("next winter", "next winter (2025)", "ungrounded_number", True),
    ("7 and 8", [7, 9], "ungrounded_number", True),
    ("7 and 8", Struct("Pair", {"left": 9}), "ungrounded_number", True),
    ("we fly to Rome", "Paris", "ungrounded_name", False),
    ("we fly to Rome with Anna", "The flight is taken with Annette", "ungrounded_name", False),
    ("Ich wohne jetzt in der Kölner Altstadt.", "the flat in Kolding", "ungrounded_name", False),
    ("Ich fliege morgen nach Rom.", "the flight to Ronda", "ungrounded_name", False),
    ("Ann and Bob came", "two friends came", "ungrounded_word", False),
]


@pytest.mark.parametrize(("text", "value", "code", "blocking"), WRONG, ids=lambda p: str(p)[:40])
def test_unstated_value_is_found(text: str, value: Value, code: str, blocking: bool) -> None:
    found = [one for one in findings(text, value) if one.code == code]

    assert len(found) == 1, findings(text, value)
    assert (found[0].record, found[0].field, found[0].entry) == (TRIP, "what", 1)
    assert found[0].blocking is blocking
    assert "in field what of travel.trips.rome is not in any" in found[0].message
    assert "derived" in found[0].fix


def test_the_day_of_an_entry_is_that_of_the_user() -> None:
    assert findings("today", datetime.date(2026, 3, 5), zone="Asia/Tokyo") == []
    assert codes(findings("today", datetime.date(2026, 3, 4), zone="Asia/Tokyo")) == [
        "ungrounded_date"
    ]


def test_a_moment_may_be_written_in_any_zone() -> None:
    noon = datetime.datetime(2026, 5, 2, 12, 0)  # noqa: DTZ001
    for moment in (noon, datetime.datetime(2026, 5, 2, 3, 0, tzinfo=datetime.UTC)):
        assert findings("2 May 2026, noon", moment, zone="Asia/Tokyo") == []


def test_typed_data_of_an_entry_is_said_too() -> None:
    data = {"type": "Trip", "data": {"cost": 1200.5, "start": "2026-05-02", "nights": 7}}
    for value in (1200.5, Decimal("1200.50"), datetime.date(2026, 5, 2), 7):
        assert findings("", value, data=data) == []
    assert codes(findings("", 8, data=data)) == ["ungrounded_number"]


def test_derived_value_may_follow_from_stated_ones() -> None:
    assert findings("from May 2 to May 9", 7, derived=["what"]) == []
    assert codes(findings("from May 2 to May 9", 8, derived=["else"])) == ["ungrounded_number"]
    # A name does not follow from anything.
    assert codes(findings("to Rome", "Paris", derived=["what"])) == ["ungrounded_name"]


def test_an_entry_that_is_not_cited_or_not_there_says_nothing() -> None:
    claim = Claim(TRIP, [1, 3], {"cost": 1200})
    said = {seq: Source(seq, f"it was {seq}00 €", AT) for seq in (1, 12)}

    (finding,) = ungrounded([claim], said, "UTC")

    assert (finding.code, finding.entry) == ("ungrounded_number", 3)
    assert "(1, 3)" in finding.message


def test_only_what_is_new_in_a_record_is_claimed() -> None:
    before = Record("Trip", "rome", {"to": "Rome", "cost": 10, "old": 99}, (1,))
    after = Record("Trip", "rome", {"to": "Rome", "cost": 20, "price": 99}, (1, 2))

    claim = claims_of(TRIP, after, before, {}, ["to", "cost", "price"])

    assert claim.fields == {"cost": 20}  # the price was renamed from what is gone
    assert claim.sources == (1, 2)
    assert claims_of(TRIP, after, None, {}, ["to"]).fields == after.fields


@pytest.mark.parametrize(
    ("before", "is_grounded"),
    [
        ("The concert is in September.", True),
        ("Der Sep ist mein Bruder, und er wohnt nicht mehr hier.", False),
    ],
)
def test_a_month_is_that_of_the_message_before(before: str, is_grounded: bool) -> None:
    source = Source(1, "It is on the 14th.", AT, before=before)

    assert supports(source, datetime.date(2026, 9, 14), UTC) is is_grounded


@given(st.integers(10, 10**9), st.integers(10, 10**9))
def test_a_number_is_grounded_by_itself_alone(said: int, claimed: int) -> None:
    found = findings(f"I paid {said} for it", claimed)
    if said == claimed:
        assert found == []
    elif claimed != 2026 and str(claimed) not in str(said):
        assert codes(found) == ["ungrounded_number"]


@given(st.text(), st.text())
def test_no_text_is_too_odd(text: str, value: str) -> None:
    findings(text, value)
    assert findings(f"{text} {value}", value) == []
