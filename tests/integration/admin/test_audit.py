"""The staff's acts and views are recorded without content, and the record never changes."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertState
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace
from memory.kernel.staff import audit
from memory.kernel.staff.models import AuditKind, StaffAudit
from memory.log.models.entries import LogEntry
from memory.privacy import user_erasure
from memory.privacy.models import UserErasure
from memory.versions.models.runs import Run
from tests.integration.admin.conftest import (
    MODELS,
    Populate,
    Rows,
    list_url,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db

CANARY = "Wolframite"
OF_PEOPLE = [model for model in MODELS if audit.tells_of_people(model)]


@pytest.fixture
def rows(populate: Populate) -> Rows:
    """Rows of one person, made for each test, since others count all rows."""
    return populate()


def noted(**fields: Any) -> list[StaffAudit]:
    """Return the audit of the admin since the fixtures were made, oldest first."""
    found = StaffAudit.objects.filter(staff_name="admin", **fields)
    return list(found.exclude(kind__in=[AuditKind.LOGIN, AuditKind.LOGOUT]).order_by("id"))


def test_logging_in_and_out_is_noted(client: Client, admin_user: User) -> None:
    admin_user.set_password("correct horse battery staple")
    admin_user.save()
    client.post("/admin/login/", {"login": "admin", "password": "correct horse battery staple"})
    client.post("/admin/logout/")

    rows = StaffAudit.objects.filter(staff_id=admin_user.pk).order_by("id")
    assert [row.kind for row in rows] == [AuditKind.LOGIN, AuditKind.LOGOUT]
    assert {row.staff_name for row in rows} == {"admin"}
    assert uuid.UUID(rows[0].request_id) != uuid.UUID(rows[1].request_id)


def test_list_view_is_noted_by_its_person(admin_client: Client, populate: Populate) -> None:
    ada = populate("Aspirin", "ada")[MemoryUser]
    populate("Aspirin", "bob")

    admin_client.get(list_url(Alert))
    admin_client.get(list_url(Alert), {"user__id__exact": ada.pk})
    admin_client.get(list_url(Alert), {"q": "nobody at all"})

    assert [(row.person, row.number) for row in noted()] == [
        (None, 2),
        (ada.public_id, 1),
        (None, 0),
    ]


def test_refused_page_is_not_audited(admin_client: Client, staff: Any, rows: Rows) -> None:
    admin_client.get(f"/admin/memory/alert/{uuid.uuid4()}/change/")
    admin_client.get(list_url(Alert), {"nonsense": "1"})
    client = staff("view_run")
    assert client.get(page_url(rows[Alert])).status_code == 403

    assert noted() == []
    assert not StaffAudit.objects.filter(staff_name="eve", kind=AuditKind.VIEW).exists()


def test_action_is_noted_with_its_count(admin_client: Client, populate: Populate) -> None:
    alerts = [populate("Aspirin", name)[Alert] for name in ("ada", "bob")]

    admin_client.post(
        list_url(Alert),
        {"action": "acknowledge", "_selected_action": [str(alert.pk) for alert in alerts]},
    )
    admin_client.post(
        list_url(Alert),
        {
            "action": "resolve",
            "confirmed": "1",
            "note": CANARY,
            "_selected_action": str(alerts[0].pk),
        },
    )

    both, one = noted(kind=AuditKind.ACT)
    assert (both.what, both.number, both.row, both.person) == ("acknowledge", 2, "", None)
    assert (one.what, one.number, one.row) == ("resolve", 1, str(alerts[0].pk))
    assert one.person == alerts[0].user.public_id


def test_to_be_asked_is_to_look_and_to_confirm_is_to_act(admin_client: Client, rows: Rows) -> None:
    chosen = {"action": "redact", "_selected_action": str(rows[LogEntry].pk)}

    admin_client.post(list_url(LogEntry), chosen)
    admin_client.post(list_url(LogEntry), {**chosen, "confirmed": "1", "note": " "})
    admin_client.post(list_url(LogEntry), {**chosen, "confirmed": "1", "note": CANARY})

    assert [(row.kind, row.what) for row in noted()] == [
        (AuditKind.VIEW, "redact"),
        (AuditKind.VIEW, "redact"),
        (AuditKind.ACT, "redact"),
    ]


def test_refused_action_is_not_audited(staff: Any, rows: Rows) -> None:
    client = staff("view_alert")
    chosen = {"action": "resolve", "_selected_action": str(rows[Alert].pk)}
    client.post(list_url(Alert), {**chosen, "confirmed": "1"})

    assert not StaffAudit.objects.filter(kind=AuditKind.ACT).exists()


def test_adding_and_changing_are_noted(admin_client: Client, rows: Rows) -> None:
    key, workspace = rows[ApiKey], rows[Workspace]
    fields = {"name": "renamed", "scopes": ["read"]}

    admin_client.post(reverse("admin:memory_apikey_add"), {**fields, "workspace": workspace.pk})
    admin_client.post(page_url(key), fields)

    added, changed = noted()
    assert (added.kind, changed.kind) == (AuditKind.ADD, AuditKind.CHANGE)
    assert added.row != changed.row == str(key.pk)
    assert {row.workspace for row in (added, changed)} == {workspace}


def test_account_changes_are_audited(admin_client: Client) -> None:
    bob = User.objects.create(username="bob", is_staff=True)
    admin_client.post(
        reverse("admin:auth_user_password_change", args=[bob.pk]),
        {"password1": "correct horse battery", "password2": "correct horse battery"},
    )
    group = Group.objects.create(name="a group")
    admin_client.post(reverse("admin:auth_group_delete", args=[group.pk]), {"post": "yes"})

    assert [(row.kind, row.what, row.model, row.row) for row in noted()] == [
        (AuditKind.CHANGE, "", "user", str(bob.pk)),
        (AuditKind.ACT, "delete", "group", str(group.pk)),
    ]


def test_downloads_are_noted(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    admin_client.get(reverse("admin:memory_memoryuser_export", args=[user.pk]))

    [download] = noted()
    assert (download.kind, download.what, download.person) == (
        AuditKind.DOWNLOAD,
        "Downloaded the project.",
        user.public_id,
    )


def test_stuck_work_is_looked_at_and_tried_again(admin_client: Client, rows: Rows) -> None:
    lane = rows[MemoryUser].lanes.get(name="records")
    lane.attempts = 9
    lane.save()
    url = reverse("admin:memory_work")

    admin_client.get(url)
    admin_client.post(url, {"action": "try_again", "chosen": f"records:{lane.pk}"})

    assert [(row.kind, row.what, row.row) for row in noted()] == [
        (AuditKind.VIEW, "work", ""),
        (AuditKind.ACT, "records: try_again", str(lane.pk)),
    ]


def test_audit_has_no_content_and_survives_erasure(
    admin_client: Client, populate: Populate
) -> None:
    rows = populate(CANARY, CANARY.lower())
    user = rows[MemoryUser]
    for model in MODELS:
        admin_client.get(list_url(model), {"q": CANARY})
        admin_client.get(page_url(rows[model]))

    with connection.cursor() as cursor:
        cursor.execute("SELECT audit::text FROM memory_staffaudit AS audit")
        lines = [line for (line,) in cursor.fetchall()]
    assert len(lines) > len(OF_PEOPLE)
    # Except for the name of the staff, which the fixture derives from the person's.
    names = f"staff-{CANARY.lower()}"
    assert not [line for line in lines if CANARY.lower() in line.lower().replace(names, "")]

    before = StaffAudit.objects.filter(person=user.public_id).count()
    rows[UserErasure].delete()
    user_erasure.ask(user, by="staff:eve", reason="asked for")
    assert StaffAudit.objects.filter(person=user.public_id).count() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memory_staffaudit SET staff_name = 'nobody'",
        "DELETE FROM memory_staffaudit",
        "TRUNCATE memory_staffaudit",
    ],
)
def test_the_database_refuses_to_change_it(rows: Rows, statement: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)

    assert StaffAudit.objects.exists()


def test_not_even_whose_tables_they_are_changes_it(rows: Rows) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'memory_staffaudit'::regclass"
            " AND NOT tgisinternal ORDER BY tgname"
        )
        assert [name for (name,) in cursor.fetchall()] == [
            "audit_append_only",
            "audit_not_truncated",
        ]
        cursor.execute(
            "SELECT has_table_privilege('uac_runtime', 'memory_staffaudit', 'UPDATE'),"
            " has_table_privilege('uac_runtime', 'memory_staffaudit', 'DELETE')"
        )
        assert cursor.fetchone() == (False, False)


def test_view_fails_if_it_cannot_be_audited(
    admin_client: Client, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DatabaseError("no room")

    monkeypatch.setattr(StaffAudit.objects, "create", refuse)

    with pytest.raises(DatabaseError):
        admin_client.get(page_url(rows[LogEntry]))


def test_action_fails_if_it_cannot_be_audited(
    admin_client: Client, admin_user: User, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin_user.set_password("correct horse battery")
    admin_user.save()
    admin_client.force_login(admin_user)
    run, alert = rows[Run], rows[Alert]
    Run.objects.filter(pk=run.pk).update(dead_since=timezone.now())
    bob = User.objects.create(username="bob", is_staff=True)
    new = {"new_password1": "staple of a horse", "new_password2": "staple of a horse"}

    def refuse(*_: Any, **__: Any) -> None:
        raise DatabaseError("no room")

    monkeypatch.setattr(StaffAudit.objects, "create", refuse)
    for url, fields in [
        (
            list_url(Alert),
            {"action": "resolve", "_selected_action": str(alert.pk), "confirmed": "1"},
        ),
        (reverse("admin:memory_work"), {"action": "dismiss", "chosen": f"runs:{run.pk}"}),
        (
            reverse("admin:auth_user_password_change", args=[bob.pk]),
            {"password1": "staple of a horse", "password2": "staple of a horse"},
        ),
        (
            reverse("admin:password_change"),
            {"old_password": "correct horse battery", **new},
        ),
    ]:
        with pytest.raises(DatabaseError):
            admin_client.post(url, fields)

    assert Alert.objects.get(pk=alert.pk).state == AlertState.OPEN
    assert Run.objects.get(pk=run.pk).dead_since is not None
    assert User.objects.get(pk=bob.pk).password == bob.password
    assert User.objects.get(pk=admin_user.pk).check_password("correct horse battery")


def test_to_change_ones_own_password_is_noted(admin_client: Client, admin_user: User) -> None:
    admin_user.set_password("correct horse battery")
    admin_user.save()
    admin_client.force_login(admin_user)
    url = reverse("admin:password_change")
    new = {"new_password1": "staple of a horse", "new_password2": "staple of a horse"}

    admin_client.get(url)
    admin_client.post(url, {"old_password": "wrong", **new})
    assert noted() == []
    admin_client.post(url, {"old_password": "correct horse battery", **new})

    [row] = noted()
    assert (row.kind, row.what, row.model) == (AuditKind.CHANGE, "password", "user")
    assert row.row == str(admin_user.pk)


def test_the_screen_finds_by_staff_and_by_person(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    admin_client.get(page_url(rows[Alert]))

    by_person = admin_client.get(list_url(StaffAudit), {"q": str(user.public_id)})
    by_name = admin_client.get(list_url(StaffAudit), {"q": "admin"})
    by_nobody = admin_client.get(list_url(StaffAudit), {"q": str(uuid.uuid4())})

    assert page_url(rows[Alert]) in text_of(by_person)
    assert f'<a href="{page_url(user)}"><bdi>{user}</bdi></a>' in text_of(by_person)
    assert "viewed" in shown(by_name)
    assert by_nobody.context["cl"].result_count == 0
    kinds = {row.kind for row in by_name.context["cl"].result_list}
    assert AuditKind.LOGIN in kinds
