"""A workspace's overrides of the server's settings: see `memory.kernel.settings`."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from memory.kernel.settings import (
    alert_settings,
    content_settings,
    environment,
    sandbox_limits,
    track_record_settings,
)
from memory.kernel.settings.overrides import Overrides, effective, validate_overrides
from memory.kernel.settings.sandbox_limits import SandboxLimits


def _whole(
    verbose_name: str | None = None,
) -> "models.PositiveIntegerField[float | int | str | None, int | None]":
    return models.PositiveIntegerField(verbose_name, null=True, blank=True)


def _action(verbose_name: str) -> "models.CharField[str, str]":
    return models.CharField(
        verbose_name,
        max_length=16,
        blank=True,
        default="",
        choices=[(one, one.replace("_", " ")) for one in environment.CONTENT_ACTIONS],
    )


# The groups of settings below except the sandbox limits, which depend on each other and are
# validated separately.
OTHERS = (
    environment.TRACK_RECORD,
    environment.STRUCTURING,
    environment.ALERTS,
    environment.QUOTAS,
    environment.RETENTION,
)


class SettingsOverrides(models.Model):
    """A workspace's overrides of the server's settings; None inherits the server's value.

    Changes take effect with the next run, call, entry or request. Each field is described in
    `memory.kernel.settings.environment`.
    """

    wall_seconds = models.FloatField(null=True, blank=True)
    total_seconds = models.FloatField(null=True, blank=True)
    cpu_seconds = _whole("CPU seconds")
    process_memory_mib = _whole("process memory (MiB)")
    output_kib = _whole("output (KiB)")
    result_kib = _whole("result (KiB)")
    result_depth = _whole()
    memory_mib = _whole("container memory (MiB)")
    single_use = models.BooleanField(
        "single-use containers",
        default=False,
        help_text="Destroy each container after one use. Otherwise, a user's container is kept for"
        " a short time, which makes further requests for the user many times faster.",
    )

    llm_judged_sessions = _whole("sessions")
    llm_judged_days = _whole("days")
    llm_judged_minimum = _whole("minimum")
    llm_refused_percent = _whole("refused (%)")
    llm_undone_percent = _whole("undone (%)")
    llm_resumptions = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="For each model: when, by whom and why it was allowed to continue with a new"
        " track record.",
    )
    llm_stops = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="For each stopped model: when and why it was stopped.",
    )

    structure_entries = _whole("entries")
    structure_idle_seconds = _whole("idle seconds")
    structure_age_seconds = _whole("age in seconds")

    escalate_critical_minutes = _whole("escalate critical alerts after (minutes)")
    escalate_warning_minutes = _whole("escalate warnings after (minutes)")
    escalate_info_minutes = _whole("escalate info alerts after (minutes)")
    alerts_per_constraint = _whole()
    openings_per_day = _whole()

    reads_per_minute = _whole("reads per minute")
    writes_per_minute = _whole("writes per minute")
    costly_per_minute = _whole("costly requests per minute")
    entries_per_minute = _whole("entries per minute")
    processor_percent = _whole("processor (%)")
    max_users = _whole("users")
    max_entries = _whole("entries")
    max_entries_per_user = _whole("entries per user")
    max_log_mib = _whole("logs (MiB)")
    max_pending_entries = _whole("pending entries")
    max_waiting_runs = _whole("waiting runs")
    max_backtests = _whole("backtests")

    keep_messages_days = _whole("keep messages for (days)")
    keep_runs_days = _whole("keep runs for (days)")
    keep_llm_calls_days = _whole("keep model calls for (days)")

    content_secret = _action("secret")
    content_email_address = _action("e-mail address")
    content_phone_number = _action("phone number")
    content_credit_card = _action("payment card")
    content_iban_code = _action("IBAN")
    content_ip_address = _action("IP address")

    class Meta:
        abstract = True

    def overrides(self, group: environment.Group) -> Overrides:
        """Return the overrides of a group's settings, keyed by field; a blank text is none."""
        values = {field: getattr(self, field) for field in group.overridable}
        return {field: None if value == "" else value for field, value in values.items()}

    def effective(self, group: environment.Group) -> dict[str, Any]:
        """Return a group's effective settings, keyed by field."""
        return effective(group, self.overrides(group))

    @property
    def sandbox_limits(self) -> SandboxLimits:
        """The limits on code from the workspace's users."""
        return sandbox_limits.effective(self.overrides(environment.SANDBOXES))

    @property
    def alert_limits(self) -> alert_settings.EffectiveSettings:
        """The effective settings for when to escalate alerts and when to pause constraints."""
        return alert_settings.EffectiveSettings(**self.effective(environment.ALERTS))

    @property
    def track_record_limits(self) -> track_record_settings.EffectiveSettings:
        """The effective track record limits; a language model that exceeds them is stopped."""
        return track_record_settings.EffectiveSettings(**self.effective(environment.TRACK_RECORD))

    @property
    def content_policy(self) -> dict[str, str]:
        """The effective action for each kind of sensitive content that is not simply stored."""
        actions = self.effective(environment.CONTENT)
        return {
            field.removeprefix("content_"): action
            for field, action in actions.items()
            if action != environment.STORED
        }

    def clean(self) -> None:
        """Reject overrides that are out of range or contradict each other."""
        super().clean()
        problems = sandbox_limits.validate_overrides(self.overrides(environment.SANDBOXES))
        for group in OTHERS:
            problems |= validate_overrides(group, self.overrides(group))
        actions = {field: getattr(self, field) for field in environment.CONTENT.overridable}
        problems |= content_settings.validate_overrides(actions)
        if problems:
            raise ValidationError(problems)
