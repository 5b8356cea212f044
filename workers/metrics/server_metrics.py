"""Prometheus metrics for the whole server, read from the database and Redis on each scrape.

So any process can report on all of them, even if the workers are down, and they survive restarts.
Labels identify workspaces by their public IDs, and only where a metric is about workspaces; no
label identifies a user or an endpoint.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import redis
import structlog
from django.db import Error
from django.db.models import Count, Min, Q, Sum
from django.utils import timezone
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from memory.alerts.models.webhooks import Delivery, DeliveryState, WebhookEndpoint
from memory.kernel.admission import refusals
from memory.kernel.work import stuck
from memory.llm.models import LlmCall, LlmOutcome, LlmSpending
from memory.operations import alarms, workload

logger = structlog.get_logger(__name__)

# The values of a metric's labels, followed by its number.
Row: TypeAlias = tuple[str | float, ...]


def _gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    return _filled(GaugeMetricFamily(f"uac_{name}", text, labels=labels), rows)


def _counter(name: str, text: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    return _filled(CounterMetricFamily(f"uac_{name}", text, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[Row]) -> Metric:
    for *labels, number in rows:
        family.add_metric(list(map(str, labels)), float(number))
    return family


def _work() -> Iterator[Metric]:
    """Yield how much work of each kind is waiting, claimed, failing or dead."""
    statuses = list(stuck.work_statuses())
    for name, field, text in (
        ("waiting", "waiting", "Due work that no worker has claimed."),
        ("held", "held", "Work that a worker has claimed."),
        ("failing", "failing", "Work that has failed repeatedly and is still retried."),
        ("dead", "dead", "Work that failed permanently and was not handled by staff yet."),
        ("oldest_seconds", "oldest", "How long the oldest due work has been waiting for a worker."),
        (
            *("longest_seconds", "longest"),
            "Upper bound on the time since the oldest held work was claimed.",
        ),
    ):
        rows = (
            (one.kind.name, one.kind.queue, getattr(one, field))
            for one in statuses
            if one.kind.since or not name.endswith("_seconds")
        )
        yield _gauge(f"work_{name}", text, ["kind", "queue"], rows)


def _server() -> Iterator[Metric]:
    silent = [(alarms.silence(alarms.DISPATCHER),)]
    yield _gauge("dispatcher_silent_seconds", "Time since the last dispatch.", [], silent)
    hosts = alarms.host_counts().items()
    yield _gauge("sandbox_hosts", "Sandbox workers, by state.", ["state"], hosts)
    used, most = alarms.connections()
    yield _gauge("database_connections", "Open connections to the database.", [], [(used,)])
    text = "Maximum number of connections to the database."
    yield _gauge("database_connections_most", text, [], [(most,)])
    text = "Time since a process last looked for alarms."
    yield _gauge("alarms_silent_seconds", text, [], [(alarms.silence(alarms.WATCH),)])
    raised = (
        (alarm.name, "critical" if alarm.is_critical else "warning", 1) for alarm in alarms.raised()
    )
    yield _gauge("alarm", "1 if the alarm is raised.", ["alarm", "severity"], raised)


def _queues() -> Iterator[Metric]:
    try:
        queues = alarms.queues()
    except (redis.RedisError, Error) as error:
        logger.warning("queue_metrics_not_read", error=str(error))
        queues = []
    yield _gauge("redis_up", "1 if Redis responds.", [], [(bool(queues),)])
    hints = ((queue.name, queue.hints) for queue in queues)
    yield _gauge("queue_hints", "Wake-up hints in a queue.", ["queue"], hints)
    oldest = ((queue.name, queue.oldest) for queue in queues)
    yield _gauge("queue_oldest_seconds", "Age of the oldest wake-up hint.", ["queue"], oldest)


def _refused() -> Iterator[Metric]:
    text = "Requests rejected because of their workspace's rate limit or quota."
    yield _counter("refused", text, ["workspace", "reason"], refusals.counters())


def _waiting() -> Iterator[Metric]:
    text = "Waiting or running work by workspace; kinds without any such work are absent."
    yield _gauge("waiting", text, ["workspace", "kind"], workload.waiting())


def _webhooks() -> Iterator[Metric]:
    """Yield the number of messages and endpoints by state, and the oldest pending message's age."""
    held = Q(state=DeliveryState.PENDING, endpoint__enabled=False)
    pending = Q(state=DeliveryState.PENDING, endpoint__enabled=True)
    messages = Delivery.objects.order_by().aggregate(
        pending=Count("pk", filter=pending),
        held=Count("pk", filter=held),
        delivered=Count("pk", filter=Q(state=DeliveryState.DELIVERED)),
        given_up=Count("pk", filter=Q(state=DeliveryState.GIVEN_UP)),
        oldest=Min("created_at", filter=pending),
    )
    oldest = messages.pop("oldest")
    text = "Messages in the delivery log, by state; held: their endpoint is disabled."
    yield _gauge("webhook_messages", text, ["state"], messages.items())
    endpoints = WebhookEndpoint.objects.order_by().aggregate(
        ok=Count("pk", filter=Q(enabled=True, failing_since=None)),
        failing=Count("pk", filter=Q(enabled=True, failing_since__isnull=False)),
        disabled=Count("pk", filter=Q(enabled=False)),
    )
    text = "Webhook endpoints, by state."
    yield _gauge("webhook_endpoints", text, ["state"], endpoints.items())
    age = (timezone.now() - oldest).total_seconds() if oldest else 0.0
    text = "Age of the oldest pending message whose endpoint is enabled."
    yield _gauge("webhook_oldest_seconds", text, [], [(age,)])


def _model_calls() -> Iterator[Metric]:
    """Yield the totals of this month's calls (UTC), and the number of calls in progress.

    At the start of each month, the counters are reset to zero, as other counters are on a restart.
    """
    month = timezone.now().date().replace(day=1)
    spending = LlmSpending.objects.filter(day__gte=month).order_by()
    text = "Number and duration of calls, by outcome."
    labels = ["model", "purpose", "outcome"]
    seconds = SummaryMetricFamily("uac_llm_call_seconds", text, labels=labels)
    for *values, number, duration in spending.values_list(*labels).annotate(
        number=Sum("calls"), duration=Sum("seconds")
    ):
        seconds.add_metric(values, count_value=number, sum_value=duration)
    yield seconds
    sums = spending.values_list("model", "purpose").annotate(
        sent=Sum("input_tokens"),
        received=Sum("output_tokens"),
        presumed=Sum("presumed_tokens"),
        paid=Sum("cost"),
    )
    tokens = (
        (model, purpose, kind, number)
        for model, purpose, *numbers, _ in sums
        for kind, number in zip(("input", "output", "presumed"), numbers, strict=True)
    )
    text = "Tokens used by calls; presumed: estimates for calls whose usage was not reported."
    yield _counter("llm_tokens", text, ["model", "purpose", "kind"], tokens)
    costs = ((model, purpose, paid) for model, purpose, *_, paid in sums)
    text = "Cost of calls, in the currency of the price list."
    yield _counter("llm_cost", text, ["model", "purpose"], costs)
    under_way = LlmCall.objects.filter(outcome=LlmOutcome.STARTED, expires_at__gt=timezone.now())
    text = "Calls that are waiting for a response."
    yield _gauge("llm_calls_under_way", text, [], [(under_way.count(),)])


READS: Sequence[Callable[[], Iterator[Metric]]] = (
    _work,
    _server,
    _queues,
    _refused,
    _waiting,
    _webhooks,
    _model_calls,
)
