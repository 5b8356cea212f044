"""A user's project from the admin: who may download it, and the audit."""

import io
import zipfile
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as StaffAction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.kernel.admission import slots
from memory.kernel.models.users import MemoryUser
from memory.kernel.users import create_user
from tests.integration.admin.conftest import Rows, page_url, text_of
from tests.slots import free_slots

pytestmark = pytest.mark.django_db


def url_of(user: MemoryUser) -> str:
    return reverse("admin:memory_memoryuser_export", args=[user.pk])


def test_user_page_links_the_project(admin_client: Client, rows: Rows, settings: Any) -> None:
    settings.UAC_BASE_URL = "https://uac.example.org/"
    user = create_user(rows[MemoryUser].workspace, "a|b@c", time_zone="UTC", metadata=None)
    page = admin_client.get(page_url(user)).content.decode()
    assert "https://uac.example.org/v1/users/a%7Cb%40c/git" in page
    assert f'href="{url_of(user)}"' in page
    settings.UAC_BASE_URL = ""
    assert "http://testserver/v1/users/a%7Cb%40c/git" in text_of(admin_client.get(page_url(user)))
    ways = admin_client.get(page_url(rows[MemoryUser])).context["panel"]["ways"]
    downloads = {"Download project (zip)", "Download all stored data (zip)"}
    assert downloads <= {title for title, _ in ways}


def test_a_download_is_the_newest_version_and_noted(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    response: Any = admin_client.get(url_of(user))
    assert response.status_code == 200
    with zipfile.ZipFile(io.BytesIO(b"".join(response.streaming_content))) as archive:
        assert set(user.head.tree) <= set(archive.namelist())
    action = StaffAction.objects.get()
    assert action.change_message == "Downloaded the project."
    assert action.object_repr == f"user {user.public_id}"
    assert admin_client.post(url_of(user)).status_code == 405
    assert admin_client.get(url_of(user).replace(str(user.pk), "999999")).status_code == 404


def test_pending_redaction_blocks_downloads(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    MemoryUser.objects.filter(pk=user.pk).update(redacting_since=timezone.now())
    response = admin_client.get(url_of(user), follow=True)
    assert "A redaction of this user" in text_of(response)
    assert response.redirect_chain == [(page_url(user), 302)]
    assert not StaffAction.objects.exists()


@pytest.mark.parametrize("missing", ["view_memoryuser", "view_blob", "view_content"])
def test_files_need_their_permission(client: Client, staff: Any, rows: Rows, missing: str) -> None:
    assert client.get(url_of(rows[MemoryUser])).status_code == 302  # to the login
    given = {"view_memoryuser", "view_blob", "view_content"} - {missing}
    assert staff(*given).get(url_of(rows[MemoryUser])).status_code == 403
    assert not StaffAction.objects.exists()


def test_slow_downloads_of_staff_leave_threads_to_others(
    admin_client: Client, staff: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "DOWNLOADS", free_slots(slots.DOWNLOADS, 4))
    # Given a member of the staff who reads nothing of what was asked for
    user = rows[MemoryUser]
    addresses = [url_of(user), reverse("admin:memory_memoryuser_subject_access", args=[user.pk])]
    unread = [admin_client.get(addresses[0]) for _ in range(2)]
    assert [answer.status_code for answer in unread] == [200, 200]
    noted = StaffAction.objects.count()
    # When more is asked for, it is refused for a moment, and nothing is noted as sent
    for address in addresses:
        refused = admin_client.get(address, follow=True)
        assert refused.redirect_chain == [(page_url(user), 302)]
        assert "Try again in ten seconds" in text_of(refused)
    assert StaffAction.objects.count() == noted
    # And others are sent theirs
    other = staff("view_memoryuser", "view_blob", "view_content")
    assert other.get(addresses[0]).status_code == 200
    # Until what was sent is read
    for answer in unread:
        assert answer.getvalue()
    assert admin_client.get(addresses[0]).status_code == 200
