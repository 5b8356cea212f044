"""The log of requests names no user, although addresses do."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client
from rest_framework.test import APIClient

from memory.kernel.admission import slots
from memory.kernel.admission.slots import Slots
from memory.kernel.models.users import MemoryUser
from memory.kernel.users import create_user
from tests.conftest import new_client

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
    assert "Conflict: POST /v1/users/<user:user_id>/query/" in told
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


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Yield the output of the server's own handler, as it is configured."""
    (handler,) = [one for one in logging.getLogger().handlers if one.name == "stderr"]
    assert isinstance(handler, logging.StreamHandler)
    stream = io.StringIO()
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


# Spellings of a user's id in an address.
NAMES = ("mallory", "%6d%61llory", "mal%6Cory%0a%25", "m\u00e4llory", "mallory%2Fx", "mallory%FF")
ADDRESSES = (
    ("get", "/v1/users/{}/"),
    ("put", "/v1/users/{}/query/"),
    ("get", "/v1/users/{}/export/"),
    ("get", "/v1/users/{}/git/info/refs?service={}"),
    ("post", "/v1/users/{}/git/git-receive-pack"),
    ("post", "/v1/users/{}/entries/"),
    ("get", "/v1/users/{}/nowhere/"),
    ("get", "/v1/users/{}"),
    ("get", "/v1/users/{}/entries/?q={}"),
    ("get", "/{}/"),
    ("get", "/static/{}.js"),
    ("get", "/ws/{}/?user={}"),
    ("get", "/mcp/users/{}/"),
    ("get", "/admin/{}/"),
    ("get", "/admin/memory/memoryuser/{}/change/"),
    ("get", "/admin/memory/memoryuser/?q={}"),
    ("get", "/admin/memory/memoryuser/?{}=1"),
    ("post", "/admin/memory/memoryuser/{}/change/"),
    ("put", "/admin/memory/memoryuser/{}/export/"),
    ("get", "/mem0/v1/memories/{}/"),
)


def test_no_address_is_written_whatever_is_answered(
    api: APIClient,
    user: MemoryUser,
    admin_client: Client,
    written: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    create_user(user.workspace, "mallory", metadata=None)
    visitor = get_user_model().objects.create_user("visitor", is_staff=True)
    staff = Client(raise_request_exception=False)
    staff.force_login(visitor)
    monkeypatch.setattr(slots, "DOWNLOADS", Slots(0))
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    answered = set()
    for client in (api, APIClient(), admin_client, staff):
        for name in NAMES:
            for method, address in ADDRESSES:
                body = {"data": {"x": "x" * 200}, "format": "json"} if client is api else {}
                sent = body if method in ("post", "put") else {}
                answer = getattr(client, method)(
                    address.format(name, name), **sent, HTTP_X_REQUEST_ID="theirs"
                )
                answered.add(answer.status_code)
    assert {400, 401, 403, 404, 405, 413, 429} <= answered
    assert_names_nobody(written)


def test_an_error_of_the_database_is_logged_without_the_values_it_quotes(
    user: MemoryUser, admin_client: Client, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = create_user(user.workspace, "mallory", metadata=None)

    def fail(*what: object) -> None:
        MemoryUser.objects.filter(pk=user.pk).update(user_id=other.user_id)

    monkeypatch.setattr("memory.export.archive.download", fail)
    client = new_client(user.workspace)
    client.raise_request_exception = admin_client.raise_request_exception = False
    for one, address in (
        (client, "/v1/users/mallory/export/"),
        (admin_client, f"/admin/memory/memoryuser/{other.pk}/export/"),
    ):
        with transaction.atomic():
            assert one.get(address).status_code == 500
            transaction.set_rollback(True)
    told = written.getvalue()
    assert "SQLSTATE 23505, " in told
    assert "in fail" in told
    assert_names_nobody(written)


def assert_names_nobody(written: io.StringIO) -> None:
    for line in written.getvalue().splitlines():
        assert json.loads(line)["event"]
        assert "allory" not in line.lower(), line
        assert "m%6" not in line.lower(), line
