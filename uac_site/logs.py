"""Structured logs: how a line is built, for our own loggers and for those of the libraries."""

from collections.abc import MutableMapping
from typing import Any

import structlog

from memory import tracing


def _add_trace(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Name the trace that the line belongs to, where there are traces."""
    if trace := tracing.trace_id():
        event["trace_id"] = trace
    return event


PROCESSORS: list[structlog.types.Processor] = [
    structlog.contextvars.merge_contextvars,
    _add_trace,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def configure() -> None:
    """Send structlog's events through the standard library's handlers of `LOGGING`."""
    structlog.configure(
        processors=[*PROCESSORS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
