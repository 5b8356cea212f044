"""The time bar of a user's page, and what was known, raised and stored on the day chosen on it.

To the left of today are the days of the log, with the states that the API returns for `as_of`. To
the right is the forecast: what alerts will open, change and resolve if nothing changes but the
clock.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import CharField, QuerySet, Value
from django.db.models.functions import Concat
from django.http import HttpRequest, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.alerts import alert_events
from memory.alerts.admin.links import describe_rules, link_to_alert
from memory.alerts.models.alerts import (
    BY_SEVERITY,
    BY_URGENCY,
    LIVE_STATES,
    Alert,
    severity_rank,
)
from memory.constraints.admin.forecasts import (
    alerts_of,
    day_of_event,
    event,
    events_of,
    forecast_of,
    look_up_alerts,
)
from memory.constraints.models.forecasts import Forecast
from memory.kernel import instants
from memory.kernel.admin.display import counted, folded, inline, visible
from memory.kernel.admin.links import list_url
from memory.kernel.admin.rows import may_see, rows_for
from memory.kernel.admin.source import block
from memory.kernel.admission import slots
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff.access import sees_content
from memory.log.admin.links import link_to_entry
from memory.log.models.entries import By, LogEntry
from memory.users.admin.knowledge import known_domains
from memory.versions import checkpoints, past_states
from memory.versions.admin.diffs import show_records
from memory.versions.admin.project import project_url
from memory.versions.admin.staff_runs import REFUSED
from memory.versions.checkpoints import AnyState, State
from memory.versions.computed_states import NotComputable
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.past_states import KnownState

# Maximum number of versions and of alerts marked on the bar, of alerts and of forecast events (or
# entries) listed, and of characters shown of the files of a computed state.
MAX_MARKS = 200
MAX_ALERTS = 10
MAX_EVENTS = 50
MAX_FILES = 200_000
# The bar's coordinates run from 0 to this.
WIDTH = 1000
# Mark the first entry by either time, which are not drawn.
_BEGAN = {by: f"began {by}" for by in By}


@dataclass(frozen=True)
class Mark:
    """A version, an alert or a forecast event on the bar, at `x`."""

    x: float
    css: str


@dataclass(frozen=True)
class TimeBar:
    """The days from the log's first to the forecast's last, one of which is chosen.

    `began` has the days of the first entry that occurred, and of the first that was recorded.
    """

    began: Mapping[By, datetime.date]
    first: datetime.date
    today: datetime.date
    last: datetime.date
    day: datetime.date
    marks: Sequence[Mark]
    by: By

    @property
    def number(self) -> int:
        """The number of the last day, counted from the first."""
        return (self.last - self.first).days

    @property
    def chosen(self) -> int:
        """The number of the chosen day."""
        return (self.day - self.first).days

    @property
    def is_forecast(self) -> bool:
        return self.day > self.today

    @property
    def is_unchecked(self) -> bool:
        """Return whether the chosen day is before the first on which constraints could run."""
        return self.day < self.began[By.RECORDED]

    @property
    def earlier(self) -> datetime.date | None:
        """The day of the first event, if it is before the bar's first day."""
        occurred = self.began[By.OCCURRED]
        return occurred if occurred < self.first else None

    @property
    def now_x(self) -> float:
        return self.x_of(self.today)

    def x_of(self, day: datetime.date) -> float:
        return round(WIDTH * (day - self.first).days / max(self.number, 1), 1)


def present(request: HttpRequest, user: MemoryUser) -> Mapping[str, Any]:
    """Return the bar, and what is known and raised now, as template context."""
    return {
        **_frame(_bar(request, user, _today(user), By.RECORDED), user),
        **_alerts(request, user, None),
        "domains": known_domains(request, user, user.head),
    }


