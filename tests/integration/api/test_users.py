"""`/v1/users/`."""

import pytest
from django.utils.dateparse import parse_datetime
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.users import Lane, LaneName, MemoryUser

pytestmark = pytest.mark.django_db


def test_a_user_is_created_with_an_empty_log_and_both_lanes(api: APIClient) -> None:
    response = api.post("/v1/users/", {"user_id": "u|1@x.org", "time_zone": "Asia/tokyo"})

    assert response.status_code == 201
    assert response.data["user_id"] == "u|1@x.org"
    assert response.data["head"] is None
    assert response.data["entries"]["total"] == 0
    lanes = Lane.objects.filter(user__user_id="u|1@x.org").values_list("name", flat=True)
    assert sorted(lanes) == sorted(LaneName.values)
    assert api.get("/v1/users/u%7C1@x.org/").status_code == 200


def test_a_user_comes_with_how_it_stands_with_the_language_model(
    api: APIClient, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_LLM_MODEL = ""
    idle = {"state": "idle", "waiting": 0, "until": None, "reason": ""}
    assert api.get("/v1/users/ada/").data["structure"] == idle

    api.post("/v1/users/ada/entries/", {"kind": "message", "content": "hi", "role": "user"})

    stopped = api.get("/v1/users/ada/").data["structure"]
    assert "UAC_LLM_MODEL" in stopped.pop("reason")
    assert stopped == {"state": "stopped", "waiting": 1, "until": None}
    settings.UAC_LLM_MODEL, settings.UAC_LLM_API_KEY = "openai:gpt-5-mini", "sk-of-the-server"
    waiting = api.get("/v1/users/ada/").json()["structure"]
    due_at = Lane.objects.get(user=user, name=LaneName.STRUCTURE).due_at
    assert due_at is not None
    assert parse_datetime(waiting.pop("until")) == due_at
    assert waiting == {"state": "waiting", "waiting": 1, "reason": ""}


def test_an_id_in_another_form_is_told_from_an_unknown_one(api: APIClient) -> None:
    """Answers name users by the ids that products know, so none is turned into another form."""
    api.post("/v1/users/", {"user_id": "Zoë"})

    other_form = api.get("/v1/users/Zoe%CC%88/")

    assert other_form.status_code == 404
    assert "NFC" in other_form.json()["detail"]


def test_a_user_id_is_taken_once(api: APIClient, user: MemoryUser) -> None:
    response = api.post("/v1/users/", {"user_id": "ada"})

    assert response.status_code == 409
    assert MemoryUser.objects.count() == 1


def test_only_time_zone_and_metadata_can_be_changed(api: APIClient, user: MemoryUser) -> None:
    changed = api.patch("/v1/users/ada/", {"time_zone": "Asia/Tokyo", "metadata": {"plan": "pro"}})
    assert changed.status_code == 200
    assert (changed.data["time_zone"], changed.data["metadata"]) == ("Asia/Tokyo", {"plan": "pro"})

    old_name = api.patch("/v1/users/ada/", {"time_zone": "Asia/Calcutta"})
    assert (old_name.status_code, old_name.data["time_zone"]) == (200, "Asia/Calcutta")
    any_case = api.patch("/v1/users/ada/", {"time_zone": "asia/KOLKATA"})
    assert (any_case.status_code, any_case.data["time_zone"]) == (200, "Asia/Kolkata")
    assert api.patch("/v1/users/ada/", {"time_zone": "nowhere"}).status_code == 400
    assert api.patch("/v1/users/ada/", {"user_id": "eve"}).status_code == 400
    user.refresh_from_db()
    assert (user.user_id, user.time_zone) == ("ada", "Asia/Kolkata")
