"""Structured logs: the line format, for our own loggers and for libraries' loggers."""

import io
import traceback
from collections.abc import MutableMapping
from typing import Any

import psycopg
import structlog
from django.db.utils import Error

from memory.kernel import tracing


def _add_trace(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the id of the current trace to a log line, if tracing is enabled."""
    if trace := tracing.trace_id():
        event["trace_id"] = trace
    return event


def format_traceback(exc_info: structlog.typing.ExcInfo) -> str:
    """Return the traceback without the database's error messages, which may quote values.

    Each message is replaced with its SQLSTATE and, if there is one, the name of the violated
    constraint.
    """
    stream = io.StringIO()
    traceback.print_exception(*exc_info, file=stream)
    text = stream.getvalue().rstrip("\n")
    error: BaseException | None = exc_info[1]
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, Error | psycopg.Error) and str(error):
            text = text.replace(str(error), _safe_message(error))
        error = error.__cause__ or error.__context__
    return text


def _safe_message(error: Error | psycopg.Error) -> str:
    source = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(source, psycopg.Error):
        return "(not logged)"
    parts = [f"SQLSTATE {source.sqlstate}" if source.sqlstate else "(not logged)"]
    return ", ".join([*parts, *filter(None, [source.diag.constraint_name])])


PROCESSORS: list[structlog.types.Processor] = [
    structlog.contextvars.merge_contextvars,
    _add_trace,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.ExceptionRenderer(format_traceback),
]


def configure() -> None:
    """Send structlog events through the standard library's handlers, as set up in `LOGGING`."""
    structlog.configure(
        processors=[*PROCESSORS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
