"""Forecasts: which alerts constraints will raise if nothing but the clock changes.

After each constraint run, a worker computes a forecast (`workers/execution/forecasting.py`). The
constraints then run again at the next forecast change, rather than daily. A forecast is never a
finding in itself: it only determines when the constraints run next. Without a forecast, they keep
running daily.
"""

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from memory.alerts.findings import ConstraintFinding
from memory.alerts.models.alerts import Severity, severity_rank
from memory.constraints.applicability import Applicability
from memory.constraints.models.forecasts import Forecast
from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.daily_runs import next_daily_run
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.kernel.users import unpaused
from memory.kernel.work import leases
from memory.kernel.work.hints import hint
from memory.project.parse import parse_state
from memory.project.paths import FOLDER
from memory.project.values import last_day_of
from memory.versions import checkpoints, runs
from memory.versions.models.checkpoints import Checkpoint
from sandbox_image.uac.records import LAPSES_AFTER

# The maximum total number of events in a forecast, across all constraints. Further events are left
# to a later forecast.
MAX_EVENTS = 5000
# The maximum number of a domain's files that are read to find the records that will lapse.
MAX_FILES = 8
# Part of the hash of a forecast's inputs. Increment it whenever the way that days are counted or
# times are compared changes.
RULES = 1


def basis_of(user: MemoryUser, applicabilities: Iterable[Applicability]) -> str:
    """Return a hash of a forecast's inputs, except for the version.

    These inputs are the user's time zone, the workspace constraints with the records they are
    given, and the settings.
    """
    theirs = [
        [one.constraint.path, one.constraint.live.source_hash, one.match.bindings]
        for one in applicabilities
        if one.applies and one.constraint.live is not None
    ]
    rules = [RULES, settings.UAC_FORECAST_DAYS, settings.UAC_DAILY_RUN_HOUR]
    limits = user.workspace.alert_limits.alerts_per_constraint
    return sha256(canonical_json([rules, user.time_zone, limits, theirs]))


def horizon() -> datetime.timedelta:
    """Return how far a forecast looks ahead."""
    return datetime.timedelta(days=settings.UAC_FORECAST_DAYS)


# -- Scheduling forecasts and runs ----------------------------------------------------------------


def schedule_after_run(
    user: MemoryUser,
    checkpoint: Checkpoint,
    instant: datetime.datetime,
    applicabilities: Sequence[Applicability],
) -> None:
    """Schedule the next constraint run as forecast, or request a new forecast.

    `instant` is the evaluation time of the run that has just ended. Call this in the transaction
    that ends the run, after `reconcile.apply`.
    """
    if not settings.UAC_FORECAST_DAYS:
        return
    forecast = defer_large(Forecast.objects.filter(user=user), keep=["timeline"]).first()
    if forecast is not None and is_fresh(
        forecast, checkpoint, instant, basis_of(user, applicabilities)
    ):
        wake(user, forecast, instant)
    else:
        want(user)


def want(user: MemoryUser) -> None:
    """Request a forecast, which starts right away if no runs are waiting.

    A forecast that is already being computed will be repeated.
    """
    now = timezone.now()
    Forecast.objects.update_or_create(user=user, defaults={"due_at": now, "wakes_at": None})
    if not runs.are_waiting():  # otherwise, the dispatcher sends the notification later
        hint("forecasts", user.pk, workspace_pk=user.workspace_id)


def is_fresh(
    forecast: Forecast, checkpoint: Checkpoint, instant: datetime.datetime, basis: str
) -> bool:
    """Return whether a forecast is still valid at the given time.

    A forecast is valid if it was computed for this version and basis, and the time is in the first
    half of the period that the forecast covers.
    """
    if forecast.due_at is not None or forecast.start is None or forecast.known_until is None:
        return False
    return (forecast.checkpoint_id, forecast.basis) == (
        checkpoint.pk,
        basis,
    ) and forecast.start <= instant < min(renewed_at(forecast), forecast.known_until)


def renewed_at(forecast: Forecast) -> datetime.datetime:
    """Return the time by which the forecast must be renewed."""
    assert forecast.start is not None
    return forecast.start + datetime.timedelta(days=forecast.horizon_days) / 2


