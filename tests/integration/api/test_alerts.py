"""`/v1/alerts/`: what was found, with its evidence and its history."""

import pytest
from rest_framework.test import APIClient

from memory.models import Alert, MemoryUser
from tests.integration.alerts.test_life import finding, record, run_finds

pytestmark = pytest.mark.django_db


@pytest.fixture
def alert(user: MemoryUser) -> Alert:
    run_finds(user, finding(record("m-1", 41), record("a-1", 3)))
    return Alert.objects.get(user=user)


def test_an_alert_leads_to_records_and_entries(api: APIClient, alert: Alert) -> None:
    (listed,) = api.get("/v1/users/ada/alerts/?state=open").data["results"]

    assert listed["id"] == str(alert.pk)
    assert listed["user_id"] == "ada"
    assert [item["key"] for item in listed["evidence"]] == ["m-1", "a-1"]
    assert listed["entries"] == [3, 41]
    assert api.get("/v1/alerts/").data["results"] == [listed]
    assert api.get("/v1/alerts/?severity=info").data["results"] == []
    assert api.get("/v1/users/ada/alerts/?state=resolved").data["results"] == []


def test_acknowledging_and_resolving_are_kept_with_who_and_why(
    api: APIClient, alert: Alert
) -> None:
    seen = api.post(f"/v1/alerts/{alert.pk}/acknowledge/", {"note": "on it"})
    assert (seen.status_code, seen.data["state"]) == (200, "acknowledged")

    closed = api.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "told the person"})
    assert (closed.status_code, closed.data["state"]) == (200, "resolved")

    events = api.get(f"/v1/alerts/{alert.pk}/").data["events"]
    assert [event["kind"] for event in events] == ["opened", "acknowledged", "resolved"]
    assert events[1]["detail"] == {"note": "on it"}
    assert events[2]["detail"] == {"reason": "told the person"}
    assert events[2]["actor"].startswith("key:")


def test_a_resolved_alert_cannot_be_acknowledged_or_resolved(api: APIClient, alert: Alert) -> None:
    api.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "done"})

    assert api.post(f"/v1/alerts/{alert.pk}/acknowledge/", {}).status_code == 409
    assert api.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "again"}).status_code == 409
    assert alert.events.count() == 2


def test_an_alert_of_another_workspace_is_not_there(alert: Alert) -> None:
    from memory.models import Workspace
    from memory.workspaces import create_key

    _, text = create_key(Workspace.objects.create(name="other"), "a")
    stranger = APIClient()
    stranger.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")

    assert stranger.get(f"/v1/alerts/{alert.pk}/").status_code == 404
    assert stranger.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "x"}).status_code == 404
    assert stranger.get(f"/v1/runs/{alert.last_run_id}/").status_code == 404
    assert stranger.get("/v1/alerts/").data["results"] == []
    alert.refresh_from_db()
    assert alert.state == "open"
