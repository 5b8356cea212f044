"""The webhook outbox: messages to endpoints about alert events and rejected entries.

Messages go to the workspace's endpoints. Each message is a row written in the same transaction as
its event. Workers keep sending it until the endpoint accepts it (at-least-once delivery); each
endpoint gets the messages about the same alert in order
(`memory.alerts.delivery.delivery_attempts`).
"""

import datetime
from collections.abc import Collection, Sequence
from typing import TypeAlias
from uuid import UUID

from django.db import transaction
from django.db.models import Count, OuterRef, QuerySet, Subquery, prefetch_related_objects
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.alerts import entry_events
from memory.alerts.delivery.webhook_endpoints import lock_endpoint
from memory.alerts.delivery.webhook_messages import PING, encode_payload, event_type_of, message
from memory.alerts.models.alerts import AlertEvent, AlertEventKind, Severity, severity_rank
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, DeliveryState, WebhookEndpoint
from memory.kernel.database.deletion import delete_oldest
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import hints, leases

# The primary keys of an endpoint and of an alert that has been reported to that endpoint.
Notified: TypeAlias = tuple[UUID, UUID]
# How long settled messages are kept.
KEPT = datetime.timedelta(days=30)


class DeliveryPending(Exception):
    """The message cannot be resent; the exception's message says why."""


class Disabled(Exception):
    """The endpoint is disabled, so nothing is sent to it."""


def queue(user: MemoryUser, events: Sequence[AlertEvent]) -> None:
    """Write the messages about these events, in the same transaction that wrote the events.

    The caller must hold the lock on the workspace's event counter, so that no endpoint can be
    deleted in the meantime.
    """
    endpoints = list(WebhookEndpoint.objects.filter(workspace=user.workspace_id, enabled=True))
    notified = _find_notified(endpoints, events)
    named = entry_events.named_by(events) if endpoints else {}
    if endpoints:
        prefetch_related_objects(events, "alert__duplicates")
    deliveries = [
        Delivery(
            endpoint=endpoint,
            event=event,
            alert=event.alert,
            seq=event.seq,
            type=event_type_of(event),
            payload=message(user, event, named.get(event.pk, ())),
        )
        for endpoint in endpoints
        for event in events
        if _wants(endpoint, event, notified)
    ]
    Delivery.objects.bulk_create(deliveries)
    for endpoint_pk in dict.fromkeys(delivery.endpoint_id for delivery in deliveries):
        hints.hint("deliveries", str(endpoint_pk), workspace_pk=user.workspace_id)


def counts(endpoints: QuerySet[WebhookEndpoint]) -> QuerySet[WebhookEndpoint]:
    """Annotate each endpoint with its counts of `pending` and permanently failed messages."""

    def number(state: DeliveryState) -> Coalesce:
        deliveries = Delivery.objects.filter(endpoint=OuterRef("pk"), state=state).order_by()
        return Coalesce(
            Subquery(deliveries.values("endpoint").annotate(n=Count("pk")).values("n")), 0
        )

    states = (DeliveryState.PENDING, DeliveryState.GIVEN_UP)
    return endpoints.annotate(**{state.value: number(state) for state in states})


def send_test(endpoint: WebhookEndpoint) -> Delivery:
    """Queue a test message, which is never retried; raises Disabled if the endpoint is disabled."""
    with lock_endpoint(endpoint) as locked:
        if not locked.enabled:
            raise Disabled("This endpoint is disabled. Enable it, then test it.")
        locked.not_before = None
        locked.save(update_fields=["not_before"])
        delivery = Delivery.objects.create(
            endpoint=locked,
            type=PING,
            payload=encode_payload(PING, timezone.now(), {"endpoint_id": str(locked.pk)}),
        )
        hints.hint("deliveries", str(locked.pk), workspace_pk=locked.workspace_id)
    return delivery


def replay(delivery: Delivery) -> None:
    """Queue the message for resending, with the same id and body.

    Raises DeliveryPending if the message has not been settled yet, or if it was redacted.
    """
    if not delivery.payload:
        raise DeliveryPending("The content of this message was redacted. It cannot be sent again.")
    settled = Delivery.objects.filter(pk=delivery.pk)
    if not _replay(settled, delivery.endpoint):
        raise DeliveryPending("This message is still pending; it cannot be resent yet.")
    delivery.refresh_from_db()


def try_again(given_up: QuerySet[Delivery]) -> int:
    """Requeue these permanently failed messages, except redacted ones; return how many."""
    endpoints = WebhookEndpoint.objects.filter(pk__in=given_up.order_by().values("endpoint"))
    return sum(_replay(given_up.filter(endpoint=endpoint), endpoint) for endpoint in endpoints)


