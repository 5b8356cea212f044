"""A workspace's webhook endpoints: their URLs, secrets and state."""

import base64
import datetime
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.db import connection, transaction
from django.utils import timezone

from memory.alerts.models.alerts import EventCounter
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, DeliveryState, WebhookEndpoint
from memory.kernel import encryption
from memory.kernel.models.workspaces import Workspace
from memory.kernel.outgoing import destinations
from memory.kernel.work import hints

logger = structlog.get_logger(__name__)

MAX_ENDPOINTS = 20
SECRET_BYTES = 32
# How long messages are also signed with the previous secret after a rotation.
BOTH_SECRETS = datetime.timedelta(hours=24)
# Time limit in seconds for resolving the host name when an endpoint's URL is set.
LOOK_UP_SECONDS = 3.0


class TooManyEndpoints(Exception):
    """The workspace already has the maximum number of endpoints."""


def check_url(url: str) -> None:
    """Raise destinations.AddressRefused if the server would not call this URL.

    A host name that cannot be resolved now is accepted, since each call checks the URL again.
    """
    try:
        destinations.addresses(destinations.parse(url), LOOK_UP_SECONDS)
    except destinations.NotFound:
        logger.info("webhook_name_not_resolved")


def create(workspace: Workspace, url: str, **fields: Any) -> tuple[WebhookEndpoint, str]:
    """Create an endpoint and return it with its secret, which is shown only once.

    Raises destinations.AddressRefused if the server would not call the URL, TooManyEndpoints if the
    workspace has the maximum number, and encryption.EncryptionError if the server has no key to
    encrypt the secret with.
    """
    secret, stored = _new_secret()
    check_url(url)
    with transaction.atomic():
        Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
        if workspace.webhooks.count() >= MAX_ENDPOINTS:
            raise TooManyEndpoints(
                f"A workspace may have at most {MAX_ENDPOINTS} webhook endpoints: delete one."
            )
        endpoint = WebhookEndpoint.objects.create(
            workspace=workspace, url=url, secret=stored, **fields
        )
    return endpoint, secret


def change(endpoint: WebhookEndpoint, **fields: Any) -> None:
    """Change columns of the endpoint; changing `enabled` calls `enable` or `disable`.

    Unsent messages go to the new URL. Raises destinations.AddressRefused if the server would not
    call that URL.
    """
    enabled = fields.pop("enabled", endpoint.enabled)
    if fields.get("url", endpoint.url) != endpoint.url:
        check_url(fields["url"])
    with lock_endpoint(endpoint) as locked:
        for name, value in fields.items():
            setattr(locked, name, value)
        locked.save(update_fields=list(fields))
    if enabled and not endpoint.enabled:
        enable(endpoint)
    elif endpoint.enabled and not enabled:
        disable(endpoint, "Disabled manually.")


def rotate_secret(endpoint: WebhookEndpoint) -> str:
    """Give the endpoint a new secret and return it; the old one stays valid for BOTH_SECRETS."""
    secret, stored = _new_secret()
    with lock_endpoint(endpoint) as locked:
        locked.previous_secret, locked.secret = locked.secret, stored
        locked.previous_secret_until = timezone.now() + BOTH_SECRETS
        locked.save(update_fields=["secret", "previous_secret", "previous_secret_until"])
    return secret


def enable(endpoint: WebhookEndpoint) -> None:
    """Enable the endpoint, and queue its unsent messages to be sent immediately."""
    with lock_endpoint(endpoint) as locked:
        locked.enabled, locked.disabled_at, locked.disabled_reason = True, None, ""
        locked.failing_since, locked.failures, locked.not_before = None, 0, None
        locked.save()
        # Whoever enables an endpoint expects it to work again, so don't make its messages wait out
        # their backoff.
        waiting = locked.deliveries.filter(state=DeliveryState.PENDING)
        waiting.filter(run_after__gt=timezone.now()).update(run_after=timezone.now())
    hints.hint("deliveries", str(endpoint.pk), workspace_pk=endpoint.workspace_id)


def disable(endpoint: WebhookEndpoint, reason: str) -> None:
    """Disable the endpoint: unsent messages are kept, and no new messages are written."""
    with lock_endpoint(endpoint) as locked:
        mark_disabled(locked, reason)


def delete(endpoint: WebhookEndpoint) -> None:
    """Delete the endpoint with its delivery log; undelivered messages are lost.

    Rows are locked in the same order as everywhere else: the workspace's event counter, the
    endpoint, its messages.
    """
    with lock_endpoint(endpoint) as locked:
        mark_disabled(locked, "The endpoint is being deleted.")
        _delete_log(locked)
    with transaction.atomic():
        hold_events(endpoint)  # no new message may refer to the endpoint
        list(WebhookEndpoint.objects.select_for_update().filter(pk=endpoint.pk))
        _delete_log(endpoint)
        WebhookEndpoint.objects.filter(pk=endpoint.pk).delete()


def hold_events(endpoint: WebhookEndpoint) -> None:
    """Block other transactions from writing messages until the current one (if any) ends.

    A caller that deletes an endpoint in its own transaction calls this first, so that the event
    counter is locked before the endpoint.
    """
    if connection.in_atomic_block:
        list(EventCounter.objects.select_for_update().filter(workspace=endpoint.workspace_id))


def secret_of(endpoint_id: str) -> str | None:
    """Return an endpoint's secret; None if the endpoint was deleted or decryption fails."""
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
def lock_endpoint(endpoint: WebhookEndpoint) -> Iterator[WebhookEndpoint]:
    """Lock the endpoint's row for a change, and refresh the caller's object afterwards."""
    with transaction.atomic():
        row = WebhookEndpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
        yield row
    for field in WebhookEndpoint._meta.concrete_fields:
        setattr(endpoint, field.attname, getattr(row, field.attname))


def mark_disabled(endpoint: WebhookEndpoint, reason: str) -> None:
    """Save the endpoint as disabled; the caller must have locked its row."""
    endpoint.enabled = False
    endpoint.disabled_at = timezone.now()
    endpoint.disabled_reason = reason[:300]
    endpoint.save(update_fields=["enabled", "disabled_at", "disabled_reason"])


def _new_secret() -> tuple[str, bytes]:
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    return secret, encryption.encrypt(secret.encode())
