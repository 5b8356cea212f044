"""Failing models: models whose latest calls were refused or got no usable answer."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Exists, OuterRef, Subquery
from django.utils import timezone

from memory.kernel.models.users import Lane, LaneName
from memory.kernel.models.workspaces import Workspace
from memory.llm import track_records
from memory.llm.llm_spending import MODELS
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending

# The number of failed calls after which an embedding model is considered to be failing.
SEVERAL = 3
# Outcomes that will recur until somebody corrects the settings or pays the provider.
UNUSABLE = (LlmOutcome.WRONG_KEY, LlmOutcome.NO_CREDIT, LlmOutcome.UNKNOWN_MODEL)
# Outcomes caused by errors that are usually transient.
UNREACHED = (
    LlmOutcome.RATE_LIMITED,
    LlmOutcome.UNAVAILABLE,
    LlmOutcome.TIMEOUT,
    LlmOutcome.CONNECTION_LOST,
    LlmOutcome.INVALID_ANSWER,
)


@dataclass(frozen=True)
class Failing:
    """A failing model that work is waiting for.

    `outcomes` are the outcomes of the model's calls, and `workspaces` is the number of workspaces
    affected.
    """

    model: str
    outcomes: Sequence[LlmOutcome]
    workspaces: int

    @property
    def is_unusable(self) -> bool:
        """Return whether at least one of the outcomes has a cause that a person has to fix."""
        return any(outcome in UNUSABLE for outcome in self.outcomes)


def failing() -> list[Failing]:
    """Return the failing models of workspaces with messages waiting after a failed attempt.

    A model is failing if one of these workspaces made its latest call to that model, and the call
    was refused or got no usable answer.
    """
    yesterday = timezone.now().astimezone(datetime.UTC).date() - datetime.timedelta(days=1)
    # The ledger is small, and shows which workspaces' latest calls are worth reading.
    failed = LlmSpending.objects.filter(
        MODELS, day__gte=yesterday, outcome__in=(*UNUSABLE, *UNREACHED)
    )
    ended = LlmCall.objects.filter(MODELS, workspace=OuterRef("pk")).exclude(
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
    by_model: dict[str, list[LlmOutcome]] = {}
    # If a workspace's latest call was erased or purged, the workspace is left out.
    for workspace in workspaces.filter(came_to__in=(*UNUSABLE, *UNREACHED)):
        if workspace.called == track_records.model_of(workspace):
            by_model.setdefault(workspace.called, []).append(LlmOutcome(workspace.came_to))
    return [
        Failing(model, sorted(set(outcomes)), len(outcomes)) for model, outcomes in by_model.items()
    ]


def failing_embeddings(model: str, since: datetime.datetime) -> Failing | None:
    """Describe how an embedding model has been failing since `since`; None if it is not failing.

    An embedding model is failing if none of its calls succeeded and either several calls failed or
    one of them failed for a reason that a person has to fix.
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
