"""The main job over HTTP with real workers: entries in, typed Python out, alerts, exact answers."""

from pathlib import Path

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.snippets import pasted, prompted, wait_longer
from tests.system import DRUG_ALLERGY, Person, create_person, new_client, record
from tests.waiting import polled

pytestmark = pytest.mark.docker

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


@pytest.fixture(scope="module")
def patient(client: Client) -> Person:
    """A user with an allergy, a harmless medicine, and a constraint on both."""
    person = create_person(client, "patient", time_zone="Europe/Berlin")
    entries = person.log(PENICILLIN, IBUPROFEN)
    assert [entry["state"] for entry in entries] == ["covered"] * 2
    person.write_constraint("drug_allergy", DRUG_ALLERGY)
    return person


def test_readme_leads_to_a_first_constraint_that_fires(system: System) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    client = new_client(system, "readme")

    steps = pasted(
        wait_longer(prompted(readme)),
        {"UAC_URL": system.base_url, "UAC_KEY": client.key},
    )

    assert [step for step in steps if step.shown]
    assert not [step for step in steps if not step.as_shown]


class TestAlerts:
    def test_alert_opens_and_resolves_with_its_records(self, patient: Person) -> None:
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


class TestQueries:
    def test_with_docker_everything_runs_in_containers(self, patient: Person) -> None:
        answer = patient.post("query/?wait=100", {"code": "len(medications)"}, status=200)

        assert (answer["runner"], answer["warning"]) == ("docker", None)
        done = patient.get("runs/?status=done")["results"]
        assert {(run["runner"], run["warning"]) for run in done} == {("docker", None)}
        verdict = patient.get(f"checkpoints/{patient.get()['head']}/")["verdict"]
        assert verdict["runner"] == "docker"