def wake(user: MemoryUser, forecast: Forecast, after: datetime.datetime) -> None:
    """Schedule the constraints to run at the forecast's next change after `after`.

    `after` is the evaluation time of the last constraint run. The caller must hold the lock on the
    user's row.
    """
    assert forecast.known_until is not None
    events = coming(forecast, after)
    forecast.next_change = datetime.datetime.fromisoformat(events[0]["at"]) if events else None
    # Renew the forecast at the daily hour, never earlier: a run at midnight would report the new
    # day's alerts too early.
    renewal = next_daily_run(user, renewed_at(forecast) - datetime.timedelta.resolution)
    # A forecast that ends soon must not make the constraints run more often than they would without
    # a forecast.
    soon = after + datetime.timedelta(minutes=settings.UAC_INSTANT_MINUTES)
    known_until = min(max(forecast.known_until, soon), renewal)
    due = known_until if forecast.next_change is None else min(known_until, forecast.next_change)
    if forecast.needs_daily:  # or earlier, if the last run requested an earlier run
        current = MemoryUser.objects.values_list("constraints_due_at", flat=True).get(pk=user.pk)
        due = min(due, current or next_daily_run(user, timezone.now()))
    forecast.wakes_at = due
    forecast.save(update_fields=["next_change", "wakes_at"])
    MemoryUser.objects.filter(pk=user.pk).update(constraints_due_at=due)


def coming(forecast: Forecast, after: datetime.datetime) -> list[dict[str, Any]]:
    """Return the forecast events after the given time, in chronological order."""
    return [
        event for event in forecast.timeline if datetime.datetime.fromisoformat(event["at"]) > after
    ]


def waiting() -> QuerySet[Forecast]:
    """Select the forecasts that are due."""
    return Forecast.objects.filter(
        unpaused(),
        due_at__isnull=False,
        user__head__isnull=False,
        user__redacting_since=None,
    )


def try_again(failed: QuerySet[Forecast]) -> int:
    """Make failed forecasts due now; return how many."""
    now = timezone.now()
    return failed.update(due_at=now, run_after=now, hinted_at=None, dead_since=None)


def forget(user: MemoryUser) -> None:
    """Discard a user's forecast and request a new one.

    A worker that is still computing the old forecast won't be able to store it.
    """
    Forecast.objects.filter(user=user).update(
        **leases.REVOKED,
        last_error="",
        due_at=timezone.now() if settings.UAC_FORECAST_DAYS else None,
        checkpoint=None,
        basis="",
        start=None,
        known_until=None,
        results={},
        timeline=[],
        next_change=None,
        wakes_at=None,
    )


# -- Combining the constraints' forecasts ---------------------------------------------------------


@dataclass(frozen=True)
class Foreseen:
    """The combined forecast for all constraints: its events, in order, and how complete it is.

    `needs_daily` is set if a constraint couldn't be forecast, which means that the constraints have
    to run daily.
    """

    timeline: list[dict[str, Any]]
    known_until: datetime.datetime
    needs_daily: bool


def foreseen(
    results: Mapping[str, Mapping[str, Any]],
    time_zone: str,
    start: datetime.datetime,
    end: datetime.datetime,
) -> Foreseen:
    """Combine the individual constraints' forecasts into one that begins at `start`.

    `results` maps each constraint's path to its forecast, which has `error`, `findings`, `changes`
    and `until`, as returned by the sandbox. A reused forecast may begin before `start`; its events
    up to `start` are in the past and are left out.
    """
    events: list[dict[str, Any]] = []
    known_until = end
    for path, result in results.items():
        if result["error"] is not None:
            continue
        if result["until"] is not None:
            known_until = min(known_until, instant_of(result["until"], time_zone))
        events += (
            event
            for event in _events(path, result, time_zone)
            if datetime.datetime.fromisoformat(event["at"]) > start
        )
    events.sort(
        key=lambda event: (
            datetime.datetime.fromisoformat(event["at"]),
            event["constraint"],
            event["fingerprint"],
        )
    )
    if len(events) > MAX_EVENTS:
        cut = datetime.datetime.fromisoformat(events[MAX_EVENTS]["at"])
        known_until = min(known_until, cut)
        events = events[:MAX_EVENTS]
    failed = any(result["error"] is not None for result in results.values())
    return Foreseen(events, known_until, failed)


