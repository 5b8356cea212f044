"""Webhooks, following Standard Webhooks: events of alerts, and rejected entries.

They go to the endpoints of the workspace. The message is a row, written with its event: an outbox.
Workers send it until the endpoint accepts it, at least once; the messages of one alert are sent to
each endpoint in order. See `workers.delivery.delivering` for the sending.
"""

import base64
import datetime
import json
import math
import random
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import (
    Count,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    prefetch_related_objects,
)
from django.db.models.functions import Coalesce
from django.utils import timezone
from standardwebhooks.webhooks import Webhook

from memory.delivery import destinations, rejections
from memory.delivery.rejections import Rejected
from memory.models import (
    Alert,
    AlertEvent,
    Delivery,
    DeliveryAttempt,
    EventCounter,
    MemoryUser,
    WebhookEndpoint,
    Workspace,
)
from memory.models.alerts import AlertEventKind, Severity, severity_rank
from memory.models.webhooks import DeliveryState
from memory.privacy import encryption
from memory.work import hints, leases

logger = structlog.get_logger(__name__)

TASK = "workers.tasks.deliver"
PING = "ping"
MAX_ENDPOINTS = 20
SECRET_BYTES = 32
# How long after a rotation messages are signed with the previous secret, too.
BOTH_SECRETS = datetime.timedelta(hours=24)
# The longest wait that a receiver may ask for with Retry-After.
LONGEST_RETRY_AFTER = datetime.timedelta(days=1)
LONGEST_PAUSE = datetime.timedelta(minutes=1)
# After this many failures in a row, an endpoint is paused between two calls.
PATIENCE = 3
# The number of records, and of entries, that a message contains of an alert.
MAX_EVIDENCE = 100
MAX_ENTRIES = 1000
# The limit for resolving the host name when an endpoint is created.
LOOK_UP_SECONDS = 3.0
GONE = 410

# An endpoint and an alert.
Told: TypeAlias = tuple[UUID, UUID]


class TooManyEndpoints(Exception):
    """The workspace has the maximum number of endpoints."""


class DeliveryPending(Exception):
    """The message is still on its way."""


class Disabled(Exception):
    """The endpoint is disabled."""


# -- Endpoints ---------------------------------------------------------------------------------


def check_url(url: str) -> None:
    """Raise destinations.AddressRefused for a URL that would not be called.

    A name that does not resolve now is left to the calls, each of which checks again.
    """
    try:
        destinations.addresses(destinations.parse(url), LOOK_UP_SECONDS)
    except destinations.NotFound:
        logger.info("webhook_name_not_resolved")


def create(workspace: Workspace, url: str, **fields: Any) -> tuple[WebhookEndpoint, str]:
    """Create an endpoint and return it with its secret, which is shown only once.

    Raises destinations.AddressRefused for the URL, TooManyEndpoints, and
    encryption.EncryptionError if the server has no key to encrypt secrets with.
    """
    secret, stored = _new_secret()
    check_url(url)
    with transaction.atomic():
        Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
        if workspace.webhooks.count() >= MAX_ENDPOINTS:
            raise TooManyEndpoints(
                f"A workspace has {MAX_ENDPOINTS} webhook endpoints at most: delete one."
            )
        endpoint = WebhookEndpoint.objects.create(
            workspace=workspace, url=url, secret=stored, **fields
        )
    return endpoint, secret


def change(endpoint: WebhookEndpoint, **fields: Any) -> None:
    """Change columns of the endpoint; `enabled` works like `enable` and `disable`.

    Waiting messages go to the new URL. Raises destinations.AddressRefused for that.
    """
    enabled = fields.pop("enabled", endpoint.enabled)
    if fields.get("url", endpoint.url) != endpoint.url:
        check_url(fields["url"])
    with _locked(endpoint) as locked:
        for name, value in fields.items():
            setattr(locked, name, value)
        locked.save(update_fields=list(fields))
    if enabled and not endpoint.enabled:
        enable(endpoint)
    elif endpoint.enabled and not enabled:
        disable(endpoint, "Disabled by hand.")


