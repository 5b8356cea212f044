"""Delivery attempts: choosing the next message, and recording the result of the call.

`workers.delivery.webhooks` makes the calls.
"""

import datetime
import random
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from memory.alerts.delivery.webhook_endpoints import mark_disabled
from memory.alerts.delivery.webhook_messages import PING
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, DeliveryState, WebhookEndpoint
from memory.kernel.outgoing import destinations
from memory.kernel.work import leases

if TYPE_CHECKING:
    from collections.abc import Collection

logger = structlog.get_logger(__name__)

# The longest wait that a receiver may request with a Retry-After header.
LONGEST_RETRY_AFTER = datetime.timedelta(days=1)
LONGEST_PAUSE = datetime.timedelta(minutes=1)
# After this many consecutive failures, the server waits between calls to an endpoint.
PATIENCE = 3
GONE = 410
# An endpoint is disabled once all calls to it have failed for this long.
DISABLED_AFTER = datetime.timedelta(days=5)


def waiting() -> QuerySet[WebhookEndpoint]:
    """Select the endpoints that a message can be sent to now."""
    now = timezone.now()
    due = _deliverable(now).filter(endpoint=OuterRef("pk"))
    return _open(WebhookEndpoint.objects.all(), now).filter(Exists(due))


def claim(endpoint_pk: str) -> Delivery | None:
    """Claim the endpoint's next message and return it; None if no message may be sent now.

    The message's endpoint is loaded, too. The settings limit concurrent calls and calls per minute.
    An endpoint whose last call failed is called by one worker thread at a time, so that a hanging
    endpoint cannot tie up more threads.
    """
    with transaction.atomic():
        now = timezone.now()
        rows = WebhookEndpoint.objects.select_for_update(no_key=True).filter(pk=endpoint_pk)
        endpoint = _open(rows, now).first()
        if endpoint is None:
            return None
        most = 1 if endpoint.failures else settings.UAC_WEBHOOK_CONCURRENCY
        pending = endpoint.deliveries.filter(state=DeliveryState.PENDING)
        if pending.filter(lease_expires_at__gt=now).count() >= most:
            return None
        began = endpoint.minute_began_at
        if began is None or now - began >= datetime.timedelta(minutes=1):
            endpoint.minute_began_at, endpoint.minute_calls = now, 0
        if endpoint.minute_calls >= settings.UAC_WEBHOOK_PER_MINUTE:
            return None
        due = _deliverable(now).filter(endpoint=endpoint).order_by("run_after", "seq")
        chosen = due.values_list("pk", flat=True).first()
        delivery = leases.claim(Delivery.objects.filter(pk=chosen)) if chosen else None
        if delivery is None:
            return None
        endpoint.minute_calls += 1
        endpoint.save(update_fields=["minute_began_at", "minute_calls"])
        delivery.endpoint = endpoint
    return delivery


def record(attempt: DeliveryAttempt, *, retry_after: str = "") -> None:
    """Store a new attempt, and settle its message or schedule the next attempt.

    `retry_after` is the response's Retry-After header. Raises LeaseLost if the caller has lost its
    claim to the message, or its endpoint was deleted.
    """
    delivery = attempt.delivery
    with transaction.atomic():
        rows = WebhookEndpoint.objects.select_for_update(no_key=True)
        endpoint = rows.filter(pk=delivery.endpoint_id).first()
        if endpoint is None:
            raise leases.LeaseLost(f"{delivery}: its endpoint was deleted")
        leases.check(delivery)
        attempt.save(force_insert=True)
        if attempt.error:
            _failed(delivery, endpoint, attempt, retry_after)
        else:
            _settle(delivery, DeliveryState.DELIVERED)
            if endpoint.failing_since is not None:
                endpoint.failing_since, endpoint.failures, endpoint.not_before = None, 0, None
                endpoint.save(update_fields=["failing_since", "failures", "not_before"])


