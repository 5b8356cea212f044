"""Staff who search the log see which entries still hold."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from tests.integration.admin.conftest import list_url, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def entries(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> list[LogEntry]:
    """Two entries of one record, of which the second replaces the first."""
    server = {"kind": "record", "domain": "home", "type": "Server", "key": "web"}
    told = [{**server, "data": {"ssh_port": port}} for port in (22, 2222)]
    assert api.post("/v1/users/ada/entries/", {"entries": told}).status_code == 202
    work()
    return list(LogEntry.objects.filter(user=user).order_by("seq"))


def test_a_search_shows_statuses(admin_client: Client, entries: list[LogEntry]) -> None:
    found = text_of(admin_client.get(list_url(LogEntry), {"q": "ada"}))
    listed = text_of(admin_client.get(list_url(LogEntry)))

    assert found.count(">replaced<") == 1
    assert found.count(">current<") == 1
    assert ">replaced<" not in listed


def test_entry_page_names_its_replacement(admin_client: Client, entries: list[LogEntry]) -> None:
    pages = [
        text_of(admin_client.get(reverse("admin:memory_logentry_change", args=[one.pk])))
        for one in entries
    ]

    assert ">replaced<" in pages[0]
    assert str(entries[1].pk) in pages[0]
    assert ">current<" in pages[1]
