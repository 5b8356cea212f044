"""Alarms: problems with the server itself, detected by whichever of its processes are alive.

The checks in `LOOKS` are the only place that says what is measured, which bound it may not cross,
how urgent that is, and the text for people. Emails, the admin, `manage.py health` and Prometheus
(`docs/alarms.rules.yml`) report what these checks find.

Every web process, every worker and beat has a thread that checks for problems at intervals
(`watch`). The processes take turns, so the database is queried only once per interval, and if
workers die, the other processes raise the alarm. When an alarm is raised or cleared, a line is
logged and an email is sent to the staff who subscribed to alarms. Emails that can't be sent right
away are sent later.
"""

import datetime
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import redis
import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.db import Error, OperationalError, connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from memory.kernel.database import clock, timeouts
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.operations import Alarm, Heartbeat
from memory.kernel.work import hosts, leases, stuck
from memory.kernel.work.hints import HINT_SECONDS, redis_client
from memory.llm import llm_failures, track_records
from memory.recall.search import announcing
from memory.recall.search.embeddings.interface import EmbeddingFailed

logger = structlog.get_logger(__name__)

DISPATCHER = "dispatcher"
WATCH = "watch"
QUEUES = ("default", "sandbox", "llm")
# A sandbox host that has sent no heartbeat for this long is assumed to have been removed on
# purpose.
TAKEN_AWAY = datetime.timedelta(hours=1)
# An alarm is raised if more than this fraction of the database's connections is in use.
CONNECTIONS = 0.85
# Embeddings are judged by the calls made in this period. Failed work is retried within five
# minutes, so a provider outage shows up within this period.
EMBEDDINGS_WINDOW = datetime.timedelta(minutes=15)
# Prefix for the names of alarms about failed checks.
BLIND = "look: "
# Maximum length of an alarm's name, which may contain a host name.
MAX_NAME = 100


@dataclass(frozen=True)
class AlarmCondition:
    """A problem found by a check; its name stays the same as long as the problem lasts.

    An alarm is raised once the problem has lasted for `patience` seconds. It is critical if people
    wait for what the server does not do.
    """

    name: str
    detail: str
    patience: float = 0.0
    is_critical: bool = False


@dataclass(frozen=True)
class Queue:
    """A queue's number of hints, and the age of its oldest hint in seconds."""

    name: str
    hints: int
    oldest: float


def failing_alarm(kind: str) -> str:
    """Return the name of the alarm that work of this kind keeps failing."""
    return f"failing: {kind}"


def model_alarm(model: str) -> str:
    """Return the name of the alarm that the calls to this language model fail."""
    return f"model: {model}"


# -- Checking for problems -------------------------------------------------------------------------


def beat(name: str) -> None:
    """Record a heartbeat with this name, timestamped by the database's clock."""
    Heartbeat.objects.bulk_create(
        [Heartbeat(name=name, at=Now())],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["at"],
    )


def silence(name: str) -> float:
    """Return the seconds since the last heartbeat with this name; record one if there is none."""
    Heartbeat.objects.get_or_create(name=name, defaults={"at": Now()})
    rows = Heartbeat.objects.filter(name=name)
    silent: datetime.timedelta = rows.values_list(Now() - F("at"), flat=True).get()
    return max(silent.total_seconds(), 0.0)


def queues() -> Sequence[Queue]:
    """Return the state of the workers' queues; raises redis.RedisError if Redis fails."""
    host_names = SandboxHost.objects.values_list("name", flat=True)
    names = [*QUEUES, *map(hosts.queue_of, host_names)]
    with redis_client().pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.llen(name)
            pipeline.lindex(name, -1)
        answers = pipeline.execute()
    return [
        Queue(name, length, _age(oldest))
        for name, length, oldest in zip(names, answers[::2], answers[1::2], strict=True)
    ]


def _age(message: bytes | None) -> float:
    """Return a hint's age in seconds, computed from its expiry, or 0 for any other message."""
    try:
        expires = datetime.datetime.fromisoformat(json.loads(message or b"")["headers"]["expires"])
        sent = expires - datetime.timedelta(seconds=HINT_SECONDS)
        return max((timezone.now() - sent).total_seconds(), 0.0)
    except (ValueError, KeyError, TypeError):
        return 0.0


