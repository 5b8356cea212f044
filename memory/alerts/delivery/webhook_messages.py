"""Webhook messages in the Standard Webhooks format: an event and its alert or entries, signed."""

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from standardwebhooks.webhooks import Webhook

from memory.alerts import entry_events
from memory.alerts.entry_events import Named
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind
from memory.alerts.models.webhooks import Delivery
from memory.kernel import encryption
from memory.kernel.models.users import MemoryUser

PING = "ping"
# Maximum number of evidence records, and of entries, listed in a message about an alert.
MAX_EVIDENCE = 100
MAX_ENTRIES = 1000


def event_type_of(event: AlertEvent) -> str:
    """Return the message type for this event."""
    return AlertEventKind(event.kind).event_type


def encode_payload(kind: str, at: datetime.datetime, data: Mapping[str, Any]) -> str:
    """Return a message's body as one line of JSON."""
    message = {"type": kind, "timestamp": _moment(at), "data": data}
    # Keep the JSON ASCII-only, so that no proxy alters the signed bytes.
    return json.dumps(message, separators=(",", ":"))


def message(user: MemoryUser, event: AlertEvent, named: Sequence[Named]) -> str:
    """Return the message about an event, with the current state of its alert, as one line of JSON.

    `named` lists the entries to describe, if any: see `entry_events.named_by`.
    """
    return encode_payload(event_type_of(event), event.at, _data(user, event, named))


def signed_headers(delivery: Delivery, at: datetime.datetime) -> dict[str, str]:
    """Return the headers for sending the message at time `at`, including its signature.

    For a while after a secret is rotated, messages are signed with both secrets, so the receiver
    can verify them with either. Raises encryption.EncryptionError if a secret cannot be decrypted.
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


def _data(user: MemoryUser, event: AlertEvent, named: Sequence[Named]) -> dict[str, Any]:
    step = {
        "seq": event.seq,
        "kind": str(event.kind),
        "at": _moment(event.at),
        "actor": event.actor,
    }
    if event.alert is None:
        entries = entry_events.describe(event, named)
        return {"user_id": user.user_id, "event": step, str(event.kind): entries}
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
