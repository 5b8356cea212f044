"""Forecasts on the screens: their time, their version, and what is not known."""

import datetime

import pytest
from django.test import Client
from django.utils import timezone

from memory.constraints.models.forecasts import Forecast
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.models.users import MemoryUser
from memory.project.paths import FOLDER, constraint_path
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import list_url, page_url, shown

pytestmark = pytest.mark.django_db


@pytest.fixture
def forecast(user: MemoryUser) -> Forecast:
    """A forecast of the first of two versions, in which one of two constraints took too long."""
    now = timezone.now()
    first, head = make_checkpoint(user, 1), make_checkpoint(user, 2)
    MemoryUser.objects.filter(pk=user.pk).update(head=head)
    at = now + datetime.timedelta(days=9)
    event = {
        "at": "2126-05-02T08:00:00+00:00",
        "day": None,
        "kind": "opens",
        "constraint": "constraints/lease.py",
        "severity": "warning",
        "fingerprint": "f" * 64,
        "key": None,
        "records": ["home.leases:flat"],
        "error": None,
    }
    error = {"type": "timeout", "message": "it took longer than 5 s"}
    return Forecast.objects.create(
        user=user,
        checkpoint=first,
        computed_at=now,
        start=now,
        horizon_days=365,
        known_until=now + datetime.timedelta(days=365),
        needs_daily=True,
        results={
            "constraints/lease.py": {"error": None, "until": None},
            "endless": {"error": error, "until": None},
            "constraints/slow.py": {"error": None, "until": "2126-03-01"},
        },
        timeline=[event],
        next_change=at,
        wakes_at=at,
    )


def test_page_names_constraints_without_forecast(admin_client: Client, forecast: Forecast) -> None:
    words = shown(admin_client.get(page_url(forecast)))
    assert "v1 (the newest is v2)" in words
    assert "An alert about flat will be raised on 2126-05-02 08:00 UTC warning lease" in words
    assert "endless timeout: it took longer than 5 s" in words
    assert "slow forecast until 2126-03-01" in words
    assert "Runs: daily" in words


def test_finding_of_two_constraints_is_one_line(
    admin_client: Client, user: MemoryUser, forecast: Forecast
) -> None:
    (event,) = forecast.timeline
    event |= {"key": "ends"}
    theirs = {"constraint": "workspace/constraints/rent.py", "fingerprint": "e" * 64}
    Forecast.objects.update(timeline=[event, {**event, **theirs}])

    # The names of the constraints are in elements of their own, with spaces around them.
    told = "about flat will be raised on 2126-05-02 08:00 UTC warning lease , workspace/rent"
    for page in (forecast, user):
        words = shown(admin_client.get(page_url(page)))
        assert words.count("will be raised") == 1
        assert told in words


def test_forecast_says_what_the_constraint_demands(
    admin_client: Client, user: MemoryUser, forecast: Forecast
) -> None:
    path = constraint_path("rent", FOLDER)
    Forecast.objects.update(timeline=[{**forecast.timeline[0], "constraint": path}])
    demand = "Rent must be paid in time."
    WorkspaceConstraint.objects.create(workspace=user.workspace, name="rent", description=demand)

    for page in (forecast, user):
        words = shown(admin_client.get(page_url(page)))
        assert f"UTC warning {demand} workspace/rent" in words


def test_the_list_says_when_the_constraints_run(admin_client: Client, forecast: Forecast) -> None:
    answer = admin_client.get(list_url(Forecast))
    assert "daily" in shown(answer)
    assert b"icon-no" not in answer.content
    assert "0 forecasts" in shown(admin_client.get(f"{list_url(Forecast)}?daily=no"))
    assert "1 forecast" in shown(admin_client.get(f"{list_url(Forecast)}?daily=yes"))


def test_the_page_of_the_user_does_not_pass_over_what_is_unknown(
    admin_client: Client, user: MemoryUser, forecast: Forecast
) -> None:
    words = shown(admin_client.get(page_url(user)))
    assert "v1 (the newest is v2)" in words
    assert "except for 2 constraints without a complete forecast:" in words
    assert "endless timeout" in words
