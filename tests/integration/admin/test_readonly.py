"""Nobody edits rows that the server writes, whatever their other permissions."""

from typing import Any

import pytest
from django.db.models import Model
from django.test import Client

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace
from memory.kernel.staff.models import StaffAudit
from memory.log.models.entries import LogEntry
from tests.integration.admin.conftest import (
    IMMUTABLE,
    MODELS,
    Rows,
    act,
    add_url,
    delete_url,
    list_url,
    name_of,
    page_url,
)
from tests.rows import read_rows

pytestmark = pytest.mark.django_db


def everything() -> dict[str, list[str]]:
    """Return all rows, except those of the audit."""
    return read_rows(model for model in MODELS if model is not StaffAudit)


@pytest.mark.parametrize("model", [*IMMUTABLE, MemoryUser], ids=name_of)
def test_nobody_adds_a_row(admin_client: Client, rows: Rows, model: type[Model]) -> None:
    before = everything()

    assert admin_client.get(add_url(model)).status_code == 403
    assert admin_client.post(add_url(model), {"user": rows[MemoryUser].pk}).status_code == 403

    assert everything() == before


@pytest.mark.parametrize("model", IMMUTABLE, ids=name_of)
def test_nobody_changes_a_row(admin_client: Client, rows: Rows, model: type[Model]) -> None:
    before = everything()
    row = rows[model]
    values = {field.name: "changed" for field in model._meta.concrete_fields}

    assert admin_client.post(page_url(row), values).status_code == 403
    assert admin_client.post(f"{page_url(row)}?_popup=1", {}).status_code == 403

    assert everything() == before


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_nobody_deletes_a_row(admin_client: Client, rows: Rows, model: type[Model]) -> None:
    before = everything()
    row = rows[model]

    assert admin_client.get(delete_url(row)).status_code == 403
    assert admin_client.post(delete_url(row), {"post": "yes"}).status_code == 403
    act(admin_client, "delete_selected", row, post="yes")

    assert everything() == before


def test_showing_an_entry_writes_nothing(admin_client: Client, rows: Rows) -> None:
    before = everything()

    for model in MODELS:
        admin_client.get(list_url(model))
        admin_client.get(page_url(rows[model]))

    assert everything() == before


def test_only_time_zone_and_metadata_of_a_user_change(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]

    admin_client.post(
        page_url(user),
        {
            "user_id": "mallory",
            "workspace": "999",
            "last_seq": "0",
            "head": "",
            "time_zone": user.time_zone,
            "metadata": '{"vip": true}',
        },
    )

    after = MemoryUser.objects.get(pk=user.pk)
    assert after.metadata == {"vip": True}
    assert (after.user_id, after.workspace, after.last_seq, after.head) == (
        user.user_id,
        user.workspace,
        user.last_seq,
        user.head,
    )


def test_key_keeps_workspace_and_secret(admin_client: Client, rows: Rows) -> None:
    key = rows[ApiKey]
    other = Workspace.objects.create(name="other")

    admin_client.post(
        page_url(key),
        {
            "name": "renamed",
            "scopes": ["read"],
            "workspace": other.pk,
            "digest": "0" * 64,
            "prefix": "stolen",
        },
    )

    after = ApiKey.objects.get(pk=key.pk)
    assert (after.name, after.scopes) == ("renamed", ["read"])
    assert (after.workspace, after.digest, after.prefix) == (key.workspace, key.digest, key.prefix)


def test_viewer_of_alerts_sees_nothing_else(staff: Any, rows: Rows) -> None:
    client = staff("view_alert")

    for model in MODELS:
        status = client.get(list_url(model)).status_code
        assert status == (200 if model.__name__ == "Alert" else 403), model


def test_anonymous_visitor_is_asked_to_log_in(client: Client, rows: Rows) -> None:
    for address in (list_url(LogEntry), page_url(rows[LogEntry])):
        response = client.get(address)
        assert response.status_code == 302
        assert response["Location"].startswith("/admin/login/")