def rotate_secret(endpoint: WebhookEndpoint) -> str:
    """Give the endpoint a new secret and return it; the previous one stays for BOTH_SECRETS."""
    secret, stored = _new_secret()
    with _locked(endpoint) as locked:
        locked.previous_secret, locked.secret = locked.secret, stored
        locked.previous_secret_until = timezone.now() + BOTH_SECRETS
        locked.save(update_fields=["secret", "previous_secret", "previous_secret_until"])
    return secret


def enable(endpoint: WebhookEndpoint) -> None:
    """Enable the endpoint, and send its waiting messages at once."""
    with _locked(endpoint) as locked:
        locked.enabled, locked.disabled_at, locked.disabled_reason = True, None, ""
        locked.failing_since, locked.failures, locked.not_before = None, 0, None
        locked.save()
        # Whoever enables it says that it works again: no message waits out its backoff.
        waiting = locked.deliveries.filter(state=DeliveryState.PENDING)
        waiting.filter(run_after__gt=timezone.now()).update(run_after=timezone.now())
    hints.hint(TASK, str(endpoint.pk), workspace_pk=endpoint.workspace_id)


def disable(endpoint: WebhookEndpoint, reason: str) -> None:
    """Disable the endpoint: waiting messages stay, and no new ones are written."""
    with _locked(endpoint) as locked:
        _disable(locked, reason)


def delete(endpoint: WebhookEndpoint) -> None:
    """Delete the endpoint with its log; what was not delivered is lost.

    Locks are taken as everywhere: of the counter, the endpoint, its messages.
    """
    with _locked(endpoint) as locked:
        _disable(locked, "It is being deleted.")
        _delete_log(locked)
    with transaction.atomic():
        # Nobody writes messages meanwhile, so nobody finds the endpoint gone.
        list(EventCounter.objects.select_for_update().filter(workspace=endpoint.workspace_id))
        list(WebhookEndpoint.objects.select_for_update().filter(pk=endpoint.pk))
        _delete_log(endpoint)
        WebhookEndpoint.objects.filter(pk=endpoint.pk).delete()


def hold_events(endpoint: WebhookEndpoint) -> None:
    """Within a transaction, keep others from writing messages until it ends; otherwise do nothing.

    A caller that deletes an endpoint in its own transaction locks the counter first.
    """
    if connection.in_atomic_block:
        list(EventCounter.objects.select_for_update().filter(workspace=endpoint.workspace_id))


def secret_of(endpoint_id: str) -> str | None:
    """Return the secret of an endpoint; None if it is gone or cannot be decrypted."""
    endpoint = WebhookEndpoint.objects.filter(pk=endpoint_id).first()
    if endpoint is None:
        return None
    try:
        return encryption.decrypt(bytes(endpoint.secret)).decode()
    except encryption.EncryptionError:
        return None


def _delete_log(endpoint: WebhookEndpoint) -> None:
    DeliveryAttempt.objects.filter(delivery__endpoint=endpoint).delete()
    Delivery.objects.filter(endpoint=endpoint).delete()


@contextmanager
def _locked(endpoint: WebhookEndpoint) -> Iterator[WebhookEndpoint]:
    """Lock the endpoint's row for a change, and refresh the caller's object afterwards."""
    with transaction.atomic():
        row = WebhookEndpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
        yield row
    for field in WebhookEndpoint._meta.concrete_fields:
        setattr(endpoint, field.attname, getattr(row, field.attname))


def _disable(endpoint: WebhookEndpoint, reason: str) -> None:
    endpoint.enabled = False
    endpoint.disabled_at = timezone.now()
    endpoint.disabled_reason = reason[:300]
    endpoint.save(update_fields=["enabled", "disabled_at", "disabled_reason"])


def _new_secret() -> tuple[str, bytes]:
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    return secret, encryption.encrypt(secret.encode())


# -- Messages ----------------------------------------------------------------------------------


def queue(user: MemoryUser, events: Sequence[AlertEvent]) -> None:
    """Write the messages of these events, in the transaction that has just numbered them.

    It runs under the lock of the workspace's counter, so no endpoint is deleted meanwhile.
    """
    endpoints = list(WebhookEndpoint.objects.filter(workspace=user.workspace_id, enabled=True))
    told = _told(endpoints, events)
    named = rejections.named_by(events) if endpoints else {}
    if endpoints:
        prefetch_related_objects(events, "alert__duplicates")
    deliveries = [
        Delivery(
            endpoint=endpoint,
            event=event,
            alert=event.alert,
            seq=event.seq,
            type=_type(event),
            payload=message(user, event, named.get(event.pk, ())),
        )
        for endpoint in endpoints
        for event in events
        if _wants(endpoint, event, told)
    ]
    Delivery.objects.bulk_create(deliveries)
    for endpoint_pk in dict.fromkeys(delivery.endpoint_id for delivery in deliveries):
        hints.hint(TASK, str(endpoint_pk), workspace_pk=user.workspace_id)


