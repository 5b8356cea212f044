"""The admin's front page: current problems and recent activity, with links to the rows."""

import datetime
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from django.db import models
from django.db.models import Count, QuerySet, Value
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.admin import overview
from memory.admin.overview import PERIODS, Period
from memory.alerts.admin.links import link_to_alert, show_escalation
from memory.alerts.models.alerts import (
    BY_URGENCY,
    LIVE_STATES,
    Alert,
    AlertState,
    PausedConstraint,
    Severity,
)
from memory.alerts.models.webhooks import Delivery, DeliveryState, WebhookEndpoint
from memory.kernel.admin.display import ago, counted, duration, inline, sandbox_badge
from memory.kernel.admin.hosts import state_of
from memory.kernel.admin.links import link, link_to_list, list_url
from memory.kernel.admin.rows import may_see, rows_for
from memory.kernel.admin.steady_lists import kept_rows
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.operations import Alarm, Heartbeat
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.staff import audit
from memory.kernel.staff.access import seen_by
from memory.kernel.staff.models import AuditKind
from memory.kernel.users import unpaused
from memory.kernel.work import hosts, stuck
from memory.kernel.work.kinds import KINDS
from memory.llm.admin import money
from memory.llm.llm_spending import SpendingRow
from memory.llm.models import LlmCall, LlmSpending
from memory.log.models.entries import EntryOutcome, Outcome
from memory.operations import alarms
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunOutcome

# Chart colours for severities and for groups of run outcomes.
SEVERITY_TONES = {Severity.CRITICAL: "bad", Severity.WARNING: "caution", Severity.INFO: "note"}
ENDING_TONES = ("good", "plain", "caution", "note", "strong", "bad")
# Maximum number of open alerts shown.
MAX_WORST = 5
# Maximum number of pauses, and of paused constraints, whose users are named.
MAX_PAUSED = 3
# The coordinates of a chart: the height of the highest bar, and the distance between bars.
HEIGHT, STEP = 100, 10
STEP_FORMATS = {"hour": "%H:%M", "day": "%b %d"}

Model: TypeAlias = type[models.Model]


@dataclass(frozen=True)
class Figure:
    """A number, linked to the list of the rows it counts, if there are any rows."""

    text: str
    url: str = ""
    tone: str = ""


def figure(number: float, url: str, tone: str = "") -> Figure:
    """Return a number, which has a link and a colour unless it is zero."""
    return Figure(f"{number:,}", url, tone) if number else Figure(f"{number:,}")


@dataclass(frozen=True)
class Series:
    """A chart's bars of one colour: one number per time step, each linked to its rows."""

    name: str
    tone: str
    numbers: Sequence[float]
    links: Sequence[str]

    def at(self, index: int) -> Figure:
        return figure(self.numbers[index], self.links[index])


@dataclass(frozen=True)
class Bar:
    """A number of a chart, drawn; without a script, since it is SVG."""

    x: int
    y: float
    height: float
    tone: str
    name: str
    url: str


