"""`/v1/backtests/`: started, read, cancelled, and awaited by an approval."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.constraints.models.backtests import Backtest
from memory.constraints.models.workspace_constraints import WorkspaceConstraintVersion
from memory.kernel.models.users import MemoryUser
from tests.constraints import make_rule
from tests.integration.api.test_workspace_constraints import LEASE, URL, log
from tests.integration.work.test_workspace_constraints import SOURCE, rental
from workers import tasks

pytestmark = pytest.mark.django_db

Work = Callable[[], None]
BACKTESTS = "/v1/backtests/"
OF_VERSION = f"{URL}lease_end/versions/1/backtests/"
OWN = {"constraint": "constraints/ended.py"}
OWN_RULE = make_rule(
    "ended",
    "home.Rental",
    "rental.until < today",
    "{rental.flat} ended on {rental.until}",
    fires='flat="x", until=datetime.date(2025, 12, 31)',
    silent='flat="x", until=TODAY',
)


@pytest.fixture
def judged(api: APIClient, user: MemoryUser, work: Work) -> str:
    """A version that passed its checks, for a user whom it fits; the id of its backtest."""
    log(api, user, rental(), rental("Side Street", "2999-01-01"))
    work()
    assert api.post(f"{URL}?wait=0", LEASE).status_code == 201
    tasks.work("versions", version_pk())
    return str(Backtest.objects.get().pk)


def version_pk() -> str:
    return str(WorkspaceConstraintVersion.objects.get().pk)


def test_from_the_checks_to_the_approval(
    api: APIClient, manager: APIClient, judged: str, work: Work
) -> None:
    # Given a version whose backtest began by itself
    waiting = api.get(f"{BACKTESTS}{judged}/").data
    assert (waiting["constraint"], waiting["version"]) == ("workspace/constraints/lease_end.py", 1)
    assert (waiting["state"], waiting["days"], waiting["users"]) == ("waiting", 365, 200)
    assert waiting["user_id"] is None
    known = api.get(f"{URL}lease_end/versions/1/").data["tested"]
    assert (known["enough"], known["backtest"]) == (False, judged)
    # Then it cannot be approved yet
    refused = manager.post(f"{URL}lease_end/versions/1/approve/")
    assert refused.status_code == 409

    # When it has finished
    work()
    done = api.get(f"{BACKTESTS}{judged}/").data

    # Then it tells what would have been, and the version can be approved
    assert done["state"] == "finished"
    summary = done["summary"]
    names = ("looked_at", "fits", "done", "fired", "findings")
    assert [summary[name] for name in names] == [1] * 5
    (found,) = done["findings"]
    assert (found["user_id"], found["version"], found["severity"]) == ("ada", 1, "warning")
    assert found["message"] == "Main Street ended on 2020-01-01"
    assert found["entries"] == [1]
    assert found["resolved_at"] is None
    assert api.get("/v1/users/ada/alerts/").data["results"] == []
    assert manager.post(f"{URL}lease_end/versions/1/approve/").data["live"] == 1
    assert api.get(f"{URL}lease_end/versions/1/").data["tested"]["enough"]


def test_another_backtest_replaces_the_earlier_one(manager: APIClient, judged: str) -> None:
    other = manager.post(OF_VERSION, {"days": 30, "users": 5})
    assert (other.status_code, other.data["days"], other.data["users"]) == (201, 30, 5)
    assert other.data["created_by"].startswith("key:")
    assert manager.get(f"{BACKTESTS}{judged}/").status_code == 404
    listed = manager.get(BACKTESTS).data["results"]
    assert [one["id"] for one in listed] == [other.data["id"]]


def test_running_backtest_is_cancelled_once(manager: APIClient, judged: str, work: Work) -> None:
    answer = manager.post(f"{BACKTESTS}{judged}/cancel/")
    assert (answer.status_code, answer.data["state"]) == (200, "cancelled")
    again = manager.post(f"{BACKTESTS}{judged}/cancel/")
    assert again.status_code == 409
    assert "already cancelled" in again.json()["detail"]
    work()
    assert manager.get(f"{BACKTESTS}{judged}/").data["state"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"days": 0}, "days"),
        ({"days": 3651}, "days"),
        ({"days": "30"}, "days"),
        ({"users": 0}, "users"),
        ({"users": 2001}, "users"),
        ({"users": 1.5}, "users"),
        ({"percentage": 5}, "percentage"),
    ],
)
def test_bad_numbers_name_the_field(
    manager: APIClient, judged: str, body: dict[str, Any], field: str
) -> None:
    answer = manager.post(OF_VERSION, body)

    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [field]
    assert Backtest.objects.count() == 1


def test_refused_version_is_not_backtested(api: APIClient, manager: APIClient) -> None:
    api.post(f"{URL}?wait=0", {**LEASE, "source": SOURCE.replace("< today", "<= today")})
    assert "being checked" in manager.post(OF_VERSION, {}).json()["detail"]
    tasks.work("versions", version_pk())
    answer = manager.post(OF_VERSION, {})
    assert answer.status_code == 409
    assert "refused" in answer.json()["detail"]
    assert manager.post(f"{URL}lease_end/versions/9/backtests/", {}).status_code == 404
    assert not Backtest.objects.exists()


def test_another_workspace_sees_nothing(judged: str, stranger: APIClient) -> None:
    assert stranger.get(BACKTESTS).data["results"] == []
    assert stranger.get(f"{BACKTESTS}{judged}/").status_code == 404
    assert stranger.post(f"{BACKTESTS}{judged}/cancel/").status_code == 404
    assert stranger.post(OF_VERSION, {}).status_code == 404
    assert stranger.get(f"{BACKTESTS}{uuid.uuid4()}/").status_code == 404
    assert Backtest.objects.get().state == "waiting"


def test_a_users_own_constraint_is_run_over_the_users_history(
    api: APIClient, manager: APIClient, user: MemoryUser, work: Work
) -> None:
    log(api, user, rental())
    work()
    api.put("/v1/users/ada/constraints/ended/?wait=0", OWN_RULE)
    work()

    started = manager.post("/v1/users/ada/backtests/", OWN)
    assert (started.status_code, started.data["user_id"]) == (201, "ada"), started.data
    work()

    done = api.get(f"{BACKTESTS}{started.data['id']}/").data
    assert (done["state"], done["version"], done["summary"]["findings"]) == ("finished", None, 1)
    (found,) = done["findings"]
    assert found["message"] == "Main Street ended on 2020-01-01"
    (alert,) = api.get("/v1/users/ada/alerts/").data["results"]
    assert alert["evidence"] == found["evidence"]
    listed = api.get(BACKTESTS).data["results"]
    assert [one["id"] for one in listed] == [done["id"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "constraint"),
        ({"constraint": "constraints/none.py"}, "constraint"),
        ({"constraint": 5}, "constraint"),
        ({**OWN, "days": 0}, "days"),
        ({**OWN, "users": 5}, "users"),
    ],
)
def test_bad_input_of_an_own_one_names_the_field(
    manager: APIClient, user: MemoryUser, body: dict[str, Any], field: str
) -> None:
    answer = manager.post("/v1/users/ada/backtests/", body)

    # A well-formed constraint may still not exist.
    assert answer.status_code in (400, 404)
    assert list(answer.json()["errors"]) == [field]
    assert manager.post("/v1/users/nobody/backtests/", OWN).status_code == 404
    assert not Backtest.objects.exists()