def add_causes(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the events with their `causes`, each of which has a constraint, fingerprint and key.

    If a user's own constraint and a workspace constraint share a finding, it is a single alert
    (`memory.alerts.duplicates`). So if both constraints' findings change at the same time, with
    the same severity and records, there is a single event. If the findings have only one record,
    which may have several problems, both must also have the same key.
    """
    explained: list[dict[str, Any]] = []
    single: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        records = sorted(set(event["records"]))
        cause = {name: event[name] for name in ("constraint", "fingerprint", "key")}
        key = event["key"] if len(records) == 1 else None
        same = (event["at"], event["kind"], event["severity"], key, *records)
        is_theirs = event["constraint"].startswith(FOLDER)
        may_be_one = len(records) > 1 or key is not None
        if others := may_be_one and single[(not is_theirs, *same)]:
            others.pop(0)["causes"].append(cause)
            continue
        explained.append({**event, "causes": [cause]})
        single[(is_theirs, *same)].append(explained[-1])
    return explained


def lapses(user: MemoryUser) -> list[tuple[datetime.date, str]]:
    """Return which records of the head will lapse, and their first day without them.

    Looks from today as far ahead as forecasts do, but needs none: users without constraints have
    no forecast. Of each domain, only the newest files are read. During a redaction, none is read,
    since the head may still contain what is redacted.
    """
    if user.head is None or user.redacting_since is not None:
        return []
    first = timezone.now().astimezone(ZoneInfo(user.time_zone)).date()
    until = first + horizon()
    found = []
    for domain in checkpoints.outline(user.head).domains.values():
        if not any(class_.field(LAPSES_AFTER) for class_ in domain.classes.values()):
            continue
        paths = [*domain.state_paths()][-MAX_FILES:]
        for path, text in checkpoints.read_files(user.head, paths).items():
            for name, records in parse_state(path, text, domain).records.items():
                for record in records.values():
                    last_day = last_day_of(record.fields.get(LAPSES_AFTER))
                    if last_day is not None and first <= last_day < until:
                        day = last_day + datetime.timedelta(days=1)
                        found.append((day, f"{domain.name}.{name}:{record.key}"))
    return sorted(found)[:MAX_EVENTS]


def unforeseen(forecast: Forecast, time_zone: str) -> list[dict[str, Any]]:
    """Return the constraints without a forecast, or whose forecast ends before the horizon."""
    failures = []
    for path, result in forecast.results.items():
        if result["error"] is not None or result["until"] is not None:
            until = result["until"] and instant_of(result["until"], time_zone)
            failures.append({"constraint": path, "known_until": until, "error": result["error"]})
    return failures


def instant_of(moment: str, time_zone: str) -> datetime.datetime:
    """Convert a forecast's day or time to an instant; a day stands for the daily hour on it."""
    if len(moment) != len("2026-01-01"):
        return datetime.datetime.fromisoformat(moment)
    day = datetime.date.fromisoformat(moment)
    hour = datetime.time(settings.UAC_DAILY_RUN_HOUR)
    local = datetime.datetime.combine(day, hour, tzinfo=ZoneInfo(time_zone))
    return local.astimezone(datetime.UTC)


def _events(path: str, result: Mapping[str, Any], time_zone: str) -> Iterable[dict[str, Any]]:
    findings = [_finding(path, *one) for one in result["findings"]]
    shown: _FindingsShown = {}  # a failing constraint has no findings, but its alerts stay open
    for number, (at, error, alerts) in enumerate(result["changes"]):
        before = result["changes"][number - 1][1] if number else error
        common: dict[str, Any] = {
            "at": instant_of(at, time_zone).isoformat(),
            "day": at if len(at) == len("2026-01-01") else None,
            "constraint": path,
        }
        if error != before:
            kind = "recovers" if error is None else "fails"
            nothing: dict[str, Any] = {
                "fingerprint": "",
                "severity": None,
                "key": None,
                "records": [],
            }
            yield {**common, "kind": kind, **nothing, "error": error}
        if error is None:
            now = _gravest(alerts, findings)
            if number:
                yield from _compared(common, shown, now)
            shown = now


_FindingsShown = Mapping[str, tuple[str, int, ConstraintFinding, str]]


def _gravest(
    alerts: Sequence[Sequence[Any]], findings: Sequence[tuple[ConstraintFinding, str]]
) -> _FindingsShown:
    """Map each fingerprint to its most severe finding.

    Each value consists of the finding's severity, its index, the finding and its fingerprint.
    """
    by_fingerprint: dict[str, tuple[str, int, ConstraintFinding, str]] = {}
    for index, severity in alerts:
        finding, fingerprint = findings[index]
        earlier = by_fingerprint.get(fingerprint)
        if earlier is None or severity_rank(severity) > severity_rank(earlier[0]):
            by_fingerprint[fingerprint] = (severity, index, finding, fingerprint)
    return by_fingerprint


def _compared(
    common: Mapping[str, Any], before: _FindingsShown, after: _FindingsShown
) -> Iterable[dict[str, Any]]:
    for fingerprint in sorted({*before, *after}):
        earlier, later = before.get(fingerprint), after.get(fingerprint)
        if earlier and later and earlier[:2] == later[:2]:
            continue
        kind = "changes" if earlier and later else "opens" if later else "resolves"
        severity, _, finding, _ = later or earlier  # type: ignore[misc]
        yield {
            **common,
            "kind": kind,
            "fingerprint": fingerprint,
            "severity": severity,
            "key": finding.key,
            "records": [f"{e['domain']}.{e['collection']}:{e['key']}" for e in finding.evidence],
            "error": None,
        }


def _finding(
    path: str, key: str | None, records: Sequence[Sequence[str]], wording: str
) -> tuple[ConstraintFinding, str]:
    finding = ConstraintFinding(
        constraint=path,
        severity=Severity.INFO,
        message=wording,
        key=key,
        evidence=[
            {"domain": domain, "collection": collection, "key": of_record}
            for domain, collection, of_record in records
        ],
    )
    return finding, finding.fingerprint
