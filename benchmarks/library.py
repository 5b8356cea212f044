"""Measure the precision of the constraint library on recorded scenarios, retold as typed records.

The users' messages in `scenarios.jsonl` (in UAC_DATA_DIR) are retold below as typed records,
session by session, as a product would log them. Days are relative to the day of the session; the
messages' texts are not repeated here. Each scenario is followed day by day, from its first session
to the trigger, the session after which an alert is expected: the records so far make up a project,
the shapes of all ten constraints are matched with its outline, and the constraints that apply run
in a sandbox as of noon UTC.

At most one constraint has the expected alert in its scope. An alert from this constraint is on time
if it opens on the day of the trigger, and early if it opens before and is still open on that day.
All other alerts are false. Scenarios that are not retold below are left out and counted.
"""

import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import (
    NOON,
    embedded_server,
    end_without_data,
    parser,
    report,
    require_data,
)

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


@dataclass
class Found:
    """Counts of a constraint's alerts over all scenarios."""

    in_scope: int = 0
    on_the_day: int = 0
    early: int = 0
    missed: int = 0
    false: int = 0
    applies: int = 0
    days_early: list[int] = field(default_factory=list)

    def row(self, name: str) -> dict[str, Any]:
        """Return the constraint's row in the report; `strict` counts early alerts as false."""
        true = self.on_the_day + self.early
        return {
            "constraint": name,
            "applies to": self.applies,
            "in scope": self.in_scope,
            "on the day": self.on_the_day,
            "early": self.early,
            "days early": "/".join(map(str, self.days_early)),
            "missed": self.missed,
            "false": self.false,
            "precision": share(true, true + self.false),
            "strict": share(self.on_the_day, true + self.false),
            "recall": share(true, self.in_scope),
        }


def share(part: int, whole: int) -> float | None:
    """Return part / whole, rounded; None if `whole` is zero."""
    return round(part / whole, 3) if whole else None


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


def alerts_by_day(scenario: Data) -> Iterator[tuple[datetime.date, dict[str, set[str]], set[str]]]:
    """Yield each day, its alerts by constraint, and the names of the constraints that apply.

    An alert is given as its key, or as the keys of its evidence.
    """
    from memory.constraints import constraint_library
    from memory.project import Project, RecordEntry, apply, compile_record, render
    from memory.project.shapes import match, needs_of
    from workers.sandbox.runner import open_sandbox

    library = {
        f"workspace/constraints/{name}.py": constraint_library.read(name).source
        for name in constraint_library.names()
    }
    needs = {path: needs_of(source) for path, source in library.items()}
    project, seq = Project.empty(), 0
    bindings: dict[str, Any] = {}
    with open_sandbox() as sandbox:
        sandbox.load(library)
        for day, told in days_of(scenario):
            for type_, key, data in told:
                seq += 1
                entry = RecordEntry(seq=seq, domain="life", type=type_, key=key, data=data)
                for edit in compile_record(project, entry):
                    apply(project, edit)
            if told:
                sandbox.load(render(project))
                matches = {path: match(one, project.outline) for path, one in needs.items()}
                bindings = {path: one.bindings for path, one in matches.items() if one.applies}
            ran = sandbox.run_constraints(
                list(bindings),
                now=datetime.datetime.combine(day, NOON),
                time_zone="UTC",
                bindings=bindings,
            )
            found: dict[str, set[str]] = {}
            for result in ran.results:
                assert result.error is None, (scenario["id"], result)
                name = result.path.rpartition("/")[2].removesuffix(".py")
                found[name] = {
                    alert.key or " ".join(one.key for one in alert.evidence)
                    for alert in result.alerts
                }
            yield day, found, set(found)


def follow(scenario: Data, totals: dict[str, Found]) -> dict[str, Any]:
    """Follow a scenario and add its alerts to the totals; return its row."""
    scope = RETELLINGS[scenario["id"]].scope
    opened: dict[str, dict[str, datetime.date]] = {}
    closed: Counter[str] = Counter()
    applied: set[str] = set()
    day = None
    for day, found, applying in alerts_by_day(scenario):
        applied |= applying
        for name, alerts in found.items():
            open_ones = opened.setdefault(name, {})
            for gone in open_ones.keys() - alerts:
                del open_ones[gone]
                closed[name] += 1
            for alert in alerts:
                open_ones.setdefault(alert, day)
    assert day is not None
    for name in applied:
        totals[name].applies += 1
    for name, number in closed.items():
        totals[name].false += number  # these alerts closed before the day of the trigger
    outcome = ""
    for name, open_ones in opened.items():
        for since in sorted(open_ones.values()):
            if name != scope or outcome:
                totals[name].false += 1
            elif since == day:
                totals[name].on_the_day += 1
                outcome = "on the day"
            else:
                totals[name].early += 1
                totals[name].days_early.append((day - since).days)
                outcome = f"{(day - since).days} days early"
    if scope:
        totals[scope].in_scope += 1
        totals[scope].missed += not outcome
    false = sum(len(ones) for name, ones in opened.items() if name != scope)
    return {
        "scenario": scenario["id"],
        "eligible": scenario["eligible_v2_1"],
        "constraint": scope,
        "outcome": (outcome or "missed") if scope else "out of scope",
        "false": false + sum(closed.values()),
    }


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, limit=(None, 1)).parse_args()
    told, left_out = scenarios()
    told = told[: asked.limit]
    from memory.constraints import constraint_library

    totals = {name: Found() for name in constraint_library.names()}
    with embedded_server():
        from workers.sandbox.build import ensure_image
        from workers.sandbox.runner import close_pool

        ensure_image()
        each = [follow(scenario, totals) for scenario in told]
        close_pool()
    whole = Found()
    for found in totals.values():
        for name in ("in_scope", "on_the_day", "early", "missed", "false"):
            setattr(whole, name, getattr(whole, name) + getattr(found, name))
    eligible = [row for row in each if row["eligible"]]
    covered = [row for row in eligible if row["outcome"] not in ("missed", "out of scope")]
    figures = {
        "scenarios": len(told),
        "left_out": left_out,
        "in_scope": whole.in_scope,
        "on_the_day": whole.on_the_day,
        "early": whole.early,
        "missed": whole.missed,
        "false": whole.false,
        **{name: whole.row("")[name] for name in ("precision", "strict", "recall")},
        "eligible": len(eligible),
        "eligible_found": len(covered),
    }
    for row in each:
        print(*(f"{value!s:<18}" for value in row.values()))
    rows = [found.row(name) for name, found in totals.items()]
    report("library", settings={"scenarios": each}, rows=rows, figures=figures, path=asked.json)


if __name__ == "__main__":
    main()
