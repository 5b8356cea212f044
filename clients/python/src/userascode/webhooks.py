"""Webhooks: whether a message comes from the server, and what it says."""

from collections.abc import Mapping
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from userascode.errors import UserAsCodeError


class InvalidSignature(UserAsCodeError):
    """The message was not sent by this endpoint's server, or is too old."""


def verify(secret: str, body: bytes | str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return a message that the server signed with the endpoint's secret.

    `headers` are those of the request, in any case. Raises InvalidSignature. Every attempt to
    deliver a message has the same `webhook-id` header: ignore those that you have processed.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        message: dict[str, Any] = Webhook(secret).verify(body, lower)
    except WebhookVerificationError as error:
        raise InvalidSignature(str(error)) from error
    return message