def replay_given_up(endpoint: WebhookEndpoint, since: datetime.datetime) -> int:
    """Requeue the permanently failed messages created since `since`; return how many."""
    given_up = endpoint.deliveries.filter(state=DeliveryState.GIVEN_UP, created_at__gte=since)
    return _replay(given_up.exclude(type=PING), endpoint)


def _replay(deliveries: QuerySet[Delivery], endpoint: WebhookEndpoint) -> int:
    with lock_endpoint(endpoint) as locked:
        locked.not_before = None
        locked.save(update_fields=["not_before"])
        sendable = deliveries.exclude(payload="")  # the payload of a redacted message is empty
        number = sendable.exclude(state=DeliveryState.PENDING).update(
            state=DeliveryState.PENDING,
            attempts=0,
            run_after=timezone.now(),
            settled_at=None,
            last_error="",
            dead_since=None,
        )
        hints.hint("deliveries", str(locked.pk), workspace_pk=locked.workspace_id)
    return number


def redact(user: MemoryUser, deliveries: Collection[UUID] | QuerySet[Delivery, UUID]) -> None:
    """Redact messages; unsent messages get a new body with the alert's current state.

    A message that a worker is currently sending is sent again. Call this after alerts and outcomes
    have been redacted and events recorded, because message rows must be locked last.
    """
    rows = Delivery.objects.filter(pk__in=deliveries)
    DeliveryAttempt.objects.filter(delivery__in=deliveries).update(answer="", error="")
    rows.exclude(state=DeliveryState.PENDING).update(payload="", dead_since=None)
    rows.update(last_error="")
    unsent = rows.filter(state=DeliveryState.PENDING).select_related("event__alert")
    pending = list(unsent.prefetch_related("event__alert__duplicates"))
    named = entry_events.named_by(delivery.event for delivery in pending if delivery.event)
    for delivery in pending:
        assert delivery.event is not None
        Delivery.objects.filter(pk=delivery.pk).update(
            payload=message(user, delivery.event, named.get(delivery.event.pk, ())),
            **leases.REVOKED,
        )


def withdraw(deliveries: Collection[UUID] | QuerySet[Delivery, UUID]) -> None:
    """Redact messages, and cancel unsent ones. Like `redact`, call this last."""
    rows = Delivery.objects.filter(pk__in=deliveries)
    DeliveryAttempt.objects.filter(delivery__in=deliveries).update(answer="", error="")
    rows.filter(state=DeliveryState.PENDING).update(
        state=DeliveryState.GIVEN_UP,
        settled_at=timezone.now(),
        **leases.REVOKED,
    )
    rows.update(payload="", last_error="", dead_since=None)


def before(delivery: Delivery) -> Delivery | None:
    """Return the earlier message about the same alert that this message must wait for, if any."""
    if delivery.state != DeliveryState.PENDING or delivery.alert_id is None:
        return None
    of_alert = Delivery.objects.filter(endpoint=delivery.endpoint_id, alert=delivery.alert_id)
    earlier = of_alert.filter(state=DeliveryState.PENDING, seq__lt=delivery.seq)
    return earlier.order_by("seq").first()


def _find_notified(
    endpoints: Sequence[WebhookEndpoint], events: Sequence[AlertEvent]
) -> set[Notified]:
    """Return an (endpoint, alert) pair for each of the events' alerts already sent to an endpoint.

    Endpoints without a minimum severity are left out.
    """
    choosy = [endpoint for endpoint in endpoints if endpoint.least_severity != Severity.INFO]
    alerts = {event.alert_id for event in events if event.kind != AlertEventKind.OPENED} - {None}
    if not choosy or not alerts:
        return set()
    deliveries = Delivery.objects.filter(endpoint__in=choosy, alert__in=alerts)
    return set(deliveries.order_by().values_list("endpoint", "alert").distinct())


def _wants(endpoint: WebhookEndpoint, event: AlertEvent, notified: Collection[Notified]) -> bool:
    """Return whether the endpoint should receive a message about the event.

    Once an alert has been reported to an endpoint, all of the alert's later events are reported as
    well, even if the alert's severity falls below the endpoint's minimum; otherwise the receiver
    would never learn that the alert was resolved.
    """
    alert = event.alert
    if endpoint.event_types and event.kind not in endpoint.event_types:
        return False
    return alert is None or (
        alert.kind in endpoint.alert_kinds
        and (
            severity_rank(alert.severity) >= severity_rank(endpoint.least_severity)
            or (endpoint.pk, event.alert_id) in notified
            or event.kind == AlertEventKind.ERASED  # the alert's earlier messages were deleted
        )
    )


def purge(limit: int) -> int:
    """Delete up to `limit` messages settled over KEPT ago, oldest first."""
    old = timezone.now() - KEPT
    settled = Delivery.objects.filter(settled_at__lt=old)
    with transaction.atomic():
        # Lock the rows, but skip rows that are already locked: their messages are being requeued.
        return delete_oldest(settled.select_for_update(skip_locked=True), "settled_at", limit)
