"""Prometheus metrics for language model calls, read from the ledger on each scrape.

This way, the metrics cover the whole server, no matter which process made the calls, and they
survive restarts. No label identifies a user or a workspace.
"""

from collections.abc import Iterator

from django.db.models import Sum
from django.utils import timezone
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from memory.llm.models import LlmCall, LlmOutcome, LlmSpending


def _calls() -> Iterator[Metric]:
    """Yield the totals of this month's calls (UTC), and the number of calls in progress.

    At the start of each month, the counters are reset to zero, as other counters are on a restart.
    """
    seconds = SummaryMetricFamily(
        "uac_llm_call_seconds",
        "Number and duration of calls, by outcome.",
        labels=["model", "purpose", "outcome"],
    )
    tokens = CounterMetricFamily(
        "uac_llm_tokens",
        "Tokens used by calls; presumed: estimates for calls whose usage was not reported.",
        labels=["model", "purpose", "kind"],
    )
    cost = CounterMetricFamily(
        "uac_llm_cost",
        "Cost of calls, in the currency of the price list.",
        labels=["model", "purpose"],
    )
    month = timezone.now().date().replace(day=1)
    spending = LlmSpending.objects.filter(day__gte=month).order_by()
    for row in spending.values("model", "purpose", "outcome").annotate(
        number=Sum("calls"), duration=Sum("seconds")
    ):
        labels = [row["model"], row["purpose"], row["outcome"]]
        seconds.add_metric(labels, count_value=row["number"], sum_value=row["duration"])
    for sums in spending.values("model", "purpose").annotate(
        sent=Sum("input_tokens"),
        received=Sum("output_tokens"),
        presumed=Sum("presumed_tokens"),
        paid=Sum("cost"),
    ):
        labels = [sums["model"], sums["purpose"]]
        for kind, number in (
            ("input", sums["sent"]),
            ("output", sums["received"]),
            ("presumed", sums["presumed"]),
        ):
            tokens.add_metric([*labels, kind], number)
        cost.add_metric(labels, float(sums["paid"]))
    under_way = LlmCall.objects.filter(outcome=LlmOutcome.STARTED, expires_at__gt=timezone.now())
    yield from (
        seconds,
        tokens,
        cost,
        GaugeMetricFamily(
            "uac_llm_calls_under_way",
            "Calls that are waiting for a response.",
            value=under_way.count(),
        ),
    )


READS = (_calls,)
