"""The recorded scenarios, retold as typed records, and their days.

The users' messages in `scenarios.jsonl` are retold session by session, as a product would log them.
Days are relative to the day of the session; the messages' texts are not repeated here.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Data = dict[str, Any]
# A record's type, key and fields.
Entry = tuple[str, str, Data]


@dataclass(frozen=True)
class Day:
    """A day, given relative to the session's day; or, with a `time`, a moment in UTC."""

    days: int
    time: str = ""

    def of(self, session: datetime.date) -> str:
        """Return the day or moment as an ISO text, as in an entry, given the session's day."""
        day = (session + datetime.timedelta(days=self.days)).isoformat()
        return f"{day}T{self.time}:00Z" if self.time else day


class Retelling:
    """A scenario's records by session, and the constraint whose scope includes its alert."""

    def __init__(self, *entries: tuple[str, Entry], scope: str = "") -> None:
        self.sessions: dict[str, list[Entry]] = {}
        self.scope = scope
        for session, one in entries:
            self.sessions.setdefault(session, []).append(one)


def entry(session: str, type_: str, key: str, /, **data: Any) -> tuple[str, Entry]:
    """Return the id of a session and a record that is logged in it."""
    return session, (type_, key, data)


RETELLINGS = {
    "travel_03": Retelling(
        entry(
            "3",
            "Visa",
            "visa",
            country="Schengen",
            valid_from=Day(11),
            valid_until=Day(102),
            entries=1,
        ),
        entry("3", "Passport", "passport", expires_on=None),
        entry("6", "Trip", "past", country="France", start=Day(-8), end=Day(-1)),
        entry("10", "Trip", "plan", country="Germany", start=Day(27), end=Day(32)),
        scope="document_validity",
    ),
    "travel_04": Retelling(
        entry("1", "Passport", "child", holder="child, old name", expires_on=None),
        entry("12", "Trip", "plan", country="Mexico", start=Day(49), traveller="child, new name"),
    ),
    "travel_06": Retelling(
        entry("3", "Certificate", "covid", name="Vaccination", valid_until=Day(270)),
        entry("11", "Trip", "plan", country="unknown", start=Day(15)),
        scope="deadline_window",
    ),
    "travel_07": Retelling(
        entry("4", "Visa", "visa", country="Australia", valid_from=Day(32), valid_until=Day(213)),
        entry("4", "Passport", "passport", expires_on=None),
        entry("7", "Trip", "plan", country="Australia", start=Day(7)),
        scope="document_validity",
    ),
    "travel_08": Retelling(
        entry("1", "Trip", "one", country="France", start=Day(-47), end=Day(0)),
        entry("5", "Trip", "two", country="Germany", start=Day(-19), end=Day(0)),
        entry("9", "Trip", "three", country="Portugal", start=Day(11), end=Day(32)),
    ),
    "health_03": Retelling(
        entry("3", "Medication", "statin", name="simvastatin", drug_class="statin"),
        entry("15", "Habit", "juice", name="grapefruit juice", since=Day(0)),
    ),
    "health_04": Retelling(
        entry("1", "Allergy", "shellfish", allergen="shellfish", severity="severe"),
        entry(
            "7",
            "Reservation",
            "dinner",
            title="birthday",
            starts_at=Day(7, "23:00"),
            cuisine="seafood",
        ),
    ),
    "health_05": Retelling(
        entry("2", "Measurement", "weight", name="weight", value=52, date=Day(0)),
        entry("6", "Prescription", "pain", name="ibuprofen", drug_class="nsaid"),
    ),
    "health_06": Retelling(
        entry("3", "Medication", "asthma-1", name="Advair", drug_class="corticosteroid"),
        entry("3", "Medication", "asthma-2", name="montelukast", drug_class="antagonist"),
        entry("10", "Course", "diving", name="scuba diving", start=Day(30)),
    ),
    "health_07": Retelling(
        entry("4", "Medication", "clot", name="warfarin", drug_class="anticoagulant"),
        entry("8", "Medication", "k2", name="vitamin K2", drug_class="vitamin"),
        entry("8", "Medication", "calcium", name="calcium", drug_class="mineral"),
        entry("8", "Medication", "d3", name="vitamin D3", drug_class="vitamin"),
    ),
    "health_08": Retelling(
        entry(
            "2", "Medication", "acne", name="isotretinoin", drug_class="retinoid", ended_on=Day(153)
        ),
        entry("9", "Condition", "pregnancy", name="pregnancy", since=Day(0)),
    ),
    "finance_07": Retelling(
        entry("5", "Trade", "buy", name="VTI", side="buy", count=100, date=Day(0)),
        entry("8", "Trade", "sell", name="VTI", side="sell", date=Day(0)),
    ),
    "finance_08": Retelling(
        entry("3", "Account", "checking", name="checking", balance=2000),
        entry(
            "6",
            "Payment",
            "donation",
            payee="university",
            amount=1500,
            currency="USD",
            category="donations",
            paid_on=Day(0),
        ),
    ),
    "schedule_01": Retelling(
        entry(
            "3",
            "Meeting",
            "board",
            title="board",
            starts_at=Day(0, "14:00"),
            minutes=120,
            repeats="weekly",
        ),
        entry("10", "Flight", "chicago", title="to Chicago", departs_at=Day(7, "14:30")),
        scope="double_booking",
    ),
    "schedule_02": Retelling(
        entry("5", "Reservation", "one", place="dinner 1", starts_at=Day(18, "19:00")),
        entry("7", "Reservation", "two", place="dinner 2", starts_at=Day(5, "19:30")),
        scope="double_booking",
    ),
    "schedule_06": Retelling(
        entry("3", "Vacation", "away", destination="abroad", start=Day(71), end=Day(85)),
        entry(
            "7",
            "Appointment",
            "plumber",
            title="plumber",
            starts_at=Day(29, "10:00"),
            ends_at=Day(29, "14:00"),
            at_home=True,
        ),
        scope="double_booking",
    ),
    "deadline_01": Retelling(
        entry("3", "Warranty", "fridge", product="refrigerator", expires_on=Day(209)),
        entry("3", "Issue", "noise", title="noise", status="open"),
        scope="deadline_window",
    ),
    "deadline_02": Retelling(
        entry("1", "TaxFiling", "tax", title="tax return", due_on=Day(161)),
        scope="deadline_window",
    ),
    "deadline_03": Retelling(
        entry("4", "Lease", "flat", title="lease", ends_on=Day(164), notice_days=60),
        scope="deadline_window",
    ),
    "deadline_06": Retelling(
        entry("2", "DriversLicense", "license", name="license", expires_on=Day(150)),
        entry("11", "Trip", "plan", destination="Las Vegas", start=Day(19), by_car=True),
        scope="deadline_window",
    ),
    "deadline_08": Retelling(
        entry("1", "PromotionalRate", "card", name="0 %", ends_on=Day(456)),
        scope="deadline_window",
    ),
    "hard_01": Retelling(
        entry("1", "Passport", "passport", expiry_date=Day(408)),
        entry("3", "Trip", "transit", country="China", start=Day(134), end=Day(135)),
        entry("3", "Trip", "stay", country="Japan", start=Day(135)),
        scope="document_validity",
    ),
    "hard_02": Retelling(
        entry("2", "Deadline", "offer", title="answer the offer", due_on=Day(42)),
        entry("4", "Vacation", "pto", reason="vacation", start=Day(42), end=Day(53)),
        scope="deadline_window",
    ),
    "hard_03": Retelling(
        entry(
            "1",
            "Prescription",
            "pressure",
            name="blood pressure",
            drug_class="antihypertensive",
            pills=90,
        ),
        entry("5", "Trip", "work", country="Indonesia", start=Day(26), end=Day(65)),
    ),
    "hard_05": Retelling(
        entry("1", "Trip", "one", country="UK", start=Day(-208), end=Day(-167)),
        entry("1", "Trip", "two", country="UK", start=Day(-134), end=Day(-95)),
        entry("1", "Trip", "three", country="UK", start=Day(-61), end=Day(-37)),
        entry("7", "Trip", "four", country="UK", start=Day(21), end=Day(112)),
    ),
    "hard_13": Retelling(
        entry("1", "Income", "job", name="salary", amount=192000),
        entry("1", "Income", "side", name="consulting", amount=3500),
        entry("2", "TaxPayment", "quarter", name="estimated tax", amount=2800),
        entry("6", "Income", "bonus", name="bonus", amount=35000),
    ),
    "hard_14": Retelling(
        entry("1", "Debt", "car", name="car", monthly=487),
        entry("1", "Debt", "study", name="student loan", monthly=328),
        entry("1", "Debt", "card", name="card", monthly=156),
        entry("3", "Saving", "house", name="down payment", amount=52000),
        entry("6", "House", "offer", name="house", price=385000),
    ),
    "hard_15": Retelling(
        entry("1", "Account", "savings", name="savings", balance=8750),
        entry("3", "Account", "cd", name="CD", balance=15000, matures_on=Day(205)),
        entry("6", "Goal", "payment", name="down payment", amount=32000),
    ),
    "hard_16": Retelling(
        entry(
            "3", "Appointment", "dentist", title="dentist", starts_at=Day(8, "18:00"), minutes=120
        ),
        entry(
            "5",
            "Meeting",
            "all",
            title="all hands",
            starts_at=Day(5, "17:00"),
            ends_at=Day(5, "20:00"),
        ),
        scope="double_booking",
    ),
    "hard_18": Retelling(
        entry(
            "2",
            "Lesson",
            "swim",
            title="swimming",
            person="child",
            starts_at=Day(12, "14:00"),
            repeats="weekly",
            repeats_until=Day(61),
        ),
        entry("4", "Lesson", "swim", starts_at=Day(8, "15:00"), repeats_until=Day(43)),
        entry("6", "Lesson", "swim", starts_at=Day(10, "14:00"), repeats_until=Day(38)),
        entry(
            "8",
            "Event",
            "patch",
            title="day trip",
            starts_at=Day(3, "13:00"),
            ends_at=Day(3, "21:00"),
        ),
        scope="double_booking",
    ),
    # A distractor: the appointment and the exam do not overlap, and no alert is expected.
    "hard_19": Retelling(
        entry("3", "Appointment", "airport", title="airport", starts_at=Day(28, "20:00")),
        entry("6", "Exam", "exam", title="certification", starts_at=Day(14, "19:00"), minutes=180),
    ),
    "hard_20": Retelling(
        entry("1", "Prescription", "old", name="lisinopril", drug_class="ACE inhibitor"),
        entry("4", "Prescription", "old", ended_on=Day(0)),
        entry("6", "Prescription", "new", name="lisinopril", drug_class="ACE inhibitor"),
        entry("9", "Trip", "cabin", destination="Montana", start=Day(15), end=Day(36)),
    ),
}


def days_of(scenario: Data) -> Iterator[tuple[datetime.date, list[Entry]]]:
    """Yield each day from the first record to the trigger, with the records logged on that day."""
    told: dict[datetime.date, list[Entry]] = {}
    end = None
    for session in scenario["sessions"]:
        day = datetime.date.fromisoformat(session["date"][:10])
        for type_, key, data in RETELLINGS[scenario["id"]].sessions.get(session["session_id"], []):
            fields = {
                name: value.of(day) if isinstance(value, Day) else value
                for name, value in data.items()
            }
            told.setdefault(day, []).append((type_, key, fields))
        if session["session_id"] == scenario["trigger_session_id"]:
            end = day
    assert end is not None, scenario["id"]
    day = min(told)
    while day <= end:
        yield day, told.get(day, [])
        day += datetime.timedelta(days=1)
