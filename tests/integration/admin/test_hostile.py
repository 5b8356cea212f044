"""Texts of users are shown to the last character, and cannot attack whoever views them."""

import html

import pytest
from django.db.models import Model
from django.test import Client

from memory.alerts.models.alerts import Alert, AlertEvent, AlertFeedback, PausedConstraint
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt
from memory.constraints.models.backtests import Backtest
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace
from memory.llm.models import LlmCall
from memory.log.models.entries import EntryOutcome, LogEntry
from memory.versions.models.checkpoints import Blob, Checkpoint, RecordLocation
from memory.versions.models.runs import Run
from tests.integration.admin.conftest import (
    MODELS,
    Populate,
    Rows,
    list_url,
    name_of,
    page_url,
    text_of,
)

pytestmark = pytest.mark.django_db

# Markup, an override of the writing direction, a zero-width character, a tag character.
HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>\u202egnp.exe\u200b\U000e0041'


@pytest.fixture(scope="module")
def made(populate_once: Populate) -> Rows:
    """Rows of one person, the same for all tests here."""
    return populate_once(HOSTILE)


@pytest.mark.parametrize(
    ("model", "where"),
    [(model, "list") for model in MODELS] + [(model, "page") for model in MODELS],
    ids=str,
)
def test_hostile_texts_are_inert(
    admin_client: Client, rows: Rows, model: type[Model], where: str
) -> None:
    row = rows[model]

    page = text_of(admin_client.get(list_url(model) if where == "list" else page_url(row)))

    assert "<script>alert" not in page
    assert "<img src=x" not in page
    staff_wrote_it = model in (ApiKey, Workspace)
    if not staff_wrote_it:
        for steering in "\u202e\u200b\U000e0041":
            assert steering not in page


@pytest.mark.parametrize(
    "model",
    [
        Alert,
        AlertEvent,
        AlertFeedback,
        Backtest,
        Blob,
        Checkpoint,
        Delivery,
        DeliveryAttempt,
        EntryOutcome,
        IdempotencyKey,
        Lane,
        LlmCall,
        LogEntry,
        PausedConstraint,
        RecordLocation,
        Run,
    ],
    ids=name_of,
)
def test_hostile_texts_are_shown_completely(
    admin_client: Client, rows: Rows, model: type[Model]
) -> None:
    row = rows[model]

    page = html.unescape(text_of(admin_client.get(page_url(row))))

    assert "<script>alert(" in page
    assert "\\u202egnp.exe\\u200b\\U000e0041" in page


def test_metadata_that_steers_is_edited_as_escapes(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]

    form = admin_client.get(page_url(user)).context["adminform"].form
    metadata = form["metadata"].value()
    assert "\\u202egnp.exe\\u200b\\udb40\\udc41" in metadata
    admin_client.post(page_url(user), {"time_zone": "Asia/Tokyo", "metadata": metadata})

    after = MemoryUser.objects.get(pk=user.pk)
    assert after.time_zone == "Asia/Tokyo"
    assert after.metadata == user.metadata == {"note": HOSTILE, HOSTILE: "note"}
