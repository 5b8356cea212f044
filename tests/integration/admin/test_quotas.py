"""The rates and quotas of a workspace: their display, and the staff's overrides."""

from typing import Any

import pytest
from django.test import Client

from memory.kernel.admission import quotas
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace, WorkspaceUse
from memory.kernel.settings import environment
from memory.log import entry_log
from memory.log.models.entries import EntryKind
from tests.integration.admin.conftest import list_url, page_url, shown

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "_count_at", {quotas.TOTALS: 0.0, quotas.PENDING: 0.0})


def change(client: Client, workspace: Workspace, **chosen: Any) -> Any:
    form = {"name": workspace.name, "time_zone": workspace.time_zone, **chosen}
    return client.post(page_url(workspace), form)


def test_usage_is_shown_beside_the_quota(
    admin_client: Client, workspace: Workspace, user: MemoryUser
) -> None:
    record = entry_log.Draft(kind=EntryKind.RECORD, data={"type": "Trip", "data": {"to": "Rome"}})
    entry_log.append(user, [record] * 3, source="test")
    quotas.count_when_due()

    assert (
        change(admin_client, workspace, max_users="5", writes_per_minute="600").status_code == 302
    )

    words = shown(admin_client.get(page_url(workspace)))
    assert "Writes per minute: 600 , set for this workspace" in words
    assert "Reads per minute: 12,000 , server default" in words
    assert "Users: 1 of 5 , set for this workspace" in words
    assert "Entries: 3 of 100,000,000 , server default" in words
    assert "Entries per user: 3 of 10,000,000 , server default" in words
    assert "Pending entries: 3 of 1,000,000 , server default" in words
    assert "Waiting runs: 0 of 1,000 , server default" in words


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"writes_per_minute": "0"}, "It must be between 1 and 2147483647 (requests), not 0."),
        ({"max_users": "-1"}, "greater than or equal to 0"),
        (
            {"max_entries": "3000000000"},
            "It must be between 1 and 2147483647 (entries), not 3000000000.",
        ),
        ({"max_backtests": "lots"}, "Enter a whole number"),
    ],
)
def test_invalid_quota_is_refused_beside_its_field(
    admin_client: Client, workspace: Workspace, chosen: dict[str, str], told: str
) -> None:
    response = change(admin_client, workspace, **chosen)

    assert told in shown(response)
    assert list(response.context["adminform"].form.errors) == list(chosen)
    workspace.refresh_from_db()
    assert set(workspace.overrides(environment.QUOTAS).values()) == {None}


def test_workspaces_are_listed_by_what_they_use(admin_client: Client, workspace: Workspace) -> None:
    WorkspaceUse.objects.create(
        workspace=workspace, users=3, entries=12345, log_bytes=5 * quotas.MIB, pending_records=7
    )

    words = shown(admin_client.get(list_url(WorkspaceUse)))

    assert f"3 12345 5.0 MB 7 0 {workspace.name}" in words
