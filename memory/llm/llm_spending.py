"""Spending on language models and embeddings: by finished calls, and reserved for running ones."""

import datetime
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Q, Sum

from memory.kernel.models.workspaces import Workspace
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending

# Match calls or spending on embeddings, or on everything else.
EMBEDDINGS = Q(purpose=LlmPurpose.EMBED)
MODELS = ~EMBEDDINGS


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The spending in a period; `reserved_…` is the most that running calls may add to it."""

    calls: int
    tokens: int
    presumed_tokens: int
    reserved_tokens: int
    cost: Decimal
    presumed_cost: Decimal
    reserved_cost: Decimal

    @property
    def used_tokens(self) -> int:
        """The tokens that count against a budget."""
        return self.tokens + self.presumed_tokens

    @property
    def used_cost(self) -> Decimal:
        """The cost that counts against a budget."""
        return self.cost + self.presumed_cost


def spent(workspace: Workspace, now: datetime.datetime, of_kind: Q = MODELS) -> tuple[Spent, Spent]:
    """Return today's and this month's spending (in UTC) on language models or on embeddings."""
    # Read the reservations first: a call that finishes between the two queries is then counted
    # twice rather than missed.
    under_way = LlmCall.objects.filter(of_kind, workspace=workspace, outcome=LlmOutcome.STARTED)
    reserved = under_way.aggregate(
        tokens=Sum("reserved_tokens", default=0),
        cost=Sum("reserved_cost", default=Decimal(0)),
    )
    today = now.astimezone(datetime.UTC).date()
    columns = ("calls", "input_tokens", "output_tokens", "presumed_tokens", "cost", "presumed_cost")
    sums = LlmSpending.objects.filter(
        of_kind, workspace=workspace, day__gte=today.replace(day=1), day__lte=today
    ).aggregate(
        **{f"month_{name}": Sum(name, default=0) for name in columns},
        **{f"day_{name}": Sum(name, filter=Q(day=today), default=0) for name in columns},
    )
    day, month = (
        Spent(
            calls=sums[f"{time}_calls"],
            tokens=sums[f"{time}_input_tokens"] + sums[f"{time}_output_tokens"],
            presumed_tokens=sums[f"{time}_presumed_tokens"],
            reserved_tokens=reserved["tokens"],
            cost=sums[f"{time}_cost"],
            presumed_cost=sums[f"{time}_presumed_cost"],
            reserved_cost=reserved["cost"],
        )
        for time in ("day", "month")
    )
    return day, month


@dataclass(frozen=True)
class SpendingRow:
    """The number of language model calls, with their usage and cost; `failed` are among them."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal = Decimal(0)
    failed: int = 0

    @property
    def tokens(self) -> int:
        """The total number of input and output tokens."""
        return self.tokens_in + self.tokens_out
