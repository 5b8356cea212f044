"""What the constraints found, as long as it lives."""

import uuid
from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from memory.models.runs import Run
from memory.models.users import MemoryUser
from memory.models.workspaces import Workspace


class AlertKind(models.TextChoices):
    """Whom it concerns: the product's user, or the staff that keep constraints working."""

    FINDING = "finding", "finding"
    CONSTRAINT_ERROR = "constraint_error", "constraint failed"
    CONSTRAINT_PAUSED = "constraint_paused", "constraint paused"


class Severity(models.TextChoices):
    """How bad it is, as the constraint says."""

    INFO = "info", "info"
    WARNING = "warning", "warning"
    CRITICAL = "critical", "critical"


def severity_rank(severity: str) -> int:
    """Return how grave a severity is: a larger number is graver."""
    return list(Severity).index(Severity(severity))


class AlertState(models.TextChoices):
    """Where it is in its life."""

    OPEN = "open", "open"
    ACKNOWLEDGED = "acknowledged", "acknowledged"
    SNOOZED = "snoozed", "snoozed"
    RESOLVED = "resolved", "resolved"


class Place(models.Func):
    """Where a value stands among these, from 1 on, to sort by.

    The values, names of our own, are part of the statement: an index has no parameters.
    """

    template = "array_position('{%(among)s}'::varchar[], %(expressions)s)"
    output_field = models.IntegerField()

    def __init__(self, expression: Any, *, among: str) -> None:
        super().__init__(expression, among=among)


# What needs somebody first: live before resolved, grave before slight.
BY_STATE = Place("state", among=",".join(AlertState.values))
BY_SEVERITY = Place("severity", among=",".join(reversed(Severity.values)))

LIVE_STATES = [AlertState.OPEN, AlertState.ACKNOWLEDGED, AlertState.SNOOZED]


class AlertQuerySet(models.QuerySet["Alert"]):
    """Queries of alerts."""

    def listed(self) -> Self:
        """Leave out duplicates, which are told of with the alert that they duplicate."""
        return self.filter(duplicate_of=None)


def found_by(constraint: str, *, ever: bool = False) -> models.Q:
    """Match the listed alerts of which this constraint is a cause, or (`ever`) was one.

    It looks at the duplicates of the alerts that are filtered alone, not at those of all tenants.
    """
    of_constraint = Alert.objects.filter(constraint=constraint)
    duplicates = of_constraint.filter(duplicate_of=models.OuterRef("pk"))
    mine = models.Q(constraint=constraint)
    if ever:
        former = of_constraint.filter(was_duplicate_of=models.OuterRef("pk"))
        mine |= models.Q(models.Exists(duplicates)) | models.Q(models.Exists(former))
    else:
        live, together = models.Q(resolved_at=None), models.OuterRef("resolved_at")
        standing = duplicates.filter(live | models.Q(resolved_at=together))
        mine |= models.Q(models.Exists(standing))
    return models.Q(duplicate_of=None) & mine


