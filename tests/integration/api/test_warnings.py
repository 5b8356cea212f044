"""A result that a development sandbox computed is marked so, wherever the API shows it."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.versions.models.runs import Run
from tests.constraints import make_rule

pytestmark = pytest.mark.django_db

RULE = make_rule(
    "told",
    "travel.Trip",
    "trip.to",
    "{trip.to}",
    fires='to="Rome"',
    silent='to=""',
    severity="info",
)
TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "key": "rome", "data": {"to": "Rome"}}


@pytest.fixture
def results(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> Callable[[], dict[str, Any]]:
    """Compute every kind of result; return a look at each of them."""
    api.post("/v1/users/ada/entries/", TRIP)
    work()
    proposed = api.put("/v1/users/ada/constraints/told/?wait=0", RULE).data
    work()
    asked = api.post("/v1/users/ada/query/?wait=0", {"code": "len(trips)"}).data
    work()

    def look() -> dict[str, Any]:
        (alert,) = api.get("/v1/users/ada/alerts/").data["results"]
        return {
            "query": api.get(f"/v1/runs/{asked['id']}/").data,
            "proposal": api.get(f"/v1/runs/{proposed['id']}/").data,
            "alert": api.get(f"/v1/alerts/{alert['id']}/").data,
            "listed alert": alert,
            "listed run": api.get("/v1/users/ada/runs/?kind=constraints").data["results"][0],
            "manifest": api.get("/v1/users/ada/manifest/").data,
            "listed version": api.get("/v1/users/ada/checkpoints/").data["results"][0],
            "version": api.get("/v1/users/ada/checkpoints/1/").data,
        }

    return look


def test_result_of_a_process_warns(results: Callable[[], dict[str, Any]]) -> None:
    for name, result in results().items():
        assert "it does not isolate untrusted code" in (result["warning"] or ""), name


def test_result_of_a_container_does_not_warn(results: Callable[[], dict[str, Any]]) -> None:
    assert Run.objects.update(runner="docker") >= 3

    of_runs = {name: result for name, result in results().items() if "version" not in name}
    del of_runs["manifest"]  # which is of a version, too
    assert len(of_runs) == 5
    for name, result in of_runs.items():
        assert result["warning"] is None, name
