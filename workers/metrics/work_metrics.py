"""Prometheus metrics for the workers' work, by kind: how much is waiting, claimed, failing or dead.

The metrics are read from the database and Redis on each scrape, so any process can report on the
whole server, even if the workers for these tasks are down. No label identifies a user or a
workspace.
"""

from collections.abc import Iterator

import redis
import structlog
from django.db import Error
from prometheus_client.core import GaugeMetricFamily, Metric

from memory.kernel.work import stuck
from memory.operations import alarms

logger = structlog.get_logger(__name__)


def _of_work() -> Iterator[Metric]:
    families = {
        name: GaugeMetricFamily(f"uac_work_{name}", text, labels=["kind", "queue"])
        for name, text in (
            ("waiting", "Due work that no worker has claimed."),
            ("oldest_seconds", "How long the oldest due work has been waiting for a worker."),
            ("held", "Work that a worker has claimed."),
            ("longest_seconds", "Upper bound on the time since the oldest held work was claimed."),
            ("failing", "Work that has failed repeatedly and is still retried."),
            ("dead", "Work that failed permanently and was not handled by staff yet."),
        )
    }
    for one in stuck.work_statuses():
        labels = [one.kind.name, one.kind.queue]
        families["waiting"].add_metric(labels, one.waiting)
        families["held"].add_metric(labels, one.held)
        families["failing"].add_metric(labels, one.failing)
        families["dead"].add_metric(labels, one.dead)
        if one.kind.since:
            families["oldest_seconds"].add_metric(labels, one.oldest)
            families["longest_seconds"].add_metric(labels, one.longest)
    yield from families.values()


def _of_server() -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "uac_dispatcher_silent_seconds",
        "Time since the last dispatch.",
        value=alarms.silence(alarms.DISPATCHER),
    )
    hosts = GaugeMetricFamily("uac_sandbox_hosts", "Sandbox workers, by state.", labels=["state"])
    for state, number in alarms.host_counts().items():
        hosts.add_metric([state], number)
    yield hosts
    used, most = alarms.connections()
    yield GaugeMetricFamily(
        "uac_database_connections", "Open connections to the database.", value=used
    )
    yield GaugeMetricFamily(
        "uac_database_connections_most",
        "Maximum number of connections to the database.",
        value=most,
    )
    yield GaugeMetricFamily(
        "uac_alarms_silent_seconds",
        "Time since a process last looked for alarms.",
        value=alarms.silence(alarms.WATCH),
    )
    raised = GaugeMetricFamily(
        "uac_alarm", "1 if the alarm is raised.", labels=["alarm", "severity"]
    )
    for alarm in alarms.raised():
        raised.add_metric([alarm.name, "critical" if alarm.is_critical else "warning"], 1)
    yield raised


def _of_queues() -> Iterator[Metric]:
    try:
        found = alarms.queues()
    except (redis.RedisError, Error) as error:
        logger.warning("queue_metrics_not_read", error=str(error))
        found = []
    yield GaugeMetricFamily("uac_redis_up", "1 if Redis responds.", value=bool(found))
    hints = GaugeMetricFamily("uac_queue_hints", "Wake-up hints in a queue.", labels=["queue"])
    oldest = GaugeMetricFamily(
        "uac_queue_oldest_seconds", "Age of the oldest wake-up hint.", labels=["queue"]
    )
    for queue in found:
        hints.add_metric([queue.name], queue.hints)
        oldest.add_metric([queue.name], queue.oldest)
    yield from (hints, oldest)


READS = (_of_work, _of_server, _of_queues)
