"""Prometheus metrics for each workspace's load: rejected requests and waiting tasks.

The metrics cover the whole server. Labels identify workspaces by their public IDs; no label
identifies a user.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from memory.kernel.admission import refusals
from memory.operations import workload


def _refused() -> Iterator[Metric]:
    refused = CounterMetricFamily(
        "uac_refused",
        "Requests rejected because of their workspace's rate limit or quota.",
        labels=["workspace", "reason"],
    )
    for workspace, reason, number in refusals.counters():
        refused.add_metric([workspace, reason], number)
    yield refused


def _waiting() -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "uac_waiting",
        "Waiting or running work by workspace; kinds without any such work are absent.",
        labels=["workspace", "kind"],
    )
    for workspace, kind, number in workload.waiting():
        waiting.add_metric([workspace, kind], number)
    yield waiting


READS = (_refused, _waiting)
