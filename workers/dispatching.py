"""The dispatcher: finds in PostgreSQL the work that no hint has announced.

Beat wakes it every few seconds. Several may run at a time: each passes over the rows that another
has locked, and a second hint for the same work finds it claimed or done.
"""

import datetime
from typing import TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from memory import (
    alerts,
    backtests,
    checkpoints,
    forecasts,
    idempotency,
    lanes,
    leases,
    llm_calls,
    runs,
    staff_mail,
    webhooks,
    workspace_constraints,
)
from memory.hints import HINT_SECONDS, send_hint
from memory.models import Lane, MemoryUser, Run
from memory.models.leased import LeasedWork
from memory.models.runs import RunKind, RunOutcome, RunStatus, RunTrigger
from memory.models.users import LaneName
from memory.project import Outline
from memory.search import announcing
from memory.users import is_daily, next_daily_run
from workers import constraints

# How many rows of each kind one tick takes; the next tick takes more.
BATCH = 500
# A hint that was not heard within its life is given again.
HINT_AGAIN = datetime.timedelta(seconds=HINT_SECONDS)
# Of the runs that changed workspace constraints bring about, so many wait at a time: others come in
# between, however many users there are.
WORKSPACE_RUNS = 100
# So many forecasts are given out with one tick.
FORECASTS = 20
# So many backtests go on at a time. While runs wait they stand back, for as long at the most.
BACKTESTS = 2
BACKTEST_PATIENCE = datetime.timedelta(seconds=30)
# So many times as often as other runs are those of constraints tried before they are given up.
CONSTRAINTS_PATIENCE = 20

Hinted = TypeVar("Hinted", bound=LeasedWork)


def dispatch() -> dict[str, int]:
    """Queue what the clock demands, give up what cannot be done, hint what waits.

    Also wakes and escalates the alerts whose time has come, closes the calls of language models
    whose workers are gone, and forgets the keys of old requests and old messages. Returns how many
    rows of each kind were found.
    """
    return {
        "daily": queue_runs_by_the_clock(),
        "changed": queue_runs_of_changed_constraints(),
        "woken": alerts.wake(BATCH),
        "escalated": alerts.escalate(BATCH),
        "abandoned": abandon_hopeless_runs(),
        "forecasts": hint_forecasts(),
        "backtests": hint_backtests(),
        "runs": _hint(runs.waiting(), runs.TASK, "pk"),
        "questions": _hint(runs.questions(), runs.ANSWER_TASK, "pk"),
        "lanes": _hint(
            Lane.objects.filter(name=LaneName.RECORDS, due_at__isnull=False),
            "workers.tasks.checkpoint_records",
            "user_id",
        ),
        "structure": _hint(
            _with_model(lanes.due(LaneName.STRUCTURE)), "workers.tasks.structure", "user_id"
        ),
        "mails": _hint(staff_mail.waiting(timezone.now()), "workers.tasks.mail_staff", "pk"),
        "indexes": _hint(announcing.waiting(), announcing.TASK, "user_id"),
        "deliveries": hint_deliveries(),
        "judged": _hint(workspace_constraints.unjudged(), workspace_constraints.TASK, "pk"),
        "interrupted": llm_calls.close_interrupted(BATCH),
        "forgotten": idempotency.purge(BATCH) + webhooks.purge(BATCH),
    }


def queue_runs_by_the_clock() -> int:
    """Queue a run of the constraints for every user whose daily hour has struck, or minutes passed.

    The next one is the daily one, unless this run finds that it is to be sooner or later. Of users
    for whom there is nothing to run, the clock is stopped until there is.
    """
    now = timezone.now()
    with transaction.atomic():
        due = list(
            MemoryUser.objects.select_for_update(skip_locked=True, no_key=True, of=("self",))
            .filter(constraints_due_at__lte=now, head__isnull=False)
            .select_related("head", "forecast")
            .defer(
                *("head__tree", "head__edits", "head__verdict"),
                *("forecast__results", "forecast__timeline"),
            )
            .order_by("constraints_due_at")[:BATCH]
        )
        for user in due:
            assert user.constraints_due_at is not None
            daily = is_daily(user, user.constraints_due_at, now)
            trigger = RunTrigger.DAILY if daily else RunTrigger.INSTANT
            if _is_foreseen(user):
                trigger = RunTrigger.FORECAST
            wanted = user.head is not None and checkpoints.wants_constraints_run(user.head)
            user.constraints_due_at = next_daily_run(user, now) if wanted else None
            user.save(update_fields=["constraints_due_at"])
            if wanted:
                runs.queue(user, RunKind.CONSTRAINTS, trigger, checkpoint=user.head)
    return len(due)


