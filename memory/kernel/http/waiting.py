"""Requests that wait for a worker: how long, and how many at a time.

A waiting request ties up a thread in the web process. The number of such requests is capped, so
that a backlog of work can't starve appends of threads, and a single workspace can't take every
slot; further requests immediately get a `202` with the URL of the result.
"""

import re
import time
from collections.abc import Callable

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from memory.alerts import alert_events
from memory.alerts.models.alerts import Alert, AlertEvent
from memory.kernel.admission import request_slots
from memory.kernel.database.statements import Parameter, Statement
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work import hints
from memory.versions.models.runs import Run, RunStatus

WAIT = OpenApiParameter(
    "wait", float, description="Seconds to wait for the result before responding with 202."
)

# The columns that change during a run; requests waiting for the run reload them.
CHANGING = (
    *("status", "outcome", "output", "error", "stdout", "runner", "timings", "memory_bytes"),
    *("attempts", "started_at", "finished_at"),
)
_CHANGED = Statement(lambda: Run.objects.filter(pk=Parameter("pk")).order_by(), *CHANGING)
# How often, in seconds, a waiting request checks for events even if it gets no signal.
LOOK_SECONDS = 2.0
# Matches a number in JSON syntax.
_SECONDS = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")


def seconds(request: Request, default: float) -> float:
    """Parse `?wait=`; raises ValidationError unless it is between 0 and the configured maximum."""
    text = request.query_params.get("wait")
    if text is None:
        return min(default, float(settings.UAC_MAX_WAIT_SECONDS))
    value = float(text) if _SECONDS.fullmatch(text) else -1
    if not 0 <= value <= settings.UAC_MAX_WAIT_SECONDS:
        most = settings.UAC_MAX_WAIT_SECONDS
        raise ValidationError(
            {"wait": [f"Give a number of seconds from 0 to {most:g}, not {text[:100]!r}."]}
        )
    return value


def for_events(
    workspace: Workspace,
    after: int,
    alerts: QuerySet[Alert],
    rejected: QuerySet[AlertEvent] | None,
    limit: float,
) -> tuple[alert_events.EventPage, bool]:
    """Wait for events with numbers above `after` that are about `alerts` or in `rejected`.

    Waits at most `limit` seconds. Returns (page, admitted); `admitted` is False if the request
    would have had to wait but no slot was free.
    """
    deadline = time.monotonic() + limit
    page = alert_events.read(workspace, after, alerts, rejected)
    if page.events or limit <= 0:
        return page, True
    with (
        request_slots.WAITING.take(workspace.pk) as admitted,
        hints.events_signalled(workspace.pk) as wait,
    ):
        while admitted:
            # Read the feed again now that we receive signals, and then at intervals, because
            # signals may be lost.
            page = alert_events.read(workspace, page.next, alerts, rejected)
            left = deadline - time.monotonic()
            if page.events or left <= 0:
                break
            wait(min(left, LOOK_SECONDS))
    return page, admitted


def for_run(run: Run, limit: float) -> Run:
    """Wait up to `limit` seconds for the run to finish, and return it refreshed."""
    if limit > 0 and run.status != RunStatus.DONE:  # a repeated request's run may already be done
        with request_slots.WAITING.take(run.user.workspace_id) as admitted:
            if admitted:
                hints.wait_done(run.pk, limit)
        now = _CHANGED.first(pk=run.pk)
        if now is None:
            raise Run.DoesNotExist
        for name in CHANGING:
            setattr(run, name, getattr(now, name))
    return run


def until(settled: Callable[[], bool], limit: float, *, workspace_pk: int) -> None:
    """Poll `settled` at growing intervals until it returns true, for up to `limit` seconds."""
    deadline = time.monotonic() + limit
    interval = 0.02
    with request_slots.WAITING.take(workspace_pk) as admitted:
        while admitted and (left := deadline - time.monotonic()) > 0 and not settled():
            time.sleep(min(interval, left))
            interval = min(interval * 1.5, 0.1)