def host_counts() -> dict[str, int]:
    """Return how many sandbox hosts are alive and how many have recently gone silent."""
    seen = SandboxHost.objects.order_by()
    return {
        "there": seen.filter(seen_at__gt=Now() - hosts.SILENT).count(),
        "silent": _silent_hosts().count(),
    }


def _silent_hosts() -> QuerySet[SandboxHost]:
    since = datetime.timedelta(seconds=settings.UAC_ALARM_SILENT_SECONDS)
    return SandboxHost.objects.filter(
        seen_at__lte=Now() - max(since, hosts.SILENT), seen_at__gt=Now() - TAKEN_AWAY
    )


def connections() -> tuple[int, int]:
    """Return the number of open database connections and the limit for ordinary roles."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(numbackends)::int, current_setting('max_connections')::int"
            " - current_setting('superuser_reserved_connections')::int FROM pg_stat_database"
        )
        used, most = cursor.fetchone()
    return used, most


def problems() -> Iterator[AlarmCondition]:
    """Run all checks and yield the problems they find.

    A failed check is itself yielded as a problem and doesn't stop the other checks. If the database
    is unavailable, no check can run, and the database error is raised.
    """
    for name, look in LOOKS.items():
        try:
            yield from list(look())
        except Exception as error:
            if isinstance(error, OperationalError) and not timeouts.answers(error):
                raise
            logger.exception("alarm_look_failed", look=name)
            yield AlarmCondition(
                f"{BLIND}{name}",
                f"The check of {name} failed ({type(error).__name__}), so problems with them go"
                " unnoticed. For details, see the log of the process that ran the check.",
            )


def _check_dispatcher() -> Iterator[AlarmCondition]:
    silent = silence(DISPATCHER)
    if silent > settings.UAC_ALARM_SILENT_SECONDS:
        yield AlarmCondition(
            "dispatcher",
            f"Nothing has been dispatched for {_words(silent)}: no beat is running, or no worker"
            " consumes the default queue.",
            is_critical=True,
        )


def _check_hosts() -> Iterator[AlarmCondition]:
    if not host_counts()["there"]:
        yield AlarmCondition(
            "sandbox hosts",
            "No sandbox worker is running: no checks are run, no questions are answered and no"
            " alerts are raised.",
            patience=settings.UAC_ALARM_SILENT_SECONDS,
            is_critical=True,
        )
    for host in _silent_hosts():
        yield AlarmCondition(
            f"sandbox host {host.name}",
            f"The last heartbeat of the sandbox worker {host.name} was at {host.seen_at:%H:%M:%S}"
            " UTC, and the worker did not report a shutdown.",
        )


def _check_connections() -> Iterator[AlarmCondition]:
    used, most = connections()
    if used > most * CONNECTIONS:
        yield AlarmCondition("connections", f"The database has {used} of {most} connections open.")


def _check_work() -> Iterator[AlarmCondition]:
    for one in stuck.work_statuses():
        kind = one.kind
        longest = (
            settings.UAC_ALARM_WAITING_SECONDS
            if kind.urgent
            else settings.UAC_ALARM_BACKGROUND_SECONDS
        )
        if one.oldest > longest:
            yield AlarmCondition(
                f"waiting: {kind.name}",
                f"{kind.label}: {one.waiting} waiting, the oldest for {_words(one.oldest)}: too"
                f" few workers, or none, consume the {kind.queue} queue.",
                is_critical=kind.urgent,
            )
        if one.longest > max(settings.UAC_WORK_SECONDS, longest):
            yield AlarmCondition(
                f"held: {kind.name}",
                f"A worker has been processing {kind.label} for {_words(one.longest)}: it is hung.",
            )
        if one.failing:
            yield AlarmCondition(
                failing_alarm(kind.name),
                f"{kind.label}: {one.failing} failed {settings.UAC_STUCK_ATTEMPTS} times or more;"
                " they are retried at increasing intervals.",
            )
        if one.dead:
            yield AlarmCondition(
                f"dead: {kind.name}", f"{kind.label}: {one.dead} failed permanently."
            )


def _check_models() -> Iterator[AlarmCondition]:
    for one in llm_failures.failing():
        affected = "one workspace" if one.workspaces == 1 else f"{one.workspaces} workspaces"
        why = "; ".join(outcome.label for outcome in one.outcomes)
        yield AlarmCondition(
            model_alarm(one.model),
            f"The last calls to {one.model} for {affected} failed ({why}): messages are waiting.",
            patience=0 if one.is_unusable else settings.UAC_ALARM_WAITING_SECONDS,
        )


def _check_track_records() -> Iterator[AlarmCondition]:
    for workspace, model, reason in track_records.stopped():
        yield AlarmCondition(
            f"stopped: workspace {workspace.pk}, {model}", f"{workspace}: {reason}"
        )


def _check_embeddings() -> Iterator[AlarmCondition]:
    """Yield a problem if embeddings can't be computed, in which case searches match words only."""
    since = timezone.now() - EMBEDDINGS_WINDOW
    failed = llm_failures.failing_embeddings(settings.UAC_EMBEDDINGS, since)
    behind = announcing.waiting().filter(last_error__startswith=EmbeddingFailed.__name__)
    number = behind.count()
    if not failed and not number:
        return
    sentences = []
    if failed:
        why = "; ".join(outcome.label for outcome in failed.outcomes)
        sentences.append(f"Calls to {failed.model} fail ({why}).")
    if number:
        error = behind.order_by("-attempts").values_list("last_error", flat=True).first() or ""
        sentences.append(
            f"Users whose logs are waiting for embeddings: {number}."
            f" {error.partition(': ')[2][:500]}"
        )
    yield AlarmCondition(
        "embeddings",
        f"{' '.join(sentences)} Where vectors are missing, searches use words only.",
        patience=0 if failed and failed.is_unusable else settings.UAC_ALARM_WAITING_SECONDS,
    )


