"""Prometheus metrics for webhooks, read from the delivery log on each scrape.

This way, the metrics cover the whole server. No label identifies a workspace or an endpoint.
"""

from collections.abc import Iterator

from django.db.models import Count, Min, Q
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from memory.alerts.models.webhooks import Delivery, DeliveryState, WebhookEndpoint


def _messages() -> Iterator[Metric]:
    """Yield the number of messages and endpoints by state, and the oldest pending message's age."""
    messages = GaugeMetricFamily(
        "uac_webhook_messages",
        "Messages in the delivery log, by state; held: their endpoint is disabled.",
        labels=["state"],
    )
    held = Q(state=DeliveryState.PENDING, endpoint__enabled=False)
    found = Delivery.objects.order_by().aggregate(
        held=Count("pk", filter=held),
        pending=Count("pk", filter=Q(state=DeliveryState.PENDING) & ~held),
        delivered=Count("pk", filter=Q(state=DeliveryState.DELIVERED)),
        given_up=Count("pk", filter=Q(state=DeliveryState.GIVEN_UP)),
        oldest=Min("created_at", filter=Q(state=DeliveryState.PENDING) & ~held),
    )
    for state in ("pending", "held", "delivered", "given_up"):
        messages.add_metric([state], found[state])
    age = (timezone.now() - found["oldest"]).total_seconds() if found["oldest"] else 0.0
    endpoints = GaugeMetricFamily(
        "uac_webhook_endpoints", "Webhook endpoints, by state.", labels=["state"]
    )
    counts = WebhookEndpoint.objects.order_by().aggregate(
        ok=Count("pk", filter=Q(enabled=True, failing_since=None)),
        failing=Count("pk", filter=Q(enabled=True, failing_since__isnull=False)),
        disabled=Count("pk", filter=Q(enabled=False)),
    )
    for state, number in counts.items():
        endpoints.add_metric([state], number)
    yield from (
        messages,
        endpoints,
        GaugeMetricFamily(
            "uac_webhook_oldest_seconds",
            "Age of the oldest pending message whose endpoint is enabled.",
            value=age,
        ),
    )


READS = (_messages,)
