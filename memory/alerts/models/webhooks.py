"""Webhook endpoints, their messages and delivery attempts. See `memory.alerts.delivery.outbox`."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertEvent, AlertKind, Severity
from memory.kernel.models import privacy
from memory.kernel.models.fields import exactly_if, index_if_set
from memory.kernel.models.leased import MortalWork
from memory.kernel.models.workspaces import Workspace


def findings() -> list[str]:
    """Return the alert kinds an endpoint receives by default."""
    return [AlertKind.FINDING]


def validate_printable(text: str) -> None:
    """Raise ValidationError if the text has invisible characters or characters that hide text."""
    if not text.isprintable():
        raise ValidationError("Use only printable characters, on one line.")


class WebhookEndpoint(models.Model):
    """A URL that a workspace's events are sent to, with its settings and recent failures."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(
        "URL",
        max_length=2000,
        help_text="Must use https and a public address. Redirects are not followed, so give the"
        " final URL.",
    )
    description = models.CharField(
        max_length=200, blank=True, default="", validators=[validate_printable]
    )
    event_types = ArrayField(
        models.CharField(max_length=16),
        default=list,
        blank=True,
        help_text="The types of events that the endpoint receives; all types if none is selected.",
    )
    alert_kinds = ArrayField(
        models.CharField(max_length=20),
        default=findings,
        help_text="The kinds of alerts that the endpoint receives. Findings are meant for your"
        " users; failed and paused constraints are meant for the constraints' maintainers.",
    )
    least_severity = models.CharField(
        max_length=16, choices=Severity.choices, default=Severity.INFO
    )
    created_at = models.DateTimeField(auto_now_add=True)

    enabled = models.BooleanField(default=True)
    disabled_at = models.DateTimeField(null=True, editable=False)
    disabled_reason = models.CharField(max_length=300, blank=True, default="", editable=False)

    # Fernet tokens: see `memory.kernel.encryption`.
    secret = models.BinaryField()
    previous_secret = models.BinaryField(null=True)
    previous_secret_until = models.DateTimeField(null=True, editable=False)

    failing_since = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When the current streak of failures began; empty if the last call succeeded.",
    )
    failures = models.IntegerField(
        default=0,
        editable=False,
        help_text="How many calls to the endpoint have failed since the last success.",
    )
    not_before = models.DateTimeField(
        null=True, editable=False, help_text="The endpoint is not called before this time."
    )
    minute_began_at = models.DateTimeField(null=True, editable=False)
    minute_calls = models.IntegerField(
        default=0,
        editable=False,
        help_text="How many calls have been made since the current minute began.",
    )

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.DELIVERIES
        named_by = "url"

    class Meta:
        ordering = ["workspace", "created_at"]
        verbose_name = "webhook endpoint"

    def __str__(self) -> str:
        return self.url


class DeliveryState(models.TextChoices):
    """A message's state as stored."""

    PENDING = "pending", "pending"
    DELIVERED = "delivered", "delivered"
    GIVEN_UP = "given_up", "failed permanently"


class DeliveryStanding(models.TextChoices):
    """A message's state as shown to people."""

    PENDING = "pending", "pending"
    HELD = "held", "held: the endpoint is disabled"
    DELIVERED = "delivered", "delivered"
    GIVEN_UP = "given_up", "failed permanently"


class Delivery(MortalWork):
    """A message for one endpoint, stored with its event and sent until the endpoint accepts it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(
        WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries"
    )
    # A test message has neither an event nor an alert.
    event = models.ForeignKey(
        AlertEvent, null=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="deliveries")
    seq = models.BigIntegerField(null=True, help_text="The event's number in the feed.")
    type = models.CharField(max_length=32)
    payload = models.TextField(
        help_text="The body of the request, exactly as it is signed and sent."
    )
    state = models.CharField(
        max_length=16, choices=DeliveryState.choices, default=DeliveryState.PENDING
    )
    created_at = models.DateTimeField(default=timezone.now)
    settled_at = models.DateTimeField(
        null=True, help_text="When the message was delivered or failed permanently."
    )

    LARGE = ("payload",)

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("payload",)
        plain = ("type",)
        export = privacy.Export(
            "deliveries",
            "messages about alerts and rejected entries, and the URLs that they were sent to",
            order=("created_at", "pk"),
        )
        section = privacy.Section.DELIVERIES
        owners = ("alert__user", "event__user")

    class Meta:
        ordering = ["-created_at", "-seq"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "event"], name="delivery_of_event"),
            exactly_if(
                models.Q(state="pending"), models.Q(settled_at=None), name="delivery_settled"
            ),
        ]
        indexes = [
            index_if_set("dead_since", "delivery_dead"),
            models.Index(fields=["-created_at", "-seq"], name="delivery_newest"),
            models.Index(fields=["endpoint", "-created_at"], name="delivery_of_endpoint"),
            models.Index(
                fields=["endpoint", "run_after", "seq"],
                name="delivery_pending",
                condition=models.Q(state="pending"),
            ),
            # Used to count the messages being sent.
            models.Index(
                fields=["endpoint", "lease_expires_at"],
                name="delivery_leased",
                condition=models.Q(state="pending", lease_expires_at__isnull=False),
            ),
            # Used to find an earlier, undelivered message about the same alert.
            models.Index(
                fields=["endpoint", "alert", "seq"],
                name="delivery_order",
                condition=models.Q(state="pending"),
            ),
            models.Index(
                fields=["endpoint", "created_at"],
                name="delivery_given_up",
                condition=models.Q(state="given_up"),
            ),
            index_if_set("settled_at", "delivery_settled"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {str(self.id)[:8]}"

    @property
    def message_id(self) -> str:
        """The message id that the receiver sees; it is the same for every attempt."""
        return f"msg_{self.id.hex}"

    @property
    def standing(self) -> DeliveryStanding:
        """The message's state; `held` while its endpoint is disabled."""
        if self.state == DeliveryState.PENDING and not self.endpoint.enabled:
            return DeliveryStanding.HELD
        return DeliveryStanding(self.state)


class DeliveryAttempt(models.Model):
    """One call to an endpoint, and its response."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="calls")
    at = models.DateTimeField(help_text="When the call began.")
    seconds = models.FloatField()
    address = models.GenericIPAddressField(null=True, help_text="The IP address that was called.")
    status = models.PositiveIntegerField(
        null=True, help_text="The HTTP status; empty if there was no response."
    )
    error = models.TextField(
        blank=True,
        default="",
        help_text="Why the attempt failed; empty if the message was delivered.",
    )
    answer = models.TextField(blank=True, default="", help_text="The beginning of the response.")

    class Privacy:
        erase = privacy.Erase.DELETE
        # An endpoint's response may repeat what was sent to it.
        content = ("error", "answer")
        plain = ("address",)
        export = privacy.Export("delivery-attempts", "every delivery attempt, with the response")
        section = privacy.Section.DELIVERIES

    class Meta:
        ordering = ["delivery", "at"]
        verbose_name = "delivery attempt"
        indexes = [models.Index(fields=["-at"], name="delivery_attempt_age")]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.status or 'no response'}"
