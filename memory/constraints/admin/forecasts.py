"""Admin screen for forecasts of users' alerts."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.alerts.admin.links import describe_rules
from memory.alerts.models.alerts import Alert
from memory.constraints import forecasts
from memory.constraints.models.forecasts import Forecast
from memory.kernel.admin import masking
from memory.kernel.admin.base import ReadOnlyAdmin
from memory.kernel.admin.columns import content_column, plain_column, row_column
from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    facts,
    inline,
    lines,
    rule_of,
    shortened,
)
from memory.kernel.admin.filters import PresenceFilter
from memory.kernel.admin.links import link
from memory.kernel.admin.rows import cached_on_row, rows_for
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser

# Maximum number of events listed per forecast.
LISTED = 200
# Maximum number of alerts looked up for one forecast's events.
MAX_ALERTS = 500


_WILL = {
    "opens": "will be raised",
    "changes": "will change",
    "resolves": "will resolve",
    "fails": "will fail",
    "recovers": "will stop failing",
}


def alerts_among(
    user: MemoryUser, events: Sequence[Mapping[str, Any]], rows: QuerySet[Alert]
) -> Mapping[str, Alert]:
    """Return the newest alert in `rows` for each fingerprint in `events`, keyed by fingerprint.

    Forecasts don't contain messages, so the messages are taken from the alerts. Only the first 500
    fingerprints are looked up.
    """
    wanted = list(dict.fromkeys(one["fingerprint"] for one in events if one["fingerprint"]))
    matching = (
        rows.filter(user=user, fingerprint__in=wanted[:MAX_ALERTS]) if wanted else rows.none()
    )
    newest = matching.order_by("fingerprint", "-opened_at").distinct("fingerprint")
    named = ("message", "severity")
    newest = newest.select_related("duplicate_of").only(
        "fingerprint", *named, *(f"duplicate_of__{name}" for name in named)
    )
    return {one.fingerprint: one.duplicate_of or one for one in newest}


def event(
    one: Mapping[str, Any], alerts: Mapping[str, Alert], rules: Mapping[str, str]
) -> SafeString:
    """Show a forecast event: what will be found, the change, the time, and the constraints.

    What will be found is the message of an earlier alert about it or, failing that, what the
    constraint demands (`rules`, by path) of which records.
    """
    alert = alerts.get(one["fingerprint"])
    paths = [cause["constraint"] for cause in one["causes"]]
    constraint = format_html_join(", ", "{}", ((inline(rule_of(path)),) for path in paths))
    if alert is not None and not masking.is_hidden():
        what: SafeString | str = link(alert, shortened(alert.message, 200))
        subject: SafeString | str = constraint
    else:
        records = ", ".join(record.partition(":")[2] for record in one["records"])
        rule = one["error"] or next((rules[path] for path in paths if path in rules), "")
        about = inline(shortened(records or one["key"] or "", 200))
        what = format_html("An alert about {}", about) if records or one["key"] else constraint
        named = constraint if what is not constraint else ""
        subject = format_html("{} {}", inline(shortened(rule, 200)), named)
    when = one["day"] or f"{one['at'][:16].replace('T', ' ')} UTC"
    return format_html(
        '{} {} on {} {} <span class="quiet">{}</span>',
        masking.content(what),
        _WILL.get(one["kind"], one["kind"]),
        when,
        badge(one["severity"]) if one["severity"] else "",
        masking.content(subject),
    )


def unforeseen(forecast: Forecast) -> list[SafeString | str]:
    """List the constraints whose forecasts are missing or incomplete, with the reasons."""
    rows: list[SafeString | str] = []
    for one in forecasts.unforeseen(forecast, forecast.user.time_zone):
        error = one["error"]
        until = f"forecast until {one['known_until']:%Y-%m-%d}" if one["known_until"] else ""
        why = f"{error['type']}: {shortened(error['message'], 200)}" if error else until
        named = format_html("{} {}", inline(rule_of(one["constraint"])), inline(why))
        rows.append(masking.content(named))
    return rows


def link_version(forecast: Forecast) -> SafeString | str:
    """Link to the version a forecast is based on, and note if there is a newer version."""
    checkpoint = forecast.checkpoint
    if checkpoint is None:
        return NOTHING
    shown = link(checkpoint)
    if checkpoint.pk == forecast.user.head_id:
        return shown
    newer = forecast.user.head
    return format_html("{} (the newest is v{})", shown, newer.version if newer else "?")


# -- A user's forecast, on the user's own pages ----------------------------------------------------


@cached_on_row
def forecast_of(user: MemoryUser) -> Forecast | None:
    """Return the user's forecast, or None if the user has no forecast."""
    rows = Forecast.objects.filter(user=user)
    forecast = defer_large(rows, "checkpoint", keep=Forecast.LARGE).first()
    if forecast is None or forecast.start is None or forecast.known_until is None:
        return None
    forecast.user = user
    return forecast


