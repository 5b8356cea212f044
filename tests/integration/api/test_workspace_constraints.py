"""`/v1/constraints/`: written from the library, judged, approved, enabled for users, withdrawn."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.constraints import constraint_library
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.models.users import MemoryUser
from tests.integration.work.test_workspace_constraints import SOURCE, TESTS, rental
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]
URL = "/v1/constraints/"
LEASE = {"name": "lease_end", "source": SOURCE, "tests": TESTS}


@pytest.fixture
def passed(api: APIClient, work: Work) -> None:
    """A constraint whose first version passed."""
    assert api.post(f"{URL}?wait=0", LEASE).status_code == 201
    work()


def log(api: APIClient, user: MemoryUser, *statements: dict[str, Any]) -> None:
    entries = [{"kind": "record", **statement} for statement in statements]
    answer = api.post(f"/v1/users/{user.user_id}/entries/", {"entries": entries})
    assert answer.status_code == 202


def test_from_the_library_to_an_alert_and_back(
    api: APIClient, manager: APIClient, user: MemoryUser, work: Work
) -> None:
    # Given somebody with an allergy, and a drug of that class
    log(
        api,
        user,
        {
            "domain": "health",
            "type": "Drug",
            "data": {"name": "Amoxicillin", "category": "penicillin"},
        },
        {"domain": "health", "type": "Allergy", "data": {"allergen": "penicillin"}},
    )
    # When the product takes over a constraint of the library
    created = api.post(f"{URL}?wait=0", {"library": "drug_allergy"})
    assert (created.status_code, created.data["live"]) == (201, None)
    assert created.data["versions"][0]["state"] == "checking"
    work()
    version = api.get(f"{URL}drug_allergy/versions/1/").data
    assert (version["state"], version["reason"]) == ("passed", "")
    assert version["source"] == constraint_library.read("drug_allergy").source
    assert api.get("/v1/users/ada/alerts/").data["results"] == []

    # And approves it for everybody
    approved = manager.post(f"{URL}drug_allergy/versions/1/approve/")
    assert (approved.status_code, approved.data["live"]) == (200, 1)
    changed = manager.patch(f"{URL}drug_allergy/", {"percentage": 100})
    assert changed.data["percentage"] == 100
    dispatching.dispatch()
    work()

    # Then the user has an alert that rests on the very records
    (alert,) = api.get("/v1/users/ada/alerts/?state=open").data["results"]
    assert alert["constraint"] == "workspace/constraints/drug_allergy.py"
    assert [item["class"] for item in alert["evidence"]] == ["Drug", "Allergy"]
    assert alert["entries"] == [1, 2]
    (listed,) = api.get("/v1/users/ada/constraints/").data["results"]
    assert (listed["name"], listed["applies"], listed["reasons"]) == ("drug_allergy", True, [])
    assert api.get(URL).data["results"][0]["alerts"] == 1

    # And when it is disabled, the alert is resolved
    assert manager.patch(f"{URL}drug_allergy/", {"enabled": False}).data["enabled"] is False
    dispatching.dispatch()
    work()
    (alert,) = api.get("/v1/users/ada/alerts/").data["results"]
    assert alert["state"] == "resolved"
    (listed,) = api.get("/v1/users/ada/constraints/").data["results"]
    assert (listed["applies"], listed["reasons"]) == (False, ["the constraint is disabled"])


def test_refusal_names_what_and_where(api: APIClient, manager: APIClient, work: Work) -> None:
    api.post(f"{URL}?wait=0", {**LEASE, "source": SOURCE.replace("< today", "<= today")})
    work()

    version = api.get(f"{URL}lease_end/versions/1/").data
    assert version["state"] == "refused"
    assert version["reason"].startswith("tests: workspace/tests/test_lease_end.py:")
    (failed,) = [check for check in version["verdict"]["checks"] if not check["passed"]]
    assert failed["findings"][0]["test"].endswith("::test_is_silent")
    answer = manager.post(f"{URL}lease_end/versions/1/approve/")
    assert answer.status_code == 409
    assert "passed" in answer.json()["detail"]


def test_the_same_again_changes_nothing(api: APIClient, passed: None) -> None:
    again = api.post(f"{URL}?wait=0", LEASE)
    assert (again.status_code, len(again.data["versions"])) == (201, 1)

    same = api.post(f"{URL}lease_end/versions/?wait=0", {"source": SOURCE, "tests": TESTS})
    assert (same.status_code, same.data["number"]) == (201, 1)

    other = api.post(f"{URL}?wait=0", {**LEASE, "source": SOURCE + "\n"})
    assert other.status_code == 409
    assert "new version" in other.json()["detail"]


def test_an_earlier_version_can_be_taken_back(
    api: APIClient, manager: APIClient, passed: None, work: Work
) -> None:
    api.post(f"{URL}lease_end/versions/?wait=0", {"source": SOURCE + "\n# more\n", "tests": TESTS})
    work()
    for number in (1, 2, 1):
        answer = manager.post(f"{URL}lease_end/versions/{number}/approve/")
        assert answer.data["live"] == number
    assert [version["state"] for version in answer.data["versions"]] == ["approved", "approved"]


def test_coverage_counts_users_and_reasons(
    api: APIClient, user: MemoryUser, passed: None, work: Work
) -> None:
    log(api, user, rental())
    work()

    assert api.get(f"{URL}lease_end/coverage/").data == {
        "users": 1,
        "applies": 1,
        "within": 0,
        "reasons": {},
        "after": None,
    }
    after = api.get(f"{URL}lease_end/coverage/?version=1&after={user.pk}").data
    assert (after["users"], after["after"]) == (0, None)
    assert api.get(f"{URL}lease_end/coverage/?version=9").status_code == 404


def test_coverage_of_what_declares_nothing_says_so(api: APIClient) -> None:
    api.post(f"{URL}?wait=0", {**LEASE, "source": "def check(): pass"})

    answer = api.get(f"{URL}lease_end/coverage/")
    assert answer.status_code == 409
    assert "check takes no records" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**LEASE, "name": "Lease"}, "name"),
        ({**LEASE, "name": "class"}, "name"),
        ({**LEASE, "source": " "}, "source"),
        ({**LEASE, "tests": "#" * 70_000}, "tests"),
        ({"name": "lease_end"}, "source"),
        ({"library": "nothing"}, "library"),
        ({"library": "drug_allergy", "source": SOURCE}, "source"),
        ({"library": "drug_allergy", "name": "other"}, "name"),
        ({**LEASE, "percentage": 100}, "percentage"),
        ({**LEASE, "description": "x" * 1001}, "description"),
        ({**LEASE, "source": "\x00"}, "source"),
    ],
)
def test_bad_input_names_the_field(api: APIClient, body: dict[str, Any], field: str) -> None:
    answer = api.post(f"{URL}?wait=0", body)

    assert answer.status_code == 400
    assert field in answer.json().get("errors", {field: answer.json()["detail"]})
    assert not WorkspaceConstraint.objects.exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"percentage": 101}, "percentage"),
        ({"percentage": -1}, "percentage"),
        ({"percentage": "10"}, "percentage"),
        ({"enabled": "yes"}, "enabled"),
        ({"live": 2}, "live"),
    ],
)
def test_bad_changes_name_the_field(
    manager: APIClient, passed: None, change: dict[str, Any], field: str
) -> None:
    answer = manager.patch(f"{URL}lease_end/", change)

    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [field]


def test_another_workspace_sees_nothing(stranger: APIClient, passed: None) -> None:
    assert stranger.get(URL).data["results"] == []
    for path in ("", "coverage/", "versions/1/"):
        assert stranger.get(f"{URL}lease_end/{path}").status_code == 404
    assert stranger.patch(f"{URL}lease_end/", {"enabled": False}).status_code == 404
    assert stranger.post(f"{URL}lease_end/versions/1/approve/").status_code == 404
    assert stranger.post(f"{URL}lease_end/versions/", LEASE).status_code in (400, 404)
    assert WorkspaceConstraint.objects.get().enabled


def test_the_library_is_there_to_read(api: APIClient) -> None:
    listed = api.get("/v1/constraint-library/").data["results"]
    assert len(listed) == 10
    one = api.get("/v1/constraint-library/drug_allergy/").data
    assert (
        one["summary"] == listed[[item["name"] for item in listed].index("drug_allergy")]["summary"]
    )
    assert "from workspace.constraints import drug_allergy" in one["tests"]
    assert api.get("/v1/constraint-library/nothing/").status_code == 404


def test_a_misspelt_parameter_is_refused(api: APIClient, passed: None) -> None:
    for url in (f"{URL}?enabeld=1", f"{URL}lease_end/?x=1", f"{URL}lease_end/coverage/?before=1"):
        assert api.get(url).status_code == 400
    assert api.get(f"{URL}lease_end/coverage/?after=x").status_code == 400
