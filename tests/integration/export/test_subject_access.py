"""A person's data for that person: complete, of one moment, and of nobody else."""

import datetime
import io
import json
import threading
import tracemalloc
import uuid
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote

import pytest
from cryptography.fernet import Fernet
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.constraints.models.backtests import Backtest
from memory.export import subject
from memory.integrations import merging
from memory.kernel.models.privacy import (
    erased_columns,
    left_out,
    models_about_users,
    privacy_of,
)
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.settings.language_models import Usage
from memory.kernel.staff.models import AuditKind, StaffAccess, StaffAudit
from memory.kernel.users import create_user
from memory.llm import llm_calls
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmOutcome, LlmPurpose
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.documents import Document
from memory.log.models.entries import EntryKind, LogEntry
from memory.log.models.redactions import Redaction
from memory.privacy import redaction
from memory.versions.past_states import BeingRedacted
from tests.conftest import new_client
from tests.factories import reject
from tests.integration.admin.conftest import _populate
from tests.integration.commits.conftest import trip
from tests.integration.redaction.conftest import found
from workers import tasks

MARKER = "Wolframite"
ADDRESS = "/v1/users/ada/subject-access/"

Zip = dict[str, bytes]


def unpacked(content: bytes) -> Zip:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def written(user: MemoryUser) -> Zip:
    with subject.write(user) as file:
        return unpacked(file.read())


def rows(files: Zip, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files[f"{name}.jsonl"].splitlines()]


@pytest.fixture
def manager(workspace: Workspace) -> APIClient:
    return new_client(workspace, Scope.READ, Scope.WRITE, Scope.MANAGE)


def test_every_model_and_column_of_the_registry_is_told_or_left_out_with_a_reason() -> None:
    for model in models_about_users():
        assert privacy_of(model).export, model
        known = {one.name for one in model._meta.concrete_fields}
        reasons = left_out(model)
        assert reasons.keys() <= known, model
        assert all(reasons.values())
        # All personal data is included; uploads are files of their own.
        apart = {"file"} if model is Document else set()
        assert reasons.keys() & set(erased_columns(model)) == apart, model


def test_documents_are_files_of_their_own(live_database: str, user: MemoryUser) -> None:
    now = timezone.now()
    made = {"user": user, "size": 1, "by": "test", "created_at": now}
    stored = Document.objects.create(name="a: lease.pdf", file=b"\0PDF", sha256="1", **made)
    later = now + datetime.timedelta(seconds=1)
    Document.objects.create(name="failed.pdf", error="broken", **{**made, "created_at": later})

    files = written(user)

    assert files[f"documents/{stored.pk}/a_ lease.pdf"] == b"\0PDF"
    assert len([name for name in files if name.startswith("documents/")]) == 1
    assert [row["name"] for row in rows(files, "documents")] == ["a: lease.pdf", "failed.pdf"]
    assert "file" not in rows(files, "documents")[0]


def test_subject_access_contains_every_row_of_the_person_alone(
    live_database: str, workspace: Workspace, settings: Settings
) -> None:
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with transaction.atomic():
        ada = _populate(workspace, MARKER, "ada")[MemoryUser]
        _populate(workspace, "Serpentine", "eve")
    with pytest.raises(BeingRedacted):
        subject.write(ada)
    Redaction.objects.update(due_at=None)
    # A backtest of a workspace constraint belongs to nobody: plant one of an own constraint, too.
    planted = Backtest.objects.get(report__users__has_key=str(ada.pk))
    own = Backtest.objects.get(pk=planted.pk)
    own.pk, own.user, own.version = uuid.uuid4(), ada, None
    own.save(force_insert=True)

    files = written(ada)

    places = {place.partition(": ")[0] for place in found(MARKER)}
    assert len(places) > 40
    by_name = {model.__name__: model for model in subject.exports()}
    for model_name, _, column in (place.partition(".") for place in sorted(places)):
        if (model_name, column) == ("Document", "file"):
            stored = [files[name] for name in files if name.startswith("documents/")]
            assert any(MARKER.encode() in one for one in stored)
        elif model_name in by_name:
            told = rows(files, subject.exports()[by_name[model_name]].name)
            assert any(MARKER in json.dumps(row[column]) for row in told), (model_name, column)
    for name in [*subject.exports().values(), subject.RESULTS]:
        assert rows(files, name.name), name
    (result,) = rows(files, subject.RESULTS.name)
    assert (result["id"], result["findings"][0]["message"]) == (str(planted.pk), MARKER)
    assert [row["id"] for row in rows(files, "backtests")] == [str(own.pk)]
    assert b"Serpentine" not in b"".join(files.values())
    # The addresses it was sent to, and the versions by their numbers.
    assert rows(files, "deliveries")[0]["endpoint"].startswith("https://")
    assert ada.head is not None
    assert {row["checkpoint"] for row in rows(files, "outcomes")} == {ada.head.version}


