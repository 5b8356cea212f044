"""`DELETE /v1/users/{user_id}/`: permissions, answers, and the state afterwards."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel import users
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.operations.verification import problems
from memory.privacy import redaction, user_erasure
from memory.privacy.models import UserErasure
from tests.conftest import new_client
from tests.integration.erasure.conftest import finish, found
from tests.integration.erasure.test_registry import plant
from workers import tasks

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"
WHY = f"{USER}?reason=asked+for+by+mail"


def test_erasure_ends_as_a_tombstone(api: APIClient, user: MemoryUser) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content="x")] * 3, source="test")

    answer = api.delete(WHY)

    assert answer.status_code == 202, answer.data
    told = answer.data
    assert told["state"] == "under_way"
    assert (told["user"], told["entries"]) == (str(user.public_id), 3)
    assert told["by"].startswith("key:")
    finish(user)
    done = api.get(f"/v1/erasures/{told['id']}/").data
    assert (done["state"], done["reason"]) == ("done", "asked for by mail")
    assert done["counts"]["log_entries"] == 3
    user.refresh_from_db()
    assert done["last_hash"] == bytes(user.last_hash).hex()
    assert list(problems(user)) == []


def test_erasure_leaves_no_hash_of_a_key(api: APIClient, user: MemoryUser) -> None:
    drafts = [Draft(kind=EntryKind.MESSAGE, content="x", idempotency_key=key) for key in "ab"]
    entry_log.append(user, drafts, source="test")
    redaction.redact(user, [1], by="key:x", reason="")
    before = LogEntry.objects.get(user=user, seq=1).redacted_at
    tasks.work("redactions", user.pk)
    assert LogEntry.objects.filter(user=user).exclude(key_hash=None).count() == 2

    api.delete(WHY)
    finish(user)

    assert not LogEntry.objects.filter(user_id=user.pk).exclude(key_hash=None).exists()
    assert LogEntry.objects.get(user_id=user.pk, seq=1).redacted_at == before


def test_from_the_request_on_there_is_no_such_user(api: APIClient, user: MemoryUser) -> None:
    planted = {type(row).__name__: row for row in plant(user).values()}
    MemoryUser.objects.filter(pk=user.pk).update(user_id="ada", time_zone="UTC")
    by_id = [
        f"/v1/alerts/{planted['Alert'].pk}/",
        f"/v1/runs/{planted['Run'].pk}/",
        f"/v1/backtests/{planted['Backtest'].pk}/",
    ]
    lists = ["/v1/users/", "/v1/alerts/", "/v1/paused-constraints/", "/v1/backtests/"]
    parts = ["", "entries/", "state/", "runs/", "alerts/", "export/", "forecast/"]
    parts += ["git/info/refs?service=git-upload-pack", "checkpoints/", "manifest/"]
    assert [api.get(path).status_code for path in by_id] == [200] * 3
    assert all(api.get(path).json()["results"] for path in lists)

    assert api.delete(WHY).status_code == 202

    assert [api.get(path).status_code for path in by_id] == [404] * 3
    assert [api.get(path).json()["results"] for path in lists] == [[]] * 4
    assert [api.get(f"{USER}{part}").status_code for part in parts] == [404] * len(parts)
    writes = {
        "entries": {"kind": "message", "content": "x"},
        "query": {"code": "1"},
        "ask": {"question": "why?"},
        "context": {"query": "x"},
        "search": {"query": "x"},
    }
    for part, body in writes.items():
        assert api.post(f"{USER}{part}/", body).status_code == 404, part
    assert api.patch(USER, {"metadata": {"a": 1}}).status_code == 404
    assert api.delete(WHY).status_code == 404
    feed = api.get("/v1/events/?after=0").json()
    assert feed["results"] == []
    finish(user)
    (alert,) = api.get("/v1/events/?after=0").json()["results"]
    assert [event["kind"] for event in alert["events"]] == ["erased"]
    assert (alert["id"], alert["message"], alert["state"]) == (
        *(str(planted["Alert"].pk), "", "resolved"),
    )


def test_the_name_is_free_for_somebody_else(api: APIClient, user: MemoryUser) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content="x")], source="test")
    api.delete(WHY)

    created = api.post("/v1/users/", {"user_id": "ada"})

    assert created.status_code == 201
    finish(user)
    assert api.post(f"{USER}entries/", {"kind": "message", "content": "y"}).status_code == 202
    assert [entry["content"] for entry in api.get(f"{USER}entries/").json()["results"]] == ["y"]


def test_replay_does_not_reach_a_namesake(api: APIClient, user: MemoryUser) -> None:
    said = {"kind": "message", "content": "y"}

    def append() -> Any:
        return api.post(f"{USER}entries/", said, headers={"Idempotency-Key": "k-1"})

    def create() -> Any:
        return api.post("/v1/users/", {"user_id": "ada"}, headers={"Idempotency-Key": "k-2"})

    first = append()
    api.delete(WHY)
    created = create()
    again = append()
    api.delete(WHY)
    another = create()

    assert [answer.status_code for answer in (first, created, again, another)] == [
        *(202, 201, 202, 201)
    ]
    assert "Idempotent-Replayed" not in again.headers
    assert "Idempotent-Replayed" not in another.headers
    assert again.json()["entries"][0]["id"] != first.json()["entries"][0]["id"]
    assert MemoryUser.everybody.filter(workspace=user.workspace).count() == 3
    assert create().headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?reason=", 400),
        ("?reason=%20%20", 400),
        ("?reason=%00", 400),
        (f"?reason={'x' * 2001}", 400),
        ("?why=x", 400),
        ("?reason=Ada+asked+for+it", 400),  # who reads it later must not learn who it was
        ("?reason=canada+asked+for+it", 202),
    ],
)
def test_erasure_takes_a_reason_that_does_not_name_the_user(
    api: APIClient, user: MemoryUser, query: str, status: int
) -> None:
    answer = api.delete(f"{USER}{query}")

    assert answer.status_code == status, answer.data
    assert UserErasure.objects.count() == (status == 202)
    if status == 400 and "why" not in query:
        assert list(answer.data["errors"]) == ["reason"]


def test_erasure_is_invisible_to_other_workspaces(api: APIClient, user: MemoryUser) -> None:
    erasure = api.delete(WHY).data["id"]
    stranger = new_client(Workspace.objects.create(name="other"), Scope.READ, Scope.MANAGE)

    assert stranger.get(f"/v1/erasures/{erasure}/").status_code == 404
    assert stranger.delete("/v1/users/nobody/?reason=x").status_code == 404


def test_a_tombstone_has_a_name_that_no_address_reaches(api: APIClient, user: MemoryUser) -> None:
    api.delete(WHY)
    user.refresh_from_db()

    assert user.user_id == f"(erased) {user.public_id}"
    assert api.get(f"/v1/users/{user.user_id}/").status_code == 404
    with pytest.raises(Exception, match="marks an erased user"):
        create_user(user.workspace, user.user_id, metadata=None)


def test_stale_user_instance_can_write_nothing(api: APIClient, user: MemoryUser) -> None:
    draft = Draft(kind=EntryKind.MESSAGE, content="too late")
    api.delete(WHY)
    held: Any = user  # as a request does that had read it before

    with pytest.raises(MemoryUser.DoesNotExist):
        entry_log.append(held, [draft], source="test")
    with pytest.raises(MemoryUser.DoesNotExist):
        users.change_user(held, metadata={"a": 1})
    assert not LogEntry.objects.filter(user=user).exists()
    assert found("too late") == []


def test_verify_finds_what_is_left_of_somebody_erased(user: MemoryUser) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content="x")], source="test")
    row = user_erasure.ask(user, by="key:x", reason="asked for")
    assert list(problems(user)) == []  # it is under way

    UserErasure.objects.filter(pk=row.pk).update(due_at=None, finished_at=row.created_at)

    assert "the user is erased, but there are still log entries" in map(str, problems(user))
    UserErasure.objects.filter(pk=row.pk).update(due_at=row.created_at, finished_at=None)
    finish(user)
    assert list(problems(user)) == []
