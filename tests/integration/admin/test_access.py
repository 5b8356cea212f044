"""Permissions of the staff; nobody sees rows of a workspace that is not theirs."""

import copy
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.contrib.messages import get_messages
from django.core.management import call_command
from django.core.management.sql import emit_post_migrate_signal
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from memory.alerts.models.alerts import Alert, AlertState
from memory.alerts.models.staff_mail import MailCursor, StaffSubscription
from memory.alerts.models.webhooks import WebhookEndpoint
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.operations import Alarm, Heartbeat
from memory.kernel.models.privacy import workspace_path
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.staff import access
from memory.kernel.staff.models import StaffAccess, StaffAudit
from memory.kernel.work.kinds import KINDS
from memory.kernel.workspaces import create_key
from memory.log.models.entries import LogEntry
from memory.privacy.models import UserErasure
from memory.versions.models.runs import Run
from tests.integration.admin.conftest import (
    MODELS,
    Populate,
    Rows,
    add_url,
    delete_url,
    list_url,
    name_of,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db

OURS = "Aspirin"
THEIRS = "wolframite"
NOBODYS = {Alarm, Heartbeat, SandboxHost, StaffAccess}
EVERYTHING = [f"view_{model._meta.model_name}" for model in MODELS]


@pytest.fixture(scope="module")
def made(populate_once: Populate) -> tuple[Rows, Rows]:
    """Rows of a person of our workspace, and of one of another, the same for all tests here."""
    return populate_once(OURS, "ada"), populate_once(
        THEIRS, f"bob-{THEIRS}", f"Company of {THEIRS}"
    )


@pytest.fixture
def ours(made: tuple[Rows, Rows]) -> Rows:
    """Rows of a person of the workspace that our member of the staff sees."""
    return copy.deepcopy(made[0])


@pytest.fixture
def workspace(ours: Rows) -> Workspace:
    """The workspace that our member of the staff sees."""
    found: Workspace = ours[Workspace]
    return found


@pytest.fixture
def theirs(made: tuple[Rows, Rows]) -> Rows:
    """Rows of a person of another workspace."""
    rows = copy.deepcopy(made[1])
    rows[SandboxHost].delete()  # nobody's: whoever may see hosts sees all of them
    return rows


@pytest.fixture
def client_of_ours(staff: Any, workspace: Workspace) -> Client:
    """A member of the staff who may do everything, with the rows of one workspace."""
    names = Permission.objects.filter(content_type__app_label="memory")
    client: Client = staff(*names.values_list("codename", flat=True), workspaces=[workspace])
    return client


# -- Roles -------------------------------------------------------------------------------------


def test_every_migration_writes_the_roles(db: None) -> None:
    for role in access.ROLES:
        group = Group.objects.get(name=role.name)
        held = set(group.permissions.values_list("codename", flat=True))
        assert held == set(role.codenames())
        assert not group.permissions.exclude(content_type__app_label="memory").exists()


def test_a_permission_of_a_later_version_is_made_and_given(db: None) -> None:
    own = Group.objects.create(name="our own")
    Permission.objects.filter(codename__in=["view_alert", "view_content"]).delete()
    Group.objects.get(name="engineer").delete()
    Group.objects.get(name="viewer").permissions.add(Permission.objects.get(codename="add_user"))

    access.write_roles()
    access.write_roles()

    engineer = User.objects.create(username="eve", is_staff=True)
    engineer.groups.add(Group.objects.get(name="engineer"))
    assert engineer.has_perms(["memory.view_alert", "memory.view_content"])
    viewer = Group.objects.get(name="viewer")
    assert not viewer.permissions.filter(codename="add_user").exists()
    assert not own.permissions.exists()


def test_the_command_for_migrations_writes_them(db: None) -> None:
    Group.objects.filter(name="viewer").delete()

    emit_post_migrate_signal(verbosity=0, interactive=False, db="default")

    assert Group.objects.get(name="viewer").permissions.exists()
    call_command("check")


def test_roles_add_up(db: None) -> None:
    both = User.objects.create(username="eve", is_staff=True)
    both.groups.set(Group.objects.filter(name__in=["operator", "privacy officer"]))

    assert both.has_perms(["memory.change_alert", "memory.erase_memoryuser"])
    assert not both.has_perm("memory.approve_workspaceconstraint")


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("viewer", ["view_alert", "view_workspace"], ["view_content", "change_alert"]),
        (
            "operator",
            ["view_content", "change_alert", "change_lane", "add_apikey", "change_delivery"],
            ["view_llmcall_content", "change_logentry", "change_checkpoint", "view_staffaudit"],
        ),
        (
            "engineer",
            ["approve_workspaceconstraint", "change_checkpoint", "view_llmcall_content"],
            ["subject_access", "erase_memoryuser", "add_apikey", "view_staffaudit"],
        ),
        (
            "privacy officer",
            ["erase_memoryuser", "subject_access", "change_logentry", "view_staffaudit"],
            ["change_alert", "add_apikey", "approve_workspaceconstraint"],
        ),
    ],
)
def test_role_has_its_permissions(db: None, role: str, may: list[str], may_not: list[str]) -> None:
    held = set(Group.objects.get(name=role).permissions.values_list("codename", flat=True))

    assert set(may) <= held
    assert not set(may_not) & held


