"""A document's file goes with its text: redaction, retention, erasure; and what a person gets."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.integrations import merging
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import documents, entry_log
from memory.log.models.documents import Document
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.redactions import Redaction
from memory.operations.verification import problems
from memory.privacy import redaction, retention, user_erasure
from tests.integration.admin.conftest import Staff as Staff
from tests.integration.admin.conftest import act, offered, page_url, shown
from tests.integration.admin.conftest import staff as staff
from tests.integration.documents.files import pdf
from tests.integration.documents.test_documents import (
    DOCUMENTS,
    entries,
    post,
    upload,
)
from tests.integration.documents.test_documents import (
    api as api,
)
from tests.integration.documents.test_documents import (
    runner as runner,
)
from tests.integration.erasure.conftest import finish
from tests.integration.redaction.conftest import MARKER, found
from workers import tasks

pytestmark = pytest.mark.django_db

PAGES = pdf(["The rent is 950 euros", f"{MARKER} is allowed", "No pets are allowed"])
ENTRIES = "/v1/users/ada/entries/"


def test_a_redaction_of_a_page_removes_the_file(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    document = upload(api, "lease.pdf", PAGES)

    preview = api.get(f"{ENTRIES}2/redaction/").json()
    assert preview["documents"] == [{"id": document["id"], "name": "lease.pdf", "is_whole": False}]
    assert api.delete(f"{ENTRIES}2/").status_code == 202
    work()

    left = api.get(f"{DOCUMENTS}{document['id']}/").json()
    assert (left["state"], left["is_stored"], left["sha256"]) == ("done", False, "")
    assert api.get(f"{DOCUMENTS}{document['id']}/content/").status_code == 404
    contents = [entry.content for entry in entries(user)][:3]
    assert contents == ["The rent is 950 euros", None, "No pets are allowed"]
    assert [documents.place_of(entry) for entry in entries(user)] == [
        *("page 1 of lease.pdf", "", "page 3 of lease.pdf", "")
    ]
    assert found() == []
    assert list(problems(user)) == []


def test_a_redaction_of_all_pages_leaves_nothing_of_a_document(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    upload(api, f"{MARKER}.txt", MARKER.encode())

    assert api.get(f"{ENTRIES}1/redaction/").json()["documents"][0]["is_whole"] is True
    assert api.delete(f"{ENTRIES}1/").status_code == 202
    work()

    assert Document.objects.count() == 0
    assert found() == []


def test_a_deleted_document_takes_with_it_what_was_derived(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    document = upload(api, f"{MARKER}.pdf", PAGES)
    fact = entry_log.Draft(kind=EntryKind.FACT, content=f"{MARKER} may be kept.", derived_from=[2])
    entry_log.append(user, [fact], source="memorize")
    one = f"{DOCUMENTS}{document['id']}/"
    key: dict[str, Any] = {"HTTP_IDEMPOTENCY_KEY": "1"}

    answer = api.delete(f"{one}?reason=asked+for", **key)

    assert answer.status_code == 202
    assert (answer.data["asked"], answer.data["entries"]) == ([1, 2, 3], [1, 2, 3, 4])
    assert answer["Location"] == f"/v1/users/ada/redactions/{answer.data['seq']}/"
    assert api.delete(f"{one}?reason=asked+for", **key)["Idempotent-Replayed"] == "true"
    work()
    assert api.get(answer["Location"]).json()["state"] == "done"
    assert api.get(one).status_code == api.delete(one).status_code == 404
    assert api.get(DOCUMENTS).json()["results"] == []
    assert found() == []
    assert list(problems(user)) == []
    # Who has it redacted may upload it again.
    assert upload(api, "lease.pdf", PAGES)["first_seq"] == 6


def test_a_document_without_entries_is_deleted_at_once(api: APIClient, user: MemoryUser) -> None:
    failed = upload(api, f"{MARKER}.pdf", b"text")
    waiting = post(api, "a.txt", MARKER.encode()).json()

    for document in (failed, waiting):
        assert api.delete(f"{DOCUMENTS}{document['id']}/").status_code == 204

    assert found() == []
    assert Redaction.objects.count() == 0


def test_a_redacted_upload_is_not_repeated_by_its_key(api: APIClient, user: MemoryUser) -> None:
    def send() -> Any:
        body = {"file": io.BytesIO(PAGES)}
        return api.post(DOCUMENTS, body, format="multipart", HTTP_IDEMPOTENCY_KEY="1")

    first = send().json()
    api.delete(f"{DOCUMENTS}{first['id']}/")

    assert send().status_code == 422
    assert Document.objects.count() == 0


def test_a_copy_of_a_page_in_a_merged_log_takes_the_file_with_it(
    api: APIClient, user: MemoryUser, workspace: Workspace, work: Callable[[], None]
) -> None:
    upload(api, "lease.pdf", PAGES)
    bob = create_user(workspace, "bob", time_zone="UTC", metadata=None)
    row = merging.merge(bob, user, by="test")
    tasks.work("merges", row.pk)
    copied = LogEntry.objects.get(user=bob, content__contains=MARKER)
    assert documents.place_of(copied) == "page 2 of lease.pdf"

    redaction.redact(bob, [copied.seq], by="test", reason="")
    work()

    assert Document.objects.filter(file__isnull=False).count() == 0
    assert found() == []
    # The uploads of the merged user may still be deleted, but there are no new ones.
    assert post(api, "b.txt", b"text").status_code == 409
    assert api.delete(f"{DOCUMENTS}{Document.objects.get().pk}/").status_code == 202


def test_retention_removes_the_file_with_the_messages(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    upload(api, f"{MARKER}.pdf", PAGES)
    Workspace.objects.filter(pk=workspace.pk).update(keep_messages_days=1)
    workspace.refresh_from_db()
    for entry in entries(user):
        EntryOutcome.objects.create(user=user, seq=entry.seq, outcome=Outcome.COVERED)

    moment = timezone.now() + timezone.timedelta(days=2)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timezone, "now", lambda: moment)
        assert retention.purge_workspace(workspace, 100) == 3

    assert Document.objects.count() == 0
    assert found() == []


def test_an_erasure_removes_documents(api: APIClient, user: MemoryUser) -> None:
    upload(api, f"{MARKER}.pdf", PAGES)
    post(api, "a.txt", MARKER.encode())

    user_erasure.ask(user, by="test", reason="asked for")
    row = finish(user)

    assert row.counts["documents"] == 2
    assert found() == []


def test_staff_see_documents_as_they_see_entries(
    api: APIClient, user: MemoryUser, staff: Staff, settings: Settings
) -> None:
    upload(api, f"{MARKER}.pdf", PAGES)
    row = Document.objects.get()
    viewer = staff("view_document", "view_logentry", "view_memoryuser")
    for url in (page_url(row), page_url(row).replace(f"{row.pk}/change/", "")):
        page = viewer.get(url).content.decode()
        assert "application/pdf" in page
        assert MARKER not in page


def test_staff_redact_a_document(
    api: APIClient, user: MemoryUser, admin_client: Client, work: Callable[[], None]
) -> None:
    upload(api, f"{MARKER}.pdf", PAGES)
    row = Document.objects.get()
    page = shown(admin_client.get(page_url(row)))
    assert f"{MARKER}.pdf" in page
    assert f"page 2 of {MARKER}.pdf : {MARKER} is allowed" in page
    entry = LogEntry.objects.get(seq=2)
    of_entry = shown(admin_client.get(page_url(entry)))
    assert f"page 2 of {MARKER}.pdf" in of_entry
    assert "loses its file, which has the same text" in shown(act(admin_client, "redact", entry))

    question = shown(act(admin_client, "redact", row))
    assert "is removed" in question
    assert LogEntry.objects.filter(redacted_at__isnull=False).count() == 0
    act(admin_client, "redact", row, confirmed="yes", note="asked for")
    work()

    assert Document.objects.count() == 0
    assert found() == []


def test_only_who_may_redact_entries_may_redact_documents(
    api: APIClient, user: MemoryUser, staff: Staff
) -> None:
    upload(api, "lease.pdf", PAGES)
    row = Document.objects.get()
    operator = staff("view_document", "change_document", "view_content")

    assert "redact" not in offered(operator.get(page_url(row)))
    act(operator, "redact", row, confirmed="yes", note="asked for")

    assert LogEntry.objects.filter(redacted_at__isnull=False).count() == 0
