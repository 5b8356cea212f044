"""Alerts: constraint findings, tracked from opening to resolution."""

import uuid
from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.kernel.models import privacy
from memory.kernel.models.fields import exactly_if, index_if_set
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.versions.models.runs import Run


class AlertKind(models.TextChoices):
    """Kinds of alerts. Findings are meant for the product's users, all others for staff."""

    FINDING = "finding", "finding"
    CONSTRAINT_ERROR = "constraint_error", "constraint failed"
    CONSTRAINT_PAUSED = "constraint_paused", "constraint paused"


class Severity(models.TextChoices):
    """The severity of a finding, set by the constraint that reports it."""

    INFO = "info", "info"
    WARNING = "warning", "warning"
    CRITICAL = "critical", "critical"


def severity_rank(severity: str) -> int:
    """Return a severity's rank; higher is more severe."""
    return list(Severity).index(Severity(severity))


class AlertState(models.TextChoices):
    """Where an alert is in its life cycle."""

    OPEN = "open", "open"
    ACKNOWLEDGED = "acknowledged", "acknowledged"
    SNOOZED = "snoozed", "snoozed"
    RESOLVED = "resolved", "resolved"


class Place(models.Func):
    """An SQL sort expression: a value's position, counted from 1, in a fixed list.

    The list is inlined into the SQL because an index can't take parameters. This is safe because
    the list contains only our own constants.
    """

    template = "array_position('{%(among)s}'::varchar[], %(expressions)s)"
    output_field = models.IntegerField()

    def __init__(self, expression: Any, *, among: str) -> None:
        super().__init__(expression, among=among)


BY_STATE = Place("state", among=",".join(AlertState.values))
BY_SEVERITY = Place("severity", among=",".join(reversed(Severity.values)))
# Sort keys that put the most urgent alerts first: live before resolved, severe before mild, those
# that have escalated before those that will, and soon before late; of the others, new before old.
BY_URGENCY = (
    BY_STATE,
    BY_SEVERITY,
    Coalesce("escalate_at", "escalated_at").asc(nulls_last=True),
    models.F("opened_at").desc(),
)

LIVE_STATES = [AlertState.OPEN, AlertState.ACKNOWLEDGED, AlertState.SNOOZED]


class AlertQuerySet(models.QuerySet["Alert"]):
    """Alert queries."""

    def listed(self) -> Self:
        """Exclude duplicates, which are shown with the alert they duplicate."""
        return self.filter(duplicate_of=None)

    def live(self) -> Self:
        """Exclude resolved alerts."""
        return self.filter(state__in=LIVE_STATES)


def found_by(constraint: str, *, ever: bool = False) -> models.Q:
    """Match the listed alerts that this constraint causes now or, with `ever`, has ever caused.

    The subqueries read only the duplicates of alerts that match the caller's other filters, not
    those of all tenants.
    """
    of_constraint = Alert.objects.filter(constraint=constraint)
    duplicates = of_constraint.filter(duplicate_of=models.OuterRef("pk"))
    mine = models.Q(constraint=constraint)
    if ever:
        former = of_constraint.filter(was_duplicate_of=models.OuterRef("pk"))
        mine |= models.Q(models.Exists(duplicates)) | models.Q(models.Exists(former))
    else:
        live, together = models.Q(resolved_at=None), models.OuterRef("resolved_at")
        remaining = duplicates.filter(live | models.Q(resolved_at=together))
        mine |= models.Q(models.Exists(remaining))
    return models.Q(duplicate_of=None) & mine


