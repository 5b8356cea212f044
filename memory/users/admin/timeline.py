"""A user's timeline, and the panel at the top of the user's page."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, OuterRef, Q, QuerySet, Sum
from django.http import HttpRequest, JsonResponse, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from memory.alerts.models.alerts import Alert, AlertEvent
from memory.constraints.admin.forecasts import look_up_alerts
from memory.kernel.admin import masking
from memory.kernel.admin.display import badge, inline, sandbox_badge, shortened
from memory.kernel.admin.links import link, link_by_content, list_url
from memory.kernel.admin.rows import cached_on_row, may_see, rows_for
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.texts import one_line
from memory.llm.admin import money
from memory.llm.llm_spending import SpendingRow
from memory.llm.models import LlmCall
from memory.log import entry_log
from memory.log.admin.links import link_to_entry
from memory.log.models.entries import EntryOutcome, LogEntry, Outcome
from memory.users import progress, timeline
from memory.users.admin import days
from memory.users.timeline import KINDS, BadPlace, Cursor, TimelineEvent, TimelinePage
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger

PENDING = "pending"
# On the user's own page: maximum number of events shown, and the number of days over which recent
# cost is added up.
ON_PAGE = 15
COST_DAYS = 30
# If an entry was recorded more than this before or after it occurred, the day it occurred is shown
# too.
LATE = datetime.timedelta(days=1)


# -- The timeline ----------------------------------------------------------------------------------


def rows_by_kind(request: HttpRequest) -> Mapping[str, QuerySet[Any]]:
    """Return the rows that may be shown, with only the columns needed, keyed by kind of event."""
    rows: dict[str, QuerySet[Any]] = {
        "entries": rows_for(request, LogEntry)
        .defer("metadata", "salt", "payload_hash", "hash")
        .annotate(
            became=EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq"))
            .order_by()
            .values("outcome")[:1]
        ),
        "versions": defer_large(rows_for(request, Checkpoint)),
        "runs": defer_large(rows_for(request, Run), "checkpoint"),
        "alerts": defer_large(rows_for(request, AlertEvent), "alert"),
    }
    return {name: rows[name] for name, kind in KINDS.items() if may_see(request, kind.model)}


@dataclass(frozen=True)
class ShownEvent:
    """A timeline event, ready for display."""

    at: datetime.datetime
    kind: str
    what: SafeString
    name: str
    day: datetime.date | None  # the day it occurred, in the user's time zone; None if close to `at`


def show_events(user: MemoryUser, moments: Sequence[TimelineEvent]) -> Sequence[ShownEvent]:
    """Return timeline events ready for display, each with a link to the event's page."""
    zone = ZoneInfo(user.time_zone)
    return [
        ShownEvent(
            one.cursor.at,
            str(one.kind.model._meta.verbose_name),
            _what(one.row),
            one.kind.name,
            _day_of(one.row, zone),
        )
        for one in moments
    ]


def _day_of(row: Any, zone: datetime.tzinfo) -> datetime.date | None:
    """Return the date an entry is about if it was recorded much earlier or later, else None."""
    if not isinstance(row, LogEntry) or abs(row.occurred_at - row.recorded_at) <= LATE:
        return None
    return row.occurred_at.astimezone(zone).date()


def _what(row: Any) -> SafeString:
    match row:
        case LogEntry():
            became = getattr(row, "became", None) or PENDING
            return format_html("{} {}", link_to_entry(row), badge(became))
        case Checkpoint():
            return format_html(
                "{} from {}, up to entry #{}",
                link(row),
                row.get_origin_display(),
                row.seen_seq,
            )
        case Run():
            is_done = row.status == RunStatus.DONE
            seconds = row.timings.get("total")
            return format_html(
                "{} {}{} (trigger: {}){} {}",
                link(row),
                badge(row.outcome, row.get_outcome_display())
                if is_done
                else badge(row.status, row.get_status_display()),
                format_html(" on {}", link(row.checkpoint)) if row.checkpoint else "",
                row.get_trigger_display(),
                f", {seconds:.2f} s" if seconds is not None else "",
                sandbox_badge(row.runner) if row.runner else "",
            )
    return format_html(
        "{} {} {} by {}",
        link_by_content(row.alert, shortened(row.alert.message, 200)),
        badge(row.alert.severity, row.alert.get_severity_display()),
        badge(row.kind, row.get_kind_display()),
        masking.content(inline(row.actor)),
    )


