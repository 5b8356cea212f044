"""Sections of a user's page: merges, the language model's work, constraints and forecast."""

from django.db.models import Q
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from memory.alerts import feedback
from memory.alerts.admin.links import describe_rules
from memory.alerts.models.alerts import AlertFeedback
from memory.constraints import backtests
from memory.constraints.admin import own_constraints
from memory.constraints.admin.forecasts import (
    alerts_of,
    event,
    events_of,
    forecast_of,
    link_version,
    unforeseen,
)
from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    lines,
    local_time,
    rule_of,
    shortened,
)
from memory.kernel.admin.links import link
from memory.kernel.admin.pauses import pause_of
from memory.kernel.models.users import LaneName, MemoryUser
from memory.llm import lane_status
from memory.log.models.merges import Merge
from memory.users.admin import timeline

# Maximum number of forecast events listed for a user.
FORESEEN = 20


def show_merges(user: MemoryUser) -> SafeString | str:
    """Show the user that this user was merged into, and the users merged into this one."""
    if user.merged_into_id is None and not getattr(user, "has_merged", True):
        return NOTHING
    either = Merge.objects.filter(Q(merged=user) | Q(user=user)).order_by("pk")
    rows: list[SafeString] = []
    for row in either.select_related("user", "merged"):
        if row.merged_id == user.pk:
            into = "{} into {}: writes and queries for this user are rejected."
            rows.append(format_html(into, link(row, "Merged"), link(row.user)))
        if row.user_id == user.pk:
            was = "{} was {} into this user."
            rows.append(format_html(was, link(row.merged), link(row, "merged")))
    return lines(rows)


def show_model_work(user: MemoryUser) -> SafeString:
    """Show whether the language model is working on the user's entries and, if not, why."""
    of_model = next(lane for lane in timeline.lanes_of(user) if lane.name == LaneName.STRUCTURE)
    status = lane_status.read_status(user, of_model, pause_of)
    parts = [f"{counted(status.waiting, 'entry')} waiting"] if status.waiting else []
    if status.until is not None:
        until = local_time(status.until, user)
        again = status.state == lane_status.LaneState.STOPPED
        parts.append(f"will be retried at {until}" if again else f"work will begin at {until}")
    return format_html(
        "{} {}{}",
        badge(status.state),
        "; ".join(parts),
        format_html("<div>{}</div>", inline(shortened(status.reason, 500)))
        if status.reason
        else "",
    )


def show_constraints(user: MemoryUser, *, may_write: bool) -> SafeString | str:
    """List the user's constraints, each with its precision and whether it is paused."""
    judged = (
        feedback.count_verdicts(AlertFeedback.objects.filter(alert__user=user))
        if getattr(user, "all_alerts", True)
        else {}
    )
    paused = (
        {row.constraint: row for row in user.paused_constraints.filter(resumed_at=None)}
        if getattr(user, "paused_rules", 1)
        else {}
    )
    paths = backtests.own_constraints(user.head)

    def useful(path: str) -> str:
        if path not in judged:
            return "not rated yet"
        return f"useful {feedback.describe_precision(judged[path])}"

    def named(path: str) -> SafeString:
        name = rule_of(path)
        if path not in paths or not may_write:
            return inline(name)
        address = own_constraints.own_constraint_url(user, name=name)
        return format_html('<a href="{}">{}</a>', address, inline(name))

    return lines(
        format_html(
            "{}: {} {}",
            named(path),
            useful(path),
            link(paused[path], "paused") if path in paused else "",
        )
        for path in sorted({*paths, *paused})
    )


def show_forecast(user: MemoryUser) -> SafeString | str:
    """List the next forecast events."""
    forecast = forecast_of(user)
    if forecast is None:
        return "no forecast yet"
    events = events_of(user)
    rules = describe_rules(user)
    rows = [event(one, alerts_of(user), rules) for one in events[:FORESEEN]]
    more = len(events) - len(rows)
    assert forecast.known_until is not None
    end = date_format(localtime(forecast.known_until), "DATE_FORMAT")
    last = f"{counted(more, 'more event')} until {end}" if more else f"nothing more until {end}"
    without = unforeseen(forecast)
    if without:
        last += f", except for {counted(len(without), 'constraint')} without a complete forecast:"
    header = [] if forecast.checkpoint_id == user.head_id else [link_version(forecast)]
    return lines([*header, *rows, inline(last), *without])