def test_only_who_reads_the_audit_of_the_roles_sees_the_staff(db: None) -> None:
    seeing = {role.name for role in access.ROLES if "view_staffaudit" in set(role.codenames())}
    assert seeing == {"privacy officer"}


def test_the_documentation_has_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "staff.md"

    assert access.render_roles() in page.read_text()


# -- Workspaces --------------------------------------------------------------------------------


def test_every_screen_says_to_which_workspace_its_rows_belong() -> None:
    models = set(apps.get_app_config("memory").get_models())
    assert {model for model in models if workspace_path(model) is None} == NOBODYS
    for model in models - NOBODYS:
        model._default_manager.filter(**{f"{workspace_path(model)}__in": [1]})
        if owner := access.owner_id_of(model):
            model._default_manager.values_list(owner)


def test_every_screen_passes_the_filter(
    client_of_ours: Client, ours: Rows, theirs: Rows, rf: Any
) -> None:
    request = rf.get("/")
    request.user = User.objects.get(username="eve")
    request.user.access.workspaces.clear()

    for model in set(MODELS) - NOBODYS:
        assert list(admin.site._registry[model].get_queryset(request)) == [], model


@pytest.mark.parametrize("model", [one for one in MODELS if one not in NOBODYS], ids=name_of)
def test_rows_of_another_workspace_are_as_unknown_ones(
    client_of_ours: Client, ours: Rows, theirs: Rows, model: type[Model]
) -> None:
    client, foreign = client_of_ours, theirs[model]

    page = text_of(client.get(list_url(model)))
    assert page_url(ours[model]) in page
    assert page_url(foreign) not in page
    assert THEIRS not in page
    found = client.get(list_url(model), {"q": THEIRS})
    assert page_url(foreign) not in text_of(found)

    nobodys = uuid.uuid4() if isinstance(foreign.pk, uuid.UUID) else 10**9

    def told(key: Any, view: str) -> str:
        url = reverse(f"admin:memory_{model._meta.model_name}_{view}", args=[key])
        answer = client.get(url)
        assert answer.status_code == 404
        assert "it belongs to a workspace that your account does not see" in answer.content.decode()
        assert THEIRS not in answer.content.decode()
        return str(answer.content.decode()).replace(str(key), "?")

    for view in ("change", "history"):
        assert told(foreign.pk, view) == told(nobodys, view)
    assert client.post(page_url(foreign), {"name": "taken"}).status_code in (403, 404)


