"""Feedback: was an alert useful, or wrong? Kept by alert, and shown by constraint as its precision.

The product's side and the staff have one current verdict each, which they may change.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from memory.alerting import alerts
from memory.models import Alert, AlertFeedback
from memory.models.alerts import AlertEventKind, AlertKind, Judge, Verdict


class FeedbackRefused(Exception):
    """The alert is about a constraint, not a finding of one: it says nothing of its precision."""


@dataclass(frozen=True)
class Precision:
    """How many verdicts a constraint has of each kind."""

    useful: int
    wrong: int

    @property
    def precision(self) -> float | None:
        """The part that was useful; None where nobody has judged."""
        judged = self.useful + self.wrong
        return round(self.useful / judged, 4) if judged else None


UNJUDGED = Precision(0, 0)


def in_words(judged: Precision) -> str:
    """Say it for the staff: "75 % (3 of 4)"; a dash where nobody has judged."""
    if judged.precision is None:
        return "–"
    return f"{judged.precision:.0%} ({judged.useful} of {judged.useful + judged.wrong})"


def give(alert: Alert, *, judge: Judge, verdict: Verdict, actor: str, note: str = "") -> Alert:
    """Say what somebody thinks of an alert, live or resolved; it replaces what they said before.

    To say the same again changes nothing. Raises FeedbackRefused for an alert of the staff's own.
    """
    if alert.kind != AlertKind.FINDING:
        raise FeedbackRefused("only what a constraint found can be useful or wrong")
    with alerts.step_on(alert, actor) as (step, row):
        before = AlertFeedback.objects.filter(alert=row, judge=judge).first()
        if before is None or (before.verdict, before.note) != (verdict, note):
            AlertFeedback.objects.update_or_create(
                alert=row,
                judge=judge,
                defaults={"verdict": verdict, "note": note, "actor": actor, "at": step.at},
            )
            step.tell(row, AlertEventKind.FEEDBACK, verdict=verdict, note=note)
    return row


def by_constraint(judged: QuerySet[AlertFeedback]) -> Mapping[str, Precision]:
    """Return the precision of each constraint that somebody has judged, by its path."""
    rows = (
        judged.order_by()
        .values("alert__constraint")
        .annotate(
            useful=Count("pk", filter=Q(verdict=Verdict.USEFUL)),
            wrong=Count("pk", filter=Q(verdict=Verdict.WRONG)),
        )
    )
    return {row["alert__constraint"]: Precision(row["useful"], row["wrong"]) for row in rows}