def counts(endpoints: QuerySet[WebhookEndpoint]) -> QuerySet[WebhookEndpoint]:
    """Annotate each endpoint with its waiting (`pending`) and permanently failed messages."""

    def number(state: DeliveryState) -> Coalesce:
        found = Delivery.objects.filter(endpoint=OuterRef("pk"), state=state).order_by()
        return Coalesce(Subquery(found.values("endpoint").annotate(n=Count("pk")).values("n")), 0)

    states = (DeliveryState.PENDING, DeliveryState.GIVEN_UP)
    return endpoints.annotate(**{state.value: number(state) for state in states})


def send_test(endpoint: WebhookEndpoint) -> Delivery:
    """Send a test message, once; raises Disabled."""
    with _locked(endpoint) as locked:
        if not locked.enabled:
            raise Disabled("This endpoint is disabled: enable it, then test it.")
        locked.not_before = None
        locked.save(update_fields=["not_before"])
        delivery = Delivery.objects.create(
            endpoint=locked,
            type=PING,
            payload=_payload(PING, timezone.now(), {"endpoint_id": str(locked.pk)}),
        )
        hints.hint(TASK, str(locked.pk), workspace_pk=locked.workspace_id)
    return delivery


def replay(delivery: Delivery) -> None:
    """Send the message again, with the same id and body.

    Raises DeliveryPending if it is still on its way, or was redacted.
    """
    if not delivery.payload:
        raise DeliveryPending(
            "What this message told of was redacted since: it cannot be sent again."
        )
    settled = Delivery.objects.filter(pk=delivery.pk)
    if not _replay(settled, delivery.endpoint):
        raise DeliveryPending("This message is on its way; there is nothing to send again yet.")
    delivery.refresh_from_db()


def try_again(given_up: QuerySet[Delivery]) -> int:
    """Send permanently failed messages again; return how many could be."""
    endpoints = WebhookEndpoint.objects.filter(pk__in=given_up.order_by().values("endpoint"))
    return sum(_replay(given_up.filter(endpoint=endpoint), endpoint) for endpoint in endpoints)


def replay_given_up(endpoint: WebhookEndpoint, since: datetime.datetime) -> int:
    """Send messages written since then that failed permanently; return how many there are."""
    given_up = endpoint.deliveries.filter(state=DeliveryState.GIVEN_UP, created_at__gte=since)
    return _replay(given_up.exclude(type=PING), endpoint)


def _replay(deliveries: QuerySet[Delivery], endpoint: WebhookEndpoint) -> int:
    with _locked(endpoint) as locked:
        locked.not_before = None
        locked.save(update_fields=["not_before"])
        told = deliveries.exclude(payload="")  # empty once it was redacted
        number = told.exclude(state=DeliveryState.PENDING).update(
            state=DeliveryState.PENDING,
            attempts=0,
            run_after=timezone.now(),
            settled_at=None,
            last_error="",
            dead_since=None,
        )
        hints.hint(TASK, str(locked.pk), workspace_pk=locked.workspace_id)
    return number


def redact(user: MemoryUser, deliveries: Collection[UUID] | QuerySet[Delivery, UUID]) -> None:
    """Redact messages. Those that wait get a new body with the current state.

    A worker that is sending one now sends it again. Call it after alerts and outcomes were redacted
    and events recorded, since messages are locked last.
    """
    rows = Delivery.objects.filter(pk__in=deliveries)
    DeliveryAttempt.objects.filter(delivery__in=deliveries).update(answer="", error="")
    rows.exclude(state=DeliveryState.PENDING).update(payload="", dead_since=None)
    rows.update(last_error="")
    told = rows.filter(state=DeliveryState.PENDING).select_related("event__alert")
    pending = list(told.prefetch_related("event__alert__duplicates"))
    named = rejections.named_by(delivery.event for delivery in pending if delivery.event)
    for delivery in pending:
        assert delivery.event is not None
        Delivery.objects.filter(pk=delivery.pk).update(
            payload=message(user, delivery.event, named.get(delivery.event.pk, ())),
            token=F("token") + 1,
            lease_owner="",
            lease_expires_at=None,
        )