@pytest.mark.parametrize("model", [one for one in MODELS if one not in NOBODYS], ids=name_of)
def test_no_action_reaches_rows_of_another_workspace(
    client_of_ours: Client, ours: Rows, theirs: Rows, model: type[Model]
) -> None:
    foreign = theirs[model]
    if model is MemoryUser:
        UserErasure.objects.all().delete()  # so that they can be erased
    actions: Any = admin.site._registry[model].actions
    before = model._default_manager.filter(pk=foreign.pk).values().get()

    for action in actions:
        for across in ("0", "1"):
            answer = client_of_ours.post(
                list_url(model),
                {
                    "action": action,
                    "_selected_action": str(foreign.pk),
                    "select_across": across,
                    "note": "why",
                    "confirmed": "1",
                    "typed": ours[model].user_id if model is MemoryUser else "",
                }
                | ({} if across == "0" else {"_selected_action": str(ours[model].pk)}),
            )
            assert answer.status_code in (200, 302), action
            told = [str(message) for message in get_messages(answer.wsgi_request)]
            client_of_ours.cookies.pop("messages", None)  # as the next page does, which shows them
            assert THEIRS not in " ".join([answer.content.decode(), *told])

    after = model._default_manager.filter(pk=foreign.pk).values().get()
    assert before == after
    assert Alert.objects.get(pk=theirs[Alert].pk).state == AlertState.OPEN


def test_filters_name_no_other_workspace(client_of_ours: Client, ours: Rows, theirs: Rows) -> None:
    # A second one, since a filter with only one choice is not shown.
    second = Workspace.objects.create(name="Second")
    StaffAccess.objects.get(user__username="eve").workspaces.add(second)
    foreign = theirs[Workspace].name

    for model in MODELS:
        if model not in NOBODYS:
            assert foreign not in text_of(client_of_ours.get(list_url(model))), model
    assert "Second" in text_of(client_of_ours.get(list_url(LogEntry)))
    for model in (ApiKey, WebhookEndpoint, WorkspaceConstraint, StaffSubscription):
        form = text_of(client_of_ours.get(add_url(model)))
        assert "Second" in form
        assert foreign not in form


def test_rows_are_added_to_own_workspaces(client_of_ours: Client, ours: Rows, theirs: Rows) -> None:
    foreign = theirs[Workspace]
    number = ApiKey.objects.count()

    fields = {"workspace": foreign.pk, "name": "key", "scopes": ["read"]}
    refused = client_of_ours.post(add_url(ApiKey), fields)
    everybodys = client_of_ours.post(
        add_url(StaffSubscription),
        {"staff": ours[StaffSubscription].staff.pk, "mode": "at_once", "hour": 7},
    )

    assert "Select a valid choice" in shown(refused)
    assert "This field is required" in shown(everybodys)
    assert ApiKey.objects.count() == number
    assert client_of_ours.get(add_url(Workspace)).status_code == 403


def test_other_workspace_is_not_downloaded(
    client_of_ours: Client, ours: Rows, theirs: Rows
) -> None:
    def download(name: str, rows: Rows) -> int:
        url = reverse(f"admin:memory_memoryuser_{name}", args=[rows[MemoryUser].pk])
        return client_of_ours.get(url).status_code

    assert download("export", ours) == 200
    assert download("export", theirs) == 404
    assert download("subject_access", theirs) == 404


def test_stuck_work_of_others_is_hidden(client_of_ours: Client, ours: Rows, theirs: Rows) -> None:
    Lane.objects.update(attempts=9, due_at=timezone.now(), last_error="broken")
    Run.objects.update(dead_since=timezone.now())
    lane, run = theirs[Lane], theirs[Run]
    before = Lane.objects.get(pk=lane.pk).run_after
    url = reverse("admin:memory_work")

    page = client_of_ours.get(url)
    assert THEIRS not in text_of(page)
    assert str(ours[Run]) in text_of(page)
    counts = {one["kind"].name: one["dead"] for one in page.context["standings"]}
    assert counts["runs"] == 1

    chosen = [f"records:{lane.pk}", f"runs:{run.pk}", "runs:all"]
    client_of_ours.post(url, {"action": "dismiss", "chosen": chosen})
    client_of_ours.post(url, {"action": "try_again", "chosen": chosen})
    assert Lane.objects.get(pk=lane.pk).run_after == before
    assert Run.objects.get(pk=run.pk).dead_since is not None
    assert Run.objects.get(pk=ours[Run].pk).dead_since is None
    assert set(KINDS) == set(counts)


