"""The Celery application. This is only the configuration; the tasks are in `workers.tasks`."""

import os
import sys
from collections import Counter
from typing import Any

from celery import Celery
from celery.signals import after_task_publish, beat_init, setup_logging, task_prerun, worker_init

from memory.kernel import tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")

# Maximum number of messages per queue; a full queue takes up a few megabytes.
MAX_WAITING = 10_000
# A process trims a queue every time it has sent this many messages to it.
EVERY = 100

app = Celery("uac", task_cls="workers.service.fair_turns:FairTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = ("workers.tasks", "workers.service.lifecycle", "workers.service.consuming")
app.steps["consumer"].add("workers.service.consuming:Consuming")
# By default, Celery opens a database connection for every task. Keep connections open instead, as
# for requests.
app.conf.CELERY_DB_REUSE_MAX = sys.maxsize

_sent: Counter[str] = Counter()


@task_prerun.connect
def _close_old_connections(**kwargs: Any) -> None:
    """Close connections that are broken or too old, as Django does before a request."""
    from django.db import close_old_connections

    close_old_connections()


@after_task_publish.connect
def _trim_queue(routing_key: str, **kwargs: Any) -> None:
    """Drop the oldest messages if nobody consumes them: the dispatcher finds the work anyway."""
    from memory.kernel.work.hints import redis_client

    _sent[routing_key] += 1
    if _sent[routing_key] % EVERY == 1:
        redis_client().ltrim(routing_key, 0, MAX_WAITING - 1)


@setup_logging.connect
def _keep_django_logging(**kwargs: Any) -> None:
    """Keep Django's `LOGGING`: Celery replaces it only if this signal has no receiver."""


@beat_init.connect
@worker_init.connect
def _begin(**kwargs: Any) -> None:
    from uac_site.checks import refuse_unsafe_start

    # Celery logs exceptions raised by signal receivers and continues, but doesn't catch SystemExit.
    refuse_unsafe_start("worker")
    tracing.start("worker")  # must happen before a process pool is forked