def withdraw(deliveries: Collection[UUID] | QuerySet[Delivery, UUID]) -> None:
    """Redact messages, and send none of those that wait. Call it last, too."""
    rows = Delivery.objects.filter(pk__in=deliveries)
    DeliveryAttempt.objects.filter(delivery__in=deliveries).update(answer="", error="")
    rows.filter(state=DeliveryState.PENDING).update(
        state=DeliveryState.GIVEN_UP,
        settled_at=timezone.now(),
        token=F("token") + 1,
        lease_owner="",
        lease_expires_at=None,
    )
    rows.update(payload="", last_error="", dead_since=None)


def before(delivery: Delivery) -> Delivery | None:
    """Return the message of the same alert that this one has to wait for, if there is one."""
    if delivery.state != DeliveryState.PENDING or delivery.alert_id is None:
        return None
    of_alert = Delivery.objects.filter(endpoint=delivery.endpoint_id, alert=delivery.alert_id)
    earlier = of_alert.filter(state=DeliveryState.PENDING, seq__lt=delivery.seq)
    return earlier.order_by("seq").first()


def _told(endpoints: Sequence[WebhookEndpoint], events: Sequence[AlertEvent]) -> set[Told]:
    """Return which endpoints were sent which of these alerts, now below their severity."""
    choosy = [endpoint for endpoint in endpoints if endpoint.least_severity != Severity.INFO]
    others = (AlertEventKind.OPENED, AlertEventKind.REJECTED)
    alerts = {event.alert_id for event in events if event.kind not in others}
    if not choosy or not alerts:
        return set()
    found = Delivery.objects.filter(endpoint__in=choosy, alert__in=alerts)
    return set(found.order_by().values_list("endpoint", "alert").distinct())


def _wants(endpoint: WebhookEndpoint, event: AlertEvent, told: Collection[Told]) -> bool:
    """Return whether the endpoint gets the event.

    An alert that was once severe enough is reported to its end; otherwise it would seem open.
    """
    alert = event.alert
    if endpoint.event_types and event.kind not in endpoint.event_types:
        return False
    return alert is None or (
        alert.kind in endpoint.alert_kinds
        and (
            severity_rank(alert.severity) >= severity_rank(endpoint.least_severity)
            or (endpoint.pk, event.alert_id) in told
            or event.kind == AlertEventKind.ERASED  # the earlier messages are gone
        )
    )


def _type(event: AlertEvent) -> str:
    return AlertEventKind(event.kind).event_type


def _payload(kind: str, at: datetime.datetime, data: Mapping[str, Any]) -> str:
    message = {"type": kind, "timestamp": _moment(at), "data": data}
    # ASCII escapes, so that no proxy can alter what was signed.
    return json.dumps(message, separators=(",", ":"))


def message(user: MemoryUser, event: AlertEvent, named: Sequence[Rejected]) -> str:
    """Return the message of an event, with its alert as it is now: one line of JSON.

    `named` are the rejected entries to describe: see `rejections.named_by`.
    """
    return _payload(_type(event), event.at, _data(user, event, named))


def _data(user: MemoryUser, event: AlertEvent, named: Sequence[Rejected]) -> dict[str, Any]:
    step = {
        "seq": event.seq,
        "kind": str(event.kind),
        "at": _moment(event.at),
        "actor": event.actor,
    }
    if event.alert is None:
        rejected = rejections.describe(event, named)
        return {"user_id": user.user_id, "event": step, "rejected": rejected}
    return {
        "user_id": user.user_id,
        "event": {**step, "detail": event.detail},
        "alert": _alert(event.alert),
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "id": str(alert.pk),
        "kind": str(alert.kind),
        "state": str(alert.state),
        "severity": str(alert.severity),
        "message": alert.message,
        "constraint": alert.constraint,
        "causes": [
            {
                "constraint": cause.constraint,
                "message": cause.message,
                "fingerprint": cause.fingerprint,
            }
            for cause in alert.causes
        ],
        "fingerprint": alert.fingerprint,
        "evidence": alert.evidence[:MAX_EVIDENCE],
        "entries": alert.entries[:MAX_ENTRIES],
        "complete": len(alert.evidence) <= MAX_EVIDENCE and len(alert.entries) <= MAX_ENTRIES,
        "opened_at": _moment(alert.opened_at),
        "changed_at": _moment(alert.changed_at),
        "resolved_at": _moment(alert.resolved_at) if alert.resolved_at else None,
    }


