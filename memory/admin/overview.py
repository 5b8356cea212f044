"""The figures on the admin's front page: the server's status and recent activity.

In tables that grow without bound, only rows within a period are counted, using an index. Callers
pass in the rows that may be counted, so accounts with less access see lower figures.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, Trunc

from memory.alerts.models.alerts import LIVE_STATES, Alert
from memory.llm.llm_spending import SpendingRow
from memory.llm.models import LlmCall, LlmOutcome, LlmSpending
from memory.versions.models.runs import Run, RunOutcome, RunStatus

# Days and hours are in UTC, as in the ledger of language model spending.
ZONE = datetime.UTC
# Maximum number of workspaces and of models to list (those with the highest spending).
MAX_SPENDERS = 10


@dataclass(frozen=True)
class Period:
    """A period that ends now and is divided into steps (hours or days)."""

    name: str
    title: str
    step: str
    number: int

    @property
    def length(self) -> datetime.timedelta:
        """The length of a step."""
        return datetime.timedelta(**{f"{self.step}s": 1})

    def starts(self, now: datetime.datetime) -> Sequence[datetime.datetime]:
        """Return when each step begins, in order; the last step contains `now`."""
        last = now.astimezone(ZONE).replace(minute=0, second=0, microsecond=0)
        if self.step == "day":
            last = last.replace(hour=0)
        return [last - self.length * back for back in reversed(range(self.number))]


PERIODS: Mapping[str, Period] = {
    period.name: period
    for period in (
        Period("day", "24 hours", "hour", 24),
        Period("week", "7 days", "day", 7),
        Period("month", "30 days", "day", 30),
    )
}

# Groups of run outcomes, starting with the successful ones.
RUN_ENDINGS: Mapping[str, Collection[RunOutcome]] = {
    "ok": [RunOutcome.OK],
    "superseded": [RunOutcome.SUPERSEDED, RunOutcome.CANCELLED],
    "rejected by the gate": [RunOutcome.REJECTED],
    "error in the user's code": [RunOutcome.USER_ERROR],
    "sandbox limit exceeded": [
        *(RunOutcome.TIMEOUT, RunOutcome.OUT_OF_MEMORY, RunOutcome.OUTPUT_LIMIT),
        *(RunOutcome.RESULT_LIMIT, RunOutcome.ALERT_LIMIT, RunOutcome.INPUT_LIMIT),
    ],
    "server error": [
        *(RunOutcome.KILLED, RunOutcome.PROTOCOL_ERROR, RunOutcome.MODEL_ERROR),
        RunOutcome.ABANDONED,
    ],
}


def live_alerts(alerts: QuerySet[Alert]) -> Mapping[tuple[str, str], int]:
    """Count the unresolved alerts by severity and state."""
    live = alerts.filter(duplicate_of=None, state__in=LIVE_STATES).order_by()
    # Count rows rather than keys, because the index this query can use doesn't contain the key.
    counted = live.values_list("severity", "state").annotate(number=Count("*"))
    return {(severity, state): number for severity, state, number in counted}


def opened_alerts(
    alerts: QuerySet[Alert], period: Period, now: datetime.datetime
) -> Mapping[tuple[datetime.datetime, str], int]:
    """Count the alerts opened during the period by step and severity."""
    opened = _stepped(alerts.filter(duplicate_of=None), "opened_at", period, now)
    counted = opened.values_list("step", "severity").annotate(number=Count("*"))
    return {(step, severity): number for step, severity, number in counted}


def count_by_step(
    rows: QuerySet[Any], field: str, period: Period, now: datetime.datetime
) -> Mapping[datetime.datetime, int]:
    """Count the rows by the step that their `field` falls into; steps without rows are left out."""
    steps = _stepped(rows, field, period, now).values_list("step")
    return dict(steps.annotate(number=Count("*")))


def run_endings(
    runs: QuerySet[Run], period: Period, now: datetime.datetime
) -> Mapping[tuple[datetime.datetime, str], int]:
    """Count the runs finished during the period by step and outcome."""
    done = _stepped(runs.filter(status=RunStatus.DONE), "finished_at", period, now)
    counted = done.values_list("step", "outcome").annotate(number=Count("*"))
    return {(step, outcome): number for step, outcome, number in counted}


def _stepped(
    rows: QuerySet[Any], field: str, period: Period, now: datetime.datetime
) -> QuerySet[Any]:
    begins = period.starts(now)[0]
    of_late = rows.order_by().filter(**{f"{field}__gte": begins})
    stepped: QuerySet[Any] = of_late.annotate(step=Trunc(field, period.step, tzinfo=ZONE))
    return stepped


# The outcomes of language model calls that ended without a usable answer, and the others.
OTHER_CALLS = [LlmOutcome.STARTED, LlmOutcome.OK]
FAILED_CALLS = [one for one in LlmOutcome.values if one not in OTHER_CALLS]


@dataclass(frozen=True)
class Spending:
    """Spending by step, and by those workspaces (key and name) and models that spent the most."""

    by_step: Mapping[datetime.datetime, SpendingRow]
    by_workspace: Sequence[tuple[int, str, SpendingRow]]
    by_model: Sequence[tuple[str, SpendingRow]]


def spending(
    calls: QuerySet[LlmCall],
    ledger: QuerySet[LlmSpending],
    period: Period,
    now: datetime.datetime,
) -> Spending:
    """Add up language model spending: hourly from the calls, daily from the ledger."""
    rows: QuerySet[Any]
    if period.step == "hour":
        rows = _stepped(calls, "started_at", period, now)
        number: Any = Count("*")
        failed: Any = Count("pk", filter=Q(outcome__in=FAILED_CALLS))
    else:
        begins = period.starts(now)[0].date()
        rows = ledger.order_by().filter(day__gte=begins).annotate(step=F("day"))
        number = Sum("calls")
        failed = Coalesce(Sum("calls", filter=Q(outcome__in=FAILED_CALLS)), 0)
    sums = {
        "number": number,
        "sent": Coalesce(Sum("input_tokens"), 0),
        "received": Coalesce(Sum("output_tokens"), 0),
        "paid": Coalesce(Sum("cost"), Decimal(0)),
        "failed": failed,
    }
    order = ["-paid", "-sent", "-received", "name", "key"]

    def most(kind: str, key: Any, name: str) -> QuerySet[Any]:
        """Return those who spent the most, with a key and a name."""
        spenders = rows.annotate(kind=Value(kind), key=key, name=F(name))
        spenders = spenders.values_list("kind", "key", "name").annotate(**sums)
        return spenders.order_by(*order)[:MAX_SPENDERS]

    steps = rows.values_list("step").annotate(**sums)
    models = most("model", Value(0), "model")
    workspaces = most("workspace", F("workspace_id"), "workspace__name")
    spenders = list(workspaces.union(models, all=True).order_by(*order))
    return Spending(
        by_step={_moment(step): SpendingRow(*sums) for step, *sums in steps},
        by_workspace=[
            (key, name, SpendingRow(*sums))
            for kind, key, name, *sums in spenders
            if kind == "workspace"
        ],
        by_model=[
            (name, SpendingRow(*sums)) for kind, _, name, *sums in spenders if kind == "model"
        ],
    )


def _moment(step: datetime.date | datetime.datetime) -> datetime.datetime:
    if isinstance(step, datetime.datetime):
        return step
    return datetime.datetime.combine(step, datetime.time(), tzinfo=ZONE)
