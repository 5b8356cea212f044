"""The dispatcher: finds in PostgreSQL the work that no hint has announced.

Beat wakes it every few seconds. Several may run at a time: each passes over the rows that another
has locked, and a second hint for the same work finds it claimed or done.
"""

import datetime
from typing import TypeVar

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from memory import leases, runs
from memory.hints import send_hint
from memory.models import Lane, MemoryUser, Run
from memory.models.runs import RunKind, RunOutcome, RunStatus, RunTrigger
from memory.models.users import LaneName
from memory.users import next_daily_run

# How many rows of each kind one tick takes; the next tick takes more.
BATCH = 500
# A hint that was not heard within this time is given again.
HINT_AGAIN = datetime.timedelta(seconds=10)
MAX_RUN_ATTEMPTS = 5

Hinted = TypeVar("Hinted", Lane, Run)


def dispatch() -> dict[str, int]:
    """Queue what the clock demands, give up what cannot be done, and hint what waits.

    Returns how many rows of each kind were found.
    """
    return {
        "daily": queue_daily_runs(),
        "abandoned": abandon_hopeless_runs(),
        "runs": _hint(
            Run.objects.exclude(status=RunStatus.DONE), "workers.tasks.execute_run", "pk"
        ),
        "lanes": _hint(
            Lane.objects.filter(name=LaneName.RECORDS, due_at__isnull=False),
            "workers.tasks.checkpoint_records",
            "user_id",
        ),
    }


def queue_daily_runs() -> int:
    """Queue a run of the constraints for every user whose daily hour has struck."""
    now = timezone.now()
    with transaction.atomic():
        due = list(
            MemoryUser.objects.select_for_update(skip_locked=True, no_key=True, of=("self",))
            .filter(constraints_due_at__lte=now, head__isnull=False)
            .select_related("head")
            .order_by("constraints_due_at")[:BATCH]
        )
        for user in due:
            user.constraints_due_at = next_daily_run(user, now)
            user.save(update_fields=["constraints_due_at"])
            runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.DAILY, checkpoint=user.head)
    return len(due)


def abandon_hopeless_runs() -> int:
    """Close the runs that took their workers down again and again."""
    now = timezone.now()
    hopeless = Run.objects.exclude(status=RunStatus.DONE).filter(
        leases.free(now), attempts__gte=MAX_RUN_ATTEMPTS
    )
    return hopeless.update(
        status=RunStatus.DONE,
        outcome=RunOutcome.ABANDONED,
        finished_at=now,
        token=F("token") + 1,
        error={
            "type": "abandoned",
            "message": f"given up after {MAX_RUN_ATTEMPTS} attempts; see the last error",
            "path": None,
            "line": None,
        },
    )


def _hint(work: QuerySet[Hinted], task: str, argument: str) -> int:
    now = timezone.now()
    with transaction.atomic():
        waiting = list(
            work.filter(leases.free(now))
            .filter(Q(hinted_at=None) | Q(hinted_at__lte=now - HINT_AGAIN))
            .select_for_update(skip_locked=True, no_key=True)
            .order_by("run_after")[:BATCH]
        )
        work.model._default_manager.filter(pk__in=[row.pk for row in waiting]).update(hinted_at=now)
    for row in waiting:
        value = getattr(row, argument)
        send_hint(task, [value if isinstance(value, int) else str(value)])
    return len(waiting)