def chosen(request: HttpRequest, user: MemoryUser) -> Mapping[str, Any]:
    """Return the bar, and what was known, raised and stored on the day that the URL chooses.

    The URL parameters are `on` (the day), `since` (the first of the days whose changes are listed,
    if any) and `by` (whose times count: `recorded` or `occurred`).
    """
    by = By.OCCURRED if request.GET.get("by") == By.OCCURRED else By.RECORDED
    today = _today(user)
    day = _day(request.GET, "on") or today
    bar = _bar(request, user, day, by)
    if is_before_log := by == By.RECORDED and day < bar.first and bar.earlier is not None:
        # The server has known of the user for a shorter time than the log tells of.
        by = By.OCCURRED
        bar = _bar(request, user, day, by)
    day = bar.day
    since = _day(request.GET, "since")
    asked = request.GET.get("on", "")
    context: dict[str, Any] = {
        **_frame(bar, user),
        "is_chosen": True,
        "since": since,
        "is_before_log": is_before_log,
        "not_shown": visible(asked) if asked not in ("", day.isoformat()) else "",
    }
    if bar.is_forecast:
        return {**context, **_forecast(request, user, bar), **_alerts(request, user, None)}
    context |= _alerts(request, user, instants.span_of(user, day.isoformat()).last)
    if not (may_see(request, Checkpoint) and sees_content(request.user)):
        return context
    try:
        with slots.COMPUTING.hold(user.workspace_id):
            known = _known(user, day, by)
            state = known.checkpoint
            changes: SafeString | str = ""
            if since is not None and state is not None:
                before = _known(user, min(since, day), by, at_start=True).checkpoint
                changes = show_records(before, state)
            return {
                **context,
                "known": known,
                "domains": known_domains(request, user, state),
                "changes": changes,
                "files": list(_files(state)) if state else [],
            }
    except NotComputable as error:
        log = _log(request, user, since, day)
        return {**context, **log, "not_computable": visible(error.why)}
    except (instants.BadMoment, *REFUSED) as error:
        return {**context, "problem": visible(str(error))}


def _known(user: MemoryUser, day: datetime.date, by: By, *, at_start: bool = False) -> KnownState:
    text = day.isoformat()
    if by == By.OCCURRED:
        return past_states.read_by_occurred(user, text, at_start=at_start)
    return past_states.read_as_of(user, text, at_start=at_start)


def _log(
    request: HttpRequest, user: MemoryUser, since: datetime.date | None, day: datetime.date
) -> dict[str, Any]:
    """Return the newest entries that had occurred by the end of a day."""
    until = instants.span_of(user, day.isoformat()).last
    occurred = rows_for(request, LogEntry).filter(user=user, occurred_at__lte=until)
    filters = {"user__id__exact": str(user.pk), "occurred_at__lte": day.isoformat()}
    if since is not None:
        began = instants.span_of(user, min(since, day).isoformat()).first
        occurred = occurred.filter(occurred_at__gte=began)
        filters["occurred_at__gte"] = since.isoformat()
    entries = list(occurred.order_by("-occurred_at", "-seq")[: MAX_EVENTS + 1])
    zone = ZoneInfo(user.time_zone)
    return {
        "entries": [
            (_local_day(entry.occurred_at, zone), link_to_entry(entry))
            for entry in entries[:MAX_EVENTS]
        ],
        "more_entries_url": list_url(LogEntry, **filters) if len(entries) > MAX_EVENTS else "",
    }


def _frame(bar: TimeBar, user: MemoryUser) -> dict[str, Any]:
    return {
        "bar": bar,
        "url": reverse("admin:memory_memoryuser_day", args=[user.pk]),
        "ways": By.choices,
        "time_zone": user.time_zone,
    }


def _today(user: MemoryUser) -> datetime.date:
    return timezone.now().astimezone(ZoneInfo(user.time_zone)).date()


def _day(query: QueryDict, name: str) -> datetime.date | None:
    """Return the day in a URL parameter, or None if it is missing or not a day."""
    text = query.get(name, "")
    try:
        return datetime.date.fromisoformat(text) if instants.is_day(text) else None
    except ValueError:
        return None


# -- The bar ---------------------------------------------------------------------------------------


