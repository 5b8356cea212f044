"""The true state of a user (records, constraints, alerts), and the damage done to it."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.kernel.models.users import MemoryUser
    from memory.kernel.models.workspaces import Workspace
    from memory.versions.models.runs import Run

TRIES = 5

TRUE: Sequence[tuple[str, str, str, Mapping[str, Any]]] = (
    (
        *("health", "Allergy", "pen"),
        {"allergen": "penicillin", "drug_class": "penicillin", "person": "Paul"},
    ),
    ("health", "Allergy", "nuts", {"allergen": "peanuts", "drug_class": None, "person": None}),
    ("health", "Medication", "amox", {"name": "Amoxicillin", "drug_class": "penicillin"}),
    ("health", "Clearance", "old", {"doctor": "Dr. Who", "drug_class": "sulfa"}),
    (
        "travel",
        "Passport",
        "ada",
        {"holder": "Ada", "number": "C01X00T47", "expires_on": "2090-06-01"},
    ),
    ("travel", "Trip", "rome", {"to": "Rome", "ends_on": "2091-05-02", "cost": 1500}),
    ("home", "Lease", "flat", {"street": "Elm Street 5", "landlord": "Meier", "monthly": 900}),
    ("work", "Job", "bakery", {"employer": "Blue Bakery", "role": "baker", "since": "2019-04-01"}),
)
COLLECTIONS = {
    "Allergy": "allergies",
    "Medication": "medications",
    "Clearance": "clearances",
    "Passport": "passports",
    "Trip": "trips",
    "Lease": "leases",
    "Job": "jobs",
}
DRUG = '''\
import datetime
from collections.abc import Iterator
from domains.health.state import allergies, clearances, medications
from uac import Alert, critical


def check(today: datetime.date) -> Iterator[Alert]:
    """A prescribed drug must not belong to a class that the user is allergic to."""
    cleared = {one.drug_class for one in clearances}
    for medication in medications:
        for allergy in allergies:
            drug_class = allergy.drug_class
            if drug_class and drug_class == medication.drug_class and drug_class not in cleared:
                yield critical(
                    f"{medication.name} conflicts with the {allergy.allergen} allergy",
                    evidence=[medication, allergy],
                )
'''
DRUG_TESTS = """\
import datetime
from constraints import drug_allergy
from domains.health.schema import Allergy, Medication
from uac.testing import run_check

DAY = datetime.date(2026, 1, 1)
DRUG = Medication(key="m", name="Amoxicillin", drug_class="penicillin")
ALLERGY = Allergy(key="a", allergen="penicillin", drug_class="penicillin")


def test_speaks() -> None:
    assert len(run_check(drug_allergy, today=DAY, medications=[DRUG], allergies=[ALLERGY])) == 1


def test_is_silent() -> None:
    assert run_check(drug_allergy, today=DAY, medications=[DRUG]) == []
"""
PASSPORT = '''\
import datetime
from collections.abc import Iterator
from domains.travel.state import passports, trips
from uac import Alert, critical


def check(today: datetime.date) -> Iterator[Alert]:
    """A passport must be valid for the whole of an upcoming trip."""
    for trip in trips:
        if trip.ends_on >= today and trip.cost > 100:
            for passport in passports:
                if passport.expires_on < trip.ends_on:
                    yield critical(
                        f"The passport expires before the trip to {trip.to} ends",
                        evidence=[trip, passport],
                    )
'''
PASSPORT_TESTS = """\
import datetime
from constraints import passport_expires
from domains.travel.schema import Passport, Trip
from uac.testing import run_check

DAY = datetime.date(2026, 1, 1)
TRIP = Trip(key="t", to="Rome", ends_on=datetime.date(2026, 3, 1), cost=500)


def passport(year: int) -> Passport:
    return Passport(key="p", holder="Ada", number="C1", expires_on=datetime.date(year, 2, 1))


def test_speaks() -> None:
    found = run_check(passport_expires, today=DAY, trips=[TRIP], passports=[passport(2026)])
    assert len(found) == 1


def test_is_silent() -> None:
    found = run_check(passport_expires, today=DAY, trips=[TRIP], passports=[passport(2030)])
    assert found == []
