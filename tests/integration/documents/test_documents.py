"""Uploads become entries with page and offset, once, whole or not at all."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.log import documents, entry_log
from memory.log.models.documents import Document
from memory.log.models.entries import LogEntry
from tests.conftest import new_client
from tests.hints import read_hints
from tests.integration.documents.files import docx, paragraph, pdf
from tests.integration.redaction.conftest import found
from tests.steps import Killed
from workers import tasks
from workers.documents import converter
from workers.sandbox.results import SandboxError

pytestmark = pytest.mark.django_db

DOCUMENTS = "/v1/users/ada/documents/"
LEASE = pdf(["The rent is 950 euros", "", "No pets are allowed"])
EMAIL = "ada.rossi@example.com"

Choose = Callable[..., None]


@pytest.fixture(autouse=True)
def runner(settings: Settings) -> None:
    """Convert in a process: `test_convert.py` does it in containers, too."""
    settings.UAC_SANDBOX_RUNNER = "process"


@pytest.fixture
def api(workspace: Workspace) -> APIClient:
    """A client with a key that has every scope."""
    return new_client(workspace, *Scope)


@pytest.fixture
def choose(workspace: Workspace) -> Choose:
    """Set the content policy."""

    def do(**actions: str) -> None:
        fields = {f"content_{kind}": action for kind, action in actions.items()}
        Workspace.objects.filter(pk=workspace.pk).update(**fields)

    return do


def post(api: APIClient, name: str, content: bytes, query: str = "", **more: Any) -> Any:
    """Upload a file; return the response."""
    body = {"file": SimpleUploadedFile(name, content), **more}
    return api.post(f"{DOCUMENTS}{query}", body, format="multipart")


def upload(api: APIClient, name: str, content: bytes, **more: Any) -> dict[str, Any]:
    """Upload a file and have it converted; return the document."""
    response = post(api, name, content, **more)
    assert response.status_code == 202, response.data
    convert()
    document: dict[str, Any] = api.get(response["Location"]).json()
    return document


def convert() -> None:
    for pk in documents.waiting().values_list("pk", flat=True):
        tasks.work("documents", str(pk))


def entries(user: MemoryUser) -> list[LogEntry]:
    return list(LogEntry.objects.filter(user=user).order_by("seq"))


def test_an_upload_becomes_entries_with_their_pages(
    api: APIClient,
    user: MemoryUser,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        response = post(api, "lease.pdf", LEASE, occurred_at="2026-11-01")

    assert response.status_code == 202
    told = response.json()
    assert response["Location"] == f"{DOCUMENTS}{told['id']}/"
    assert (told["state"], told["name"], told["size"]) == ("waiting", "lease.pdf", len(LEASE))
    assert (told["first_seq"], told["error"], told["is_duplicate"]) == (None, None, False)
    assert [hint.key for hint in read_hints("sandbox")] == [told["id"]]
    assert entries(user) == []

    convert()

    done = api.get(response["Location"]).json()
    assert (done["state"], done["media_type"], done["pages"]) == ("done", "application/pdf", 3)
    assert (done["first_seq"], done["last_seq"], done["is_stored"]) == (1, 2, True)
    assert done["finished_at"] is not None
    first, last = api.get("/v1/users/ada/entries/").json()["results"]
    assert (first["content"], last["content"]) == ("The rent is 950 euros", "No pets are allowed")
    assert first["metadata"] == {"document": {"name": "lease.pdf", "page": 1, "offset": 0}}
    assert [one["place"] for one in (first, last)] == ["page 1 of lease.pdf", "page 3 of lease.pdf"]
    assert (first["kind"], first["trust"], first["state"]) == ("message", "document", "pending")
    assert first["session_id"] == last["session_id"] == f"document-{told['id']}"
    assert first["occurred_at"] == "2026-10-31T23:00:00Z"  # the day begins in Berlin
    assert first["source"].startswith("key:")
    user.refresh_from_db()
    assert list(entry_log.broken_links(user)) == []
    assert [one["id"] for one in api.get(DOCUMENTS).json()["results"]] == [told["id"]]
    content = api.get(f"{DOCUMENTS}{told['id']}/content/")
    assert content.content == LEASE
    assert content["Content-Type"] == "application/octet-stream"
    assert content["Content-Disposition"] == 'attachment; filename="lease.pdf"'


def test_long_text_is_cut_into_entries_that_name_their_offset(
    api: APIClient, user: MemoryUser
) -> None:
    text = "\n\n".join(f"Paragraph {number}: {'word ' * 60}" for number in range(40)).strip()

    document = upload(api, "notes.txt", text.encode())

    assert (document["pages"], document["characters"]) == (None, len(text))
    places = [(entry.metadata or {})["document"] for entry in entries(user)]
    assert len(places) > 2
    for entry, place in zip(entries(user), places, strict=True):
        content = entry.content or ""
        assert place["page"] is None
        assert len(content) <= documents.ENTRY_CHARACTERS
        assert text[place["offset"] :].startswith(content)
    said = [word for entry in entries(user) for word in (entry.content or "").split()]
    assert said == text.split()


def test_the_same_file_twice_adds_nothing(api: APIClient, user: MemoryUser) -> None:
    first = upload(api, "lease.pdf", LEASE)

    again = post(api, "copy of lease.pdf", LEASE)

    assert again.status_code == 200
    assert again.json() == {**first, "is_duplicate": True}
    convert()
    assert len(entries(user)) == 2
    assert Document.objects.count() == 1


def test_an_upload_may_be_repeated_with_its_key(api: APIClient, user: MemoryUser) -> None:
    key: dict[str, Any] = {"HTTP_IDEMPOTENCY_KEY": "1"}
    body = {"file": SimpleUploadedFile("a.txt", b"one")}
    first = api.post(DOCUMENTS, body, format="multipart", **key)
    body = {"file": SimpleUploadedFile("a.txt", b"one")}
    again = api.post(DOCUMENTS, body, format="multipart", **key)
    body = {"file": SimpleUploadedFile("a.txt", b"two")}
    other = api.post(DOCUMENTS, body, format="multipart", **key)

    assert (first.status_code, again.status_code, other.status_code) == (202, 202, 422)
    assert again["Idempotent-Replayed"] == "true"
    assert other.data["type"] == "urn:uac:problem:key-reused"
    assert (again.json()["id"], again.json()["is_duplicate"]) == (first.json()["id"], False)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.txt", b" \n ", "empty"),
        ("scan.pdf", pdf([""]), "no_text"),
        ("a.docx", docx("<w:p>"), "broken"),
        ("a.pdf", b"plain text", "wrong_type"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0", "unsupported_type"),
    ],
)
def test_a_document_without_text_says_why(
    api: APIClient, user: MemoryUser, name: str, content: bytes, code: str
) -> None:
    document = upload(api, name, content)

    what, fix = documents.REFUSALS[code]
    error = {"code": code, "field": "file", "detail": what, "fix": fix}
    assert (document["state"], document["error"]) == ("failed", error)
    assert (document["first_seq"], document["is_stored"]) == (None, False)
    assert entries(user) == []
    assert api.get(f"{DOCUMENTS}{document['id']}/content/").status_code == 404
    # It may be uploaded again, for example once the server has other limits.
    assert upload(api, name, content)["id"] != document["id"]
    assert Document.objects.count() == 1


def test_limits_are_settings(api: APIClient, user: MemoryUser, settings: Settings) -> None:
    settings.UAC_DOCUMENT_PAGES = 2
    assert upload(api, "lease.pdf", LEASE)["error"]["code"] == "too_many_pages"
    settings.UAC_DOCUMENT_CHARACTERS = 1000
    assert upload(api, "a.txt", b"x" * 1001)["error"]["code"] == "too_long"
    settings.UAC_DOCUMENT_BYTES = 10
    too_large = post(api, "a.txt", b"x" * 11)
    assert (too_large.status_code, list(too_large.data["errors"])) == (413, ["file"])
    assert too_large.data["type"] == "urn:uac:problem:too-large"


def test_a_form_without_exactly_one_file_is_refused(api: APIClient, user: MemoryUser) -> None:
    one, two = SimpleUploadedFile("a.txt", b"a"), SimpleUploadedFile("b.txt", b"b")
    empty = SimpleUploadedFile("a.txt", b"")

    def send(body: dict[str, Any]) -> tuple[int, list[str]]:
        response = api.post(DOCUMENTS, body, format="multipart")
        return response.status_code, list(response.data.get("errors", ()))

    assert send({"occurred_at": "2026-11-01"}) == (400, ["file"])
    assert send({"file": "text"}) == (400, ["file"])
    assert send({"file": [one, two]}) == (400, [])
    assert send({"document": one}) == (400, [])
    assert send({"file": empty}) == (422, ["file"])
    assert send({"file": two, "page": "1"}) == (400, ["page"])
    assert send({"file": two, "occurred_at": "soon"}) == (400, ["occurred_at"])
    assert api.post(DOCUMENTS, {"file": "a"}).status_code == 415
    broken = api.generic("POST", DOCUMENTS, "--x", "multipart/form-data; boundary=y")
    assert broken.status_code == 400
    assert api.generic("POST", DOCUMENTS, "", "multipart/form-data").status_code == 400
    assert Document.objects.count() == 0


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("C:\\private\\a.txt", "a.txt"),
        ("a\u202etxt.exe.txt", "atxt.exe.txt"),
        ("line\nbreak\x07\u200b.txt", "linebreak.txt"),
        ("n" * 300 + ".txt", "n" * 251 + ".txt"),
        ("Mietvertrag für Ada.txt", "Mietvertrag für Ada.txt"),
    ],
)
def test_a_name_is_only_a_name(api: APIClient, user: MemoryUser, sent: str, name: str) -> None:
    boundary = "x"
    head = f"Content-Disposition: form-data; name=\"file\"; filename*=UTF-8''{quote(sent)}"
    body = f"--{boundary}\r\n{head}\r\n\r\ntext\r\n--{boundary}--\r\n"

    response = api.generic("POST", DOCUMENTS, body, f"multipart/form-data; boundary={boundary}")

    assert response.status_code == 202, response.data
    assert response.data["name"] == name
    convert()
    assert [documents.place_of(entry) for entry in entries(user)] == [name]


def test_the_content_policy_masks_what_is_in_a_document(
    api: APIClient, user: MemoryUser, choose: Choose
) -> None:
    choose(email_address="masked")

    document = upload(api, f"mail to {EMAIL} of May.txt", f"Write to {EMAIL}.".encode())

    assert document["state"] == "done"
    assert [entry.content for entry in entries(user)] == ["Write to [masked: email_address]."]
    assert document["name"] == "mail to [masked: email_address] of May.txt"
    # The original says it, and what else may be in it has not been checked.
    assert document["is_stored"] is False
    assert found(EMAIL) == []


def test_the_content_policy_refuses_what_is_in_a_document(
    api: APIClient, user: MemoryUser, choose: Choose
) -> None:
    choose(email_address="refused")

    document = upload(api, "a.pdf", pdf(["The rent", f"Write to {EMAIL}"]))

    assert (document["state"], document["error"]["code"]) == ("failed", "content_refused")
    assert "e-mail addresses (page 2 of a.pdf)" in document["error"]["detail"]
    assert entries(user) == []
    named = post(api, f"{EMAIL} of May.txt", b"text")
    assert (named.status_code, list(named.data["errors"])) == (422, ["file"])
    assert found(EMAIL) == []


def test_quotas_hold(api: APIClient, user: MemoryUser, workspace: Workspace) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(max_entries_per_user=1)

    document = upload(api, "lease.pdf", LEASE)

    assert (document["state"], document["error"]["code"]) == ("failed", "not_admitted")
    assert "max_entries_per_user" in document["error"]["detail"]
    assert entries(user) == []


def test_a_killed_worker_leaves_nothing_half_done(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may be killed before, in and after the transaction that ends the work."""
    post(api, "lease.pdf", LEASE)

    def kill(*arguments: Any, **options: Any) -> None:
        raise Killed

    for module, name in ((documents, "finish"), (entry_log, "append"), (leases, "release")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, kill)
            with pytest.raises(Killed):
                convert()
        assert entries(user) == []
        assert Document.objects.get().state == "waiting"
        past = timezone.now() - timezone.timedelta(seconds=1)  # type: ignore[attr-defined]
        Document.objects.update(lease_expires_at=past)
    convert()
    convert()

    assert len(entries(user)) == 2
    assert Document.objects.get().state == "done"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A converter that does not respond."""

    def fail(name: str, content: bytes) -> None:
        raise SandboxError.unavailable("the engine is down")

    monkeypatch.setattr(converter, "convert_document", fail)


def test_a_converter_that_fails_is_tried_again_and_then_no_more(
    api: APIClient, user: MemoryUser, failing: None
) -> None:
    post(api, "lease.pdf", LEASE)
    convert()
    row = Document.objects.get()
    assert (row.state, row.attempts) == ("waiting", 1)
    assert "the engine is down" in row.last_error
    assert row.run_after > timezone.now()

    Document.objects.update(attempts=converter.MAX_ATTEMPTS, run_after=timezone.now())
    convert()

    row.refresh_from_db()
    assert (row.state, row.error, row.last_error) == ("failed", "unavailable", "")


def test_deleting_a_document_stops_its_conversion(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = post(api, "lease.pdf", LEASE).json()
    whole = converter.convert_document

    def delete_meanwhile(name: str, content: bytes) -> Any:
        assert api.delete(f"{DOCUMENTS}{told['id']}/").status_code == 204
        return whole(name, content)

    monkeypatch.setattr(converter, "convert_document", delete_meanwhile)
    convert()

    assert entries(user) == []
    assert Document.objects.count() == 0


def test_keys_reach_their_own_users_and_scopes(
    api: APIClient, workspace: Workspace, user: MemoryUser
) -> None:
    document = upload(api, "a.txt", b"one")
    one = f"{DOCUMENTS}{document['id']}/"
    bob = create_user(workspace, "bob", time_zone="UTC", metadata=None)
    reader, writer = new_client(workspace, Scope.READ), new_client(workspace)
    stranger = new_client(Workspace.objects.create(name="other"), *Scope)
    of_bob = new_client(workspace, *Scope, user_pks=[bob.pk])

    assert post(reader, "b.txt", b"two").status_code == 403
    assert reader.get(one).status_code == reader.get(f"{one}content/").status_code == 200
    assert writer.delete(one).status_code == 403
    for client in (stranger, of_bob):
        assert {client.get(url).status_code for url in (DOCUMENTS, one, f"{one}content/")} == {404}
        assert post(client, "b.txt", b"two").status_code == 404
        assert client.delete(one).status_code == 404
    elsewhere = one.replace("/ada/", "/bob/")
    assert api.get(elsewhere).status_code == api.delete(elsewhere).status_code == 404
    assert len(entries(user)) == 1


def test_a_request_may_wait_for_the_conversion(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert_at_once(settled: Callable[[], bool], limit: float, **options: Any) -> None:
        assert not settled()
        convert()
        assert settled()

    monkeypatch.setattr("memory.kernel.http.waiting.until", convert_at_once)

    response = post(api, "a.docx", docx(paragraph("No pets")), "?wait=5")

    assert response.status_code == 202
    assert (response.json()["state"], response.json()["last_seq"]) == ("done", 1)
