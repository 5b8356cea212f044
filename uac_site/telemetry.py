"""Metrics and traces for HTTP requests to the web process: count, outcome and duration."""

import os
import time
from collections.abc import Callable, Iterable

from django.http import HttpRequest, HttpResponseBase
from opentelemetry.trace import SpanKind, Status, StatusCode
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from memory.kernel import tracing
from uac_site.request_log import route_of
from workers.metrics import serving
from workers.sandbox.metrics import BUCKETS

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

REQUESTS = Counter(
    "uac_http_requests",
    "Requests, by the status of the response.",
    ["method", "route", "status"],
    registry=None,
)
SECONDS = Histogram(
    "uac_http_request_seconds",
    "Time from a request to its response, or to the start of a streamed response.",
    ["method", "route"],
    buckets=BUCKETS,
    registry=None,
)


class Telemetry:
    """The outermost middleware, which counts and times each request and traces it as a span."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Handle the request and return the response."""
        started = time.perf_counter()
        method = request.method if request.method in METHODS else "other"
        assert method is not None
        with tracing.span(method, kind=SpanKind.SERVER, parent=_lower(request)) as span:
            response = self._get_response(request)
            route = route_of(request)
            span.update_name(f"{method} {route}")
            span.set_attribute("http.request.method", method)
            span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                span.set_status(Status(StatusCode.ERROR))
        REQUESTS.labels(method, route, str(response.status_code)).inc()
        SECONDS.labels(method, route).observe(time.perf_counter() - started)
        return response


def _lower(request: HttpRequest) -> dict[str, str]:
    """Return the headers that may carry the caller's trace context, with lowercase names."""
    names = ("traceparent", "tracestate")
    return {name: request.headers[name] for name in names if name in request.headers}


def registry() -> CollectorRegistry:
    """Return a registry with this process's own metrics and the request metrics.

    If PROMETHEUS_MULTIPROC_DIR is set, each process reports the requests handled by all processes
    that share that directory.
    """
    registry = serving.own_process()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry.register(_OfAllProcesses())
    else:
        registry.register(REQUESTS)
        registry.register(SECONDS)
    return registry


class _OfAllProcesses(Collector):
    def collect(self) -> Iterable[Metric]:
        together = MultiProcessCollector(CollectorRegistry())  # type: ignore[no-untyped-call]
        metrics: Iterable[Metric] = together.collect()  # type: ignore[no-untyped-call]
        return [one for one in metrics if one.name.startswith("uac_http_")]