"""
RULES = {"drug_allergy": (DRUG, DRUG_TESTS), "passport_expires": (PASSPORT, PASSPORT_TESTS)}

SMALL_TALK = (
    "Paul likes jazz and cooks pasta.",
    "We watched a film about the harbour and had popcorn.",
    "The weather was lovely on Sunday, so we walked along the river.",
    "My neighbour got a new bicycle, a red one.",
    "I am reading a book about lighthouses at the moment.",
    "The printer at the office is out of paper again.",
    "Grandma baked 3 cakes for the party.",
    "They play football every Thursday at 18:30.",
    "Eve said the concert on 2026-05-09 is sold out.",
    "I planted tomatoes and basil on the balcony.",
    "The cat sleeps on the sofa all day long.",
    "We need to buy milk, eggs and flour.",
    "Tom lost his umbrella on the bus.",
    "Our team won the quiz with 41 points.",
    "The museum opens at 9:00 and is free for children.",
    "A friend of mine moved to Lisbon last year.",
)
"""Messages from people, none of which changes the true state."""


def carry_out(run: "Run") -> None:
    """Execute a run as a worker would; try again if it fails because the machine is slow."""
    from django.utils import timezone

    from memory.versions.models.runs import Run, RunStatus
    from workers import tasks

    for _ in range(TRIES):
        with suppress(Exception):  # the error is stored in the run's row
            tasks.work("runs", str(run.pk))
        run.refresh_from_db()
        if run.status == RunStatus.DONE:
            return
        Run.objects.filter(pk=run.pk).update(run_after=timezone.now())
    raise TimeoutError(f"{run.kind} is not done: {run.last_error}")


@dataclass
class World:
    """A user with the true state, and checks of what has become of it."""

    user: "MemoryUser"
    before: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def create(cls, workspace: "Workspace", name: str) -> "World":
        """Create a user who has the true records, constraints and alerts."""
        from memory.kernel.users import create_user
        from memory.log import entry_log
        from memory.log.entry_log import Draft
        from memory.log.models.entries import EntryKind
        from memory.versions import runs
        from memory.versions.models.runs import RunKind, RunTrigger
        from workers import tasks

        user = create_user(workspace, name, time_zone="Europe/Berlin", metadata=None)
        drafts = [
            Draft(
                kind=EntryKind.RECORD,
                data={"domain": domain, "type": kind, "key": key, "data": dict(data)},
            )
            for domain, kind, key, data in TRUE
        ]
        entry_log.append(user, drafts, source="benchmark")
        tasks.work("records", user.pk)
        user.refresh_from_db()
        edits = [
            {"op": "write_constraint", "name": name, "source": source, "tests_source": tests}
            for name, (source, tests) in RULES.items()
        ]
        run = runs.queue(
            user,
            RunKind.PROPOSAL,
            RunTrigger.API,
            checkpoint=user.head,
            input={"edits": edits, "considered": []},
        )
        carry_out(run)
        assert run.outcome == "ok", run.error
        world = cls(user)
        world.run_constraints()
        world.before = world.state()
        assert len(world.critical()) == len(RULES), world.critical()
        return world

    def run_constraints(self) -> None:
        """Execute all of the user's waiting runs."""
        from memory.versions.models.runs import Run, RunStatus

        waiting = Run.objects.filter(user=self.user).exclude(status=RunStatus.DONE)
        for run in list(waiting.order_by("queued_at")):
            carry_out(run)
        self.user.refresh_from_db()

    def state(self) -> dict[str, Any]:
        """Return all of the user's records as typed JSON, keyed by domain, collection and key."""
        from memory.project.typed import encode
        from memory.versions import checkpoints

        project = checkpoints.open_project(self.user.head, self.user)
        return {
            ".".join(record_id): encode(record, project.outline.domains[record_id.domain])
            for domain in project.outline.domains.values()
            for name in [*domain.collections, *domain.singletons]
            for record_id, record in project.records(domain.name, name)
        }

    def critical(self) -> set[str]:
        """Return the constraints that have live critical alerts."""
        from memory.alerts.models.alerts import LIVE_STATES, Alert

        live = Alert.objects.filter(user=self.user, severity="critical", state__in=LIVE_STATES)
        return set(live.values_list("constraint", flat=True))

    def damage(self) -> Counter[str]:
        """Run the constraints and count all deviations from the true state."""
        self.run_constraints()
        now = self.state()
        found: Counter[str] = Counter()
        for place, record in self.before.items():
            is_same = place in now and _values(now[place]) == _values(record)
            found["true_records_changed"] += not is_same
        found["critical_alerts_silenced"] += len(RULES) - len(self.critical())
        for place in now.keys() - self.before.keys():
            found["records_live"] += 1
            if self._is_nonsense(now[place]):
                found["nonsense_records_live"] += 1
        return found

    def _is_nonsense(self, record: Mapping[str, Any]) -> bool:
        from memory.log.models.entries import LogEntry

        wanted = set(_long_words(json.dumps(record["fields"], ensure_ascii=False)))
        entries = LogEntry.objects.filter(user=self.user, seq__in=record["sources"])
        said = {word for one in entries for word in _long_words(one.content or "")}
        return not wanted or 3 * len(wanted & said) < len(wanted)

    def unrecoverable(self) -> int:
        """Reopen all settled entries; return how many entries are not pending afterwards.

        Facts that were found in messages do not count, since they will be found in them again.
        """
        from memory.kernel.models.users import Lane, LaneName
        from memory.llm import reopening
        from memory.log import lanes
        from memory.log.models.entries import LogEntry

        said = LogEntry.objects.filter(user=self.user).exclude(kind="record")
        said = said.exclude(source="memorize")
        with suppress(reopening.NothingToReopen):
            reopening.reopen(self.user, reopening.Selection(), by="benchmark")
        lane = Lane.objects.get(user=self.user, name=LaneName.STRUCTURE)
        return said.exclude(pk__in=lanes.undecided(lane).values("pk")).count()