@dataclass(frozen=True)
class Chart:
    """Numbers over time, shown as bars and as a table."""

    name: str
    title: str
    steps: Sequence[str]
    series: Sequence[Series]

    @property
    def is_empty(self) -> bool:
        return not any(any(one.numbers) for one in self.series)

    @property
    def highest(self) -> float:
        """The largest sum of a time step."""
        return max(
            sum(one.numbers[place] for one in self.series) for place in range(len(self.steps))
        )

    @property
    def bars(self) -> Iterator[Bar]:
        """The bars of each time step, one above the other."""
        scale = HEIGHT / self.highest
        for place, step in enumerate(self.steps):
            top = float(HEIGHT)
            for one in self.series:
                if number := one.numbers[place]:
                    height = number * scale
                    top -= height
                    name = f"{step}, {one.name}: {number:,}"
                    x, y = place * STEP, round(top, 2)
                    yield Bar(x, y, round(height, 2), one.tone, name, one.links[place])

    @property
    def marks(self) -> Sequence[str]:
        """The labels below the first, middle and last bars."""
        return [self.steps[0], self.steps[len(self.steps) // 2], self.steps[-1]]

    @property
    def width(self) -> int:
        return STEP * len(self.steps)

    @property
    def rows(self) -> Iterator[tuple[str, Sequence[Figure]]]:
        """The rows of the table, newest time step first, without empty steps."""
        for index in reversed(range(len(self.steps))):
            if any(one.numbers[index] for one in self.series):
                yield (self.steps[index], [one.at(index) for one in self.series])


def context(request: HttpRequest) -> dict[str, Any]:
    """Return the front page's context, limited to what the staff member may see."""
    now = timezone.now()
    period = PERIODS.get(request.GET.get("period", ""), PERIODS["day"])
    return {
        "now": now,
        "period": period,
        "periods": PERIODS.values(),
        **_now(request, now),
        "work": list(_work(request)),
        "hosts": list(_hosts(request)),
        "sees": {
            model._meta.model_name: may_see(request, model)
            for model in (
                Alarm,
                Alert,
                Checkpoint,
                Run,
                LlmCall,
                LlmSpending,
                MemoryUser,
                SandboxHost,
            )
        },
        **_went_on(request, period, now),
    }


# -- Current state ---------------------------------------------------------------------------------


def _alarms(request: HttpRequest) -> Sequence[Mapping[str, Any]]:
    if not may_see(request, Alarm):
        return []
    return [
        {
            "name": alarm.name,
            "link": link(alarm),
            "brief": link(alarm, f"alarm since {alarm.raised_at:%Y-%m-%d %H:%M} UTC"),
            "detail": inline(alarm.detail),
            "since": alarm.raised_at,
        }
        for alarm in alarms.raised()
    ]


def _dispatched(request: HttpRequest, now: datetime.datetime) -> str | None:
    """Return when the dispatcher last ran, or None if the staff member may not see heartbeats."""
    if not may_see(request, Heartbeat):
        return None
    last = Heartbeat.objects.filter(name=alarms.DISPATCHER).first()
    if last is None:
        return "The dispatcher has not run yet."
    return f"The dispatcher last ran {duration((now - last.at).total_seconds())} ago."


def _now(request: HttpRequest, now: datetime.datetime) -> Mapping[str, Any]:
    """Return what is wrong: alerts, the server, models that fail, and paused work.

    The band's tone is that of the worst of it.
    """
    counts = overview.live_alerts(rows_for(request, Alert)) if may_see(request, Alert) else {}
    open_ = {severity: counts.get((severity, AlertState.OPEN), 0) for severity in Severity}
    hindered = _hindered(request)
    raised = _alarms(request)
    # A model that fails for users is said once, with these users and the alarms about it.
    of_model = [one for one in raised if hindered.get("failing") and _is_of_model(one["name"])]
    server = [one for one in raised if one not in of_model]
    failing = list(_failing(request, hindered, [one["brief"] for one in of_model]))
    is_bad = raised or failing or open_[Severity.CRITICAL]
    sees_all = may_see(request, Alert) and may_see(request, Alarm) and may_see(request, Lane)
    worst = _worst_of(request) if counts else []
    if worst:
        people = {alert.user.public_id for alert in worst}
        person = people.pop() if len(people) == 1 else None
        subject = audit.Subject(model="alert", number=len(worst), person=person)
        audit.note(request.user, AuditKind.VIEW, subject, "front page")
    is_caution = open_[Severity.WARNING] or not sees_all
    return {
        "tone": "bad" if is_bad else "caution" if is_caution else "good",
        "server": server,
        "problems": len(raised),
        "dispatched": _dispatched(request, now),
        "failing": failing,
        "failing_calls": " and ".join(
            name
            for what, name in (("failing", "model"), ("endpoint", "webhook"))
            if hindered.get(what)
        ),
        "paused": list(_paused(request, hindered)),
        "open": [
            (severity, counted(number, f"{severity} alert"))
            for severity, number in reversed(open_.items())
            if number
        ],
        "worst": [_worst(alert) for alert in worst],
        "more": _more(open_, worst),
        "more_url": list_url(Alert, state__exact=AlertState.OPEN),
        "may_acknowledge": request.user.has_perm("memory.change_alert"),
        "alerts": _live(counts),
    }


def _worst_of(request: HttpRequest) -> list[Alert]:
    """Return the worst open alerts or, right after an action on them, the same as before."""
    rows = rows_for(request, Alert).filter(duplicate_of=None)
    kept = kept_rows(request)
    rows = rows.select_related("user__workspace")
    if kept is None:
        return list(rows.filter(state=AlertState.OPEN).order_by(*BY_URGENCY)[:MAX_WORST])
    return sorted(rows.filter(pk__in=kept), key=lambda alert: kept.index(str(alert.pk)))


def _more(open_: Mapping[Severity, int], shown: Collection[Alert]) -> str:
    """Return how many more alerts are open, by severity, or ""."""
    seen = Counter(alert.severity for alert in shown if alert.state == AlertState.OPEN)
    numbers = {severity: open_[severity] - seen[severity] for severity in reversed(Severity)}
    return ", ".join(f"{number:,} {severity}" for severity, number in numbers.items() if number > 0)


def _worst(alert: Alert) -> Mapping[str, Any]:
    return {
        "key": alert.pk,
        "is_open": alert.state == AlertState.OPEN,
        "alert": link_to_alert(alert),
        "user": link(alert.user),
        "age": ago(alert.opened_at),
        "escalation": show_escalation(alert),
    }


def _hindered(request: HttpRequest) -> Mapping[str, int]:
    """Count the lanes whose model keeps failing, the pauses, and the endpoints that fail."""
    failing = rows_for(request, Lane).filter(name=LaneName.STRUCTURE, due_at__isnull=False)
    failing = failing.exclude(last_error="")
    rows = {
        "failing": failing,
        "failing and paused": failing.exclude(unpaused()),
        "pause": rows_for(request, Pause).filter(resumed_at=None),
        "paused constraint": rows_for(request, PausedConstraint).filter(resumed_at=None),
        "endpoint": rows_for(request, WebhookEndpoint)
        .filter(enabled=True)
        .exclude(failing_since=None),
    }
    first, *others = (
        chosen.order_by().annotate(what=Value(what)).values_list("what").annotate(n=Count("*"))
        for what, chosen in rows.items()
    )
    return dict(first.union(*others, all=True))


def _is_of_model(alarm: str) -> bool:
    """Return whether an alarm says that the language model fails."""
    of_work = alarms.failing_alarm(LaneName.STRUCTURE)
    return alarm == of_work or alarm.startswith(alarms.model_alarm(""))


def _failing(
    request: HttpRequest, counts: Mapping[str, int], of_model: Sequence[SafeString | str]
) -> Iterator[SafeString]:
    """Yield what outside this server keeps failing, and what comes of it."""
    if number := counts.get("failing"):
        users = link_to_list(
            Lane, counted(number, "user"), name__exact=LaneName.STRUCTURE, failing="yes"
        )
        yield format_html(
            "The language model fails for {}{}: what they say is not understood until it succeeds."
            " {}",
            users,
            f" ({paused:,} of them paused)" if (paused := counts.get("failing and paused")) else "",
            format_html_join(", ", "{}", ((one,) for one in of_model)),
        )
    failing = rows_for(request, WebhookEndpoint).filter(enabled=True).exclude(failing_since=None)
    since = failing.order_by("failing_since").values_list("failing_since", flat=True)
    if (number := counts.get("endpoint")) and (first := since.first()):
        waiting = Delivery.objects.filter(endpoint__in=failing, state=DeliveryState.PENDING)
        yield format_html(
            "Calls to {} have failed for {}. Waiting until one succeeds: {}.",
            link_to_list(WebhookEndpoint, counted(number, "webhook endpoint"), failing="yes"),
            ago(first),
            counted(waiting.count(), "message"),
        )


def _paused(request: HttpRequest, counts: Mapping[str, int]) -> Iterator[SafeString]:
    """Link to the pauses and the paused constraints, of which no alert can come, and to whose."""
    for model, noun in ((Pause, "pause"), (PausedConstraint, "paused constraint")):
        if number := counts.get(noun):
            rows: QuerySet[Any] = rows_for(request, model).filter(resumed_at=None)
            rows = rows.select_related("user__workspace").order_by("-paused_at")[:MAX_PAUSED]
            whose = [link(row.user or row.workspace) for row in rows]
            shown = model._default_manager.filter(pk__in=[row.pk for row in rows])
            audit.note(request.user, AuditKind.VIEW, audit.subject_of(shown), "front page")
            more = f" and {number - MAX_PAUSED:,} more" if number > MAX_PAUSED else ""
            yield format_html(
                "{} ({}{})",
                link_to_list(model, counted(number, noun), resumed="no"),
                format_html_join(", ", "{}", ((one,) for one in whose)),
                more,
            )


def _live(counts: Mapping[tuple[str, str], int]) -> Mapping[str, Any]:
    """Return live alert counts by severity (most severe first) and state."""
    return {
        "states": LIVE_STATES,
        "total": sum(counts.values()),
        "rows": [
            {
                "severity": severity,
                "numbers": [
                    figure(
                        counts.get((severity, state), 0),
                        list_url(Alert, state__exact=state, severity__exact=severity),
                        SEVERITY_TONES[severity] if state == LIVE_STATES[0] else "",
                    )
                    for state in LIVE_STATES
                ],
            }
            for severity in reversed(Severity)
        ],
    }


def _work(request: HttpRequest) -> Iterator[Mapping[str, Any]]:
    """Yield the status of each kind of work, leaving out kinds without any work."""
    narrow = partial(seen_by, request.user)
    kinds = [kind.within(narrow) for kind in KINDS.values() if may_see(request, kind.model)]
    for one in stuck.work_statuses(kinds):
        numbers = {
            "waiting": one.waiting,
            "held": one.held,
            "failing": one.failing,
            "dead": one.dead,
        }
        if not any(numbers.values()):
            continue
        yield {
            "title": one.kind.label,
            "queue": one.kind.queue,
            "oldest": duration(one.oldest) if one.waiting and one.kind.since else "",
            "numbers": [
                figure(
                    number,
                    list_url(one.kind.model, work=f"{one.kind.name}.{how}"),
                    "bad" if how in ("failing", "dead") else "",
                )
                for how, number in numbers.items()
            ],
        }


def _hosts(request: HttpRequest) -> Iterator[Mapping[str, Any]]:
    for host in rows_for(request, SandboxHost).order_by("name")[:50]:
        report = host.report
        yield {
            "link": link(host),
            "state": state_of(host),
            "runner": sandbox_badge(str(report.get("runner", ""))),
            "problem": inline(str(report[hosts.PROBLEM])) if hosts.PROBLEM in report else "",
            "threads": host.threads,
            "ready": report.get("fresh", ""),
            "kept": report.get("leases", ""),
        }


# -- Recent activity -------------------------------------------------------------------------------


def _went_on(
    request: HttpRequest, period: Period, now: datetime.datetime
) -> Mapping[str, Sequence[Any]]:
    charts = list(_activity(request, period, now))
    ledger, column = _SPENDING[period.step]
    if not may_see(request, ledger):
        return {"charts": charts, "workspaces": [], "models": []}
    spent = overview.spending(
        rows_for(request, LlmCall), rows_for(request, LlmSpending), period, now
    )
    starts = period.starts(now)
    since, until = starts[0], starts[-1] + period.length

    def spender(name: str, row: SpendingRow, **filters: Any) -> Mapping[str, Any]:
        return {
            "name": inline(name),
            "calls": Figure(f"{row.calls:,}", _url_within(ledger, column, since, until, filters)),
            "tokens_in": f"{row.tokens_in:,}",
            "tokens_out": f"{row.tokens_out:,}",
            "cost": money(row.cost),
        }

    return {
        "charts": [*charts, *_spending(period, now, spent)],
        "workspaces": [
            spender(name, row, workspace__id__exact=key) for key, name, row in spent.by_workspace
        ],
        "models": [spender(name, row, model=name) for name, row in spent.by_model],
    }


# The table that spending is read from by hour and by day, and its column with the time.
_SPENDING: Mapping[str, tuple[Model, str]] = {
    "hour": (LlmCall, "started_at"),
    "day": (LlmSpending, "day"),
}


def _url_within(
    model: Model,
    column: str,
    since: datetime.datetime,
    until: datetime.datetime,
    filters: Mapping[str, Any],
) -> str:
    """Return the URL of the list of rows whose time is in a period."""
    ends = (since.date(), until.date()) if column == "day" else (since, until)
    within = {f"{column}__gte": ends[0], f"{column}__lt": ends[1]}
    return list_url(model, **within, **filters)


@dataclass(frozen=True)
class _Steps:
    """The time steps of the charts about one table, whose `column` has the time of a row."""

    period: Period
    now: datetime.datetime
    model: Model
    column: str

    def series(
        self,
        name: str,
        tone: str,
        numbers: Mapping[datetime.datetime, float],
        **filters: Any,
    ) -> Series:
        """Return a series; the numbers link to the rows of their step that pass the filters."""
        starts, length = self.period.starts(self.now), self.period.length
        links = [
            _url_within(self.model, self.column, start, start + length, filters) for start in starts
        ]
        return Series(name, tone, [numbers.get(start, 0) for start in starts], links)

    def chart(self, name: str, title: str, series: Sequence[Series]) -> Chart:
        form = STEP_FORMATS[self.period.step]
        labels = [f"{start:{form}}" for start in self.period.starts(self.now)]
        return Chart(name, title, labels, series)


def _activity(request: HttpRequest, period: Period, now: datetime.datetime) -> Iterator[Chart]:
    """Yield the charts of alerts, of runs, and of the gate's decisions."""
    if may_see(request, Alert):
        opened = overview.opened_alerts(rows_for(request, Alert), period, now)
        alerts = _Steps(period, now, Alert, "opened_at")
        series = [
            alerts.series(
                severity.label,
                SEVERITY_TONES[severity],
                _steps_of(opened, [severity]),
                severity__exact=severity.value,
            )
            for severity in reversed(Severity)
        ]
        yield alerts.chart("alerts", "Alerts opened", series)
    runs = _Steps(period, now, Run, "finished_at")
    endings = overview.run_endings(rows_for(request, Run), period, now)

    def ended(name: str, tone: str, outcomes: Collection[RunOutcome]) -> Series:
        numbers = _steps_of(endings, outcomes)
        return runs.series(name, tone, numbers, outcome__in=",".join(outcomes))

    if may_see(request, Run):
        tones = zip(overview.RUN_ENDINGS.items(), ENDING_TONES, strict=True)
        series = [ended(name, tone, outcomes) for (name, outcomes), tone in tones]
        yield runs.chart("runs", "Runs by outcome", series)
    if may_see(request, Checkpoint):
        versions = _Steps(period, now, Checkpoint, "created_at")
        accepted = overview.count_by_step(rows_for(request, Checkpoint), "created_at", period, now)
        series = [versions.series("versions accepted", "good", accepted)]
        if may_see(request, Run):
            series.append(ended("proposals rejected", "caution", [RunOutcome.REJECTED]))
        if may_see(request, EntryOutcome):
            only = {"outcome__exact": Outcome.REJECTED}
            rows = rows_for(request, EntryOutcome).filter(**only)
            entries = overview.count_by_step(rows, "decided_at", period, now)
            outcomes = _Steps(period, now, EntryOutcome, "decided_at")
            series.append(outcomes.series("entries rejected", "bad", entries, **only))
        yield versions.chart("versions", "Gate decisions", series)


def _steps_of(
    counts: Mapping[tuple[datetime.datetime, str], int], kinds: Collection[str]
) -> Mapping[datetime.datetime, float]:
    """Return the numbers of these kinds by step."""
    numbers: Counter[datetime.datetime] = Counter()
    for (step, kind), number in counts.items():
        if kind in kinds:
            numbers[step] += number
    return numbers


def _spending(period: Period, now: datetime.datetime, spent: overview.Spending) -> Sequence[Chart]:
    steps = _Steps(period, now, *_SPENDING[period.step])

    def series(
        name: str, tone: str, number: Callable[[SpendingRow], float], **filters: str
    ) -> Series:
        numbers = {at: number(row) for at, row in spent.by_step.items()}
        return steps.series(name, tone, numbers, **filters)

    tokens = [
        series("tokens in", "note", lambda row: row.tokens_in),
        series("tokens out", "strong", lambda row: row.tokens_out),
    ]
    failed, fine = (",".join(one) for one in (overview.FAILED_CALLS, overview.OTHER_CALLS))
    calls = [
        series(
            "answered or under way", "note", lambda row: row.calls - row.failed, outcome__in=fine
        ),
        series("failed", "bad", lambda row: row.failed, outcome__in=failed),
    ]
    cost = [series("cost", "note", lambda row: float(row.cost))]
    return [
        steps.chart("calls", "Language model calls", calls),
        steps.chart("tokens", "Language model tokens", tokens),
        steps.chart("cost", "Language model cost", cost),
    ]
