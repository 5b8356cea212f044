"""`/v1/users/{user_id}/entries/`: what is taken, what is refused, and what is said of it."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.models import LogEntry, MemoryUser

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/entries/"
TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "data": {"to": "Rome", "days": 3}}
MESSAGE = {"kind": "message", "role": "user", "content": "I fly to Rome on Monday."}


def test_one_entry_is_logged_and_numbered(api: APIClient, user: MemoryUser) -> None:
    response = api.post(URL, MESSAGE)

    assert response.status_code == 202
    assert response.data["logged"] == 1
    assert response.data["checkpointed"] == 0
    (entry,) = response.data["entries"]
    assert (entry["seq"], entry["state"], entry["reason"]) == (1, "logged", None)
    assert entry["source"].startswith("key:")


def test_many_entries_are_logged_in_their_order(api: APIClient, user: MemoryUser) -> None:
    response = api.post(URL, {"entries": [MESSAGE, TRIP, MESSAGE]})

    assert [entry["seq"] for entry in response.data["entries"]] == [1, 2, 3]
    assert [entry["kind"] for entry in response.data["entries"]] == ["message", "record", "message"]


def test_a_typed_entry_becomes_checkpointed_and_a_message_stays_pending(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    api.post(URL, {"entries": [MESSAGE, TRIP]})
    work()

    message, trip = api.get(URL).data["results"]
    assert message["state"] == "logged"
    assert (trip["state"], trip["checkpoint"]) == ("checkpointed", 1)
    assert api.get("/v1/users/ada/").data["entries"] == {
        "total": 2,
        "pending": 1,
        "covered": 1,
        "dismissed": 0,
        "rejected": 0,
    }


def test_an_entry_that_contradicts_the_schema_is_logged_and_then_rejected_with_a_verdict(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    api.post(URL, TRIP)
    clash = {**TRIP, "data": {"to": "Oslo", "days": "three"}}

    response = api.post(URL, {"entries": [clash, {**TRIP, "data": {"to": "Bonn", "days": 1}}]})
    assert response.status_code == 202
    work()

    rejected = api.get(f"{URL}2/").data
    assert rejected["state"] == "rejected"
    assert "days" in rejected["reason"]
    assert api.get(f"{URL}3/").data["state"] == "checkpointed"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**MESSAGE, "kind": "rumour"}, "kind"),
        ({**MESSAGE, "kind": "redaction"}, "kind"),
        ({"role": "user", "content": "hi"}, "kind"),
        ({"kind": "message"}, "content"),
        ({**MESSAGE, "content": ""}, "content"),
        ({**MESSAGE, "contents": "x"}, "contents"),
        ({**MESSAGE, "type": "Trip"}, "type"),
        ({**MESSAGE, "occurred_at": "yesterday"}, "occurred_at"),
        ({**MESSAGE, "content": "x" * 1_000_001}, "content"),
        ({**MESSAGE, "idempotency_key": "k" * 256}, "idempotency_key"),
        ({**TRIP, "content": "x"}, "content"),
        ({"kind": "record", "data": {}}, "type"),
        ({"kind": "record", "type": "Trip"}, "data"),
        ({**TRIP, "type": "trip"}, "type"),
        ({**TRIP, "type": "class"}, "type"),
        ({**TRIP, "type": "A b"}, "type"),
        ({**TRIP, "domain": "Travel Plans"}, "domain"),
        ({**TRIP, "domain": "import"}, "domain"),
        ({**TRIP, "collection": "Trips"}, "collection"),
        ({**TRIP, "key": ""}, "key"),
        ({**TRIP, "key": "k" * 201}, "key"),
        ({**TRIP, "data": ["Rome"]}, "data"),
        ({**TRIP, "data": {"to": "x" * 300_000}}, "data"),
        ({"kind": "record", "type": "Trip", "retired": True}, "key"),
    ],
)
def test_a_bad_entry_is_refused_by_the_name_of_the_field(
    api: APIClient, user: MemoryUser, body: dict[str, Any], field: str
) -> None:
    response = api.post(URL, body)

    assert response.status_code == 400
    assert list(response.data["errors"]) == [field]
    assert not LogEntry.objects.exists()


def test_one_bad_entry_refuses_all_of_the_request(api: APIClient, user: MemoryUser) -> None:
    response = api.post(URL, {"entries": [MESSAGE, {"kind": "record"}, MESSAGE]})

    assert response.status_code == 400
    assert set(response.data["errors"]["entries"]) == {"1"}
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "JSON"),
        (b"[1, 2", "JSON"),
        (b'{"kind": "message", "content": NaN}', "NaN"),
        (b'{"kind": "message", "kind": "fact"}', "twice"),
        (b'{"kind": "message", "content": "a\\u0000b"}', "NUL"),
        (b'{"kind": "message", "content": "\\ud800"}', "surrogate"),
        (b'{"kind": "message", "metadata": {"\\udc00": 1}}', "surrogate"),
        (b'{"kind": "message", "content": "\xff"}', "UTF-8"),
        (b'{"data": ' + b"[" * 40 + b"]" * 40 + b"}", "deeper"),
        (b"[" * 200_000, "JSON"),
        (b'{"kind": "message", "metadata": {"n": 1e999}}', "metadata.n"),
    ],
)
def test_a_body_that_cannot_be_stored_is_refused(
    api: APIClient, user: MemoryUser, body: bytes, word: str
) -> None:
    response = api.post(URL, body, content_type="application/json")

    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    assert word in response.data["detail"]
    assert not LogEntry.objects.exists()


def test_a_body_beyond_the_limit_is_refused_with_the_limit(
    api: APIClient, user: MemoryUser, settings: Settings
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    response = api.post(URL, {**MESSAGE, "content": "x" * 1000})

    assert response.status_code == 413
    assert "1000 bytes" in response.data["detail"]
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("user_id", ["%00", "a%20b", "a%0A", "x" * 200])
def test_an_address_that_can_be_no_users_is_not_found(api: APIClient, user_id: str) -> None:
    assert api.get(f"/v1/users/{user_id}/").status_code == 404


@pytest.mark.parametrize("position", ["abc", "%00", "2026", "-1"])
@pytest.mark.parametrize(
    "path", ["", "ada/entries/", "ada/alerts/", "ada/runs/", "ada/checkpoints/"]
)
def test_a_made_up_cursor_is_no_server_error(
    api: APIClient, user: MemoryUser, path: str, position: str
) -> None:
    cursor = base64.b64encode(f"p={position}".encode()).decode()

    assert api.get(f"/v1/users/{path}?cursor={cursor}").status_code in (200, 400)


def test_an_unknown_user_is_named_as_the_problem(api: APIClient) -> None:
    response = api.post("/v1/users/nobody/entries/", MESSAGE)

    assert response.status_code == 404
    assert "POST /v1/users/" in response.data["detail"]


def test_the_same_idempotency_key_with_another_body_is_refused(
    api: APIClient, user: MemoryUser
) -> None:
    api.post(URL, {**MESSAGE, "idempotency_key": "k"})

    again = api.post(URL, {**MESSAGE, "idempotency_key": "k"})
    other = api.post(URL, {**MESSAGE, "content": "other", "idempotency_key": "k"})

    assert (again.status_code, again.data["entries"][0]["seq"]) == (202, 1)
    assert other.status_code == 422
    assert "'k'" in other.data["detail"]
    assert LogEntry.objects.count() == 1


def test_too_many_entries_are_refused_with_the_limit(api: APIClient, user: MemoryUser) -> None:
    response = api.post(URL, {"entries": [MESSAGE] * 1001})

    assert response.status_code == 400
    assert "1000" in str(response.data["errors"]["entries"])
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("wait", ["-1", "soon", "1000", "nan", "inf"])
def test_a_wait_that_is_no_sensible_number_is_refused(
    api: APIClient, user: MemoryUser, wait: str
) -> None:
    response = api.post(f"{URL}?wait={wait}", MESSAGE)

    assert response.status_code == 400
    assert list(response.data["errors"]) == ["wait"]
    assert not LogEntry.objects.exists()


def test_the_log_is_read_page_by_page(api: APIClient, user: MemoryUser) -> None:
    api.post(URL, {"entries": [MESSAGE] * 7})

    seqs = []
    url = f"{URL}?page_size=3&after=1"
    while url:
        page = api.get(url).data
        seqs += [entry["seq"] for entry in page["results"]]
        url = page["next"]

    assert seqs == [2, 3, 4, 5, 6, 7]