class Alert(models.Model):
    """A finding, tracked from the run that first reports it until a run no longer reports it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=20, choices=AlertKind.choices, default=AlertKind.FINDING)
    constraint = models.CharField(max_length=300, help_text="Path of the constraint's source.")
    fingerprint = models.CharField(max_length=64)
    severity = models.CharField(max_length=16, choices=Severity.choices)
    message = models.TextField()
    evidence = models.JSONField(
        default=list,
        help_text="The records that the alert is based on, each with the log entries behind it.",
    )
    entries = ArrayField(models.BigIntegerField(), default=list)
    state = models.CharField(max_length=16, choices=AlertState.choices, default=AlertState.OPEN)
    opened_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    snoozed_until = models.DateTimeField(
        null=True,
        help_text="When the snooze ends; empty if the alert is not snoozed, or is"
        " snoozed until it changes.",
    )
    # True if the alert was resolved manually and every run since then has reported the same
    # finding. As long as this is True, the finding opens no new alert.
    holds_back = models.BooleanField(default=False)
    open_since = models.DateTimeField(
        default=timezone.now, help_text="When the alert opened or was last reopened."
    )
    escalate_at = models.DateTimeField(
        null=True,
        help_text="When the alert will be escalated unless somebody acknowledges it before then.",
    )
    escalated_at = models.DateTimeField(null=True)
    assigned_to = models.CharField(
        max_length=150,
        default="",
        db_default="",
        blank=True,
        help_text="The staff member who takes care of it.",
    )
    last_run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="alerts")
    # The alert that another constraint opened earlier for the same finding. While that alert covers
    # this one, only that alert is listed and has events. See `memory.alerts.duplicates`.
    duplicate_of = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.CASCADE,
        related_name="duplicates",
        db_constraint=False,  # alerts are never deleted
        db_index=False,  # Meta has a partial index on the few rows that have a value
    )
    # The alert that this alert duplicated before this alert was listed separately. Clients that
    # follow this alert's constraint still have a copy of the duplicated alert.
    was_duplicate_of = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.CASCADE,
        related_name="former_duplicates",
        db_constraint=False,
        db_index=False,
    )

    objects = AlertQuerySet.as_manager()

    LARGE = ("evidence", "entries")

    class Privacy:
        # The cleared row is kept because the feed reports that the alert was erased, so that
        # everyone who has a copy can delete it.
        erase = privacy.Erase.REDACT
        content = ("constraint", "message", "evidence", "fingerprint")
        plain = ("assigned_to",)
        export = privacy.Export("alerts", "the alerts and their state", order=("opened_at", "pk"))
        section = privacy.Section.ALERTS

    class Meta:
        ordering = ["-opened_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "fingerprint"],
                condition=~models.Q(state="resolved"),
                name="one_live_alert_per_fingerprint",
            ),
            exactly_if(
                models.Q(state="resolved"),
                models.Q(resolved_at__isnull=False),
                name="alert_resolved",
            ),
            models.CheckConstraint(
                condition=models.Q(holds_back=False) | models.Q(state="resolved"),
                name="alert_holds_back",
            ),
            models.CheckConstraint(
                condition=models.Q(snoozed_until=None) | models.Q(state="snoozed"),
                name="alert_snoozed",
            ),
            models.CheckConstraint(
                condition=models.Q(escalate_at=None) | models.Q(state="open"),
                name="alert_escalates",
            ),
        ]
        indexes = [
            models.Index(fields=["user", "state"], name="alert_of_user"),
            models.Index(fields=["user", "-opened_at"], name="alert_openings"),
            # Used to count recently opened alerts.
            models.Index(
                fields=["opened_at"],
                include=["severity", "user"],
                name="alert_listed_opened",
                condition=models.Q(duplicate_of=None),
            ),
            # Its two first keys lead BY_URGENCY: PostgreSQL sorts by the rest within a severity.
            models.Index(
                BY_STATE, BY_SEVERITY, models.F("opened_at").desc(), name="alert_by_urgency"
            ),
            models.Index(
                fields=["severity", "state"],
                include=["user"],
                name="alert_live",
                condition=~models.Q(state="resolved"),
            ),
            index_if_set("duplicate_of", "alert_duplicate"),
            index_if_set("was_duplicate_of", "alert_former_duplicate"),
            index_if_set("snoozed_until", "alert_to_wake"),
            index_if_set("escalate_at", "alert_to_escalate"),
        ]

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"

    @property
    def rank(self) -> int:
        """The severity's rank; higher is more severe."""
        return severity_rank(self.severity)

    @property
    def causes(self) -> list["Alert"]:
        """This alert and the duplicates that are live with it or were resolved together with it."""
        duplicates = [one for one in self.duplicates.all() if one.resolved_at == self.resolved_at]
        return [self, *sorted(duplicates, key=lambda one: (one.opened_at, one.pk))]

    @property
    def messages(self) -> str:
        """The messages from this alert and its duplicates on one line, without repetition."""
        return " / ".join(dict.fromkeys(cause.message for cause in self.causes))


class AlertEventKind(models.TextChoices):
    """Kinds of events. An event is about either an alert or some entries of a log."""

    OPENED = "opened", "opened"
    CHANGED = "changed", "changed"
    ACKNOWLEDGED = "acknowledged", "acknowledged"
    SNOOZED = "snoozed", "snoozed"
    REOPENED = "reopened", "reopened"
    ESCALATED = "escalated", "escalated"
    RESOLVED = "resolved", "resolved"
    FEEDBACK = "feedback", "feedback"
    NOTED = "noted", "note"
    ASSIGNED = "assigned", "assigned"
    # An alert's last event, sent when its user is erased: clients must delete their copies.
    ERASED = "erased", "erased"
    # Not about an alert: the project can't hold some of the entries in the user's log, or it sets
    # some of their values aside.
    REJECTED = "rejected", "entries rejected"
    SET_ASIDE = "set_aside", "values set aside"

    @property
    def event_type(self) -> str:
        """The event kind's name in webhooks and event streams."""
        is_of_entries = self in (AlertEventKind.REJECTED, AlertEventKind.SET_ASIDE)
        return f"entry.{self.value}" if is_of_entries else f"alert.{self.value}"


