"""The scenarios for `library`, retold as typed records, and their days.

The users' messages in `scenarios.jsonl` are retold session by session, as a product would log them.
Days are relative to the day of the session; the messages' texts are not repeated here.
"""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import end_without_data, require_data

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


@dataclass(frozen=True)
class Retelling:
    """A scenario's records by session, and the constraint whose scope includes its alert."""

    sessions: Mapping[str, Sequence[Entry]]
    scope: str = ""


RETELLINGS = {
    "travel_03": Retelling(
        {
            "3": [
                (
                    "Visa",
                    "visa",
                    {
                        "country": "Schengen",
                        "valid_from": Day(11),
                        "valid_until": Day(102),
                        "entries": 1,
                    },
                ),
                ("Passport", "passport", {"expires_on": None}),
            ],
            "6": [("Trip", "past", {"country": "France", "start": Day(-8), "end": Day(-1)})],
            "10": [("Trip", "plan", {"country": "Germany", "start": Day(27), "end": Day(32)})],
        },
        "document_validity",
    ),
    "travel_04": Retelling(
        {
            "1": [("Passport", "child", {"holder": "child, old name", "expires_on": None})],
            "12": [
                (
                    "Trip",
                    "plan",
                    {"country": "Mexico", "start": Day(49), "traveller": "child, new name"},
                )
            ],
        }
    ),
    "travel_06": Retelling(
        {
            "3": [("Certificate", "covid", {"name": "Vaccination", "valid_until": Day(270)})],
            "11": [("Trip", "plan", {"country": "unknown", "start": Day(15)})],
        },
        "deadline_window",
    ),
    "travel_07": Retelling(
        {
            "4": [
                (
                    "Visa",
                    "visa",
                    {"country": "Australia", "valid_from": Day(32), "valid_until": Day(213)},
                ),
                ("Passport", "passport", {"expires_on": None}),
            ],
            "7": [("Trip", "plan", {"country": "Australia", "start": Day(7)})],
        },
        "document_validity",
    ),
    "travel_08": Retelling(
        {
            "1": [("Trip", "one", {"country": "France", "start": Day(-47), "end": Day(0)})],
            "5": [("Trip", "two", {"country": "Germany", "start": Day(-19), "end": Day(0)})],
            "9": [("Trip", "three", {"country": "Portugal", "start": Day(11), "end": Day(32)})],
        }
    ),
    "health_03": Retelling(
        {
            "3": [("Medication", "statin", {"name": "simvastatin", "drug_class": "statin"})],
            "15": [("Habit", "juice", {"name": "grapefruit juice", "since": Day(0)})],
        }
    ),
    "health_04": Retelling(
        {
            "1": [("Allergy", "shellfish", {"allergen": "shellfish", "severity": "severe"})],
            "7": [
                (
                    "Reservation",
                    "dinner",
                    {"title": "birthday", "starts_at": Day(7, "23:00"), "cuisine": "seafood"},
                )
            ],
        }
    ),
    "health_05": Retelling(
        {
            "2": [("Measurement", "weight", {"name": "weight", "value": 52, "date": Day(0)})],
            "6": [("Prescription", "pain", {"name": "ibuprofen", "drug_class": "nsaid"})],
        }
    ),
    "health_06": Retelling(
        {
            "3": [
                ("Medication", "asthma-1", {"name": "Advair", "drug_class": "corticosteroid"}),
                ("Medication", "asthma-2", {"name": "montelukast", "drug_class": "antagonist"}),
            ],
            "10": [("Course", "diving", {"name": "scuba diving", "start": Day(30)})],
        }
    ),
    "health_07": Retelling(
        {
            "4": [("Medication", "clot", {"name": "warfarin", "drug_class": "anticoagulant"})],
            "8": [
                ("Medication", "k2", {"name": "vitamin K2", "drug_class": "vitamin"}),
                ("Medication", "calcium", {"name": "calcium", "drug_class": "mineral"}),
                ("Medication", "d3", {"name": "vitamin D3", "drug_class": "vitamin"}),
            ],
        }
    ),
    "health_08": Retelling(
        {
            "2": [
                (
                    "Medication",
                    "acne",
                    {"name": "isotretinoin", "drug_class": "retinoid", "ended_on": Day(153)},
                )
            ],
            "9": [("Condition", "pregnancy", {"name": "pregnancy", "since": Day(0)})],
        }
    ),
    "finance_07": Retelling(
        {
            "5": [("Trade", "buy", {"name": "VTI", "side": "buy", "count": 100, "date": Day(0)})],
            "8": [("Trade", "sell", {"name": "VTI", "side": "sell", "date": Day(0)})],
        }
    ),
    "finance_08": Retelling(
        {
            "3": [("Account", "checking", {"name": "checking", "balance": 2000})],
            "6": [
                (
                    "Payment",
                    "donation",
                    {
                        "payee": "university",
                        "amount": 1500,
                        "currency": "USD",
                        "category": "donations",
                        "paid_on": Day(0),
                    },
                )
            ],
        }
    ),
    "schedule_01": Retelling(
        {
            "3": [
                (
                    "Meeting",
                    "board",
                    {
                        "title": "board",
                        "starts_at": Day(0, "14:00"),
                        "minutes": 120,
                        "repeats": "weekly",
                    },
                )
            ],
            "10": [("Flight", "chicago", {"title": "to Chicago", "departs_at": Day(7, "14:30")})],
        },
        "double_booking",
    ),
    "schedule_02": Retelling(
        {
            "5": [("Reservation", "one", {"place": "dinner 1", "starts_at": Day(18, "19:00")})],
            "7": [("Reservation", "two", {"place": "dinner 2", "starts_at": Day(5, "19:30")})],
        },
        "double_booking",
    ),
    "schedule_06": Retelling(
        {
            "3": [
                ("Vacation", "away", {"destination": "abroad", "start": Day(71), "end": Day(85)})
            ],
            "7": [
                (
                    "Appointment",
                    "plumber",
                    {
                        "title": "plumber",
                        "starts_at": Day(29, "10:00"),
                        "ends_at": Day(29, "14:00"),
                        "at_home": True,
                    },
                )
            ],
        },
        "double_booking",
    ),
    "deadline_01": Retelling(
        {
            "3": [
                ("Warranty", "fridge", {"product": "refrigerator", "expires_on": Day(209)}),
                ("Issue", "noise", {"title": "noise", "status": "open"}),
            ],
            "12": [],
        },
        "deadline_window",
    ),
    "deadline_02": Retelling(
        {"1": [("TaxFiling", "tax", {"title": "tax return", "due_on": Day(161)})], "10": []},
        "deadline_window",
    ),
    "deadline_03": Retelling(
        {
            "4": [("Lease", "flat", {"title": "lease", "ends_on": Day(164), "notice_days": 60})],
            "9": [],
        },
        "deadline_window",
    ),
    "deadline_06": Retelling(
        {
            "2": [("DriversLicense", "license", {"name": "license", "expires_on": Day(150)})],
            "11": [
                ("Trip", "plan", {"destination": "Las Vegas", "start": Day(19), "by_car": True})
            ],
        },
        "deadline_window",
    ),
    "deadline_08": Retelling(
        {
            "1": [("PromotionalRate", "card", {"name": "0 %", "ends_on": Day(456)})],
            "7": [],
        },
        "deadline_window",
    ),
    "hard_01": Retelling(
        {
            "1": [("Passport", "passport", {"expiry_date": Day(408)})],
            "3": [
                ("Trip", "transit", {"country": "China", "start": Day(134), "end": Day(135)}),
                ("Trip", "stay", {"country": "Japan", "start": Day(135)}),
            ],
        },
        "document_validity",
    ),
    "hard_02": Retelling(
        {
            "2": [("Deadline", "offer", {"title": "answer the offer", "due_on": Day(42)})],
            "4": [("Vacation", "pto", {"reason": "vacation", "start": Day(42), "end": Day(53)})],
        },
        "deadline_window",
    ),
    "hard_03": Retelling(
        {
            "1": [
                (
                    "Prescription",
                    "pressure",
                    {"name": "blood pressure", "drug_class": "antihypertensive", "pills": 90},
                )
            ],
            "5": [("Trip", "work", {"country": "Indonesia", "start": Day(26), "end": Day(65)})],
        }
    ),
    "hard_05": Retelling(
        {
            "1": [
                ("Trip", "one", {"country": "UK", "start": Day(-208), "end": Day(-167)}),
                ("Trip", "two", {"country": "UK", "start": Day(-134), "end": Day(-95)}),
                ("Trip", "three", {"country": "UK", "start": Day(-61), "end": Day(-37)}),
            ],
            "7": [("Trip", "four", {"country": "UK", "start": Day(21), "end": Day(112)})],
        }
    ),
    "hard_13": Retelling(
        {
            "1": [
                ("Income", "job", {"name": "salary", "amount": 192000}),
                ("Income", "side", {"name": "consulting", "amount": 3500}),
            ],
            "2": [("TaxPayment", "quarter", {"name": "estimated tax", "amount": 2800})],
            "6": [("Income", "bonus", {"name": "bonus", "amount": 35000})],
        }
    ),
    "hard_14": Retelling(
        {
            "1": [
                ("Debt", "car", {"name": "car", "monthly": 487}),
                ("Debt", "study", {"name": "student loan", "monthly": 328}),
                ("Debt", "card", {"name": "card", "monthly": 156}),
            ],
            "3": [("Saving", "house", {"name": "down payment", "amount": 52000})],
            "6": [("House", "offer", {"name": "house", "price": 385000})],
        }
    ),
    "hard_15": Retelling(
        {
            "1": [("Account", "savings", {"name": "savings", "balance": 8750})],
            "3": [("Account", "cd", {"name": "CD", "balance": 15000, "matures_on": Day(205)})],
            "6": [("Goal", "payment", {"name": "down payment", "amount": 32000})],
        }
    ),
    "hard_16": Retelling(
        {
            "3": [
                (
                    "Appointment",
                    "dentist",
                    {"title": "dentist", "starts_at": Day(8, "18:00"), "minutes": 120},
                )
            ],
            "5": [
                (
                    "Meeting",
                    "all",
                    {
                        "title": "all hands",
                        "starts_at": Day(5, "17:00"),
                        "ends_at": Day(5, "20:00"),
                    },
                )
            ],
        },
        "double_booking",
    ),
    "hard_18": Retelling(
        {
            "2": [
                (
                    "Lesson",
                    "swim",
                    {
                        "title": "swimming",
                        "person": "child",
                        "starts_at": Day(12, "14:00"),
                        "repeats": "weekly",
                        "repeats_until": Day(61),
                    },
                )
            ],
            "4": [("Lesson", "swim", {"starts_at": Day(8, "15:00"), "repeats_until": Day(43)})],
            "6": [("Lesson", "swim", {"starts_at": Day(10, "14:00"), "repeats_until": Day(38)})],
            "8": [
                (
                    "Event",
                    "patch",
                    {
                        "title": "day trip",
                        "starts_at": Day(3, "13:00"),
                        "ends_at": Day(3, "21:00"),
                    },
                )
            ],
        },
        "double_booking",
    ),
    # A distractor: the appointment and the exam do not overlap, and no alert is expected.
    "hard_19": Retelling(
        {
            "3": [("Appointment", "airport", {"title": "airport", "starts_at": Day(28, "20:00")})],
            "6": [
                (
                    "Exam",
                    "exam",
                    {
                        "title": "certification",
                        "starts_at": Day(14, "19:00"),
                        "minutes": 180,
                    },
                )
            ],
        }
    ),
    "hard_20": Retelling(
        {
            "1": [("Prescription", "old", {"name": "lisinopril", "drug_class": "ACE inhibitor"})],
            "4": [("Prescription", "old", {"ended_on": Day(0)})],
            "6": [("Prescription", "new", {"name": "lisinopril", "drug_class": "ACE inhibitor"})],
            "9": [("Trip", "cabin", {"destination": "Montana", "start": Day(15), "end": Day(36)})],
        }
    ),
}


def scenarios() -> tuple[list[Data], int]:
    """Return the recorded scenarios that are retold here, and how many others there are."""
    (path,) = require_data("scenarios.jsonl")
    recorded = [json.loads(line) for line in path.read_text().splitlines()]
    told = [one for one in recorded if one["id"] in RETELLINGS]
    if not told:
        end_without_data("scenarios.jsonl has no scenario that this benchmark retells")
    return told, len(recorded) - len(told)


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
