"""`/v1/users/{user_id}/entries/`: what is accepted, and what is returned about it."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.http import pagination
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.privacy import redaction
from tests.constraints import make_rule

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/entries/"
TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "data": {"to": "Rome", "days": 3}}
MESSAGE = {"kind": "message", "role": "user", "content": "I fly to Rome on Monday."}


def test_entry_is_logged_and_numbered(api: APIClient, user: MemoryUser) -> None:
    response = api.post(URL, MESSAGE)

    assert response.status_code == 202
    assert response.data["pending"] == 1
    assert response.data["covered"] == 0
    (entry,) = response.data["entries"]
    assert (entry["seq"], entry["state"], entry["reason"]) == (1, "pending", None)
    assert entry["source"].startswith("key:")


def test_keys_that_look_the_same_are_the_same(api: APIClient, user: MemoryUser) -> None:
    api.post(URL, {"entries": [{**TRIP, "key": "Köln"}, {**TRIP, "key": "Ko\u0308ln"}]})

    assert [entry.data and entry.data["key"] for entry in user.entries.all()] == ["Köln", "Köln"]


def test_many_entries_are_logged_in_their_order(api: APIClient, user: MemoryUser) -> None:
    response = api.post(URL, {"entries": [MESSAGE, TRIP, MESSAGE]})

    assert [entry["seq"] for entry in response.data["entries"]] == [1, 2, 3]
    assert [entry["kind"] for entry in response.data["entries"]] == ["message", "record", "message"]


def test_a_typed_entry_becomes_covered_and_a_message_stays_pending(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    api.post(URL, {"entries": [MESSAGE, TRIP]})
    work()

    message, trip = api.get(URL).data["results"]
    assert message["state"] == "pending"
    assert (trip["state"], trip["checkpoint"]) == ("covered", 1)
    assert api.get("/v1/users/ada/").data["entries"] == {
        "total": 2,
        "pending": 1,
        "covered": 1,
        "dismissed": 0,
        "rejected": 0,
    }


def test_a_record_that_is_rejected_is_named_with_reason_and_fix(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    wrong = {**TRIP, "type": "Hotel", "collection": "trips"}
    body = {"entries": [TRIP, wrong]}
    first = api.post(URL, body, HTTP_IDEMPOTENCY_KEY="once").data
    assert (first["pending"], first["covered"], first["rejected"]) == (2, 0, [])
    work()

    again = api.post(URL, body, HTTP_IDEMPOTENCY_KEY="once").data

    assert (again["pending"], again["covered"]) == (0, 1)
    (rejected,) = again["rejected"]
    assert rejected["seq"] == 2
    assert "travel.trips contains Trip records" in rejected["reason"]
    assert "Append the record again" in rejected["fix"]
    assert api.get(f"{URL}2/").data["reason"] == rejected["reason"]


def test_values_set_aside_are_named_with_their_fields_and_fix(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    wrong = {**TRIP, "data": {"to": "Oslo", "days": "three"}}
    body = {"entries": [TRIP, wrong]}
    assert api.post(URL, body, HTTP_IDEMPOTENCY_KEY="once").data["set_aside"] == []
    work()

    again = api.post(URL, body, HTTP_IDEMPOTENCY_KEY="once").data

    assert (again["pending"], again["covered"], again["rejected"]) == (0, 2, [])
    (told,) = again["set_aside"]
    assert (told["seq"], told["fields"]) == (2, ["days"])
    assert "widen_field" in told["fix"]
    assert api.get(f"{URL}2/").data["set_aside"] == ["days"]
    assert api.get(f"{URL}1/").data["set_aside"] == []


def appended(api: APIClient, work: Callable[[], None], *records: dict[str, Any]) -> Any:
    """Append records and return the answer of a request that waited until they were settled."""
    body = {"entries": [{**TRIP, **record} for record in records]}
    key = {"Idempotency-Key": uuid.uuid4().hex}
    assert "widened" not in api.post(URL, body, headers=key).data
    work()
    return api.post(f"{URL}?wait=5", body, headers=key).data


def test_a_record_that_widens_a_field_says_so_and_names_the_constraints_to_check(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    first = appended(api, work, {"key": "a"})
    assert (first["covered"], first["widened"], first["constraints_to_check"]) == (1, [], [])
    for name, condition in (("length", "trip.days == 3"), ("place", 'trip.to == "Rome"')):
        rule = make_rule(
            *(name, "travel.Trip", condition, "found"),
            fires='to="Rome", days=3',
            silent='to="Oslo", days=4',
        )
        written = api.put(f"/v1/users/ada/constraints/{name}/?wait=0", rule)
        work()
        run = api.get(f"/v1/runs/{written.data['id']}/").data
        assert run["outcome"] == "ok", run["error"]

    answer = appended(
        api,
        work,
        {"key": "b", "data": {"to": "Oslo", "days": 2.5}},
        {"key": "c", "data": {"to": "Bern", "days": 1}},
        {"key": "d", "data": {"to": "Lima"}},
    )

    place = {"domain": "travel", "class": "Trip", "field": "days"}
    assert answer["widened"] == [
        {**place, "from": "int", "to": "float", "seq": 2},
        {**place, "from": "float", "to": "float | None", "seq": 4},
    ]
    assert answer["constraints_to_check"] == ["length"]


def test_redacted_entries_of_a_batch_are_skipped_in_widenings(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    api.post(URL, {"entries": [{**TRIP, "key": "a"}]})
    work()
    mine = {"entries": [{**TRIP, "key": "c", "data": {"to": "Lima"}}]}
    key = {"Idempotency-Key": uuid.uuid4().hex}
    api.post(URL, {"entries": [{**TRIP, "key": "b", "data": {"to": "Oslo", "days": 2.5}}]})
    api.post(URL, mine, headers=key)
    api.post(URL, {"entries": [{**TRIP, "key": "d"}]})
    work()
    redaction.redact(user, [2, 4], by="tests", reason="a test")
    work()

    answer = api.post(f"{URL}?wait=5", mine, headers=key)

    assert answer.status_code == 202
    assert [(one["from"], one["to"], one["seq"]) for one in answer.data["widened"]] == [
        ("float", "float | None", 3)
    ]


def test_a_new_field_and_a_record_that_fits_widen_nothing(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    appended(api, work, {"key": "a"})
    answer = appended(api, work, {"key": "b", "data": {"to": "Oslo", "days": 2, "hotel": "Sky"}})
    assert (answer["widened"], answer["constraints_to_check"]) == ([], [])


def test_first_entry_creates_user_if_allowed(api: APIClient, workspace: Workspace) -> None:
    assert api.post("/v1/users/eve/entries/", MESSAGE).status_code == 404
    workspace.users_by_entry = True
    workspace.time_zone = "Asia/Tokyo"
    workspace.save()

    wrong = api.post("/v1/users/eve/entries/", {"kind": "message"})
    assert wrong.status_code == 400
    assert api.get("/v1/users/eve/").status_code == 404, "nothing half-made"
    said = {**MESSAGE, "occurred_at": "2026-05-02T09:00:00"}
    assert api.post("/v1/users/eve/entries/", said).status_code == 202
    assert api.post("/v1/users/eve/entries/", said).status_code == 202

    eve = api.get("/v1/users/eve/").data
    assert (eve["time_zone"], eve["entries"]["total"]) == ("Asia/Tokyo", 2)
    assert api.get("/v1/users/eve/entries/1/").data["occurred_at"] == "2026-05-02T00:00:00Z"
    assert api.get("/v1/users/bob/entries/").status_code == 404, "reading creates nobody"
    assert api.post("/v1/users/a%09b/entries/", MESSAGE).status_code == 404


def test_reused_idempotency_key_is_refused(api: APIClient, user: MemoryUser) -> None:
    api.post(URL, {**MESSAGE, "idempotency_key": "k"})

    again = api.post(URL, {**MESSAGE, "idempotency_key": "k"})
    other = api.post(URL, {**MESSAGE, "content": "other", "idempotency_key": "k"})

    assert (again.status_code, again.data["entries"][0]["seq"]) == (202, 1)
    assert other.status_code == 422
    assert "'k'" in other.data["detail"]
    assert LogEntry.objects.count() == 1


def test_the_log_is_read_page_by_page(api: APIClient, user: MemoryUser) -> None:
    api.post(URL, {"entries": [MESSAGE] * 7})

    seqs = []
    url = f"{URL}?page_size=3&after=1"
    while url:
        page = api.get(url).data
        seqs += [entry["seq"] for entry in page["results"]]
        url = page["next"]

    assert seqs == [2, 3, 4, 5, 6, 7]


def test_entries_are_read_by_their_numbers(api: APIClient, user: MemoryUser) -> None:
    api.post(URL, {"entries": [MESSAGE] * 7})

    listed = api.get(f"{URL}?seq=5,2,99,{10**18 - 1}").data

    assert [entry["seq"] for entry in listed["results"]] == [2, 5]
    for wrong in ("x", "1,", "-1", "1;2", "9" * 19, ",".join("1" * 501)):
        refused = api.get(f"{URL}?seq={wrong}")
        assert (refused.status_code, list(refused.data["errors"])) == (400, ["seq"])


def test_a_page_of_large_entries_ends_early(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [400, 400, 400, 5000, 10, 10]
    drafts = [Draft(kind=EntryKind.MESSAGE, content="x" * size) for size in sizes]
    entry_log.append(user, drafts, source="test")
    monkeypatch.setattr(pagination, "PAGE_BYTES", 1000)

    pages, address = [], "/v1/users/ada/entries/?page_size=3"
    while address:
        page = api.get(address).json()
        pages.append([entry["seq"] for entry in page["results"]])
        address = page["next"]
    before = api.get(page["previous"]).json()

    # Of large entries as many as fit, and at least one
    assert pages == [[1, 2], [3], [4], [5, 6]]
    # Backwards, too
    assert [entry["seq"] for entry in before["results"]] == [4]
