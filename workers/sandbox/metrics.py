"""Prometheus metrics for sandboxes, recorded as claims, starts and requests happen."""

import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from memory.kernel import tracing
from workers.sandbox.results import SandboxError

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
