"""The main job over HTTP with real workers: entries in, typed Python out, alerts, exact answers."""

from pathlib import Path

import pytest

from deploy.embedded.system import System
from tests.snippets import pasted, prompted, wait_longer
from tests.system import DRUG_ALLERGY, Person, message, new_client, record
from tests.waiting import polled

PENICILLIN = record(
    "Allergy",
    "penicillin",
    domain="health",
    allergen="penicillin",
    drug_class="penicillin",
    reaction="hives",
    severity="severe",
    noted_on="2025-01-10",
)
IBUPROFEN = record(
    "Medication",
    "ibuprofen",
    domain="health",
    name="Ibuprofen",
    dose="400 mg",
    drug_class="nsaid",
    started_on="2025-02-01",
    prescribed_by=None,
)
AMOXICILLIN = record(
    "Medication",
    "amoxicillin",
    domain="health",
    name="Amoxicillin",
    dose="500 mg",
    drug_class="penicillin",
    started_on="2025-03-01",
    prescribed_by="Dr. Okafor",
)

# It passes its own tests, and divides by zero as soon as a medicine has a dose of zero.
DIVIDES = '''
"""Doses."""

import datetime
from collections.abc import Iterator

from domains.health.state import medications
from uac import Alert, info


def check(today: datetime.date) -> Iterator[Alert]:
    """Say how many tablets make a gram."""
    for medication in medications:
        tablets = 1000 // int(medication.dose.split()[0])
        if tablets > 100:
            yield info(f"{tablets} tablets of {medication.name}", evidence=[medication])
'''
DIVIDES_TESTS = '''
"""Speaks of small doses, and only of them."""

import datetime

from constraints import tablets
from domains.health.schema import Medication
from uac.testing import run_check

TODAY = datetime.date(2025, 3, 1)


def medication(dose: str) -> Medication:
    """Return a medicine."""
    return Medication(
        key="m", name="M", dose=dose, drug_class="c", started_on=TODAY, prescribed_by=None
    )


def test_speaks() -> None:
    """A milligram is little."""
    assert run_check(tablets, today=TODAY, medications=[medication("1 mg")])


def test_is_silent() -> None:
    """Half a gram is not."""
    assert not run_check(tablets, today=TODAY, medications=[medication("500 mg")])
'''


@pytest.fixture
def patient(person: Person) -> Person:
    """A user with an allergy, a harmless medicine, and a constraint on both."""
    entries = person.log(PENICILLIN, IBUPROFEN)
    assert [entry["state"] for entry in entries] == ["covered"] * 2
    person.write_constraint("drug_allergy", DRUG_ALLERGY)
    return person


def test_the_readme_is_followed_from_the_first_user_to_a_first_constraint_that_fires(
    system: System,
) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    client = new_client(system, "readme")

    steps = pasted(
        wait_longer(prompted(readme)),
        {"UAC_URL": system.base_url, "UAC_KEY": client.key},
    )

    assert [step for step in steps if step.shown]
    assert not [step for step in steps if not step.as_shown]


class TestEntries:
    def test_a_message_is_logged_and_stays_pending(self, person: Person) -> None:
        [entry] = person.log(message("I moved to Lisbon."), wait=2)

        assert (entry["seq"], entry["state"]) == (1, "pending")
        assert person.get()["entries"] == {
            "total": 1,
            "pending": 1,
            "covered": 0,
            "dismissed": 0,
            "rejected": 0,
        }
        assert person.get()["head"] is None

    def test_typed_entries_become_typed_python(self, person: Person) -> None:
        entries = person.log(PENICILLIN, message("It was terrible."), IBUPROFEN)

        assert [entry["state"] for entry in entries] == ["covered", "pending", "covered"]
        schema = person.file("domains/health/schema.py")
        assert "@dataclass(kw_only=True)\nclass Medication(Record):" in schema
        assert "    started_on: datetime.date\n" in schema
        state = person.file("domains/health/state.py")
        assert (
            "allergies: list[Allergy] = [\n"
            '    Allergy(key="penicillin", allergen="penicillin", drug_class="penicillin", '
            'reaction="hives", severity="severe", noted_on=datetime.date(2025, 1, 10), '
            "sources=(1,)),\n"
            "]\n"
        ) in state
        assert 'Medication(key="ibuprofen"' in state
        assert "sources=(3,)" in state

    def test_a_value_that_does_not_fit_is_set_aside_and_named(self, person: Person) -> None:
        person.log(IBUPROFEN)

        [entry] = person.log(record("Medication", "odd", domain="health", started_on=7))

        assert (entry["state"], entry["set_aside"]) == ("covered", ["started_on"])
        assert 'set_aside={"started_on": 7}' in person.file("domains/health/state.py")
        assert "1 set aside" in person.get("manifest/")["text"]

    def test_the_manifest_says_what_is_known(self, patient: Person) -> None:
        text = patient.get("manifest/")["text"]

        assert "medications: 1 Medication(name, dose, drug_class, started_on:date" in text
        assert "drug_allergy: A prescribed medicine must not belong to a class" in text