class Alert(models.Model):
    """A finding that lives from the run that first made it to the one that no longer does."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=20, choices=AlertKind.choices, default=AlertKind.FINDING)
    constraint = models.CharField(max_length=300, help_text="Path of the constraint's source.")
    fingerprint = models.CharField(max_length=64)
    severity = models.CharField(max_length=16, choices=Severity.choices)
    message = models.TextField()
    evidence = models.JSONField(
        default=list, help_text="The records it rests on, each with its key and log entries."
    )
    entries = ArrayField(models.BigIntegerField(), default=list)
    state = models.CharField(max_length=16, choices=AlertState.choices, default=AlertState.OPEN)
    opened_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    snoozed_until = models.DateTimeField(
        null=True, help_text="Empty for one that is snoozed until it changes, or not at all."
    )
    # Resolved by hand, and found unchanged ever since: that opens no new alert.
    holds_back = models.BooleanField(default=False)
    open_since = models.DateTimeField(
        default=timezone.now, help_text="When it opened, or was reopened last."
    )
    escalate_at = models.DateTimeField(
        null=True, help_text="When somebody else is told, unless it is acknowledged before."
    )
    escalated_at = models.DateTimeField(null=True)
    last_run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="alerts")
    # Another constraint found the same first: that alert is listed and has events instead of this
    # one, for as long as it tells all that this one has to tell. See `memory.alerting.duplicates`.
    duplicate_of = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.CASCADE,
        related_name="duplicates",
        db_constraint=False,  # alerts are never deleted
        db_index=False,  # it has one below, of the few that have a value
    )
    # What it duplicated before it was listed: who follows its constraint hears of that one, too.
    was_duplicate_of = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.CASCADE,
        related_name="former_duplicates",
        db_constraint=False,
        db_index=False,
    )

    objects = AlertQuerySet.as_manager()

    class Meta:
        ordering = ["-opened_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "fingerprint"],
                condition=~models.Q(state="resolved"),
                name="one_live_alert_per_fingerprint",
            ),
        ]
        indexes = [
            models.Index(fields=["user", "state"], name="alert_of_user"),
            models.Index(fields=["user", "-opened_at"], name="alert_openings"),
            # How many were opened of late.
            models.Index(
                fields=["opened_at"],
                include=["severity", "user"],
                name="alert_listed_opened",
                condition=models.Q(duplicate_of=None),
            ),
            # For processes of the release before duplicates: the next release removes it.
            models.Index(fields=["opened_at"], include=["severity", "user"], name="alert_opened"),
            models.Index(
                BY_STATE, BY_SEVERITY, models.F("opened_at").desc(), name="alert_by_urgency"
            ),
            models.Index(
                fields=["severity", "state"],
                include=["user"],
                name="alert_live",
                condition=~models.Q(state="resolved"),
            ),
            models.Index(
                fields=["duplicate_of"],
                name="alert_duplicate",
                condition=models.Q(duplicate_of__isnull=False),
            ),
            models.Index(
                fields=["was_duplicate_of"],
                name="alert_former_duplicate",
                condition=models.Q(was_duplicate_of__isnull=False),
            ),
            models.Index(
                fields=["duplicate_of"],
                name="alert_live_duplicate",
                condition=models.Q(duplicate_of__isnull=False) & ~models.Q(state="resolved"),
            ),
            models.Index(
                fields=["snoozed_until"],
                name="alert_to_wake",
                condition=models.Q(snoozed_until__isnull=False),
            ),
            models.Index(
                fields=["escalate_at"],
                name="alert_to_escalate",
                condition=models.Q(escalate_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"

    @property
    def rank(self) -> int:
        """How grave it is: a larger number is graver."""
        return severity_rank(self.severity)

    @property
    def causes(self) -> list["Alert"]:
        """Return this alert and its duplicates: those that live, or were resolved with it."""
        duplicates = [one for one in self.duplicates.all() if one.resolved_at == self.resolved_at]
        return [self, *sorted(duplicates, key=lambda one: (one.opened_at, one.pk))]

    @property
    def messages(self) -> str:
        """Return what all causes say, in one line; what they say alike once."""
        return " / ".join(dict.fromkeys(cause.message for cause in self.causes))


class AlertEventKind(models.TextChoices):
    """What happened to an alert, or to entries of a log."""

    OPENED = "opened", "opened"
    CHANGED = "changed", "changed"
    ACKNOWLEDGED = "acknowledged", "acknowledged"
    SNOOZED = "snoozed", "snoozed"
    REOPENED = "reopened", "reopened"
    ESCALATED = "escalated", "escalated"
    RESOLVED = "resolved", "resolved"
    FEEDBACK = "feedback", "feedback"
    # The last of an alert whose user was erased: whoever keeps a copy forgets it.
    ERASED = "erased", "erased"
    # Of no alert: the project cannot hold entries of a user's log.
    REJECTED = "rejected", "entries rejected"

    @property
    def event_type(self) -> str:
        """The name of the event in webhooks and streams."""
        return "entry.rejected" if self == AlertEventKind.REJECTED else f"alert.{self.value}"


class EventCounter(models.Model):
    """The number of a workspace's newest event: see `memory.alerting.alert_events`."""

    workspace = models.OneToOneField(Workspace, primary_key=True, on_delete=models.CASCADE)
    last_seq = models.BigIntegerField(help_text="How many events there have been.")

    class Meta:
        verbose_name = "event counter"

    def __str__(self) -> str:
        return f"{self.workspace}: {self.last_seq}"


