"""What is foreseen of each user."""

from django.contrib import admin
from django.utils.safestring import SafeString

from memory.admin.base import ReadOnlyAdmin, link
from memory.admin.display import NOTHING, facts, inline, lines, preformatted, shortened
from memory.models import Forecast

# So many events of a forecast are listed.
LISTED = 200


@admin.register(Forecast)
class ForecastAdmin(ReadOnlyAdmin[Forecast]):
    """What will open, change and resolve if nothing changes but the clock."""

    list_display = ["computed_at", "user_link", "next_change", "known_until", "needs_daily"]
    list_display_links = ["computed_at"]
    list_filter = ["needs_daily", "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    search_help_text = "By user id."
    ordering = ["next_change", "id"]
    when_empty = "No run of the constraints was looked ahead from yet."
    fields = [
        *("user_link", "version", "computed_at", "start", "horizon_days", "known_until"),
        *("next_change", "wakes_at", "needs_daily", "events", "took"),
        *("due_at", "attempts", "run_after", "error"),
    ]

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, forecast: Forecast) -> str:
        """Lead to the user."""
        return link(forecast.user)

    @admin.display(description="version")
    def version(self, forecast: Forecast) -> str:
        """Lead to the version that it is of."""
        checkpoint = forecast.checkpoint
        return link(checkpoint, f"v{checkpoint.version}" if checkpoint else None)

    @admin.display(description="foreseen")
    def events(self, forecast: Forecast) -> SafeString | str:
        """List what opens, changes and resolves."""
        return lines(
            inline(
                shortened(
                    f"{one['day'] or one['at']} {one['kind']} {one['severity'] or ''}"
                    f" {one['constraint']} {one['key'] or ', '.join(one['records'])}"
                    f" {one['error'] or ''}",
                    500,
                )
            )
            for one in forecast.timeline[:LISTED]
        )

    @admin.display(description="took")
    def took(self, forecast: Forecast) -> str:
        """Say how long it took, and how much was called."""
        return facts(forecast.timings) or NOTHING

    @admin.display(description="last error")
    def error(self, forecast: Forecast) -> SafeString | str:
        """Show what went wrong at the last try."""
        return preformatted(forecast.last_error)