def _failed(
    delivery: Delivery, endpoint: WebhookEndpoint, attempt: DeliveryAttempt, retry_after: str
) -> None:
    now = timezone.now()
    requested_delay = _parse_retry_after(retry_after, now)
    if delivery.type == PING:
        _settle(delivery, DeliveryState.GIVEN_UP, attempt.error)
        return
    endpoint.failures += 1
    endpoint.failing_since = endpoint.failing_since or attempt.at
    doubled = datetime.timedelta(seconds=2 ** min(endpoint.failures - PATIENCE, 10))
    pause = min(doubled, LONGEST_PAUSE) if endpoint.failures >= PATIENCE else datetime.timedelta()
    endpoint.not_before = now + max(pause, min(requested_delay, LONGEST_PAUSE))
    endpoint.save(update_fields=["failures", "failing_since", "not_before"])

    waits = settings.UAC_WEBHOOK_RETRY_SECONDS
    if attempt.status == GONE:
        mark_disabled(endpoint, "The endpoint returned 410 Gone.")
        leases.fail(delivery, attempt.error)
    elif delivery.attempts > len(waits):
        _settle(delivery, DeliveryState.GIVEN_UP, attempt.error)
    else:
        # Add 10 % jitter, so that messages that failed together are not retried together.
        drawn = random.uniform(0.9, 1.1)  # noqa: S311  # nosec B311 # no secret
        wait = waits[delivery.attempts - 1] * drawn
        again = now + max(datetime.timedelta(seconds=wait), requested_delay)
        leases.release(delivery, run_after=again, last_error=attempt.error)
    if endpoint.enabled and now - endpoint.failing_since >= DISABLED_AFTER:
        since = f"{endpoint.failing_since:%Y-%m-%d %H:%M} UTC"
        mark_disabled(endpoint, f"All calls have failed since {since}: {attempt.error}")
        logger.warning("webhook_disabled", endpoint=str(endpoint.pk))


def _settle(delivery: Delivery, state: DeliveryState, error: str = "") -> None:
    now = timezone.now()
    is_lost = state == DeliveryState.GIVEN_UP and delivery.type != PING
    leases.release(
        delivery,
        state=state,
        settled_at=now,
        dead_since=now if is_lost else None,
        last_error=error,
    )


def _parse_retry_after(retry_after: str, now: datetime.datetime) -> datetime.timedelta:
    """Parse a Retry-After header (seconds or an HTTP date); return the requested wait."""
    text = retry_after.strip()
    try:
        if text.isdecimal():
            delay = datetime.timedelta(seconds=int(text[:9]))
        else:
            delay = parsedate_to_datetime(text) - now
    except (TypeError, ValueError):
        return datetime.timedelta()
    return min(max(delay, datetime.timedelta()), LONGEST_RETRY_AFTER)


def _open(
    endpoints: QuerySet[WebhookEndpoint], now: datetime.datetime
) -> QuerySet[WebhookEndpoint]:
    return endpoints.filter(Q(not_before=None) | Q(not_before__lte=now), enabled=True)


def pending() -> QuerySet[Delivery]:
    """Select the messages that are to be sent, now or later."""
    return Delivery.objects.filter(state=DeliveryState.PENDING, endpoint__enabled=True)


def sendable() -> QuerySet[Delivery]:
    """Select the messages that wait for a worker alone: their endpoints are not failing."""
    now = timezone.now()
    endpoints = _open(WebhookEndpoint.objects.filter(failing_since=None), now)
    return _deliverable(now).filter(endpoint__in=endpoints)


def _deliverable(now: datetime.datetime) -> QuerySet[Delivery]:
    """Select the pending messages that are not blocked by an earlier one about the same alert."""
    pending = Delivery.objects.filter(state=DeliveryState.PENDING)
    earlier = pending.filter(
        endpoint=OuterRef("endpoint"), alert=OuterRef("alert"), seq__lt=OuterRef("seq")
    )
    return pending.filter(leases.free(now)).filter(~Exists(earlier))


def validate_server_settings() -> dict[str, str]:
    """Map each invalid setting's name to what is wrong with it."""
    problems: dict[str, str] = {}
    try:
        destinations.allowed_networks()
    except ValueError as error:
        problems["UAC_WEBHOOK_ALLOWED_NETWORKS"] = (
            f"Each network must be written like 10.0.0.0/8: {error}."
        )
    waits: Collection[float] = settings.UAC_WEBHOOK_RETRY_SECONDS
    if not waits or not all(0 <= wait <= 7 * 86400 for wait in waits):
        problems["UAC_WEBHOOK_RETRY_SECONDS"] = (
            "Give at least one retry delay; each must be 0 to 604800 seconds (one week)."
        )
    return problems
