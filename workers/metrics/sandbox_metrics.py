"""Prometheus metrics of a worker, on its own HTTP port; in this module: of its sandboxes.

Durations and outcomes are recorded here; figures that the pools count anyway are read from them on
each scrape. No label names a user.
"""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memory.operations import tracing
from workers.sandbox.interface import SandboxError

if TYPE_CHECKING:
    from workers.sandbox.pool import Pool

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

# Buckets from a millisecond to the longest deadline of a request.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

disable_created_metrics()  # type: ignore[no-untyped-call]

CLAIM_SECONDS = Histogram(
    "uac_sandbox_claim_seconds", "From asking for a sandbox to having one.", buckets=BUCKETS
)
START_SECONDS = Histogram(
    "uac_sandbox_start_seconds", "From creating a sandbox to its being ready.", buckets=BUCKETS
)
START_FAILURES = Counter("uac_sandbox_start_failures", "Sandboxes that did not start.")
REQUEST_SECONDS = Histogram(
    "uac_sandbox_request_seconds",
    "From a request to a sandbox to its answer.",
    ["operation"],
    buckets=BUCKETS,
)
REQUESTS = Counter(
    "uac_sandbox_requests",
    "Requests to sandboxes, by what came of them and whether the machine is to blame.",
    ["operation", "outcome", "infrastructure"],
)
USABLE = Gauge(
    "uac_sandbox_usable", "1 while the engine answers; with 0 the worker leaves its work to others."
)
ABOUT = Info("uac_sandbox", "What sandboxes are made of here.")


def measured(
    operation: str,
) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """Return a decorator that records the duration and outcome of a request of this kind."""
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


def serve(address: str, port: int, registry: CollectorRegistry) -> None:
    """Serve the metrics from now on, in a separate thread; raise OSError if the port is taken."""
    start_http_server(port, address, registry)


def own_process() -> CollectorRegistry:
    """Return a registry of the metrics that every process has, without sandboxes."""
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return registry


def register(
    registry: CollectorRegistry, pools: Callable[[], Iterable["Pool"]], about: Mapping[str, str]
) -> None:
    """Register the metrics of the pools; `about` are the labels of `uac_sandbox_info`."""
    ABOUT.info(dict(about))
    registry.register(Pools(pools))


class Pools(Collector):
    """State and counters of the pools of this process, read on each scrape."""

    def __init__(self, pools: Callable[[], Iterable["Pool"]]) -> None:
        self._pools = pools

    def describe(self) -> Iterable[Metric]:
        """Describe nothing in advance, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all pools together."""
        sandboxes = GaugeMetricFamily(
            "uac_sandbox_pool_sandboxes",
            "Sandboxes that there are, by state and, where it matters, hash seed.",
            labels=["state", "hash_seed"],
        )
        claims = CounterMetricFamily(
            "uac_sandbox_claims", "Sandboxes asked for, by what was there.", labels=["found"]
        )
        destroyed = CounterMetricFamily(
            "uac_sandbox_destroyed", "Sandboxes destroyed, by reason.", labels=["reason"]
        )
        for pool in self._pools():
            for (state, hash_seed), number in pool.census().items():
                sandboxes.add_metric([state, hash_seed], number)
            counts = pool.counts
            for found, number in (
                ("resident", counts.resident),
                ("virgin", counts.hits),
                ("nothing", counts.misses),
            ):
                claims.add_metric([found], number)
            for reason, number in list(counts.destroyed.items()):
                destroyed.add_metric([reason.replace(" ", "_")], number)
        yield from (sandboxes, claims, destroyed)