def line_context(request: HttpRequest, user: MemoryUser) -> dict[str, Any]:
    """Return the template context for the timeline page requested in the URL.

    Raises BadPlace if the URL contains an invalid date or position.
    """
    visible = rows_by_kind(request)
    chosen = [one for one in timeline.chosen(request.GET.getlist("kind")) if one.name in visible]
    kinds = chosen or [KINDS[name] for name in visible]
    zone = ZoneInfo(user.time_zone)
    day = request.GET.get("date", "")
    before, after = (_read_cursor(request.GET.get(name, "")) for name in ("before", "after"))
    if day and not (before or after):
        try:
            date = parse_date(day)
        except ValueError:
            date = None
        if date is None:
            raise BadPlace(day)
        before = timeline.end_of(date, zone)
    page = timeline.page(
        user, {kind.name: visible[kind.name] for kind in kinds}, before=before, after=after
    )
    names = [kind.name for kind in kinds]
    only = [] if len(names) == len(visible) else names
    return {
        "kinds": [(KINDS[name], KINDS[name] in kinds) for name in visible],
        "date": day,
        "moments": show_events(user, page.moments),
        "newest": _address(only),
        "newer": _address(only, after=page.newer) if page.newer else "",
        "older": _address(only, before=page.older) if page.older else "",
        "is_elsewhere": bool(before or after),
    }


def _read_cursor(text: str) -> Cursor | None:
    return timeline.place_of(text) if text else None


def _address(kinds: Sequence[str], **places: Cursor) -> str:
    query = QueryDict(mutable=True)
    query.setlist("kind", list(kinds))
    for name, cursor in places.items():
        query[name] = str(cursor)
    return f"?{query.urlencode()}"


# -- The panel on the user's page ------------------------------------------------------------------


@dataclass(frozen=True)
class BarPart:
    """Part of a bar: its number, its start and width in percent, and a link to its rows."""

    name: str
    tone: str
    number: int
    start: float
    width: float
    url: str


def panel(request: HttpRequest, user: MemoryUser) -> dict[str, Any]:
    """Return the user panel's context, limited to what the staff member may see."""
    now = timezone.now()
    visible = rows_by_kind(request)
    counted = coverage_of(user) if may_see(request, LogEntry) else None
    latest: TimelinePage = timeline.page(user, _without_preparations(visible), limit=ON_PAGE)
    look_up_alerts(user, rows_for(request, Alert))
    return {
        "user": user,
        "progress": progress_of(request, user, now, counted.pending if counted else None),
        "failures": failures_of(request, user),
        "coverage": coverage(user) if counted else None,
        "cost": cost(user) if may_see(request, LlmCall) else None,
        "day": days.present(request, user),
        "moments": show_events(user, latest.moments),
        "has_more": latest.older is not None,
        "sees_line": bool(visible),
    }


def _without_preparations(rows: Mapping[str, QuerySet[Any]]) -> Mapping[str, QuerySet[Any]]:
    """Leave out runs that aren't part of the user's history: staff queries, and what is sent along.

    Each attempt to call a language model first runs an outlook, even if the call then fails.
    """
    if "runs" not in rows:
        return rows
    runs = rows["runs"].exclude(kind=RunKind.QUERY, trigger=RunTrigger.STAFF)
    runs = runs.exclude(kind=RunKind.OUTLOOK, outcome=RunOutcome.OK)
    return {**rows, "runs": runs}


