"""A workspace's overrides of rates and quotas, and its usage: see `memory.admission.usage`."""

from django.core.exceptions import ValidationError
from django.db import models

from memory.workspace_settings import overrides, quotas


def _number(
    verbose_name: str, help_text: str
) -> "models.PositiveIntegerField[float | int | str | None, int | None]":
    return models.PositiveIntegerField(verbose_name, null=True, blank=True, help_text=help_text)


class QuotaSettings(models.Model):
    """Overrides of a workspace's rates and quotas.

    An empty field inherits the server's setting.
    """

    reads_per_minute = _number("reads a minute", "Requests that read.")
    writes_per_minute = _number("writes a minute", "Requests that write.")
    costly_per_minute = _number(
        "costly requests a minute",
        "Requests that compute: queries, questions, searches, contexts, proposals, imports, exports"
        " and backtests.",
    )
    entries_per_minute = _number("entries a minute", "Entries appended to logs.")
    max_users = _number("users", "Users that there may be.")
    max_entries = _number("entries", "Entries that the logs of all users may have.")
    max_entries_per_user = _number("entries of a user", "Entries that one user's log may have.")
    max_log_mib = _number("logs (MiB)", "MiB that the entries of all users may have.")
    max_pending_entries = _number(
        "pending entries", "Entries that may wait to be worked on; past it no more are taken."
    )
    max_waiting_runs = _number(
        "waiting runs", "Queries, questions, proposals and imports that may wait or go on."
    )
    max_backtests = _number("backtests", "Backtests that may wait or go on.")

    class Meta:
        abstract = True

    @property
    def chosen_quotas(self) -> overrides.Chosen:
        """The workspace's overrides; None inherits the server's setting."""
        return overrides.chosen_of(self, quotas.NUMBERS)

    def clean(self) -> None:
        """Refuse values that would shut everybody out."""
        super().clean()
        if problems := overrides.out_of_range(quotas.NUMBERS, self.chosen_quotas):
            raise ValidationError(problems)
