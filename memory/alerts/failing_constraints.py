"""Constraint failures: which constraints are failing, since when, why, and after which entries.

Anyone who relies on a constraint must be told when it isn't working. A live constraint_error alert
reports the failure. So does a manually resolved constraint_error alert, as long as it suppresses
new alerts, that is, until the next successful run.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q

from memory.alerts.models.alerts import LIVE_STATES, Alert, AlertEvent, AlertEventKind, AlertKind
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome, Outcome
from memory.project import Outline
from memory.project.paths import constraint_path
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus

# Stands in for a constraint's path if the project failed to load, so no constraint could run.
PROJECT = "project"
# Maximum number of entries that a failure lists; if there are more, it lists the first ones.
MAX_ENTRIES = 100


@dataclass(frozen=True)
class Failure:
    """A constraint's failure: since when, with which message, and after which entries.

    `entries` are the numbers of the entries that were added to the project between the last
    successful run and the first failed run. The list is empty if there were no such entries or they
    are no longer known.
    """

    since: datetime.datetime
    message: str
    entries: Sequence[int]


def alerts_of(user: MemoryUser) -> list[Alert]:
    """Return the alerts for constraints that are currently failing, oldest first."""
    there = Q(state__in=LIVE_STATES) | Q(holds_back=True)
    failed = Alert.objects.filter(there, user=user, kind=AlertKind.CONSTRAINT_ERROR)
    return list(failed.prefetch_related("duplicates").order_by("opened_at"))


def find_failures(user: MemoryUser) -> dict[str, Failure]:
    """Return the current failures, keyed by constraint path, or by PROJECT if no constraint ran."""
    failing = alerts_of(user)
    opened = AlertEvent.objects.filter(alert__in=failing, kind=AlertEventKind.OPENED)
    first = {event.alert_id: event.run for event in opened.select_related("run__checkpoint")}
    return {
        alert.constraint: Failure(alert.opened_at, alert.message, _entries(first.get(alert.pk)))
        for alert in failing
    }


def failure_of(path: str, failing: Mapping[str, Failure]) -> Failure | None:
    """Return the constraint's own failure, else the whole project's, else None."""
    return failing.get(path) or failing.get(PROJECT)


def describe_failures(failing: Sequence[Alert], outline: Outline) -> dict[str, str]:
    """Return these alerts' messages, keyed by the name of the failing constraint.

    Only the user's own constraints are considered.
    """
    messages = {alert.constraint: alert.message for alert in failing}
    by_constraint = {
        name: messages.get(constraint_path(name)) or messages.get(PROJECT)
        for name in outline.constraints
    }
    return {name: message for name, message in by_constraint.items() if message is not None}


def _entries(run: Run | None) -> list[int]:
    """Return the numbers of the entries added to the project since the previous constraint run."""
    if run is None or run.checkpoint is None:
        return []
    earlier = Run.objects.filter(
        user=run.user_id,
        kind=RunKind.CONSTRAINTS,
        status=RunStatus.DONE,
        queued_at__lt=run.queued_at,
        checkpoint__isnull=False,
    ).exclude(outcome=RunOutcome.SUPERSEDED)
    before = earlier.order_by("-queued_at").values_list("checkpoint__version", flat=True).first()
    if before is None:
        return []
    taken_in = EntryOutcome.objects.filter(
        user=run.user_id,
        outcome=Outcome.COVERED,
        checkpoint__version__gt=before,
        checkpoint__version__lte=run.checkpoint.version,
    )
    return list(taken_in.order_by("seq").values_list("seq", flat=True)[:MAX_ENTRIES])
