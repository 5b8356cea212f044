"""The sample person: half a year of their life as log entries, and the expected results.

All dates are relative to the day the person is loaded, so the findings are the same no matter which
day that is. The expected answers are computed here from the entries themselves, in plain Python.
"""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

NAME = "Maya Lindqvist"
USER_ID = "maya.lindqvist"
TIME_ZONE = "Europe/Berlin"
PROJECT = Path(__file__).parent / "project"
# Session ids of the two conversations. Without a real language model, recorded responses to these
# conversations are replayed (`recorded_model`).
LEASE = "pottery-lease"
WORKSHOP = "pottery-workshop"

Entry = dict[str, Any]


@dataclass(frozen=True)
class Constraint:
    """A constraint in the person's project, with its tests."""

    name: str
    source: str
    tests: str


@dataclass(frozen=True)
class ExpectedAlert:
    """An alert that should be open: its constraint, its severity and the keys of its evidence."""

    constraint: str
    severity: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Question:
    """A question, the code that answers it from the state, and the answer as typed JSON."""

    text: str
    code: str
    answer: object


@dataclass(frozen=True)
class Recall:
    """A question worded differently from the entry that answers it.

    `begins` is what that entry begins with: a typed record's class and key, or a message's text.
    """

    text: str
    begins: str


@dataclass(frozen=True)
class Life:
    """The person's log: several months of entries and a conversation, followed by new entries.

    `lease` and `workshop` are conversations made up of plain messages.
    """

    months: list[Entry]
    lease: list[Entry]
    prescription: Entry
    booking: Entry
    workshop: list[Entry]

    @property
    def entries(self) -> list[Entry]:
        """All entries, in the order they are logged."""
        return [*self.months, *self.lease, self.prescription, self.booking, *self.workshop]

    def records(self, type_name: str) -> list[dict[str, Any]]:
        """Return the data for all records of one type, including each record's key."""
        return [
            {"key": entry["key"], **entry["data"]}
            for entry in self.entries
            if entry.get("type") == type_name
        ]


def constraints() -> list[Constraint]:
    """Return the constraints for the sample person's project."""
    return [
        Constraint(
            name=path.stem,
            source=path.read_text(),
            tests=(PROJECT / "tests" / f"test_{path.stem}.py").read_text(),
        )
        for path in sorted((PROJECT / "constraints").glob("*.py"))
    ]


def life(loaded_on: datetime.date) -> Life:
    """Return the person's log for the six months before `loaded_on`."""
    months = sorted(
        [*_health(loaded_on), *_travel(loaded_on), *_finance(loaded_on), *_messages(loaded_on)],
        key=lambda entry: str(entry["occurred_at"]),
    )
    yesterday = loaded_on - datetime.timedelta(days=1)
    return Life(
        months=months,
        lease=_lease_conversation(loaded_on),
        prescription=_record(
            yesterday,
            "health",
            "Medication",
            "amoxicillin",
            name="Amoxicillin",
            dose="500 mg three times a day",
            drug_class="penicillin",
            started_on=str(loaded_on),
            prescribed_by="Dr. Okafor",
        ),
        booking=_record(
            yesterday,
            "travel",
            "Trip",
            "bangkok",
            destination="Bangkok",
            country="Thailand",
            departs_on=_day(loaded_on, -45),
            returns_on=_day(loaded_on, -59),
            purpose="holiday",
        ),
        workshop=_workshop_conversation(yesterday),
    )


def findings(loaded_on: datetime.date, today: datetime.date) -> set[ExpectedAlert]:
    """Return the alerts that should be open on `today`."""
    drug = ExpectedAlert("drug_allergy", "critical", frozenset({"amoxicillin", "penicillin"}))
    passport = ExpectedAlert("passport_validity", "warning", frozenset({"bangkok", "passport-se"}))
    lease = ExpectedAlert("notice_period", "critical", frozenset({"pottery-studio"}))
    departed = life(loaded_on).booking["data"]["departs_on"] < str(today)
    renewed = _lease_ends_on(loaded_on) < today
    return {drug} | (set() if departed else {passport}) | (set() if renewed else {lease})


