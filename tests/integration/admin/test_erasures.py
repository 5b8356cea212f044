"""Privileged staff erase people: they see who it is, give a reason, and are audited."""

import re

import pytest
from django.contrib.admin.models import LogEntry as StaffAction
from django.test import Client

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import AuditKind, StaffAudit
from memory.kernel.users import create_user
from memory.privacy.models import UserErasure
from tests.integration.admin.conftest import (
    Rows,
    Staff,
    act,
    list_url,
    messages_of,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db


def test_erasure_needs_confirmation_and_reason(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    UserErasure.objects.all().delete()
    page = shown(act(admin_client, "erase", user))
    assert f"User: {user.user_id}" in page
    assert "Alerts: 1 alert" in page
    refused = act(admin_client, "erase", user, confirmed="1", note="  ")
    assert messages_of(refused) == ["Nothing was done: give a reason."]
    named = act(
        admin_client,
        "erase",
        user,
        confirmed="1",
        note=f"{user.user_id} wrote a mail",
        typed=user.user_id,
    )
    assert "do not repeat the user_id" in " ".join(messages_of(named))
    assert MemoryUser.objects.filter(pk=user.pk).exists()

    done = act(
        admin_client,
        "erase",
        user,
        confirmed="1",
        note="asked for by mail",
        typed=f" {user.user_id} ",
    )

    row = UserErasure.objects.get()
    assert (row.by, row.reason) == ("staff:admin", "asked for by mail")
    assert page_url(row) in text_of(done)
    assert not MemoryUser.objects.filter(pk=user.pk).exists()
    assert f">{user.user_id}<" not in text_of(admin_client.get(list_url(MemoryUser)))
    tombstone = shown(admin_client.get(page_url(row)))
    assert "asked for by mail" in tombstone
    assert str(user.public_id) in tombstone
    action = StaffAction.objects.get(content_type__model="usererasure")
    assert (action.user.get_username(), action.object_id) == ("admin", str(row.pk))
    audited = f"{action.object_repr} {action.change_message}"
    assert not re.search(rf"\b{user.user_id}\b", audited)


def test_erasure_from_user_page_leads_to_the_list(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    UserErasure.objects.all().delete()
    bob = create_user(user.workspace, "bob", time_zone="UTC", metadata={})

    told = {"confirmed": "1", "note": "asked for", "typed": user.user_id, "from_page": "1"}
    done = act(admin_client, "erase", user, **told)

    assert not MemoryUser.objects.filter(pk=user.pk).exists()
    assert page_url(bob) in text_of(done)


@pytest.mark.parametrize("typed", ["", "1", "yes"])
def test_erasure_of_one_needs_the_id_typed(admin_client: Client, rows: Rows, typed: str) -> None:
    user = rows[MemoryUser]
    UserErasure.objects.all().delete()

    told = {"confirmed": "1", "note": "by mail", "from_page": "1"}
    answer = act(admin_client, "erase", user, typed=typed, **told)

    assert messages_of(answer) == ["Nothing was done: to confirm, type the user's id."]
    assert MemoryUser.objects.filter(pk=user.pk).exists()
    # The page is audited as a view, and not as an erasure.
    noted = StaffAudit.objects.filter(what="erase").order_by("-pk")[0]
    assert (noted.kind, noted.person) == (AuditKind.VIEW, user.public_id)
    # The input is not lost, and there is a way back to the original page.
    assert 'value="by mail"' in text_of(answer)
    assert f'<a href="{page_url(user)}" class="button cancel-link">Cancel</a>' in text_of(answer)


def test_erasure_of_several_needs_a_number(admin_client: Client, workspace: Workspace) -> None:
    users = [create_user(workspace, name, time_zone="UTC", metadata={}) for name in ("ada", "bob")]
    asked = act(admin_client, "erase", *users)
    assert "type the number of users" in shown(asked)
    assert f'<a href="{list_url(MemoryUser)}" class="button cancel-link">' in text_of(asked)

    refused = act(admin_client, "erase", *users, confirmed="1", note="why", typed="ada")
    assert messages_of(refused) == ["Nothing was done: to confirm, type the number of users."]
    assert MemoryUser.objects.filter(pk__in=[user.pk for user in users]).count() == 2

    act(admin_client, "erase", *users, confirmed="1", note="why", typed="2")
    assert not MemoryUser.objects.filter(pk__in=[user.pk for user in users]).exists()


def test_its_button_is_red_and_comes_last(admin_client: Client, rows: Rows) -> None:
    page = text_of(admin_client.get(page_url(rows[MemoryUser])))

    buttons = re.findall(r'<button type="submit" name="action" value="(\w+)"([^>]*)>', page)
    assert buttons[-1][0] == "erase"
    assert [name for name, style in buttons if "dangerous" in style] == ["erase"]


@pytest.mark.parametrize("permission", ["change_memoryuser", "erase_memoryuser"])
def test_erasure_has_its_own_permission(staff: Staff, rows: Rows, permission: str) -> None:
    user = rows[MemoryUser]
    UserErasure.objects.all().delete()
    asked = {"action": "erase", "_selected_action": [user.pk], "confirmed": "1", "note": "why"}
    asked["typed"] = user.user_id

    staff("view_memoryuser", permission).post(list_url(MemoryUser), asked)

    gone = not MemoryUser.objects.filter(pk=user.pk).exists()
    assert gone == (permission == "erase_memoryuser")
