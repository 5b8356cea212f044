"""Failing models: models whose last calls were refused or got no usable answer."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Exists, OuterRef, Subquery
from django.utils import timezone

from memory.llm import track_records
from memory.llm.llm_spending import match_kind
from memory.models import Lane, LlmCall, LlmSpending, Workspace
from memory.models.llm import LlmOutcome, LlmPurpose
from memory.models.users import LaneName

# This many failed calls to an embedding model are no coincidence.
SEVERAL = 3
# Outcomes that repeat until somebody corrects the settings, or pays.
UNUSABLE = (LlmOutcome.WRONG_KEY, LlmOutcome.NO_CREDIT, LlmOutcome.UNKNOWN_MODEL)
# Outcomes that usually pass.
UNREACHED = (
    LlmOutcome.RATE_LIMITED,
    LlmOutcome.UNAVAILABLE,
    LlmOutcome.TIMEOUT,
    LlmOutcome.CONNECTION_LOST,
    LlmOutcome.INVALID_ANSWER,
)


@dataclass(frozen=True)
class Failing:
    """A model that fails while work waits: the outcomes, and the number of workspaces."""

    model: str
    outcomes: Sequence[LlmOutcome]
    workspaces: int

    @property
    def is_unusable(self) -> bool:
        """Return whether at least one of the outcomes needs a person to fix it."""
        return any(outcome in UNUSABLE for outcome in self.outcomes)


def failing() -> list[Failing]:
    """Return the failing models of workspaces in which messages wait after a failed attempt.

    Their last calls were refused, or got no usable answer.
    """
    yesterday = timezone.now().astimezone(datetime.UTC).date() - datetime.timedelta(days=1)
    # The ledger is short, and shows which workspaces' last calls are worth reading.
    of_kind = match_kind(embeddings=False)
    failed = LlmSpending.objects.filter(
        of_kind, day__gte=yesterday, outcome__in=(*UNUSABLE, *UNREACHED)
    )
    ended = LlmCall.objects.filter(of_kind, workspace=OuterRef("pk")).exclude(
        outcome=LlmOutcome.STARTED
    )
    last = ended.order_by("-started_at")
    waiting = Lane.objects.filter(
        user__workspace=OuterRef("pk"), name=LaneName.STRUCTURE, due_at__isnull=False
    ).exclude(last_error="")
    workspaces = Workspace.objects.filter(
        Exists(waiting), pk__in=failed.order_by().values("workspace")
    ).annotate(
        called=Subquery(last.values("model")[:1]), came_to=Subquery(last.values("outcome")[:1])
    )
    found: dict[str, list[LlmOutcome]] = {}
    # Nothing is known about calls that were erased or purged meanwhile.
    for workspace in workspaces.filter(came_to__in=(*UNUSABLE, *UNREACHED)):
        if workspace.called == track_records.model_of(workspace):
            found.setdefault(workspace.called, []).append(LlmOutcome(workspace.came_to))
    return [
        Failing(model, sorted(set(outcomes)), len(outcomes)) for model, outcomes in found.items()
    ]


def failing_embeddings(model: str, since: datetime.datetime) -> Failing | None:
    """Return why calls to an embedding model have failed since then; None if they have not.

    They count as failed if no call was answered, and several calls failed or one needs a person to
    fix the cause.
    """
    ended = LlmCall.objects.filter(
        purpose=LlmPurpose.EMBED, model=model, started_at__gte=since
    ).exclude(outcome=LlmOutcome.STARTED)
    outcomes = ended.order_by().values("outcome").annotate(number=Count("pk"))
    numbers = {LlmOutcome(row["outcome"]): row["number"] for row in outcomes}
    if not numbers or LlmOutcome.OK in numbers:
        return None
    failed = Failing(
        model, sorted(numbers), ended.aggregate(n=Count("workspace", distinct=True))["n"]
    )
    return failed if failed.is_unusable or sum(numbers.values()) >= SEVERAL else None
