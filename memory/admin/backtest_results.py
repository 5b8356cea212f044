"""Admin screens for backtest results: users and simulated alerts."""

from collections.abc import Collection

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.admin.base import ReadOnlyAdmin
from memory.admin.columns import badge_column, column
from memory.admin.display import badge, counted, inline, lines, preformatted, record_name, shortened
from memory.admin.links import link, link_to_key, link_to_list
from memory.constraints.models.backtests import BacktestFinding, BacktestUser
from memory.versions.models.checkpoints import Checkpoint


@admin.register(BacktestUser)
class BacktestUserAdmin(ReadOnlyAdmin[BacktestUser]):
    """Backtest results, one row per backtest and user."""

    list_display = ["name", "alerts", "how_far", "problem_count", "versions", "backtest_link"]
    list_filter = ["state", "backtest__workspace"]
    list_select_related = ["backtest__version__constraint", "user"]
    search_fields = ["user__user_id"]
    search_help_text = "Search by user id."
    ordering = ["-pk"]
    when_empty = "No user has been backtested yet."
    fields = [
        *("user_link", "backtest_link", "how_far", "alerts", "since", "known_until", "versions"),
        *("looks", "left_out", "told", "why"),
    ]

    name = column("user.user_id", inline, "user", "user__user_id")
    user_link = column("user", link, "user")
    backtest_link = column("backtest", link, "backtest")
    how_far = badge_column("state", "state", "state")
    why = column("error", preformatted, "why the evaluation failed")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BacktestUser]:
        found = super().get_queryset(request).annotate(number=Count("findings"))
        return found.defer(*_of_version("backtest"))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow the filter used by links from a backtest's page."""
        return lookup == "backtest__id__exact" or super().lookup_allowed(lookup, value, request)

    @admin.display(description="alerts", ordering="number")
    def alerts(self, row: BacktestUser) -> str:
        number = getattr(row, "number", 0)
        if not number:
            return "none"
        text = counted(number, "alert")
        return link_to_list(BacktestFinding, text, result__id__exact=row.pk)

    @admin.display(description="failures and pauses")
    def told(self, row: BacktestUser) -> SafeString | str:
        return lines(
            format_html(
                "{} {} v{} {}",
                one["at"][:16].replace("T", " "),
                badge(one["kind"], one["kind"].replace("_", " ")),
                one["version"],
                inline(one["message"]),
            )
            for one in row.problems
        )


@admin.register(BacktestFinding)
class BacktestFindingAdmin(ReadOnlyAdmin[BacktestFinding]):
    """Alerts simulated by backtests."""

    list_display = ["said", "how_grave", "user_link", "opened_at", "resolved_at", "backtest_link"]
    list_filter = ["severity", "result__backtest__workspace"]
    list_select_related = ["result__user", "result__backtest__version__constraint"]
    search_fields = ["result__user__user_id", "message"]
    search_help_text = "Search by user id or message."
    ordering = ["-opened_at"]
    when_empty = "No backtest has produced an alert yet."
    fields = [
        *("said", "how_grave", "user_link", "backtest_link", "day", "opened_at", "in_version"),
        *("records", "steps", "resolved_at", "resolved_version", "fingerprint"),
    ]

    user_link = column("result.user", link, "user", "result__user__user_id")
    backtest_link = column("result.backtest", link, "backtest")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BacktestFinding]:
        return super().get_queryset(request).defer(*_of_version("result__backtest"))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow the filters used by links from the pages of backtests and their users."""
        ids = ("result__backtest__id__exact", "result__id__exact")
        return lookup in ids or super().lookup_allowed(lookup, value, request)

    @admin.display(description="message", ordering="message")
    def said(self, finding: BacktestFinding) -> str:
        """Show the message that the alert had when it was opened."""
        return inline(shortened(finding.message, 500))

    @admin.display(description="severity", ordering="severity")
    def how_grave(self, finding: BacktestFinding) -> SafeString:
        """Show the highest severity that the alert reached."""
        return badge(finding.severity)

    @admin.display(description="version")
    def in_version(self, finding: BacktestFinding) -> str:
        known = checkpoint_keys([finding]).get((finding.result.user_id, finding.version))
        return link_to_key(Checkpoint, known, f"v{finding.version}")

    @admin.display(description="records")
    def records(self, finding: BacktestFinding) -> SafeString | str:
        return lines(
            format_html(
                "{} in {}",
                record_name(item["class"], item["key"]),
                inline(f"{item['domain']}.{item['collection']}"),
            )
            for item in finding.evidence
        )

    @admin.display(description="changes")
    def steps(self, finding: BacktestFinding) -> SafeString | str:
        return lines(
            format_html(
                "{} v{} {} {}",
                step["at"][:16].replace("T", " "),
                step["version"],
                badge(step["severity"]),
                ", ".join(step["changed"]),
            )
            for step in finding.changes
        )


def checkpoint_keys(found: Collection[BacktestFinding]) -> dict[tuple[int, int], int]:
    """Return the primary keys of the findings' checkpoints, keyed by (user, version)."""
    rows = Checkpoint.objects.filter(
        user__in={one.result.user_id for one in found}, version__in={one.version for one in found}
    )
    return {(row.user_id, row.version): row.pk for row in rows.only("user", "version")}


def _of_version(path: str) -> list[str]:
    large = ("source", "tests", "verdict", "bytecode")
    return [f"{path}__version__{name}" for name in large]