def look_up_alerts(user: MemoryUser, rows: QuerySet[Alert]) -> None:
    """Fetch and cache the alerts in `rows` that the forecast events refer to."""
    user.__dict__["_foreseen_alerts"] = alerts_among(user, events_of(user), rows)


def alerts_of(user: MemoryUser) -> Mapping[str, Alert]:
    """Return the alerts that `look_up_alerts` has fetched, keyed by fingerprint."""
    found: Mapping[str, Alert] = user.__dict__.get("_foreseen_alerts", {})
    return found


@cached_on_row
def events_of(user: MemoryUser) -> Sequence[Mapping[str, Any]]:
    """Return the events forecast to occur after the constraints' last run, in order."""
    forecast = forecast_of(user)
    after = user.alerts_instant or (forecast.start if forecast else None)
    if forecast is None or after is None:
        return []
    return forecasts.add_causes(forecasts.coming(forecast, after))


def day_of_event(one: Mapping[str, Any], zone: ZoneInfo) -> datetime.date:
    """Return the day of a forecast event in a time zone."""
    if one["day"]:
        return datetime.date.fromisoformat(one["day"])
    return datetime.datetime.fromisoformat(one["at"]).astimezone(zone).date()


# -- The screen ------------------------------------------------------------------------------------


class DailyFilter(PresenceFilter):
    """A list filter that separates users whose constraints still run daily from the rest."""

    title = "runs"
    parameter_name = "daily"
    filled, empty = "daily", "as forecast"

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Forecast]
    ) -> QuerySet[Forecast] | None:
        if self.value() not in ("yes", "no"):
            return None
        return queryset.filter(needs_daily=self.value() == "yes")


@admin.register(Forecast)
class ForecastAdmin(ReadOnlyAdmin[Forecast]):
    """Forecasts: which alerts will open, change and resolve if nothing changes but the clock."""

    list_display = ["computed_at", "user", "next_change", "known_until", "runs"]
    list_display_links = ["computed_at"]
    list_filter = [DailyFilter]
    ordering = ["next_change", "id"]
    when_empty = "There is no forecast yet."
    fields = [
        *("user", "version", "computed_at", "start", "horizon_days", "known_until"),
        *("next_change", "wakes_at", "runs", "events", "lapses", "unforeseen", "took"),
        *("due_at", "attempts", "run_after", "last_error"),
    ]

    version = row_column(link_version, "version", plain=True)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Forecast | None:
        """Return the forecast with its events, and the alerts that supply their messages."""
        forecast = super().get_object(request, object_id, from_field)
        if forecast is not None:
            events = forecasts.add_causes(forecast.timeline)
            alerts = alerts_among(forecast.user, events[:LISTED], rows_for(request, Alert))
            forecast.__dict__["_events"] = events, alerts
        return forecast

    @plain_column("runs", "needs_daily")
    def runs(self, forecast: Forecast) -> str:
        return "daily" if forecast.needs_daily else "as forecast"

    @content_column("forecast")
    def events(self, forecast: Forecast) -> SafeString | str:
        events, alerts = forecast.__dict__["_events"]
        rules = describe_rules(forecast.user)
        rows = [event(one, alerts, rules) for one in events[:LISTED]]
        more = len(events) - len(rows)
        return lines([*rows, counted(more, "more event")] if more else rows)

    @content_column("records that will lapse")
    def lapses(self, forecast: Forecast) -> SafeString | str:
        coming = forecasts.lapses(forecast.user)
        return lines(format_html("{} {}", f"{day}", inline(name)) for day, name in coming[:LISTED])

    @content_column("constraints without a complete forecast")
    def unforeseen(self, forecast: Forecast) -> SafeString | str:
        return lines(unforeseen(forecast))

    @plain_column("took")
    def took(self, forecast: Forecast) -> str:
        if not forecast.timings:
            return NOTHING
        return facts({**forecast.timings, "seconds": round(forecast.timings["seconds"], 2)})
