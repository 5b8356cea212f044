"""Budgets: whether a workspace can afford another language model call at its maximum cost."""

import datetime
from decimal import Decimal
from typing import TypeAlias

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import language_models
from memory.kernel.settings.language_models import Budget, LanguageModelError, Price, Usage
from memory.llm.llm_spending import MODELS, spent
from memory.llm.models import LlmPurpose


class BudgetExhausted(LanguageModelError):
    """The workspace can't spend more until `until` or, if None, until the budget is raised."""

    def __init__(self, message: str, until: datetime.datetime | None) -> None:
        super().__init__(message)
        self.until = until


class TooManyCalls(LanguageModelError):
    """No further call may start until some of the workspace's running calls have finished."""


def why_stopped(workspace: Workspace) -> str | None:
    """Return why a workspace can't call its language model now; None if it can, or soon can."""
    chosen = workspace.chosen_llm
    budget = language_models.budget(chosen)
    try:
        least = Usage(input_tokens=0, output_tokens=settings.UAC_LLM_OUTPUT_TOKENS)
        model = language_models.connection(chosen).name
        cost = cost_of(model, LlmPurpose.QUERY, budget, least) if budget.limits_cost else None
        check_budget(workspace, budget, least.tokens, cost or Decimal(0), timezone.now(), MODELS)
    except TooManyCalls:
        return None
    except LanguageModelError as error:
        return str(error)
    return None


def price_of(model: str, purpose: str) -> Price | None:
    """Return the prices of a model that is called for this purpose; None if it has none."""
    if purpose == LlmPurpose.EMBED:
        return language_models.own_price(model)
    return language_models.price(model)


def cost_of(model: str, purpose: str, budget: Budget, usage: Usage) -> Decimal | None:
    """Return what this usage of a model costs; None if the model has no price.

    Raises NotConfigured if the model has no price and the budget limits the cost.
    """
    price = price_of(model, purpose)
    if price is None and budget.limits_cost:
        raise language_models.NotConfigured(language_models.price_missing(model))
    return price.cost(usage) if price else None


def check_budget(
    workspace: Workspace,
    budget: Budget,
    tokens: int,
    cost: Decimal,
    now: datetime.datetime,
    of_kind: Q,
) -> None:
    """Raise an error if spending this much more would exceed the workspace's budget.

    The error is BudgetExhausted, or TooManyCalls if enough of the budget may be left once the
    running calls have finished. `of_kind` selects the calls that count towards the budget.
    """
    if budget == Budget(
        concurrency=budget.concurrency,
        tokens_per_day=None,
        tokens_per_month=None,
        cost_per_day=None,
        cost_per_month=None,
    ):
        return
    day, month = spent(workspace, now, of_kind)
    midnight = now.astimezone(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    tomorrow = midnight + datetime.timedelta(days=1)
    next_month = (midnight.replace(day=1) + datetime.timedelta(days=32)).replace(day=1)
    for period, gone, most_tokens, most_cost, until in (
        ("month", month, budget.tokens_per_month, budget.cost_per_month, next_month),
        ("day", day, budget.tokens_per_day, budget.cost_per_day, tomorrow),
    ):
        of_tokens, of_cost = f"tokens per {period}", f"cost per {period}"
        _check_limit(of_tokens, most_tokens, gone.used_tokens, gone.reserved_tokens, tokens, until)
        _check_limit(of_cost, most_cost, gone.used_cost, gone.reserved_cost, cost, until)


Amount: TypeAlias = int | Decimal


def _check_limit(
    what: str,
    most: Amount | None,
    used: Amount,
    reserved: Amount,
    more: Amount,
    until: datetime.datetime,
) -> None:
    """Raise an error, as `check_budget` does, if spending `more` would exceed this limit."""
    if most is None or (used < most and used + reserved + more <= most):
        return
    if used < most and used + more <= most:
        raise TooManyCalls(f"The rest of the budget ({what}) is reserved for calls in progress.")
    hopeless = more > most
    raise BudgetExhausted(
        f"The budget ({what}) is {_amount(most)}, of which {_amount(used)} has been spent,"
        f" and the next call may use up to {_amount(more)}. "
        + (
            "The budget is too small for this call. Raise it."
            if hopeless
            else f"Calls resume at {until:%Y-%m-%d %H:%M} UTC, or when the budget is raised."
        ),
        None if hopeless else until,
    )


def _amount(value: Amount) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"