def questions(life: Life) -> list[Question]:
    """Return the aggregate questions, with answers computed directly from the entries."""
    groceries = 0
    trip_cents: dict[str, int] = {}
    for expense in life.records("Expense"):
        if expense["category"] == "groceries":
            groceries += expense["amount_cents"]
        if expense["trip"] is not None:
            trip_cents[expense["trip"]] = (
                trip_cents.get(expense["trip"], 0) + expense["amount_cents"]
            )
    nights: dict[str, int] = {}
    nights_by_country: dict[str, int] = {}
    for trip in life.records("Trip"):
        departs_on, returns_on = map(
            datetime.date.fromisoformat, (trip["departs_on"], trip["returns_on"])
        )
        nights[trip["key"]] = (returns_on - departs_on).days
        country = trip["country"]
        nights_by_country[country] = nights_by_country.get(country, 0) + nights[trip["key"]]
    return [
        Question(
            text="What has Maya spent on groceries, in euros?",
            code="cents = sum(e.amount_cents for e in expenses if e.category == 'groceries')\n"
            "Decimal(cents) / 100",
            answer={"$decimal": str(Decimal(groceries) / 100)},
        ),
        Question(
            text="How many nights away, by country, including the booked trip?",
            code="nights = Counter()\n"
            "for trip in trips:\n"
            "    nights[trip.country] += (trip.returns_on - trip.departs_on).days\n"
            "dict(nights)",
            answer=nights_by_country,
        ),
        Question(
            text="What did each trip cost per night, in whole cents (expenses joined with trips)?",
            code="cents = Counter()\n"
            "for expense in expenses:\n"
            "    if expense.trip:\n"
            "        cents[expense.trip] += expense.amount_cents\n"
            "{t.key: cents[t.key] // (t.returns_on - t.departs_on).days"
            " for t in trips if t.key in cents}",
            answer={key: cents // nights[key] for key, cents in trip_cents.items()},
        ),
    ]


def recalled() -> list[Recall]:
    """Return questions that are worded differently from the entries that answer them."""
    return [
        Recall("Which medicine does she take?", "Medication amoxicillin"),
        Recall("Is there a vacation in Asia?", "Trip bangkok"),
        Recall("Is she an aunt?", "My sister Elin had her baby"),
    ]


def is_told(idempotency_key: str | None) -> bool:
    """Return whether the demo logged the entry with this idempotency key."""
    return idempotency_key is not None and idempotency_key.startswith("demo-")


def described(entry: Mapping[str, Any]) -> str:
    """Return a log entry as one line of text."""
    day = str(entry["occurred_at"])[:10]
    if entry["kind"] != "record":
        return f"{day}  {entry['content']}"
    record = entry["data"]
    return f"{day}  {record['type']} {record['key']}: {fields_in_words(record['data'])}"


def fields_in_words(fields: Mapping[str, Any]) -> str:
    """Return a record's fields as one line of text."""
    return ", ".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def _health(today: datetime.date) -> Iterator[Entry]:
    for days_ago, allergen, drug_class, reaction, severity in (
        (158, "penicillin", "penicillin", "hives", "severe"),
        (121, "birch pollen", None, "sneezing", "mild"),
    ):
        yield _record(
            today - datetime.timedelta(days=days_ago),
            "health",
            "Allergy",
            allergen.replace(" ", "-"),
            allergen=allergen,
            drug_class=drug_class,
            reaction=reaction,
            severity=severity,
            noted_on=_day(today, days_ago),
        )
    for days_ago, name, dose, drug_class, prescribed_by in (
        (120, "Cetirizine", "10 mg a day", "antihistamine", "Dr. Okafor"),
        (64, "Ibuprofen", "400 mg when needed", "nsaid", None),
    ):
        yield _record(
            today - datetime.timedelta(days=days_ago),
            "health",
            "Medication",
            name.lower(),
            name=name,
            dose=dose,
            drug_class=drug_class,
            started_on=_day(today, days_ago),
            prescribed_by=prescribed_by,
        )
    for month in range(5):
        yield _record(
            today - datetime.timedelta(days=165 - 30 * month),
            "health",
            "Measurement",
            f"resting-pulse-{month + 1}",
            kind="resting pulse",
            value=64 - month,
            taken_on=_day(today, 165 - 30 * month),
        )
    for number in range(24):
        days_ago = 172 - 7 * number - number % 3
        kind, minutes, metres = (
            ("run", 38 + number, 6200 + 110 * number),
            ("swim", 45, 1500 + 25 * number),
            ("yoga", 60, None),
        )[number % 3]
        yield _record(
            today - datetime.timedelta(days=days_ago),
            "health",
            "Workout",
            f"workout-{number + 1}",
            kind=kind,
            minutes=minutes,
            metres=metres,
            done_on=_day(today, days_ago),
        )


def _travel(today: datetime.date) -> Iterator[Entry]:
    yield _record(
        today - datetime.timedelta(days=149),
        "travel",
        "Passport",
        "passport-se",
        country="Sweden",
        number="AB1234567",
        issued_on=_day(today, 1826 - 150),
        expires_on=_day(today, -150),
    )
    for days_ago, nights, destination, country, purpose in (
        (140, 4, "Lisbon", "Portugal", "holiday"),
        (95, 2, "Copenhagen", "Denmark", "work"),
        (52, 5, "Porto", "Portugal", "holiday"),
        (20, 3, "Zürich", "Switzerland", "work"),
    ):
        yield _record(
            today - datetime.timedelta(days=days_ago + 21),
            "travel",
            "Trip",
            destination.lower().replace("ü", "u"),
            destination=destination,
            country=country,
            departs_on=_day(today, days_ago),
            returns_on=_day(today, days_ago - nights),
            purpose=purpose,
        )


def _finance(today: datetime.date) -> Iterator[Entry]:
    for number in range(22):
        cents = 2890 + (number * number * 173) % 4110
        merchant = "Markthalle" if number % 3 else "Gemüse-Ecke"
        yield _expense(today, 174 - 8 * number, "groceries", cents, merchant)
    for month in range(6):
        yield _expense(today, 170 - 30 * month, "rent", 118_000, "Hausverwaltung Nord")
        yield _expense(today, 169 - 30 * month, "transport", 6300, "monthly ticket")
    for days_ago, cents, merchant, trip in (
        (139, 18_950, "flight", "lisbon"),
        (136, 41_280, "guest house", "lisbon"),
        (94, 12_400, "train", "copenhagen"),
        (93, 26_990, "hotel", "copenhagen"),
        (51, 16_425, "flight", "porto"),
        (47, 38_875, "apartment", "porto"),
        (19, 15_990, "train", "zurich"),
        (17, 52_010, "hotel", "zurich"),
    ):
        yield _expense(today, days_ago, "travel", cents, merchant, trip)


def _messages(today: datetime.date) -> Iterator[Entry]:
    for number, (days_ago, content) in enumerate(
        (
            (110, "I want to run a half marathon before I turn 35."),
            (61, "Work is moving me to the Zürich project from autumn on."),
            (9, "My sister Elin had her baby, a girl called Saga!"),
        )
    ):
        yield {
            "kind": "message",
            "role": "user",
            "content": content,
            "occurred_at": _instant(today - datetime.timedelta(days=days_ago)),
            "idempotency_key": f"demo-message-{number + 1}",
        }


def _lease_conversation(loaded_on: datetime.date) -> list[Entry]:
    return _conversation(
        loaded_on - datetime.timedelta(days=97),
        LEASE,
        ("user", "Good morning! The tram was late again, but at least the sun is out."),
        (
            "user",
            "I finally read the lease of my pottery studio in Kantstraße. It costs 240 euros a"
            f" month and ends on {_in_words(_lease_ends_on(loaded_on))}.",
        ),
        (
            "user",
            "Unless I cancel it in writing three months before it ends, it goes on for another"
            " year.",
        ),
        ("assistant", "Good to know what one has signed. Enjoy the sun!"),
    )


def _workshop_conversation(yesterday: datetime.date) -> list[Entry]:
    return _conversation(
        yesterday,
        WORKSHOP,
        (
            "user",
            "The day after tomorrow I get my place in the big workshop at Ostkreuz. It has a"
            " gas kiln!",
        ),
        ("user", "So I won't need the studio in Kantstraße any more once its lease is over."),
    )


def _conversation(day: datetime.date, session: str, *said: tuple[str, str]) -> list[Entry]:
    return [
        {
            "kind": "message",
            "role": role,
            "content": content,
            "session_id": session,
            "occurred_at": _instant(day),
            "idempotency_key": f"demo-{session}-{number}",
        }
        for number, (role, content) in enumerate(said, 1)
    ]


def _lease_ends_on(loaded_on: datetime.date) -> datetime.date:
    return loaded_on + datetime.timedelta(days=101)


def _expense(
    today: datetime.date,
    days_ago: int,
    category: str,
    cents: int,
    merchant: str,
    trip: str | None = None,
) -> Entry:
    return _record(
        today - datetime.timedelta(days=days_ago),
        "finance",
        "Expense",
        f"{category}-{days_ago}",
        category=category,
        amount_cents=cents,
        currency="EUR",
        merchant=merchant,
        trip=trip,
        spent_on=_day(today, days_ago),
    )


def _record(day: datetime.date, domain: str, type_name: str, key: str, **data: object) -> Entry:
    return {
        "kind": "record",
        "domain": domain,
        "type": type_name,
        "key": key,
        "data": data,
        "occurred_at": _instant(day),
        "idempotency_key": f"demo-{type_name.lower()}-{key}",
    }


def _day(today: datetime.date, days_ago: int) -> str:
    return str(today - datetime.timedelta(days=days_ago))


def _in_words(day: datetime.date) -> str:
    return f"{day.day} {day:%B %Y}"


def _instant(day: datetime.date) -> str:
    return f"{day}T09:00:00Z"
