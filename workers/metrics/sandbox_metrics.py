"""Prometheus metrics for sandboxes: requests, recorded as they happen, and the pools' contents."""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memory.kernel import tracing
from workers.sandbox.results import SandboxError

if TYPE_CHECKING:
    from workers.sandbox.pool import Pool

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

# Histogram buckets in seconds, from a millisecond to the longest time limit for a request.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

disable_created_metrics()  # type: ignore[no-untyped-call]

CLAIM_SECONDS = Histogram(
    "uac_sandbox_claim_seconds", "Time from claiming a sandbox to getting one.", buckets=BUCKETS
)
START_SECONDS = Histogram(
    "uac_sandbox_start_seconds", "Time from creating a sandbox until it is ready.", buckets=BUCKETS
)
START_FAILURES = Counter("uac_sandbox_start_failures", "Sandboxes that failed to start.")
REQUEST_SECONDS = Histogram(
    "uac_sandbox_request_seconds",
    "Time from sending a request to a sandbox until the response.",
    ["operation"],
    buckets=BUCKETS,
)
REQUESTS = Counter(
    "uac_sandbox_requests",
    "Requests to sandboxes, by outcome and whether the infrastructure is to blame.",
    ["operation", "outcome", "infrastructure"],
)
USABLE = Gauge(
    "uac_sandbox_usable", "1 while the engine responds; at 0, other workers take over the work."
)


def measured(
    operation: str,
) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """Return a decorator that records the duration and outcome of requests for this operation."""
    seconds = REQUEST_SECONDS.labels(operation)

    def decorate(request: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
        @functools.wraps(request)
        def recorded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
            started = time.perf_counter()
            outcome, infrastructure = "interrupted", False
            try:
                with tracing.span(f"sandbox {operation}"):
                    answer = request(*args, **kwargs)
                outcome = "ok"
            except SandboxError as error:
                outcome, infrastructure = error.outcome, error.infrastructure
                raise
            finally:
                seconds.observe(time.perf_counter() - started)
                REQUESTS.labels(operation, outcome, str(infrastructure).lower()).inc()
            return answer

        return recorded

    return decorate


ABOUT = Info("uac_sandbox", "Runner and image of this worker's sandboxes.")


def register(
    registry: CollectorRegistry, pools: Callable[[], Iterable["Pool"]], about: Mapping[str, str]
) -> None:
    """Register the metrics for the pools; `about` contains the labels of `uac_sandbox_info`."""
    ABOUT.info(dict(about))
    registry.register(Pools(pools))


class Pools(Collector):
    """A collector that reads the state and counters of this process's pools on each scrape."""

    def __init__(self, pools: Callable[[], Iterable["Pool"]]) -> None:
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