class EventCounter(models.Model):
    """The newest event's number in a workspace: see `memory.alerts.alert_events`."""

    workspace = models.OneToOneField(Workspace, primary_key=True, on_delete=models.CASCADE)
    last_seq = models.BigIntegerField(help_text="The number of events in the workspace so far.")

    class Privacy:
        erase = privacy.Erase.NOTHING

    class Meta:
        verbose_name = "event counter"

    def __str__(self) -> str:
        return f"{self.workspace}: {self.last_seq}"


class AlertEvent(models.Model):
    """One step in an alert's life, or one batch of entries, with its actor and run."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    seq = models.BigIntegerField(
        help_text="The event's number in the workspace: 1, 2, 3 and so on, without gaps."
    )
    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="events")
    # Set only for events about entries, which have no alert. Indexed by `event_of_user`.
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
        help_text="The numbers of the log entries that were rejected, or had values set aside,"
        " together.",
    )
    kind = models.CharField(max_length=16, choices=AlertEventKind.choices)
    at = models.DateTimeField()
    actor = models.CharField(
        max_length=200, help_text="Who caused the event: a constraint run, an API key or a person."
    )
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="+")
    detail = models.JSONField(default=dict)

    LARGE = ("detail", "entries")

    class Privacy:
        # The row is kept for its number, since the event feed must not have gaps.
        erase = privacy.Erase.REDACT
        content = ("detail", "actor", "entries")
        export = privacy.Export(
            "alert-events",
            "the history of each alert, with who acted; also the entries that were rejected",
            order=("seq",),
        )
        owners = ("alert__user", "user")

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
        """The user whose alert or entries the event is about."""
        user = self.alert.user if self.alert else self.user
        assert user is not None  # guaranteed by `event_of_alert_or_entries`
        return user


class Verdict(models.TextChoices):
    """Feedback on an alert: useful or wrong."""

    USEFUL = "useful", "useful"
    WRONG = "wrong", "wrong"


class Judge(models.TextChoices):
    """Who gives feedback. Each judge has one current verdict per alert."""

    PRODUCT = "product", "product"
    STAFF = "staff", "staff"


class AlertFeedback(models.Model):
    """The current verdict on an alert from the product or from staff."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="feedback")
    judge = models.CharField(max_length=16, choices=Judge.choices)
    verdict = models.CharField(max_length=16, choices=Verdict.choices)
    note = models.TextField(blank=True, default="")
    actor = models.CharField(
        max_length=200, help_text="The API key or the person that gave the feedback."
    )
    at = models.DateTimeField()

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("note", "actor")
        export = privacy.Export("alert-feedback", "the feedback on each alert")

    class Meta:
        ordering = ["alert", "judge"]
        verbose_name_plural = "feedback"
        constraints = [
            models.UniqueConstraint(fields=["alert", "judge"], name="one_verdict_per_judge"),
        ]

    def __str__(self) -> str:
        return f"{self.judge}: {self.verdict}"


class PausedConstraint(models.Model):
    """A constraint that has been paused for one user because it was too noisy.

    A paused constraint doesn't change any of the user's alerts.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.ForeignKey(
        MemoryUser, on_delete=models.CASCADE, related_name="paused_constraints"
    )
    constraint = models.CharField(max_length=300, help_text="Path of the constraint's source.")
    source_hash = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="Hash of the paused source; the constraint is resumed when its source changes.",
    )
    reason = models.TextField()
    paused_at = models.DateTimeField()
    paused_by = models.CharField(max_length=200)
    resumed_at = models.DateTimeField(null=True)
    resumed_by = models.CharField(max_length=200, blank=True, default="")
    resumed_because = models.TextField(blank=True, default="")

    class Privacy:
        erase = privacy.Erase.DELETE
        content = (
            *("constraint", "source_hash", "reason", "paused_by", "resumed_by"),
            "resumed_because",
        )
        export = privacy.Export(
            "paused-constraints", "constraints that were paused because they were too noisy"
        )
        section = privacy.Section.ALERTS

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