class TestConstraints:
    def test_one_that_fails_its_own_tests_is_refused_and_the_head_stays(
        self, patient: Person
    ) -> None:
        before = patient.get()["head"]
        source = DRUG_ALLERGY["source"]
        never = source.replace("medication.drug_class == allergy.drug_class", "False")

        refused = {**DRUG_ALLERGY, "source": never}
        decision = patient.write_constraint("drug_allergy", refused, status=422)

        assert not decision["accepted"]
        assert decision["version"] is None
        assert not decision["verdict"]["accepted"]
        assert "test_alerts_on_a_medicine_of_the_class" in str(decision["verdict"])
        assert patient.get()["head"] == before
        assert patient.file("constraints/drug_allergy.py") == DRUG_ALLERGY["source"]


class TestAlerts:
    def test_a_conflict_speaks_up_by_itself_and_falls_silent_when_it_is_gone(
        self, patient: Person
    ) -> None:
        [entry] = patient.log(AMOXICILLIN)

        [alert] = polled(lambda: patient.alerts("open"), len)
        assert alert["severity"] == "critical"
        assert "Amoxicillin" in alert["message"]
        assert alert["constraint"] == "constraints/drug_allergy.py"
        assert alert["entries"] == [1, entry["seq"]]
        assert alert["evidence"] == [
            {
                "class": "Medication",
                "domain": "health",
                "collection": "medications",
                "key": "amoxicillin",
                "sources": [entry["seq"]],
            },
            {
                "class": "Allergy",
                "domain": "health",
                "collection": "allergies",
                "key": "penicillin",
                "sources": [1],
            },
        ]
        assert "critical: Amoxicillin" in patient.get("manifest/")["text"]

        patient.log({**AMOXICILLIN, "data": {}, "retired": True})

        polled(lambda: patient.alerts("open"), lambda alerts: not alerts)
        [alert] = patient.alerts()
        assert alert["state"] == "resolved"
        events = patient.client.get(f"alerts/{alert['id']}/")[1]["events"]
        assert [event["kind"] for event in events] == ["opened", "resolved"]

    def test_can_be_acknowledged_and_resolved_by_hand(self, patient: Person) -> None:
        patient.log(AMOXICILLIN)
        [alert] = polled(lambda: patient.alerts("open"), len)

        status, answer = patient.client.post(f"alerts/{alert['id']}/acknowledge/", {"note": "seen"})
        assert (status, answer["state"]) == (200, "acknowledged")
        status, answer = patient.client.post(f"alerts/{alert['id']}/resolve/", {"reason": "told"})
        assert (status, answer["state"]) == (200, "resolved")

        status, _ = patient.client.post(f"alerts/{alert['id']}/acknowledge/", {})
        assert status == 409
        assert patient.alerts("open") == []

    def test_a_constraint_that_raises_is_an_error_on_the_run_and_an_alert_for_the_staff(
        self, patient: Person
    ) -> None:
        patient.write_constraint("tablets", {"source": DIVIDES, "tests": DIVIDES_TESTS})

        patient.log(AMOXICILLIN, {**IBUPROFEN, "data": {**IBUPROFEN["data"], "dose": "0 mg"}})

        found = polled(lambda: patient.alerts("open"), lambda alerts: len(alerts) == 2)
        by_kind = {alert["kind"]: alert for alert in found}
        failure = by_kind["constraint_error"]
        assert failure["constraint"] == "constraints/tablets.py"
        assert "ZeroDivisionError" in failure["message"]
        # The other constraint still fires.
        assert by_kind["finding"]["constraint"] == "constraints/drug_allergy.py"
        run = patient.client.get(f"runs/{failure['last_run']}/")[1]
        assert (run["kind"], run["outcome"]) == ("constraints", "user_error")
        assert run["error"]["type"] == "ZeroDivisionError"
        assert run["error"]["path"] == "constraints/tablets.py"
        assert "1000 //" in DIVIDES.splitlines()[run["error"]["line"] - 1]


class TestQueries:
    def test_a_question_is_answered_exactly_with_what_it_rests_on(self, patient: Person) -> None:
        code = "sum(m.started_on < today for m in medications), Decimal('0.1') + Decimal('0.2')"

        answer = patient.post("query/?wait=100", {"code": code}, status=200)

        assert answer["value"] == {"$tuple": [1, {"$decimal": "0.3"}]}
        assert answer["type"] == "tuple"
        assert answer["outcome"] == "ok"
        assert answer["checkpoint"] == patient.get()["head"]
        assert answer["code"] == code

    @pytest.mark.docker
    def test_with_docker_everything_runs_in_containers(self, patient: Person) -> None:
        answer = patient.post("query/?wait=100", {"code": "len(medications)"}, status=200)

        assert (answer["runner"], answer["warning"]) == ("docker", None)
        done = patient.get("runs/?status=done")["results"]
        assert {(run["runner"], run["warning"]) for run in done} == {("docker", None)}
        verdict = patient.get(f"checkpoints/{patient.get()['head']}/")["verdict"]
        assert verdict["runner"] == "docker"

    def test_an_error_names_the_line_of_the_question(self, patient: Person) -> None:
        code = "number = 0\n1 / number"

        answer = patient.post("query/?wait=100", {"code": code}, status=422)

        assert answer["outcome"] == "user_error"
        assert answer["error"]["type"] == "ZeroDivisionError"
        assert answer["error"]["line"] == 2
        assert answer["value"] is None


def test_verify_finds_no_problem(system: System, patient: Person) -> None:
    output = system.manage("verify")

    assert output.splitlines()[-1].endswith(" 0 problems")
    assert not output.startswith("verified 0 users")