def test_rejected_entries_come_with_their_messages(live_database: str, user: MemoryUser) -> None:
    WebhookEndpoint.objects.create(workspace=user.workspace, url="https://x", secret=b"")
    reject(create_user(user.workspace, "eve", metadata=None), key="Serpentine")
    reject(user, key=MARKER)
    delivery = Delivery.objects.get(event__user=user)
    DeliveryAttempt.objects.create(delivery=delivery, at=delivery.created_at, seconds=1)

    files = written(user)

    (event,) = rows(files, "alert-events")
    assert (event["kind"], event["user"], event["entries"]) == ("rejected", "ada", [1])
    (told,) = rows(files, "deliveries")
    assert (told["id"], MARKER in told["payload"]) == (str(delivery.pk), True)
    assert len(rows(files, "delivery-attempts")) == 1
    assert b"Serpentine" not in b"".join(files.values())


def test_prompts_and_answers_are_told_where_they_are_kept(
    live_database: str, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    work = CallSession(workspace=user.workspace, purpose=LlmPurpose.QUERY, user=user)
    usage = Usage(input_tokens=1, output_tokens=1)
    attempt = Attempt(
        model="openai:x", turn=1, attempt=1, prompt={"said": MARKER}, most=usage, seconds=60
    )
    call = llm_calls.start(work, attempt, keep_content=True)
    ending = Ending(outcome=LlmOutcome.OK, seconds=1, usage=usage, answer={"told": MARKER})
    llm_calls.finish(call, ending, keep_content=True)

    (told,) = rows(written(user), "model-calls")
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    (unreadable,) = rows(written(user), "model-calls")

    assert (told["prompt"], told["answer"]) == ({"said": MARKER}, {"told": MARKER})
    assert told["workspace"] == user.workspace.name
    assert "None of the UAC_ENCRYPTION_KEYS" in unreadable["prompt"]["unreadable"]


def test_a_person_gets_log_project_and_an_index(
    live_database: str, manager: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    drafts = [
        Draft(kind=EntryKind.RECORD, data=trip("Rome", key="rome")),
        Draft(kind=EntryKind.MESSAGE, content="I like Rome, größer als alles"),
        Draft(kind=EntryKind.MESSAGE, content=MARKER),
    ]
    entry_log.append(user, drafts, source="test")
    work()
    redaction.redact(user, [3], by="key:x", reason="asked for")
    assert manager.get(ADDRESS).status_code == 503
    work()

    answer: Any = manager.get(ADDRESS)

    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/zip"
    assert 'filename="ada-subject-access.zip"' in answer["Content-Disposition"]
    files = unpacked(b"".join(answer.streaming_content))
    said = rows(files, "log")
    assert [row["seq"] for row in said] == [1, 2, 3, 4]
    assert said[0]["data"]["data"]["to"] == "Rome"
    assert said[1]["content"] == "I like Rome, größer als alles"
    assert (said[2]["content"], said[3]["kind"]) == (None, "redaction")
    assert said[2]["redacted_at"]
    assert b"Rome" in files["project/domains/travel/state.py"]
    readme = files["README.md"].decode()
    assert "# Stored data about ada" in readme
    assert f"| `log.jsonl` | {subject.exports()[LogEntry].description} | 4 |" in readme
    assert MARKER.encode() not in b"".join(files.values())


def test_subject_access_needs_the_scope_manage_and_an_own_user(
    live_database: str, api: APIClient, manager: APIClient, user: MemoryUser
) -> None:
    assert api.get(ADDRESS).status_code == 403
    assert manager.get("/v1/users/nobody/subject-access/").status_code == 404
    assert manager.get(f"{ADDRESS}?as_of=1").status_code == 400
    create_user(Workspace.objects.create(name="other"), "eve", metadata=None)
    assert manager.get("/v1/users/eve/subject-access/").status_code == 404


def test_all_of_it_is_of_one_moment(
    live_database: str, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append() -> None:
        data = trip("Oslo", key="oslo")
        entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")
        tasks.work("records", user.pk)
        connection.close()

    data = trip("Rome", key="rome")
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")
    tasks.work("records", user.pk)
    read = subject.rows

    def rows_with_a_rival(user: MemoryUser, model: Any) -> Iterator[dict[str, Any]]:
        yield from read(user, model)
        if model is LogEntry:
            rival = threading.Thread(target=append)
            rival.start()
            rival.join()

    monkeypatch.setattr(subject, "rows", rows_with_a_rival)
    files = written(user)

    assert LogEntry.objects.count() == 2
    assert [len(rows(files, name)) for name in ("log", "outcomes", "versions")] == [1, 1, 1]
    assert b"Oslo" not in b"".join(files.values())


def test_a_long_log_is_not_held_in_memory(live_database: str, user: MemoryUser) -> None:
    for _ in range(20):
        said = [Draft(kind=EntryKind.MESSAGE, content="x" * 4000) for _ in range(250)]
        entry_log.append(user, said, source="test")

    tracemalloc.start()
    try:
        with subject.write(user) as file:
            assert file.seek(0, io.SEEK_END) > 0
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # 20 MB were written; 500 rows are read at a time.
    assert most < 10_000_000


def test_subject_access_contains_merged_users(live_database: str, user: MemoryUser) -> None:
    anon, other = (create_user(user.workspace, name, metadata=None) for name in ("anon", "other"))
    for into, one in ((anon, other), (user, anon)):
        entry_log.append(one, [Draft(kind=EntryKind.MESSAGE, content=f"I am {one}")], source="test")
        tasks.work("merges", merging.merge(into, one, by="key:x").pk)

    files = written(user)

    assert [row["content"] for row in rows(files, "log")] == ["I am other", "I am anon"]
    (merge,) = rows(files, "merges")
    assert (merge["merged"], merge["copied"]) == ("anon", 2)
    assert len(rows(files, "copied-entries")) == 1
    for one in (anon, other):
        (person,) = rows(files, f"merged/{one.public_id}/person")
        assert person["user_id"] == str(one)
        assert rows(files, f"merged/{one.public_id}/log")[-1]["content"] == f"I am {one}"


def test_staff_who_may_see_all_of_it_get_it_and_it_is_noted(
    live_database: str, user: MemoryUser, client: Client
) -> None:
    url = reverse("admin:memory_memoryuser_subject_access", args=[user.pk])
    for missing in ("view_llmcall_content", "view_content", "subject_access", "view_logentry"):
        eve = User.objects.create(username=f"eve without {missing}", is_staff=True)
        StaffAccess.objects.create(user=eve, all_workspaces=True)
        eve.user_permissions.set(
            Permission.objects.filter(content_type__app_label="memory").exclude(codename=missing)
        )
        client.force_login(eve)
        assert client.get(url).status_code == 403
    assert not StaffAction.objects.exists()

    client.force_login(User.objects.create(username="admin", is_staff=True, is_superuser=True))
    answer: Any = client.get(url)

    assert rows(unpacked(b"".join(answer.streaming_content)), "person")[0]["user_id"] == "ada"
    audited = StaffAudit.objects.get(kind=AuditKind.DOWNLOAD)
    assert (audited.staff_name, audited.person) == ("admin", user.public_id)
    noted = StaffAction.objects.get()
    assert noted.change_message == "Downloaded all stored data about the person."
    assert noted.object_repr == f"user {user.public_id}"
    page = client.get(reverse("admin:memory_memoryuser_change", args=[user.pk]))
    assert f'href="{url}"' in page.content.decode()


@pytest.mark.parametrize("user_id", ["名" * 256, "https://idp.example.com/a b?c"])
def test_the_zip_has_a_name_that_file_systems_take(
    live_database: str, workspace: Workspace, user_id: str
) -> None:
    create_user(workspace, user_id, metadata=None)
    manager = new_client(workspace, Scope.READ, Scope.MANAGE)

    answer: Any = manager.get(f"/v1/users/{quote(user_id, safe='')}/subject-access/")

    assert answer.status_code == 200
    list(answer.streaming_content)
    name = unquote(answer["Content-Disposition"].partition("filename")[2].split("''")[-1])
    assert len(name.encode()) <= 255
    assert not set("\\/:*?<>|") & set(name)