def _bar(request: HttpRequest, user: MemoryUser, day: datetime.date, by: By) -> TimeBar:
    zone, today = ZoneInfo(user.time_zone), _today(user)
    ends, events = today, []
    if may_see(request, Forecast) and (forecast := forecast_of(user)) is not None:
        assert forecast.known_until is not None
        ends, events = forecast.known_until.astimezone(zone).date(), list(events_of(user))
    found = [(css, _local_day(at, zone)) for at, css in _moments(request, user)]
    days = {css: min(at, today) for css, at in found if css in _BEGAN.values()}
    began = {time: days.get(css, today) for time, css in _BEGAN.items()}
    first, last = began[by], max(ends, today)
    bar = TimeBar(began, first, today, last, min(max(day, first), last), [], by)
    found += [
        (f"foreseen {one['severity'] or 'info'}", day_of_event(one, zone))
        for one in sorted(events, key=lambda one: severity_rank(one["severity"] or "info"))
    ]
    marks = dict.fromkeys(Mark(bar.x_of(at), css) for css, at in found if first <= at <= last)
    return replace(bar, marks=[mark for mark in marks if mark.css not in _BEGAN.values()])


def _local_day(at: datetime.datetime, zone: ZoneInfo) -> datetime.date:
    try:
        return at.astimezone(zone).date()
    except OverflowError:  # at an end of the calendar
        return at.date()


def _moments(
    request: HttpRequest, user: MemoryUser
) -> QuerySet[Any, tuple[datetime.datetime, str]]:
    """Return the first entries and the newest versions and alerts, in one statement."""
    models: Sequence[type[Any]] = (LogEntry, Checkpoint, Alert)
    entries, versions, alerts = (
        rows_for(request, model).filter(user=user).order_by() for model in models
    )
    first, *others = (
        entries.order_by(f"{by}_at").values_list(f"{by}_at", Value(began, CharField()))[:1]
        for by, began in _BEGAN.items()
    )
    made = versions.order_by("-version").values_list("created_at", Value("version", CharField()))
    opened = alerts.order_by("-opened_at")
    opened = opened.values_list("opened_at", Concat(Value("alert "), "severity"))
    return first.union(*others, made[:MAX_MARKS], opened[:MAX_MARKS], all=True)


# -- A day -----------------------------------------------------------------------------------------


def _alerts(
    request: HttpRequest, user: MemoryUser, moment: datetime.datetime | None
) -> dict[str, Any]:
    """Return the alerts that were live at a time (default: now), most urgent first."""
    if not may_see(request, Alert):
        return {"sees_alerts": False}
    rows = rows_for(request, Alert).filter(user=user, duplicate_of=None)
    if moment is not None:
        rows = alert_events.live_at(rows, moment).order_by(BY_SEVERITY, "-opened_at")
    elif getattr(user, "live_alerts", True):
        rows = rows.filter(state__in=LIVE_STATES).order_by(*BY_URGENCY)
    else:
        rows = rows.none()
    shown = [link_to_alert(alert) for alert in rows[: MAX_ALERTS + 1]]
    states = {} if moment else {"state__in": ",".join(LIVE_STATES)}
    more = list_url(Alert, user__id__exact=user.pk, **states) if len(shown) > MAX_ALERTS else ""
    return {"sees_alerts": True, "alerts": shown[:MAX_ALERTS], "more_alerts_url": more}


def _files(state: AnyState) -> Iterator[SafeString]:
    """Yield a link to each file of a version, or the text of each file of a computed state."""
    if not isinstance(state, State):
        for path in sorted(state.tree):
            if not path.endswith("__init__.py"):
                url = project_url(state.pk, path)
                yield format_html('<a href="{}">{}</a>', url, inline(path))
        return
    room = MAX_FILES
    for path, text in checkpoints.read_files(state).items():
        room -= len(text)
        if text and room >= 0:
            yield folded(inline(path), block(text))
        elif text:
            yield format_html("{} (too much to show here)", inline(path))


def _forecast(request: HttpRequest, user: MemoryUser, bar: TimeBar) -> dict[str, Any]:
    """Return the forecast events from now to the chosen day, if staff may see forecasts."""
    if not may_see(request, Forecast):
        return {}
    zone = ZoneInfo(user.time_zone)
    look_up_alerts(user, rows_for(request, Alert))
    events = [one for one in events_of(user) if day_of_event(one, zone) <= bar.day]
    alerts, rules = alerts_of(user), describe_rules(user)
    shown: list[SafeString | str] = [event(one, alerts, rules) for one in events[:MAX_EVENTS]]
    more = len(events) - len(shown)
    return {"events": [*shown, counted(more, "more event")] if more else shown}
