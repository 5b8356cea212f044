"""What is logged of requests names no user: addresses do."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from memory.models import MemoryUser

pytestmark = pytest.mark.django_db


def lines(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(f"{record.getMessage()} {record.args}" for record in caplog.records)


def test_a_refused_request_is_logged_with_its_route(
    api: APIClient, user: MemoryUser, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert api.post("/v1/users/ada/query/", {"code": "1"}).status_code == 409
        assert api.put("/v1/users/ada/query/", {}).status_code == 405
        assert api.get("/v1/users/bob%0Amallory/").status_code == 404
        assert api.get("/v1/users/ada/nowhere/").status_code == 404
        assert APIClient().get("/v1/users/ada/").status_code == 401

    told = lines(caplog)
    assert "Conflict: POST /v1/users/<str:user_id>/query/" in told
    for name in ("/users/ada", "bob", "mallory", "nowhere"):
        assert name not in told


def test_the_lines_of_a_request_and_of_its_run_name_each_other_and_the_number_of_the_user(
    api: APIClient, user: MemoryUser, work: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"kind": "record", "domain": "work", "type": "Task", "data": {"name": "report"}}
    api.post("/v1/users/ada/entries/", {"entries": [entry]})
    work()
    with caplog.at_level(logging.INFO):
        asked = api.post("/v1/users/ada/query/?wait=0", {"code": "1"}, HTTP_X_REQUEST_ID="theirs")
        work()
        api.get("/v1/healthz")

    told: list[dict[str, Any]] = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    (request,) = [one for one in told if one.get("request_id") == "theirs" and "code" in one]
    (done,) = [one for one in told if one["event"] == "run_done"]
    assert (request["user"], request["run"]) == (user.pk, asked.data["id"])
    assert (done["user"], done["run"]) == (user.pk, asked.data["id"])
    assert "user" not in told[-1]


def test_a_forged_form_is_logged_with_its_route(
    caplog: pytest.LogCaptureFixture, admin_user: object
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)  # type: ignore[arg-type]

    with caplog.at_level(logging.INFO):
        assert client.post("/admin/memory/memoryuser/4711/change/", {}).status_code == 403

    assert "Forbidden" in lines(caplog)
    assert "4711" not in lines(caplog)