def _moment(at: datetime.datetime) -> str:
    return at.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")


# -- Sending -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """The result of one call of an endpoint; without an error, it has accepted the message."""

    at: datetime.datetime
    seconds: float
    status: int | None
    error: str
    address: str | None = None
    answer: str = ""
    retry_after: str = ""


def waiting(now: datetime.datetime) -> QuerySet[WebhookEndpoint]:
    """Select the endpoints to which something can be sent."""
    due = _deliverable(now).filter(endpoint=OuterRef("pk"))
    return _open(WebhookEndpoint.objects.all(), now).filter(Exists(due))


def claim(endpoint_pk: str) -> Delivery | None:
    """Claim the next message for the endpoint, with its endpoint; None if none may be sent now.

    The settings limit the calls at a time and in a minute. An endpoint that has just failed is
    called once at a time, so one that hangs occupies one thread of a worker.
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


def signed(delivery: Delivery, at: datetime.datetime) -> dict[str, str]:
    """Return the headers of a call at that moment.

    After a rotation it is signed with both secrets, and verifies with either. Raises
    encryption.EncryptionError if the secret cannot be read.
    """
    endpoint = delivery.endpoint
    stored = [endpoint.secret]
    until = endpoint.previous_secret_until
    if endpoint.previous_secret is not None and until is not None and at < until:
        stored.append(endpoint.previous_secret)
    return {
        "Content-Type": "application/json",
        "User-Agent": "uac-webhooks/1",
        "webhook-id": delivery.message_id,
        "webhook-timestamp": str(math.floor(at.timestamp())),
        "webhook-signature": " ".join(
            Webhook(encryption.decrypt(bytes(secret)).decode()).sign(
                delivery.message_id, at.astimezone(datetime.UTC), delivery.payload
            )
            for secret in stored
        ),
    }


def record(delivery: Delivery, attempt: Attempt) -> None:
    """Store the result of a call and its consequences; raises LeaseLost."""
    with transaction.atomic():
        rows = WebhookEndpoint.objects.select_for_update(no_key=True)
        endpoint = rows.filter(pk=delivery.endpoint_id).first()
        if endpoint is None:
            raise leases.LeaseLost(f"{delivery}: its endpoint was deleted")
        leases.check(delivery)
        DeliveryAttempt.objects.create(
            delivery=delivery,
            at=attempt.at,
            seconds=attempt.seconds,
            address=attempt.address,
            status=attempt.status,
            error=attempt.error,
            answer=attempt.answer,
        )
        if attempt.error:
            _failed(delivery, endpoint, attempt)
        else:
            _settle(delivery, DeliveryState.DELIVERED)
            if endpoint.failing_since is not None:
                endpoint.failing_since, endpoint.failures, endpoint.not_before = None, 0, None
                endpoint.save(update_fields=["failing_since", "failures", "not_before"])


def _failed(delivery: Delivery, endpoint: WebhookEndpoint, attempt: Attempt) -> None:
    now = timezone.now()
    asked = _asked(attempt.retry_after, now)
    if delivery.type == PING:
        _settle(delivery, DeliveryState.GIVEN_UP, attempt.error)
        return
    endpoint.failures += 1
    endpoint.failing_since = endpoint.failing_since or attempt.at
    doubled = datetime.timedelta(seconds=2 ** min(endpoint.failures - PATIENCE, 10))
    pause = min(doubled, LONGEST_PAUSE) if endpoint.failures >= PATIENCE else datetime.timedelta()
    endpoint.not_before = now + max(pause, min(asked, LONGEST_PAUSE))
    endpoint.save(update_fields=["failures", "failing_since", "not_before"])

    waits = settings.UAC_WEBHOOK_RETRY_SECONDS
    if attempt.status == GONE:
        _disable(endpoint, "It answered 410 Gone.")
        leases.fail(delivery, attempt.error)
    elif delivery.attempts > len(waits):
        _settle(delivery, DeliveryState.GIVEN_UP, attempt.error)
    else:
        # Jitter of 10 %, so that messages that failed together are not retried together.
        drawn = random.uniform(0.9, 1.1)  # noqa: S311  # nosec B311 # no secret
        wait = waits[delivery.attempts - 1] * drawn
        again = now + max(datetime.timedelta(seconds=wait), asked)
        leases.write(
            delivery,
            run_after=again,
            last_error=attempt.error,
            lease_owner="",
            lease_expires_at=None,
        )
    limit = datetime.timedelta(days=settings.UAC_WEBHOOK_DISABLE_DAYS)
    if endpoint.enabled and now - endpoint.failing_since >= limit:
        since = f"{endpoint.failing_since:%Y-%m-%d %H:%M} UTC"
        _disable(endpoint, f"It has answered nothing but errors since {since}: {attempt.error}")
        logger.warning("webhook_disabled", endpoint=str(endpoint.pk))


def _settle(delivery: Delivery, state: DeliveryState, error: str = "") -> None:
    now = timezone.now()
    is_lost = state == DeliveryState.GIVEN_UP and delivery.type != PING
    leases.write(
        delivery,
        state=state,
        settled_at=now,
        dead_since=now if is_lost else None,
        last_error=error,
        lease_owner="",
        lease_expires_at=None,
    )


def _asked(retry_after: str, now: datetime.datetime) -> datetime.timedelta:
    """Return the wait that a receiver asks for: seconds, or an HTTP date."""
    text = retry_after.strip()
    try:
        if text.isdecimal():
            asked = datetime.timedelta(seconds=int(text[:9]))
        else:
            asked = parsedate_to_datetime(text) - now
    except (TypeError, ValueError):
        return datetime.timedelta()
    return min(max(asked, datetime.timedelta()), LONGEST_RETRY_AFTER)


def _open(
    endpoints: QuerySet[WebhookEndpoint], now: datetime.datetime
) -> QuerySet[WebhookEndpoint]:
    return endpoints.filter(Q(not_before=None) | Q(not_before__lte=now), enabled=True)


def sendable(now: datetime.datetime) -> QuerySet[Delivery]:
    """Select the messages that may be sent now."""
    endpoints = _open(WebhookEndpoint.objects.all(), now)
    return _deliverable(now).filter(endpoint__in=endpoints)


def _deliverable(now: datetime.datetime) -> QuerySet[Delivery]:
    """Select the pending messages that no earlier message of the same alert blocks."""
    pending = Delivery.objects.filter(state=DeliveryState.PENDING)
    earlier = pending.filter(
        endpoint=OuterRef("endpoint"), alert=OuterRef("alert"), seq__lt=OuterRef("seq")
    )
    return pending.filter(leases.free(now)).filter(~Exists(earlier))


def purge(limit: int) -> int:
    """Delete the oldest messages that were settled long ago, `limit` at most."""
    old = timezone.now() - datetime.timedelta(days=settings.UAC_WEBHOOK_LOG_DAYS)
    settled = Delivery.objects.filter(settled_at__lt=old).order_by("settled_at")
    with transaction.atomic():
        # Locked, since one may be replayed meanwhile: then it is on its way.
        rows = settled.select_for_update(skip_locked=True)
        oldest = list(rows.values_list("pk", flat=True)[:limit])
        if oldest:
            Delivery.objects.filter(pk__in=oldest).delete()
    return len(oldest)


def validate_server_settings() -> dict[str, str]:
    """Return which of the settings are wrong, and what is wrong with them, by their names."""
    found: dict[str, str] = {}
    try:
        destinations.allowed_networks()
    except ValueError as error:
        found["UAC_WEBHOOK_ALLOWED_NETWORKS"] = f"A network is written as 10.0.0.0/8: {error}."
    waits: Collection[float] = settings.UAC_WEBHOOK_RETRY_SECONDS
    if not waits or not all(0 <= wait <= 7 * 86400 for wait in waits):
        found["UAC_WEBHOOK_RETRY_SECONDS"] = "Give seconds, each from 0 to a week."
    return found
