"""Traces: a request's path through the processes, for an OpenTelemetry collector.

Tracing costs nothing unless OTEL_EXPORTER_OTLP_ENDPOINT is set. All spans are created by our own
code: libraries with OpenTelemetry support might quote what people said, so this tracer is not
registered globally, where they would find it. A span may name a route, a task, a kind, an outcome
or an error type, but never a person.
"""

import functools
import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# The variables that hold the collector's address; for other variables, see the OpenTelemetry
# Protocol Exporter specification.
VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

_propagator = TraceContextTextMapPropagator()
_tracer: Tracer | None = None


def validate_server_settings() -> dict[str, str]:
    """Map the name of each invalid environment variable to what is wrong with it."""
    named = [name for name in VARIABLES if os.environ.get(name)]
    try:
        if named:
            importlib.import_module(EXPORTER)
    except ImportError:
        message = (
            "The tracing packages are missing: install the extra `traces`, or unset this variable."
        )
        return dict.fromkeys(named, message)
    return {}


@functools.cache
def start(service: str) -> None:
    """From now on, send this process's spans to the collector if one is configured.

    `service` is the kind of process; spans are sent under that name unless OTEL_SERVICE_NAME is
    set. OTEL_TRACES_SAMPLER determines the sampling.
    """
    global _tracer
    if not any(os.environ.get(name) for name in VARIABLES):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or f"uac-{service}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = provider.get_tracer("uac")


@contextmanager
def span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Mapping[str, str] | None = None,
    **attributes: str | int,
) -> Iterator[Span]:
    """Trace the block as a span; its parent is `parent` or, failing that, the enclosing span.

    `parent` contains a request's or a hint's headers. If the block raises an exception, the span is
    marked with the exception's type.
    """
    if _tracer is None:
        yield INVALID_SPAN
        return
    within = _propagator.extract(parent) if parent else context.get_current()
    one = _tracer.start_span(name, within, kind, attributes)
    with use_span(one, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield one
        except BaseException as error:  # including exceptions that terminate the process
            one.set_attribute("error.type", type(error).__name__)
            one.set_status(Status(StatusCode.ERROR))
            raise


def carried() -> dict[str, str]:
    """Return the headers that let another process continue the current trace."""
    headers: dict[str, str] = {}
    if _tracer is not None:
        _propagator.inject(headers)
    return headers


def trace_id() -> str | None:
    """Return the current trace id in the form shown by collectors, or None."""
    span_context = get_current_span().get_span_context()
    return (
        format(span_context.trace_id, "032x")
        if _tracer is not None and span_context.is_valid
        else None
    )