def coverage(user: MemoryUser) -> Mapping[str, Any]:
    """Return the number of entries with each outcome, as parts of a bar."""
    counts = coverage_of(user)
    total = counts.total
    parts, start = [], 0.0
    for name, tone, number in (
        ("covered", "good", counts.covered),
        (PENDING, "caution", counts.pending),
        ("dismissed", "plain", counts.dismissed),
        ("rejected", "bad", counts.rejected),
    ):
        width = 100 * number / total if total else 0.0
        model = LogEntry if name == PENDING else EntryOutcome
        filters = {"outcome": name} if name == PENDING else {"outcome__exact": Outcome(name)}
        url = list_url(model, user__id__exact=user.pk, **filters) if number else ""
        parts.append(BarPart(name, tone, number, round(start, 3), round(width, 3), url))
        start += width
    return {"total": total, "parts": parts}


@cached_on_row
def coverage_of(user: MemoryUser) -> entry_log.Coverage:
    """Return the number of the user's entries with each outcome."""
    return entry_log.coverage(user)


def cost(user: MemoryUser) -> Sequence[Mapping[str, Any]]:
    """Return the user's spending on language models, both recent and in total."""
    since = _cost_since()
    own: dict[str, Any] = {"user__id__exact": user.pk}
    return [
        {
            "title": title,
            "calls": f"{spent.calls:,}",
            "url": list_url(LlmCall, **filters) if spent.calls else "",
            "tokens_in": f"{spent.tokens_in:,}",
            "tokens_out": f"{spent.tokens_out:,}",
            "cost": money(spent.cost),
        }
        for spent, title, filters in zip(
            spent_on(user),
            (f"last {COST_DAYS} days", "in total"),
            ({**own, "started_at__gte": since}, own),
            strict=True,
        )
    ]


@cached_on_row
def spent_on(user: MemoryUser) -> Sequence[SpendingRow]:
    """Return the usage of the user's model calls, both recent and in total."""
    sums: dict[str, Any] = {}
    for when, only in (("late", Q(started_at__gte=_cost_since())), ("all", Q())):
        sums |= {
            f"{when}_calls": Count("pk", filter=only),
            f"{when}_in": Sum("input_tokens", filter=only, default=0),
            f"{when}_out": Sum("output_tokens", filter=only, default=0),
            f"{when}_cost": Sum("cost", filter=only, default=Decimal(0)),
        }
    totals = LlmCall.objects.filter(user=user).order_by().aggregate(**sums)
    return [
        SpendingRow(*(totals[f"{when}_{what}"] for what in ("calls", "in", "out", "cost")))
        for when in ("late", "all")
    ]


def _cost_since() -> datetime.datetime:
    return timezone.now().replace(second=0, microsecond=0) - datetime.timedelta(days=COST_DAYS)


# -- Work in progress ------------------------------------------------------------------------------


def progress_of(
    request: HttpRequest, user: MemoryUser, now: datetime.datetime, pending: int | None = None
) -> Mapping[str, Any] | None:
    """Describe the work in progress for the user, or return None if staff may not see it.

    Pending entries are counted unless `pending` gives their number.
    """
    if not may_see(request, Lane):
        return None
    status = progress.read_progress(user, lanes_of(user), pending)
    return {
        "text": status.in_words(now).capitalize() + ".",
        "working": status.is_working,
        "url": reverse("admin:memory_memoryuser_progress", args=[user.pk]),
    }


@cached_on_row
def lanes_of(user: MemoryUser) -> Sequence[Lane]:
    """Return the user's lanes."""
    return progress.lanes_of(user)


def failures_of(request: HttpRequest, user: MemoryUser) -> Sequence[SafeString]:
    """Say why the user's pending work failed at its last attempt."""
    if not may_see(request, Lane):
        return []
    return [
        format_html(
            "{} failed: {}",
            capfirst(lane.get_name_display()),
            masking.content(inline(one_line(lane.last_error, 300))),
        )
        for lane in lanes_of(user)
        if lane.due_at is not None and lane.last_error
    ]


def progress_answer(request: HttpRequest, user: MemoryUser) -> JsonResponse:
    """Return a JSON description of the user's work in progress, for the polling script."""
    status = progress_of(request, user, timezone.now())
    assert status is not None
    return JsonResponse({"text": status["text"], "working": status["working"]})
