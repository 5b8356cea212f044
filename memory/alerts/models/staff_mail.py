"""Staff members' email subscriptions to alerts, and the last event emailed for each."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models

from memory.alerts.models.alerts import Severity
from memory.kernel.models import privacy
from memory.kernel.models.fields import validate_time_zone
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.workspaces import Workspace


class MailMode(models.TextChoices):
    """When emails are sent."""

    AT_ONCE = "at_once", "immediately"
    DAILY = "daily", "daily digest"


class StaffSubscription(LeasedWork):
    """A staff member's email subscription to alerts: see `memory.alerts.delivery.staff_mail`."""

    staff = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="alert_subscriptions"
    )
    workspace = models.ForeignKey(
        Workspace,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="staff_subscriptions",
        help_text="The workspace whose alerts are sent; leave empty for all workspaces.",
    )
    enabled = models.BooleanField(default=True)
    least_severity = models.CharField(
        max_length=16,
        choices=Severity.choices,
        default=Severity.WARNING,
        help_text="Less severe alerts are left out unless they are escalated.",
    )
    mode = models.CharField(max_length=16, choices=MailMode.choices, default=MailMode.AT_ONCE)
    hour = models.PositiveSmallIntegerField(
        default=7,
        validators=[MaxValueValidator(23)],
        help_text="The hour when the daily digest is sent.",
    )
    time_zone = models.CharField(max_length=64, default="UTC", validators=[validate_time_zone])
    escalations = models.BooleanField(
        default=False,
        help_text="Send escalated alerts by e-mail immediately, regardless of the mode.",
    )
    operations = models.BooleanField(
        "alarms",
        default=False,
        help_text="Send alarms about the server itself by e-mail immediately.",
    )
    digest_due_at = models.DateTimeField(null=True, editable=False)
    sent_at = models.DateTimeField(null=True, editable=False)

    class Privacy:
        erase = privacy.Erase.NOTHING
        plain = ("last_error",)
        section = privacy.Section.DELIVERIES

    class Meta:
        ordering = ["id"]
        verbose_name = "e-mail subscription"

    def __str__(self) -> str:
        return f"{self.staff} / {self.workspace or 'all workspaces'}"

    def clean(self) -> None:
        """Reject accounts that have no email address."""
        super().clean()
        if self.staff_id and not self.staff.email:
            raise ValidationError(
                {"staff": "This account has no e-mail address: add one to the account first."}
            )


class MailCursor(models.Model):
    """The last event in a workspace's feed that has been emailed for a subscription.

    Escalations have their own cursor, since they don't wait for a digest.
    """

    subscription = models.ForeignKey(
        StaffSubscription, on_delete=models.CASCADE, related_name="cursors"
    )
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    seq = models.BigIntegerField(default=0)
    escalations_seq = models.BigIntegerField(default=0)

    class Privacy:
        erase = privacy.Erase.NOTHING

    class Meta:
        ordering = ["id"]
        verbose_name = "e-mail cursor"
        constraints = [
            models.UniqueConstraint(
                fields=["subscription", "workspace"], name="one_cursor_per_workspace"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.subscription}: {self.workspace} up to {self.seq}"