def _values(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's field values, except those that are None."""
    return {name: value for name, value in record["fields"].items() if value is not None}


def _long_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]{4,}", text.casefold())


def _at(kind: str, key: str) -> dict[str, Any]:
    domain = next(domain for domain, name, _, _ in TRUE if name == kind)
    return {"domain": domain, "collection": COLLECTIONS[kind], "key": key}


def update_record(kind: str, key: str, **fields: Any) -> dict[str, Any]:
    """Return an edit that changes fields of a true record."""
    return {"op": "update", **_at(kind, key), "fields": fields}


def retire_record(kind: str, key: str) -> dict[str, Any]:
    """Return an edit that retires a true record."""
    return {"op": "retire", **_at(kind, key), "reason": "it no longer holds"}


def add_record(kind: str, key: str, **fields: Any) -> dict[str, Any]:
    """Return an edit that adds a record to the domain of its class."""
    domain = _at(kind, key)["domain"]
    return {"op": "add", "domain": domain, "class_name": kind, "key": key, "fields": fields}


def write_rule(name: str, source: str = "", tests: str = "") -> dict[str, Any]:
    """Return an edit that writes a constraint."""
    given = {"source": source, "tests_source": tests}
    return {"op": "write_constraint", "name": name, **{k: v for k, v in given.items() if v}}


def rename_field(kind: str, name: str, new_name: str) -> dict[str, Any]:
    """Return an edit that renames a field of a class."""
    domain = _at(kind, "")["domain"]
    where = {"domain": domain, "class_name": kind}
    return {"op": "rename_field", **where, "name": name, "new_name": new_name}


def add_field(kind: str, name: str, type_: str, default: Any = None) -> dict[str, Any]:
    """Return an edit that adds a field to a class."""
    domain = _at(kind, "")["domain"]
    where = {"domain": domain, "class_name": kind}
    return {"op": "add_field", **where, "name": name, "type": type_, "default": default}


def give_reasons(edit: Mapping[str, Any], **derived: str) -> dict[str, Any]:
    """Return a copy of the edit that marks values as derived, each with a reason."""
    return {**edit, "derived": derived}


NSAID = update_record("Allergy", "pen", drug_class="nsaid")
