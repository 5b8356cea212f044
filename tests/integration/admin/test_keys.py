"""Keys of the API in the admin: shown once, revoked, replaced."""

import datetime
import re
from typing import Any

import pytest
import time_machine
from django.contrib.admin.models import LogEntry as StaffAction
from django.test import Client
from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.workspaces import create_key, find_key
from tests.integration.admin.conftest import (
    Populate,
    Staff,
    act,
    add_url,
    list_url,
    messages_of,
    page_url,
    text_of,
)

pytestmark = pytest.mark.django_db


def make_key(client: Client, space: Workspace, **fields: Any) -> Any:
    return client.post(
        add_url(ApiKey),
        {"workspace": space.pk, "name": "backend", "scopes": ["read", "write"], **fields},
        follow=True,
    )


def test_new_key_is_shown_once(admin_client: Client, workspace: Workspace) -> None:
    response = make_key(admin_client, workspace)

    [told] = [message for message in messages_of(response) if "cannot be shown again" in message]
    found = re.search(r"uac_[0-9a-f]+_[\w-]+", told)
    assert found is not None
    text = found[0]
    key = ApiKey.objects.get()
    assert find_key(text) == key
    secret = text.split("_", 2)[2]
    row = ApiKey.objects.filter(pk=key.pk).values().get()
    assert not any(secret in str(value) for value in row.values())
    assert not any(
        secret in str(value) for action in StaffAction.objects.values() for value in action.values()
    )
    for address in (list_url(ApiKey), page_url(key)):
        assert secret not in admin_client.get(address).content.decode()


def test_a_new_key_may_do_what_was_ticked(admin_client: Client, workspace: Workspace) -> None:
    make_key(admin_client, workspace, scopes=["read"])

    assert ApiKey.objects.get().scopes == ["read"]


@pytest.mark.parametrize(
    "wrong", [{"scopes": []}, {"scopes": ["admin"]}, {"name": ""}, {"workspace": ""}]
)
def test_a_key_that_is_filled_in_wrongly_is_not_made(
    admin_client: Client, workspace: Workspace, wrong: dict[str, Any]
) -> None:
    response = make_key(admin_client, workspace, **wrong)

    assert response.context["adminform"].errors
    assert not ApiKey.objects.exists()


def test_revoked_key_opens_nothing(admin_client: Client, workspace: Workspace) -> None:
    told = " ".join(messages_of(make_key(admin_client, workspace)))
    text = re.findall(r"uac_[0-9a-f]+_[\w-]+", told)[0]
    key = ApiKey.objects.get()

    assert "This cannot be undone" in text_of(act(admin_client, "revoke", key))
    assert ApiKey.objects.get().revoked_at is None

    response = act(admin_client, "revoke", key, confirmed="1")

    assert messages_of(response) == ["1 key revoked."]
    assert find_key(text) is None
    assert StaffAction.objects.filter(object_id=str(key.pk), change_message="Revoked.").exists()
    first = ApiKey.objects.get().revoked_at
    assert messages_of(act(admin_client, "revoke", key, confirmed="1")) == [
        "1 key skipped: already revoked."
    ]
    assert ApiKey.objects.get().revoked_at == first


def test_replaced_key_holds_for_a_day(admin_client: Client, workspace: Workspace) -> None:
    key, text = create_key(workspace, "reader", [Scope.READ])

    [told] = messages_of(act(admin_client, "replace", key, confirmed="1"))

    [shown] = re.findall(r"uac_[0-9a-f]+_[\w-]{20,}", told)
    new = find_key(shown)
    assert new is not None
    assert (new.replaces, new.scopes) == (key, ["read"])
    with time_machine.travel(timezone.now() + datetime.timedelta(hours=23), tick=False):
        assert find_key(text) == key
    with time_machine.travel(timezone.now() + datetime.timedelta(hours=25), tick=False):
        assert find_key(text) is None
        assert find_key(shown) == new
    assert shown.split("_", 2)[2] not in text_of(admin_client.get(page_url(new)))
    noted = StaffAction.objects.get(object_id=str(key.pk))
    assert noted.change_message == f"Replaced by uac_{new.prefix}_…."
    [again] = messages_of(act(admin_client, "replace", key, confirmed="1"))
    assert "was skipped" in again
    assert ApiKey.objects.count() == 2


def test_a_key_is_made_for_certain_users(
    admin_client: Client, workspace: Workspace, user: MemoryUser
) -> None:
    make_key(admin_client, workspace, users=user.user_id)
    key = ApiKey.objects.get()
    assert key.user_pks == [user.pk]
    assert "only for 1 user" in text_of(admin_client.get(list_url(ApiKey)))

    refused = make_key(admin_client, workspace, users=f"{user.user_id}\nnobody")
    assert "nobody" in str(refused.context["adminform"].errors["users"])
    everybody = {"name": "backend", "scopes": ["read"], "users": ""}
    refused = admin_client.post(page_url(key), everybody)
    assert "users" in refused.context["adminform"].errors
    [kept] = ApiKey.objects.all()
    assert kept.user_pks == [user.pk]


def test_viewer_of_keys_cannot_make_or_revoke_them(
    staff: Staff, populate: Populate, workspace: Workspace
) -> None:
    rows = populate()
    client = staff("view_apikey")

    act(client, "revoke", rows[ApiKey], confirmed="1")

    assert make_key(client, workspace).status_code == 403
    assert [key.revoked_at for key in ApiKey.objects.all()] == [None]
