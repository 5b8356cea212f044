"""Everything in the registry is erased: rows of every model, with every content field filled."""

import uuid
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertEvent, EventCounter
from memory.alerts.models.webhooks import WebhookEndpoint
from memory.constraints.models.backtests import Backtest
from memory.kernel.models.privacy import (
    Erase,
    erased_columns,
    models_about_users,
    privacy_of,
)
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.users import create_user
from memory.log.models.entries import LogEntry
from memory.privacy import erasure_registry, user_erasure
from memory.privacy.models import UserErasure
from memory.versions.models.checkpoints import Checkpoint
from tests.integration.erasure.conftest import MARKER, finish, found

pytestmark = pytest.mark.django_db


def plant(user: MemoryUser) -> dict[type[models.Model], models.Model]:
    """Store a row of every model that reaches the user; all content quotes the marker."""
    endpoint = WebhookEndpoint.objects.create(workspace=user.workspace, url="https://x", secret=b"")
    EventCounter.objects.create(workspace=user.workspace, last_seq=1)
    rows: dict[type[models.Model], models.Model] = {
        MemoryUser: user,
        type(user.workspace): user.workspace,
        WebhookEndpoint: endpoint,
    }
    MemoryUser.objects.filter(pk=user.pk).update(
        user_id=f"{MARKER}-{user.pk}", metadata={"x": MARKER}, time_zone=MARKER, last_seq=1
    )
    user.refresh_from_db()
    Lane.objects.filter(user=user).delete()
    for model in reversed(erasure_registry.sort_models()):
        if model in (MemoryUser, UserErasure):
            continue
        values = {
            field.name: _value(model, field, rows)
            for field in model._meta.concrete_fields
            if not isinstance(field, models.BigAutoField)
        }
        if model is AlertEvent:  # of an alert, which is the other kind of event
            values |= {"user": None, "entries": []}
        if model is Checkpoint:  # of which only accepted ones exist
            values["verdict"] = {"accepted": True, "x": MARKER}
        rows[model] = model._base_manager.create(**values)
    return rows


def _value(model: type[models.Model], field: Any, rows: Any) -> Any:
    if isinstance(field, models.ForeignKey):
        return rows.get(field.related_model)
    if field.name in erased_columns(model):
        if field.name == "report":
            return {"checked": 1, "users": {}, "x": MARKER}
        if isinstance(field, models.JSONField):
            return [MARKER] if field.default is list else {"x": MARKER}
        if isinstance(field, models.BinaryField):
            return MARKER.encode()
        return [MARKER] if isinstance(field, ArrayField) else MARKER
    if field.name == "redacted_at":
        return None
    if field.has_default():
        return field.get_default()
    if field.choices:
        return field.choices[0][0]
    if field.null:
        return None
    made = {
        ArrayField: [],
        models.DateTimeField: timezone.now(),
        models.DateField: timezone.now().date(),
        models.BinaryField: bytes(32),
        models.UUIDField: uuid.uuid4(),
        models.CharField: "",
        models.BooleanField: False,
        models.FloatField: 1.0,
    }
    return next((made[kind] for kind in type(field).__mro__ if kind in made), 1)


@pytest.fixture
def planted(user: MemoryUser) -> dict[type[models.Model], models.Model]:
    return plant(user)


def test_erasure_empties_every_field_of_content(
    user: MemoryUser, planted: dict[type[models.Model], models.Model]
) -> None:
    full = [
        f"memory_{model.__name__.lower()}.{name}"
        for model in models_about_users()
        if model is not UserErasure
        for name in erased_columns(model)
        if (model, name) != (AlertEvent, "entries")  # numbers, which quote nothing
    ]
    places = {place.split(":")[0] for place in found()}
    assert sorted(places) == sorted(full)

    user_erasure.ask(user, by="test", reason="asked for")
    row = finish(user)

    assert row.due_at is None, row.last_error
    assert found() == []
    kept = {model.__name__ for model in planted if model._base_manager.exists()}
    stay = {
        model.__name__
        for model in models_about_users()
        if privacy_of(model).erase is not Erase.DELETE
    }
    # The message that the alert is erased is sent once more.
    assert kept - {"Workspace", "WebhookEndpoint", "Delivery"} == stay - {"UserErasure"}


def test_erasure_counts_its_rows(user: MemoryUser) -> None:
    plant(user)
    user_erasure.ask(user, by="test", reason="asked for")

    row = finish(user)

    for model in models_about_users():
        name = str(model._meta.verbose_name_plural).replace(" ", "_")
        if model not in (MemoryUser, UserErasure) and "backtest" not in name:
            assert row.counts[name] >= 1, name


def test_erasure_touches_no_other_user(user: MemoryUser) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)
    plant(bob)
    before = len(found())
    user_erasure.ask(user, by="test", reason="asked for")

    finish(user)

    assert len(found()) == before


def test_erasure_removes_results_from_reports_about_many_users(user: MemoryUser) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)
    result = {"alerts": 1, "findings": [{"message": MARKER}], "problems": []}
    backtest = Backtest.objects.create(
        workspace=user.workspace,
        days=1,
        most_users=2,
        until=timezone.now(),
        report={"checked": 2, "users": {str(user.pk): result, str(bob.pk): None}},
    )

    user_erasure.ask(user, by="test", reason="asked for")

    assert found() == []
    token = backtest.token
    backtest.refresh_from_db()
    # And the worker that is running it may not write what it has read before.
    assert (backtest.report["users"], backtest.token) == ({str(bob.pk): None}, token + 1)


def test_the_history_of_what_staff_did_names_nobody(user: MemoryUser) -> None:
    planted = plant(user)
    staff = User.objects.create_user("carol")
    for row in planted.values():
        StaffAction.objects.create(
            user=staff,
            content_type=ContentType.objects.get_for_model(row),
            object_id=str(row.pk),
            object_repr=f"{MARKER} {row.pk}",
            action_flag=CHANGE,
            change_message=MARKER,
        )
    user_erasure.ask(user, by="test", reason="asked for")

    finish(user)

    places = {place.split(":")[0] for place in found()}
    about = {"workspace", "webhookendpoint"}  # which are not the user's
    left = StaffAction.objects.exclude(object_repr="(erased)").values_list("content_type__model")
    assert {name for (name,) in left} == about
    assert places == {"django_admin_log.object_repr", "django_admin_log.change_message"}


@pytest.mark.parametrize(
    "model",
    [
        model
        for model in models_about_users()
        if any(field.name == "user" for field in model._meta.concrete_fields)
        and model not in (LogEntry, UserErasure)
    ],
)
def test_the_database_refuses_new_rows_about_whoever_is_erased(model: type[models.Model]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = %s::regclass"
            " AND tgfoid = 'memory_user_is_erased'::regproc",
            [model._meta.db_table],
        )
        assert cursor.fetchone() == (1,), model


def test_the_feed_says_that_an_alert_is_erased_and_nothing_else(user: MemoryUser) -> None:
    planted = plant(user)
    alert = planted[Alert]
    user_erasure.ask(user, by="test", reason="asked for")

    finish(user)

    event = AlertEvent.objects.get(alert=alert.pk, kind="erased")
    assert (event.actor, event.detail) == ("erasure", {})
    (message,) = event.deliveries.values_list("payload", flat=True)
    assert '"type":"alert.erased"' in message
    assert str(alert.pk) in message
    assert MARKER not in message
