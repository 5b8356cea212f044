"""Prometheus metrics for the pools of sandboxes, read on each scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from workers.sandbox.pool import Pool

ABOUT = Info("uac_sandbox", "Runner and image of this worker's sandboxes.")


def register(
    registry: CollectorRegistry, pools: Callable[[], Iterable[Pool]], about: Mapping[str, str]
) -> None:
    """Register the metrics for the pools; `about` contains the labels of `uac_sandbox_info`."""
    ABOUT.info(dict(about))
    registry.register(Pools(pools))


class Pools(Collector):
    """A collector that reads the state and counters of this process's pools on each scrape."""

    def __init__(self, pools: Callable[[], Iterable[Pool]]) -> None:
        self._pools = pools

    def describe(self) -> Iterable[Metric]:
        """Describe nothing in advance, so that registering the collector reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, totalled over all pools."""
        sandboxes = GaugeMetricFamily(
            "uac_sandbox_pool_sandboxes",
            "Existing sandboxes, by state and, where relevant, hash seed.",
            labels=["state", "hash_seed"],
        )
        claims = CounterMetricFamily(
            "uac_sandbox_claims", "Claims on sandboxes, by what the pool had.", labels=["found"]
        )
        destroyed = CounterMetricFamily(
            "uac_sandbox_destroyed", "Sandboxes destroyed, by reason.", labels=["reason"]
        )
        for pool in self._pools():
            for (state, hash_seed), number in pool.census().items():
                sandboxes.add_metric([state, hash_seed], number)
            counts = pool.counts
            for outcome, number in (
                ("resident", counts.resident),
                ("fresh", counts.hits),
                ("nothing", counts.misses),
            ):
                claims.add_metric([outcome], number)
            for reason, number in list(counts.destroyed.items()):
                destroyed.add_metric([reason.replace(" ", "_")], number)
        yield from (sandboxes, claims, destroyed)
