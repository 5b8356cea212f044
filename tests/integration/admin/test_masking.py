"""Staff who may not see users' texts see that there are some, and none of their content."""

import copy
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertState
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt
from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.admin import masking
from memory.kernel.admin.columns import is_plain
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.operations import Alarm
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey
from memory.llm.models import LlmCall
from memory.log.models.entries import LogEntry
from memory.log.models.redactions import Redaction
from memory.privacy.models import UserErasure
from memory.versions.models.checkpoints import Checkpoint, RecordLocation
from memory.versions.models.runs import Run
from tests.integration.admin.conftest import (
    MODELS,
    Populate,
    Rows,
    list_url,
    name_of,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db

CANARY = "Wolframite"
EVERYTHING = [f"view_{model._meta.model_name}" for model in MODELS]


@pytest.fixture(scope="module")
def made(populate_once: Populate) -> Rows:
    """Rows of one person, the same for all tests here."""
    return populate_once(CANARY)


@pytest.fixture
def planted(made: Rows) -> Rows:
    """Rows with the canary wherever users' content may be, and nowhere else."""
    rows = copy.deepcopy(made)
    # Texts of the product's own people and of the server itself are shown to everybody.
    ApiKey.objects.update(name="key")
    Alarm.objects.update(detail="silent", last_error="")
    SandboxHost.objects.update(report={})
    WorkspaceConstraint.objects.update(description="", created_by="staff:eve")
    return rows


@pytest.fixture
def viewer(staff: Any) -> Client:
    """A member of the staff who may view every screen, also prompts, but not users' texts."""
    client: Client = staff(*EVERYTHING, "view_llmcall_content")
    return client


def texts(client: Client, rows: Rows, model: type[Model]) -> list[str]:
    """Return the list and the pages of a row, as they are sent."""
    page = page_url(rows[model])
    history = f"{page.removesuffix('change/')}history/"
    return [text_of(client.get(address)) for address in (list_url(model), page, history)]


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_no_list_and_no_page_shows_it(viewer: Client, planted: Rows, model: type[Model]) -> None:
    for page in texts(viewer, planted, model):
        assert CANARY not in page


@pytest.mark.parametrize("model", [Alert, LogEntry, Checkpoint, Run, RecordLocation], ids=name_of)
def test_content_is_shown_with_permission(staff: Any, planted: Rows, model: type[Model]) -> None:
    client = staff(*EVERYTHING, "view_content")

    assert any(CANARY in page for page in texts(client, planted, model))


def test_rows_of_the_inbox_can_be_told_apart_without_content(viewer: Client, planted: Rows) -> None:
    listed = viewer.get(list_url(Alert))

    assert masking.name_of(planted[Alert]) not in ("", str(planted[Alert]))
    assert f"alert {str(planted[Alert].pk)[:8]}" in shown(listed)
    # The order of hidden messages would tell of them, and so would a hint that they are searched.
    assert "message" not in listed.context["cl"].search_help_text
    assert listed.context["cl"].search_help_text == "Search by user id."
    assert "admin_order_field" not in vars(listed.context["cl"].model_admin.headline.__func__)


def test_states_counts_times_and_links_are_shown(viewer: Client, planted: Rows) -> None:
    page = shown(viewer.get(page_url(planted[Alert])))
    assert "critical" in page
    assert "(hidden)" in page
    assert planted[MemoryUser].user_id in page
    assert page_url(planted[Run]) in text_of(viewer.get(page_url(planted[Alert])))
    listed = viewer.get(list_url(Alert))
    assert page_url(planted[Alert]) in text_of(listed)
    user = shown(viewer.get(page_url(planted[MemoryUser])))
    assert "1 alert" in user
    assert "v2" in user


def test_search_filter_and_order_reveal_nothing(viewer: Client, planted: Rows) -> None:
    found = viewer.get(list_url(LogEntry), {"q": CANARY})
    assert f"{page_url(planted[LogEntry])}" not in text_of(found)
    assert page_url(planted[LogEntry]) in text_of(viewer.get(list_url(LogEntry), {"q": "ada"}))
    for model, lookup in [
        (LogEntry, "content__startswith"),
        (Alert, "message__contains"),
        (Alert, "user__metadata__note"),
        (Alert, "last_run__stdout__contains"),
        (Run, "checkpoint__verdict__runner"),
        (Checkpoint, "first_edit__key__startswith"),  # what a list computes along
        (WorkspaceConstraintVersion, "source__contains"),
        (WorkspaceConstraintVersion, "last_error__contains"),
        (UserErasure, "reason__contains"),
    ]:
        refused = viewer.get(list_url(model), {lookup: CANARY[:3]})
        assert refused.status_code == 400, (model, lookup)
    # A status of work reveals nothing: the front page links to it.
    assert viewer.get(list_url(Run), {"work": "runs.failing"}).status_code == 200
    for number in range(7):
        listed = viewer.get(list_url(Alert), {"o": str(number)}).context["cl"]
        assert "message" not in str(listed.queryset.query.order_by)


def test_a_reason_is_not_searched_by_who_may_not_see_it(viewer: Client, planted: Rows) -> None:
    page = page_url(planted[UserErasure])
    assert page in text_of(viewer.get(list_url(UserErasure)))
    assert page not in text_of(viewer.get(list_url(UserErasure), {"q": CANARY}))


def test_names_are_given_to_no_script(viewer: Client, admin_client: Client, planted: Rows) -> None:
    asked = {"app_label": "memory", "model_name": "alertevent", "field_name": "alert", "term": ""}
    for client in (viewer, admin_client):
        assert client.get("/admin/autocomplete/", asked).status_code == 403


def test_empty_fields_are_not_masked(viewer: Client, planted: Rows) -> None:
    Redaction.objects.update(due_at=None, problem="", last_error="")

    page = shown(viewer.get(page_url(planted[Redaction])))

    assert "done" in page
    assert "despite the gate" not in page


def test_why_a_delivery_failed_is_not_its_name(viewer: Client, planted: Rows) -> None:
    DeliveryAttempt.objects.update(status=None, error=CANARY)

    assert CANARY not in text_of(viewer.get(page_url(planted[Delivery])))


def test_content_can_be_sorted_with_permission(staff: Any, planted: Rows) -> None:
    client = staff("view_recordlocation", "view_content")
    orders = [
        client.get(list_url(RecordLocation), {"o": str(number)})
        .context["cl"]
        .queryset.query.order_by
        for number in range(7)
    ]
    assert "collection" in str(orders)


def test_downloads_need_the_permission(staff: Any, planted: Rows) -> None:
    client = staff(*EVERYTHING, "view_llmcall_content", "subject_access")

    for name in ("export", "subject_access"):
        url = reverse(f"admin:memory_memoryuser_{name}", args=[planted[MemoryUser].pk])
        assert client.get(url).status_code == 403


def test_work_that_is_stuck_shows_no_error_and_no_name(viewer: Client, planted: Rows) -> None:
    user = planted[MemoryUser]
    user.lanes.update(attempts=9, due_at=timezone.now(), last_error=CANARY)
    Run.objects.update(dead_since=timezone.now(), last_error=CANARY)

    page = text_of(viewer.get(reverse("admin:memory_work")))

    assert CANARY not in page
    assert page_url(planted[Run]) in page


def test_confirmation_pages_show_no_content(staff: Any, planted: Rows) -> None:
    client = staff(*EVERYTHING, "change_logentry", "erase_memoryuser")
    for model, action in ((LogEntry, "redact"), (MemoryUser, "erase")):
        UserErasure.objects.all().delete()
        asked = client.post(
            list_url(model), {"action": action, "_selected_action": str(planted[model].pk)}
        )
        assert "Reason" in shown(asked)
        assert CANARY not in text_of(asked)


def test_form_does_not_change_masked_fields(staff: Any, planted: Rows) -> None:
    client = staff("view_memoryuser", "change_memoryuser")
    user = planted[MemoryUser]
    assert CANARY not in text_of(client.get(page_url(user)))

    client.post(page_url(user), {"time_zone": "Asia/Tokyo", "metadata": "{}"})

    after = MemoryUser.objects.get(pk=user.pk)
    assert after.time_zone == "Asia/Tokyo"
    assert after.metadata == user.metadata


def test_actions_do_not_change_masked_content(staff: Any, planted: Rows) -> None:
    client = staff("view_alert", "change_alert")
    alert = planted[Alert]

    chosen = {"action": "resolve", "_selected_action": str(alert.pk), "from_page": "1"}
    assert CANARY not in text_of(client.post(list_url(Alert), chosen))
    answer = client.post(list_url(Alert), {**chosen, "confirmed": "1"}, follow=True)

    assert "1 alert resolved." in shown(answer)
    assert CANARY not in text_of(answer)
    after = Alert.objects.get(pk=alert.pk)
    assert (after.state, after.message) == (AlertState.RESOLVED, CANARY)
    assert masking.HIDDEN not in str([event.detail for event in alert.events.all()])


def test_users_of_a_constraint_are_masked(viewer: Client, staff: Any, planted: Rows) -> None:
    page = page_url(planted[WorkspaceConstraint])

    assert "Users: (hidden)" in shown(viewer.get(page))
    User.objects.filter(username="eve").delete()
    seeing = shown(staff(*EVERYTHING, "view_content").get(page))
    assert "Users:" in seeing
    assert "(hidden)" not in seeing


def test_prompts_need_both_permissions(staff: Any, planted: Rows) -> None:
    page = staff("view_llmcall", "view_llmcall_content").get(page_url(planted[LlmCall]))
    assert "Prompt: (hidden)" in shown(page)


def test_every_method_that_is_a_column_says_whether_it_shows_content() -> None:
    for model in MODELS:
        screen: Any = admin.site._registry[model]
        for name in dir(type(screen)):
            method = getattr(type(screen), name)
            if hasattr(method, "short_description") and name not in screen.actions:
                is_ours = method.__module__.startswith("memory.")
                assert not is_ours or hasattr(method, "is_content"), (model, name)


def test_a_column_that_nobody_has_declared_is_hidden() -> None:
    assert not is_plain(admin.site._registry[Alert], "added_next_year")
    assert masking.is_hidden()  # where no request has said otherwise
