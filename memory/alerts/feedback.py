"""Feedback on alerts (useful or wrong), used to compute each constraint's precision.

The product and staff each have one current verdict on an alert, which they may change.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from memory.alerts import transitions
from memory.alerts.models.alerts import (
    Alert,
    AlertEventKind,
    AlertFeedback,
    AlertKind,
    Judge,
    Verdict,
)


class FeedbackRefused(Exception):
    """The alert is about a constraint, not a finding; feedback on it cannot measure precision."""


@dataclass(frozen=True)
class Precision:
    """The number of useful and wrong verdicts that a constraint's alerts have received."""

    useful: int
    wrong: int

    @property
    def precision(self) -> float | None:
        """The fraction of verdicts that are `useful`, or None if there are no verdicts."""
        judged = self.useful + self.wrong
        return round(self.useful / judged, 4) if judged else None


UNJUDGED = Precision(0, 0)


def describe_precision(judged: Precision) -> str:
    """Describe the precision for staff: "75 % (3 of 4)", or a dash if there are no verdicts."""
    if judged.precision is None:
        return "–"
    return f"{judged.precision:.0%} ({judged.useful} of {judged.useful + judged.wrong})"


def give(alert: Alert, *, judge: Judge, verdict: Verdict, actor: str, note: str = "") -> Alert:
    """Record a judge's verdict on a live or resolved alert, replacing the judge's earlier one.

    Repeating the same verdict changes nothing. Raises FeedbackRefused if the alert is a notice to
    staff about a constraint, not about a finding.
    """
    if alert.kind != AlertKind.FINDING:
        raise FeedbackRefused("feedback is possible only on alerts about findings")
    with transitions.step_on(alert, actor) as (step, row):
        before = AlertFeedback.objects.filter(alert=row, judge=judge).first()
        if before is None or (before.verdict, before.note) != (verdict, note):
            AlertFeedback.objects.update_or_create(
                alert=row,
                judge=judge,
                defaults={"verdict": verdict, "note": note, "actor": actor, "at": step.at},
            )
            step.add_event(row, AlertEventKind.FEEDBACK, verdict=verdict, note=note)
    return row


def count_verdicts(judged: QuerySet[AlertFeedback]) -> Mapping[str, Precision]:
    """Return the precision of each constraint that has verdicts, keyed by its path."""
    rows = (
        judged.order_by()
        .values("alert__constraint")
        .annotate(
            useful=Count("pk", filter=Q(verdict=Verdict.USEFUL)),
            wrong=Count("pk", filter=Q(verdict=Verdict.WRONG)),
        )
    )
    return {row["alert__constraint"]: Precision(row["useful"], row["wrong"]) for row in rows}