def _check_queues() -> Iterator[AlarmCondition]:
    try:
        rows = queues()
    except redis.RedisError as error:
        yield AlarmCondition(
            "redis",
            f"Redis does not answer ({type(error).__name__}): wake-up notifications are lost, and"
            " all work waits for the dispatcher.",
            patience=settings.UAC_ALARM_SILENT_SECONDS,
        )
        return
    for queue in rows:
        if queue.oldest > settings.UAC_ALARM_WAITING_SECONDS:
            yield AlarmCondition(
                f"queue: {queue.name}",
                f"The queue {queue.name} has {queue.hints} wake-up notifications, the oldest sent"
                f" {_words(queue.oldest)} ago: no worker is consuming the queue.",
            )


LOOKS: Mapping[str, Callable[[], Iterator[AlarmCondition]]] = {
    "kinds of work": _check_work,
    "dispatchers": _check_dispatcher,
    "sandbox hosts": _check_hosts,
    "connections": _check_connections,
    "queues": _check_queues,
    "language models": _check_models,
    "track records": _check_track_records,
    "embeddings": _check_embeddings,
}


def _words(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


# -- Raising and clearing alarms -------------------------------------------------------------------


def evaluate() -> None:
    """Raise alarms for current problems, and clear those whose problems are over."""
    now = timezone.now()
    active = {problem.name[:MAX_NAME]: problem for problem in problems()}
    for name, problem in active.items():
        Alarm.objects.get_or_create(name=name, defaults={"detail": problem.detail})
    with transaction.atomic():
        rows = Alarm.objects.select_for_update(no_key=True).filter(
            Q(name__in=active) | Q(holds_since__isnull=False)
        )
        blind = any(name.startswith(BLIND) for name in active)
        for alarm in rows:
            if blind and alarm.name not in active:
                continue  # a check failed, so the problem may persist unnoticed
            _note(alarm, active.get(alarm.name), now)
            alarm.save(
                update_fields=[
                    *("detail", "is_critical", "holds_since", "seen_at", "raised_at"),
                    *("cleared_at", "is_notified", "run_after", "attempts"),
                ]
            )


def _note(alarm: Alarm, problem: AlarmCondition | None, now: datetime.datetime) -> None:
    changed = False
    # An alarm is cleared only some time after its problem was last seen, so that an intermittent
    # problem causes only one email.
    lingers = settings.UAC_ALARM_SILENT_SECONDS
    if problem is not None:
        alarm.detail, alarm.is_critical, alarm.seen_at = problem.detail, problem.is_critical, now
        alarm.holds_since = alarm.holds_since or now
        held = (now - alarm.holds_since).total_seconds()
        if alarm.raised_at is None and held >= problem.patience:
            alarm.raised_at, alarm.cleared_at, changed = now, None, True
            logger.error("alarm_raised", alarm=alarm.name, detail=alarm.detail)
    elif alarm.raised_at is None:
        alarm.holds_since = None
    elif alarm.seen_at is None or (now - alarm.seen_at).total_seconds() > lingers:
        alarm.holds_since = alarm.raised_at = None
        alarm.cleared_at, changed = now, True
        logger.warning("alarm_cleared", alarm=alarm.name, detail=alarm.detail)
    if changed:
        alarm.is_notified, alarm.run_after, alarm.attempts = False, now, 0


def raised() -> Sequence[Alarm]:
    """Return the raised alarms, newest first."""
    return list(Alarm.objects.filter(raised_at__isnull=False).order_by("-raised_at", "name"))


def send_mails() -> None:
    """Email newly raised or cleared alarms to the subscribed staff; failed emails are retried."""
    while (alarm := leases.claim(Alarm.objects.filter(is_notified=False))) is not None:
        try:
            if people := _recipients():
                _mail(alarm, people).send()
        except Exception as error:
            leases.fail(alarm, f"{type(error).__name__}: {error}")
            logger.warning("alarm_not_mailed", alarm=alarm.name, error=type(error).__name__)
            return
        # If the alarm has changed in the meantime, another email about it will be sent.
        Alarm.objects.filter(
            pk=alarm.pk, raised_at=alarm.raised_at, cleared_at=alarm.cleared_at
        ).update(is_notified=True)
        leases.release(alarm, attempts=0, last_error="")


def _recipients() -> list[str]:
    chosen = User.objects.filter(
        is_active=True,
        is_staff=True,
        alert_subscriptions__enabled=True,
        alert_subscriptions__operations=True,
    ).exclude(email="")
    return sorted({user.email for user in chosen if user.has_perm("memory.view_alarm")})


def _mail(alarm: Alarm, people: Collection[str]) -> EmailMessage:
    is_over = alarm.raised_at is None
    when = alarm.cleared_at if is_over else alarm.raised_at
    others = [one.detail for one in raised() if one.pk != alarm.pk]
    lines = [
        f"Cleared at {when:%Y-%m-%d %H:%M:%S} UTC:"
        if is_over
        else f"Raised at {when:%H:%M:%S} UTC:",
        alarm.detail,
        *(["", "Other raised alarms:", *others] if others else []),
        "",
        f"{settings.UAC_BASE_URL.rstrip('/')}/admin/memory/alarm/work/",
        "For what each alarm means and what to do, see docs/operations.md",
    ]
    return EmailMessage(
        subject=f"[UaC] {'cleared' if is_over else 'ALARM'}: {alarm.name}",
        body="\n".join(lines) + "\n",
        to=list(people),
        headers={"Auto-Submitted": "auto-generated"},
    )


# -- Taking turns to check -------------------------------------------------------------------------


def take_turn() -> bool:
    """Return whether it is this process's turn: one process per interval does the checks."""
    pause = datetime.timedelta(seconds=settings.UAC_ALARM_SECONDS * 0.9)
    Heartbeat.objects.get_or_create(name=WATCH, defaults={"at": Now() - pause})
    taken = Heartbeat.objects.filter(name=WATCH, at__lte=Now() - pause).update(at=Now())
    return bool(taken)


def look() -> None:
    """If it is this process's turn, check for problems once and send any emails."""
    if clock.is_right() and take_turn():
        evaluate()
        send_mails()


def watch() -> None:
    """Start a daemon thread in this process that checks for problems at intervals."""
    if settings.UAC_ALARM_SECONDS > 0:
        threading.Thread(target=_watch, name="alarms", daemon=True).start()


def _watch() -> None:
    pause = threading.Event()
    while not pause.wait(settings.UAC_ALARM_SECONDS):
        try:
            look()
        except Error as error:  # each process reports this, since taking turns needs the database
            logger.error("alarms_not_looked_for", error=str(error).strip())
        except Exception:
            logger.exception("alarms_not_looked_for")
        finally:
            connection.close()