class AlertEvent(models.Model):
    """One step in an alert's life, or entries that were rejected: who, when, and by which run."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    seq = models.BigIntegerField(help_text="Its number in the workspace: 1, 2, 3 … without gaps.")
    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="events")
    # Of rejected entries alone, which no alert leads to; `event_of_user` is its index.
    user = models.ForeignKey(
        MemoryUser,
        null=True,
        on_delete=models.CASCADE,
        related_name="entry_events",
        db_index=False,
    )
    entries = ArrayField(
        models.BigIntegerField(),
        default=list,
        # For those who do not know of it, while the server is upgraded.
        db_default=models.Value([], ArrayField(models.BigIntegerField())),
        help_text="The entries of the user's log that were rejected together.",
    )
    kind = models.CharField(max_length=16, choices=AlertEventKind.choices)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200, help_text="A constraint run, an API key or a person.")
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="+")
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["alert", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["workspace", "seq"], name="event_seq_in_workspace"),
            models.CheckConstraint(
                condition=models.Q(alert__isnull=False, user__isnull=True, entries=[])
                | models.Q(alert__isnull=True, user__isnull=False),
                name="event_of_alert_or_entries",
            ),
        ]
        indexes = [
            models.Index(
                fields=["user", "seq"],
                name="event_of_user",
                condition=models.Q(user__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.at:%Y-%m-%d %H:%M}"

    @property
    def person(self) -> MemoryUser:
        """The user of the alert, or of the entries."""
        found = self.alert.user if self.alert else self.user
        assert found is not None  # as `event_of_alert_or_entries` demands
        return found


class Verdict(models.TextChoices):
    """What somebody thinks of a finding."""

    USEFUL = "useful", "useful"
    WRONG = "wrong", "wrong"


class Judge(models.TextChoices):
    """Who thinks so: each has one current verdict of an alert."""

    PRODUCT = "product", "product"
    STAFF = "staff", "staff"


class AlertFeedback(models.Model):
    """Whether an alert was useful, as the product's side or the staff see it now."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="feedback")
    judge = models.CharField(max_length=16, choices=Judge.choices)
    verdict = models.CharField(max_length=16, choices=Verdict.choices)
    note = models.TextField(blank=True, default="")
    actor = models.CharField(max_length=200, help_text="The API key, or the person.")
    at = models.DateTimeField()

    class Meta:
        ordering = ["alert", "judge"]
        verbose_name_plural = "feedback"
        constraints = [
            models.UniqueConstraint(fields=["alert", "judge"], name="one_verdict_per_judge"),
        ]

    def __str__(self) -> str:
        return f"{self.judge}: {self.verdict}"


class PausedConstraint(models.Model):
    """A constraint of a user that said too much: until it is resumed, it changes no alert."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.ForeignKey(
        MemoryUser, on_delete=models.CASCADE, related_name="paused_constraints"
    )
    constraint = models.CharField(max_length=300, help_text="Path of the constraint's source.")
    source_hash = models.CharField(
        max_length=64, blank=True, default="", help_text="Another source resumes it by itself."
    )
    reason = models.TextField()
    paused_at = models.DateTimeField()
    paused_by = models.CharField(max_length=200)
    resumed_at = models.DateTimeField(null=True)
    resumed_by = models.CharField(max_length=200, blank=True, default="")
    resumed_because = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["-paused_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "constraint"],
                condition=models.Q(resumed_at__isnull=True),
                name="paused_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.constraint} paused {self.paused_at:%Y-%m-%d %H:%M}"
