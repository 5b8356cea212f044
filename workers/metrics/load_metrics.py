"""Prometheus metrics for the load that each workspace causes: rejected requests and waiting work.

The figures cover the whole server. Labels name workspaces by their public ids; no label names a
user.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from memory.admission import refusals, usage
from workers.metrics.reading_metrics import Read


def register(registry: CollectorRegistry) -> None:
    """Register the metrics, to be served along with this process's own."""
    registry.register(Read(_refused, _waiting))


def _refused() -> Iterator[Metric]:
    refused = CounterMetricFamily(
        "uac_refused",
        "Requests rejected because of their workspace's rate limit or quota.",
        labels=["workspace", "reason"],
    )
    for workspace, reason, number in refusals.counted():
        refused.add_metric([workspace, reason], number)
    yield refused


def _waiting() -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "uac_waiting",
        "A workspace's work that is waiting or running; kinds without any are absent.",
        labels=["workspace", "kind"],
    )
    for workspace, kind, number in usage.waiting():
        waiting.add_metric([workspace, kind], number)
    yield waiting
