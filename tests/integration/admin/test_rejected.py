"""The staff's view of entries that were rejected together: the event, and its messages."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from memory.alerts.models.alerts import AlertEvent
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff import access, audit
from memory.kernel.staff.models import StaffAccess
from memory.log.models.entries import EntryOutcome, LogEntry
from tests.factories import make_run, reject
from tests.integration.admin.conftest import links_in, list_url, page_url, shown, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def event(user: MemoryUser, workspace: Workspace) -> AlertEvent:
    """An event of 22 rejected entries, with a message about it that failed."""
    WebhookEndpoint.objects.create(workspace=workspace, url="https://x.example/", secret=b"")
    reject(user, 22)
    delivery = Delivery.objects.get()
    DeliveryAttempt.objects.create(delivery=delivery, at=delivery.created_at, seconds=1, error="e")
    return AlertEvent.objects.get()


def rejected_of(user: MemoryUser) -> str:
    return f"{list_url(EntryOutcome)}?user__id__exact={user.pk}&outcome__exact=rejected"


def test_the_page_of_the_event_names_user_entries_and_reasons(
    admin_client: Client, user: MemoryUser, event: AlertEvent
) -> None:
    response = admin_client.get(page_url(event))

    links = links_in(text_of(response))
    entry = LogEntry.objects.get(user=user, seq=1)
    assert {page_url(user), page_url(entry), rejected_of(user)} <= set(links)
    words = shown(response)
    reason = EntryOutcome.objects.get(user=user, seq=1).reason
    assert f"#1 {reason}" in words
    assert "#20" in words
    assert "#21" not in words
    assert "2 more" in words


def test_a_message_leads_to_the_rejected_entries(
    admin_client: Client, user: MemoryUser, event: AlertEvent
) -> None:
    delivery = Delivery.objects.get()

    for address in (page_url(delivery), f"{list_url(Delivery)}?type=entry.rejected&q=ada"):
        assert rejected_of(user) in links_in(text_of(admin_client.get(address)))
    attempts = text_of(admin_client.get(f"{list_url(DeliveryAttempt)}?q=ada"))
    assert f'href="{page_url(DeliveryAttempt.objects.get())}' in attempts


def test_a_run_leads_to_what_it_rejected(
    admin_client: Client, user: MemoryUser, event: AlertEvent
) -> None:
    user.refresh_from_db()
    assert user.head is not None
    run = make_run(user.head)
    AlertEvent.objects.update(run=run)

    assert rejected_of(user) in links_in(text_of(admin_client.get(page_url(run))))


def test_endpoint_for_rejected_entries_alone(admin_client: Client, event: AlertEvent) -> None:
    endpoint = WebhookEndpoint.objects.get()

    admin_client.post(
        page_url(endpoint),
        {
            "workspace": endpoint.workspace_id,
            "url": endpoint.url,
            "event_types": ["rejected"],
            "alert_kinds": ["finding"],
            "least_severity": "info",
        },
    )

    endpoint.refresh_from_db()
    assert endpoint.event_types == ["rejected"]


def test_reasons_need_view_content(staff: Any, user: MemoryUser, event: AlertEvent) -> None:
    seen = [f"view_{name}" for name in ("alertevent", "delivery", "deliveryattempt")]
    delivery = Delivery.objects.get()
    addresses = [page_url(event), list_url(AlertEvent), page_url(delivery), list_url(Delivery)]

    client = staff(*seen)
    assert not any("missing-0" in text_of(client.get(address)) for address in addresses)
    User.objects.filter(is_staff=True).update(is_superuser=True)
    assert "missing-0" in text_of(client.get(page_url(event)))
    assert "missing-0" in text_of(client.get(page_url(delivery)))


@pytest.mark.parametrize("model", [AlertEvent, Delivery, DeliveryAttempt])
def test_rejected_entries_name_their_user(user: MemoryUser, event: AlertEvent, model: Any) -> None:
    subject = audit.subject_of(model.objects.all())

    assert (subject.person, subject.workspace) == (user.public_id, user.workspace_id)


@pytest.mark.parametrize("model", [AlertEvent, Delivery, DeliveryAttempt])
@pytest.mark.parametrize(("name", "number"), [("ours", 1), ("other", 0)])
def test_the_staff_of_other_workspaces_do_not_see_them(
    workspace: Workspace, event: AlertEvent, model: Any, name: str, number: int
) -> None:
    staff = User.objects.create(username="carol", is_staff=True)
    seen = workspace if name == "ours" else Workspace.objects.create(name=name)
    StaffAccess.objects.create(user=staff, all_workspaces=False).workspaces.add(seen)

    assert access.seen_by(staff, model.objects.all()).count() == number
