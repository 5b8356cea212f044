"""A constraint for all users, over HTTP with real workers: from the library to alerts, and back."""

from typing import Any

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.system import EVERYTHING, create_person, new_client, record
from tests.waiting import polled

ALLERGY = record("Allergy", "penicillin", domain="health", allergen="penicillin", drug_class=None)
AMOXICILLIN = record(
    "Prescription", "amoxicillin", domain="health", title="Amoxicillin", category="penicillin"
)


@pytest.fixture(scope="module")
def manager(system: System) -> Client:
    """A caller who may approve, in a workspace of its own."""
    return new_client(system, "rules", *EVERYTHING)


def asked(client: Client, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
    answered, answer = client.request(method, path, body)
    assert answered == status, answer
    return answer


def test_from_the_library_to_alerts_of_the_users_whom_it_fits_and_back(manager: Client) -> None:
    # Given one whom it concerns, and one who has nothing of the kind
    ada, bob = create_person(manager), create_person(manager, "bob")
    ada.log(ALLERGY, AMOXICILLIN)
    bob.log(record("Trip", "rome", domain="travel", to="Rome"))

    # When a constraint of the library is taken over, judged, backtested, approved and given
    created = asked(
        manager, "POST", "constraints/?wait=100", {"library": "drug_allergy"}, status=201
    )
    assert created["versions"][0]["state"] == "passed", asked(
        manager, "GET", "constraints/drug_allergy/versions/1/"
    )
    (backtest,) = polled(
        lambda: asked(manager, "GET", "backtests/?state=finished")["results"], bool
    )
    found = asked(manager, "GET", f"backtests/{backtest['id']}/")["summary"]
    assert (found["looked_at"], found["fits"], found["findings"], found["open"]) == (2, 1, 1, 1)
    assert ada.alerts() == []
    asked(manager, "POST", "constraints/drug_allergy/versions/1/approve/")
    asked(manager, "PATCH", "constraints/drug_allergy/", {"percentage": 100})

    # Then she has an alert on her own records, which nobody asked for
    (alert,) = polled(ada.alerts, bool)
    assert alert["constraint"] == "workspace/constraints/drug_allergy.py"
    assert [(one["class"], one["key"]) for one in alert["evidence"]] == [
        ("Prescription", "amoxicillin"),
        ("Allergy", "penicillin"),
    ]
    assert alert["entries"] == [1, 2]
    # And he has none, and can be told why
    (known,) = bob.get("constraints/")["results"]
    assert not known["applies"]
    assert "no class Medication" in known["reasons"][0]
    assert bob.alerts() == []
    coverage = asked(manager, "GET", "constraints/drug_allergy/coverage/")
    assert (coverage["users"], coverage["applies"], coverage["within"]) == (2, 1, 1)

    # And another entry runs it with the version that it leads to
    ada.log(
        record(
            "Prescription", "penicillin-v", domain="health", title="Pen V", category="Penicillins"
        )
    )
    alerts = polled(ada.alerts, lambda found: len(found) == 2)
    assert {alert["state"] for alert in alerts} == {"open"}

    # When it is disabled, then its alerts are resolved
    asked(manager, "PATCH", "constraints/drug_allergy/", {"enabled": False})
    alerts = polled(ada.alerts, lambda found: all(a["state"] == "resolved" for a in found))
    event = asked(manager, "GET", f"alerts/{alerts[0]['id']}/")["events"][-1]
    assert event["detail"] == {"reason": "constraint disabled"}