def _is_foreseen(user: MemoryUser) -> bool:
    """Whether it is a forecast that has the user woken now."""
    forecast = getattr(user, "forecast", None)
    return forecast is not None and forecast.wakes_at == user.constraints_due_at


def hint_forecasts() -> int:
    """Tell workers of forecasts, a few at a time, and none while runs wait: those come first."""
    if runs.are_waiting():
        return 0
    return _hint(forecasts.waiting(), forecasts.TASK, "user_id", most=FORECASTS)


def hint_backtests() -> int:
    """Tell workers of backtests; while runs wait, only of those that have stood back for long."""
    now = timezone.now()
    waiting = backtests.waiting()
    room = BACKTESTS - waiting.filter(lease_expires_at__gt=now).count()
    if runs.are_waiting():
        waiting = waiting.filter(Q(hinted_at=None) | Q(hinted_at__lte=now - BACKTEST_PATIENCE))
    return _hint(waiting, backtests.TASK, "pk", most=max(room, 0))


def hint_deliveries() -> int:
    """Tell the workers of every endpoint to which something can be sent."""
    endpoints = webhooks.waiting(timezone.now()).order_by().values_list("pk", flat=True)[:BATCH]
    for endpoint in endpoints:
        send_hint(webhooks.TASK, [str(endpoint)])
    return len(endpoints)


def queue_runs_of_changed_constraints() -> int:
    """Queue a run for the users whom changed workspace constraints concern, a few at a time."""
    waiting = Run.objects.exclude(status=RunStatus.DONE).filter(trigger=RunTrigger.WORKSPACE)
    room = WORKSPACE_RUNS - waiting.count()
    if room <= 0:
        return 0
    with transaction.atomic():
        users = list(
            MemoryUser.objects.select_for_update(skip_locked=True, no_key=True, of=("self",))
            .filter(constraints_changed_at__isnull=False, head__isnull=False)
            .select_related("head")
            .defer("head__tree", "head__edits", "head__verdict")
            .order_by("constraints_changed_at")[:room]
        )
        MemoryUser.objects.filter(pk__in=[user.pk for user in users]).update(
            constraints_changed_at=None
        )
        for user in users:
            if user.head and workspace_constraints.concern(
                user, Outline.from_json(user.head.outline)
            ):
                runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.WORKSPACE, checkpoint=user.head)
    return len(users)


def abandon_hopeless_runs() -> int:
    """Close the runs that were tried too often, and tell who waits for them.

    Runs of the constraints are tried for hours: nobody asks for them again. Where they are given
    up, the staff get an alert.
    """
    most = settings.UAC_MAX_ATTEMPTS
    patient = Q(kind=RunKind.CONSTRAINTS, attempts__gte=most * CONSTRAINTS_PATIENCE)
    hopeless = (
        Run.objects.exclude(status=RunStatus.DONE)
        .filter(leases.free(timezone.now()))
        .filter(patient | (~Q(kind=RunKind.CONSTRAINTS) & Q(attempts__gte=most)))
        .select_related("checkpoint")
    )
    abandoned = 0
    for run in hopeless[:BATCH]:
        error = {
            "type": "abandoned",
            "message": f"given up after {run.attempts} attempts: {run.last_error or 'no error'}",
            "path": None,
            "line": None,
            "infrastructure": True,
        }
        try:
            with transaction.atomic():
                if run.kind == RunKind.CONSTRAINTS:
                    constraints.report_failure(run, error)
                runs.finish(run, runs.Result(outcome=RunOutcome.ABANDONED, error=error))
        except leases.LeaseLost:
            continue
        abandoned += 1
    return abandoned


def _with_model(work: QuerySet[Lane]) -> QuerySet[Lane]:
    """Keep those of workspaces that have a language model: others would only keep workers busy."""
    return work if settings.UAC_LLM_MODEL else work.exclude(user__workspace__llm_model="")


def _hint(work: QuerySet[Hinted], task: str, argument: str, most: int = BATCH) -> int:
    now = timezone.now()
    with transaction.atomic():
        waiting = list(
            work.filter(leases.free(now))
            .filter(Q(hinted_at=None) | Q(hinted_at__lte=now - HINT_AGAIN))
            .select_for_update(skip_locked=True, no_key=True, of=("self",))
            .order_by("run_after")[:most]
        )
        work.model._default_manager.filter(pk__in=[row.pk for row in waiting]).update(hinted_at=now)
    for row in waiting:
        value = getattr(row, argument)
        send_hint(task, [value if isinstance(value, int) else str(value)])
    return len(waiting)