def test_front_page_hides_other_workspaces(
    client_of_ours: Client, ours: Rows, theirs: Rows
) -> None:
    assert THEIRS not in text_of(client_of_ours.get("/admin/"))


def test_no_screen_asks_for_each_row_of_those_whom_it_filters_for(
    client_of_ours: Client,
    workspace: Workspace,
    populate: Populate,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    some = [populate(OURS, f"user-{number}") for number in range(15)]

    for model in MODELS:
        with django_assert_max_num_queries(18, info=f"the list of {model.__name__}"):
            text_of(client_of_ours.get(list_url(model)))
    for model in (Alert, LogEntry, Run, ApiKey):
        with django_assert_max_num_queries(22, info=f"a page of {model.__name__}"):
            text_of(client_of_ours.get(page_url(some[0][model])))


# -- Who sees which ----------------------------------------------------------------------------


def test_account_without_workspace_sees_none(client: Client, ours: Rows) -> None:
    new = User.objects.create(username="new", is_staff=True)
    new.user_permissions.set(Permission.objects.filter(codename__in=EVERYTHING))
    client.force_login(new)

    assert 'class="when-empty"' in text_of(client.get(list_url(Alert)))
    assert list(access.workspaces_of(new) or ()) == []
    assert client.get(list_url(SandboxHost)).status_code == 200


def test_superusers_see_all_and_those_with_all_see_new_ones(
    staff: Any, admin_client: Client, ours: Rows, theirs: Rows
) -> None:
    everywhere = staff(*EVERYTHING)
    for client in (admin_client, everywhere):
        page = text_of(client.get(list_url(Alert)))
        assert page_url(ours[Alert]) in page
        assert page_url(theirs[Alert]) in page


def test_account_managers_grant_workspaces(admin_client: Client, workspace: Workspace) -> None:
    new = User.objects.create(username="new", is_staff=True)
    url = reverse("admin:auth_user_change", args=[new.pk])
    page = text_of(admin_client.get(url))
    assert workspace.name in page
    assert "viewer: Sees lists, states, counts" in page
    assert "user_permissions" not in page

    fields = {
        "username": "new",
        "is_staff": "on",
        "is_active": "on",
        "groups": [Group.objects.get(name="viewer").pk],
        "access-TOTAL_FORMS": "1",
        "access-INITIAL_FORMS": "0",
        "access-0-user": new.pk,
        "access-0-workspaces": [workspace.pk],
    }
    assert admin_client.post(url, fields).status_code == 302

    assert access.workspaces_of(User.objects.get(pk=new.pk)) == (workspace.pk,)
    assert [role.name for role in new.groups.all()] == ["viewer"]
    assert "new" in text_of(admin_client.get(list_url(StaffAccess)))


def test_a_role_needs_staff_status(admin_client: Client) -> None:
    account = User.objects.create(username="new")
    url = reverse("admin:auth_user_change", args=[account.pk])
    viewer = Group.objects.get(name="viewer")
    forms = {"access-TOTAL_FORMS": "1", "access-INITIAL_FORMS": "0", "access-0-user": account.pk}
    fields = {"username": "new", "is_active": "on", "groups": [viewer.pk], **forms}

    refused = admin_client.post(url, fields)
    assert list(refused.context["adminform"].form.errors) == ["is_staff"]
    assert not account.groups.exists()

    admin_client.post(url, {**fields, "is_staff": "on"})
    assert list(account.groups.all()) == [viewer]


def test_permissions_apart_from_roles_can_be_taken_away(admin_client: Client) -> None:
    account = User.objects.create(username="new", is_staff=True)
    account.user_permissions.add(Permission.objects.get(codename="grant_manage"))
    url = reverse("admin:auth_user_change", args=[account.pk])
    assert 'name="user_permissions"' in text_of(admin_client.get(url))

    [offered] = re.findall(
        r'name="(initial-user_permissions)" value="(\d+)"', text_of(admin_client.get(url))
    )
    forms = {"access-TOTAL_FORMS": "1", "access-INITIAL_FORMS": "0", "access-0-user": account.pk}
    fields = {"username": "new", "is_staff": "on", "is_active": "on", **forms}

    # A form from before the permission was given says nothing about it.
    admin_client.post(url, fields)
    assert account.user_permissions.exists()

    admin_client.post(url, {**fields, **dict([offered])})
    assert not account.user_permissions.exists()

    # A form from before it was taken away does not give it back.
    admin_client.post(url, {**fields, **dict([offered]), "user_permissions": [offered[1]]})
    assert not account.user_permissions.exists()


@pytest.mark.parametrize("permission", ["view_user", "change_user"])
def test_nobody_else_does(
    client: Client, workspace: Workspace, theirs: Rows, permission: str
) -> None:
    eve = User.objects.create(username="eve", is_staff=True)
    eve.user_permissions.set(
        Permission.objects.filter(codename__in=[permission, "change_staffaccess"])
    )
    StaffAccess.objects.create(user=eve).workspaces.add(workspace)
    client.force_login(eve)
    url = reverse("admin:auth_user_change", args=[eve.pk])

    assert theirs[Workspace].name not in text_of(client.get(url))
    client.post(
        url,
        {
            "username": "eve",
            "is_staff": "on",
            "is_active": "on",
            "access-TOTAL_FORMS": "1",
            "access-INITIAL_FORMS": "1",
            "access-0-id": eve.access.pk,
            "access-0-user": eve.pk,
            "access-0-all_workspaces": "on",
        },
    )

    assert access.workspaces_of(User.objects.get(pk=eve.pk)) == (workspace.pk,)


def test_staff_accounts_are_shown_within_own_workspaces(
    staff: Any, workspace: Workspace, ours: Rows, theirs: Rows
) -> None:
    client = staff("view_staffaccess", workspaces=[workspace])

    listed = client.get(list_url(StaffAccess))
    assert [row.user.username for row in listed.context["cl"].result_list] == ["eve"]
    assert THEIRS not in text_of(listed)


def test_an_officer_of_some_workspaces_reads_their_part_of_the_audit(
    staff: Any, workspace: Workspace, ours: Rows, theirs: Rows
) -> None:
    client = staff("view_staffaudit", workspaces=[workspace])
    page = text_of(client.get(list_url(StaffAudit)))

    assert page_url(ours[StaffAudit]) in page
    assert page_url(theirs[StaffAudit]) not in page


# -- Keys and endpoints ------------------------------------------------------------------------

MANAGES = [Scope.READ, Scope.MANAGE]
OPERATOR = next(role for role in access.ROLES if role.name == "operator")


def test_no_role_gives_keys_the_scope_manage(db: None) -> None:
    for role in access.ROLES:
        assert "grant_manage" not in set(role.codenames())


def test_an_operator_makes_a_key_that_manages_nothing(staff: Any, workspace: Workspace) -> None:
    client = staff(*OPERATOR.codenames())
    fields = {"workspace": workspace.pk, "name": "key", "scopes": ["read", "manage"]}

    assert 'value="manage"' not in text_of(client.get(add_url(ApiKey)))
    refused = client.post(add_url(ApiKey), fields)
    assert "Select a valid choice" in shown(refused)
    assert not ApiKey.objects.filter(name="key").exists()

    client.post(add_url(ApiKey), {**fields, "scopes": ["read", "write"]})
    made = ApiKey.objects.get(name="key")
    client.post(page_url(made), {"name": "key", "scopes": ["read", "manage"]})
    made.refresh_from_db()
    assert made.scopes == ["read", "write"]


def test_grantor_makes_managing_keys(staff: Any, workspace: Workspace) -> None:
    client = staff(*OPERATOR.codenames(), "grant_manage")
    fields = {"workspace": workspace.pk, "name": "key", "scopes": ["read", "manage"]}

    assert 'value="manage"' in text_of(client.get(add_url(ApiKey)))
    client.post(add_url(ApiKey), fields)
    made = ApiKey.objects.get(name="key")
    client.post(page_url(made), {**fields, "name": "renamed"})

    made.refresh_from_db()
    assert (made.name, made.scopes) == ("renamed", ["read", "manage"])


def test_operator_only_revokes_managing_keys(staff: Any, workspace: Workspace) -> None:
    client = staff(*OPERATOR.codenames())
    key, _ = create_key(workspace, "key", MANAGES, expires_at=timezone.now())

    client.post(page_url(key), {"name": "key", "scopes": ["read"], "expires_at": ""})
    key.refresh_from_db()
    assert (key.scopes, key.expires_at is None) == (MANAGES, False)

    assert 'value="revoke"' in text_of(client.get(page_url(key)))
    sure = {"action": "revoke", "_selected_action": str(key.pk), "confirmed": "1"}
    client.post(list_url(ApiKey), sure)
    key.refresh_from_db()
    assert key.revoked_at is not None


@pytest.mark.parametrize("model", [ApiKey, WebhookEndpoint, WorkspaceConstraint], ids=name_of)
def test_changing_content_needs_view_content(staff: Any, ours: Rows, model: type[Model]) -> None:
    name = model._meta.model_name
    client = staff(f"view_{name}", f"add_{name}", f"change_{name}")
    before = model._default_manager.filter(pk=ours[model].pk).values().get()

    assert client.get(add_url(model)).status_code == 403
    assert client.get(page_url(ours[model])).status_code == 200
    fields = {"name": "taken", "scopes": ["read"], "url": "https://example.com/", "source": "1"}
    assert client.post(page_url(ours[model]), fields).status_code == 403
    assert model._default_manager.filter(pk=ours[model].pk).values().get() == before


def test_staff_without_content_disable_keys_and_endpoints(staff: Any, ours: Rows) -> None:
    names = ("apikey", "webhookendpoint")
    client = staff(*(f"{may}_{name}" for may in ("view", "change") for name in names))
    for model, action in ((ApiKey, "revoke"), (WebhookEndpoint, "disable")):
        chosen = {"action": action, "_selected_action": str(ours[model].pk), "confirmed": "1"}
        client.post(list_url(model), chosen)
    endpoint = ours[WebhookEndpoint]
    client.post(
        list_url(WebhookEndpoint), {"action": "enable", "_selected_action": str(endpoint.pk)}
    )

    assert ApiKey.objects.get(pk=ours[ApiKey].pk).revoked_at is not None
    assert not WebhookEndpoint.objects.get(pk=endpoint.pk).enabled


# -- Accounts ----------------------------------------------------------------------------------


def test_an_account_is_deleted_with_what_is_its_own_and_without_its_audit(
    admin_client: Client, ours: Rows, workspace: Workspace
) -> None:
    account = ours[StaffSubscription].staff
    StaffAccess.objects.get_or_create(user=account)
    MailCursor.objects.get_or_create(subscription=ours[StaffSubscription], workspace=workspace)
    StaffAudit.objects.create(staff_id=account.pk, staff_name=account.username, kind="login")
    url = reverse("admin:auth_user_delete", args=[account.pk])

    assert "doesn't have permission" not in shown(admin_client.get(url)).replace("’", "'")
    assert admin_client.post(url, {"post": "yes"}).status_code == 302

    assert not User.objects.filter(pk=account.pk).exists()
    assert not StaffSubscription.objects.filter(pk=ours[StaffSubscription].pk).exists()
    assert StaffAudit.objects.filter(staff_id=account.pk, kind="login").exists()


@pytest.mark.parametrize("model", [StaffAccess, StaffSubscription, MailCursor], ids=name_of)
def test_rows_of_an_account_are_not_deleted_by_hand(
    admin_client: Client, ours: Rows, model: type[Model]
) -> None:
    assert admin_client.post(delete_url(ours[model]), {"post": "yes"}).status_code == 403
