"""Fixtures of the webhook tests: a server that may call this machine, and endpoints on it."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from cryptography.fernet import Fernet
from pytest_django.fixtures import Settings

from memory.alerts.delivery import webhook_endpoints
from memory.alerts.models.webhooks import Delivery, WebhookEndpoint
from memory.kernel.models.workspaces import Workspace
from workers import tasks

EndpointAt: TypeAlias = Callable[..., tuple[WebhookEndpoint, str]]

NOWHERE = "http://127.0.0.1:1999/hook"


@pytest.fixture(autouse=True)
def allowed_here(settings: Settings) -> None:
    settings.UAC_WEBHOOK_ALLOW_HTTP = True
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.UAC_WEBHOOK_TIMEOUT_SECONDS = 60.0  # but where a receiver hangs
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]


@pytest.fixture
def endpoint_at(workspace: Workspace) -> EndpointAt:
    """Create an endpoint with this URL; return it with its secret."""
    return lambda url, **fields: webhook_endpoints.create(workspace, url, **fields)


def send(endpoint: WebhookEndpoint) -> None:
    """Send everything that is due for the endpoint, as a worker would."""
    tasks.work("deliveries", str(endpoint.pk))


def send_when_due(endpoint: WebhookEndpoint) -> None:
    """Send the endpoint's waiting messages as if they were due."""
    due_now(endpoint)
    send(endpoint)


def due_now(endpoint: WebhookEndpoint) -> None:
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(not_before=None)
    for delivery in Delivery.objects.filter(endpoint=endpoint):
        Delivery.objects.filter(pk=delivery.pk).update(run_after=delivery.created_at)


def told(endpoint: WebhookEndpoint) -> list[tuple[Any, ...]]:
    """Return type and state of the endpoint's messages, in the order of their events."""
    rows = Delivery.objects.filter(endpoint=endpoint).order_by("seq")
    return list(rows.values_list("type", "state"))
