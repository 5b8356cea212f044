"""The alerts shown to a language model: the alerts on one day, and their changes on later days.

The day is that of the newest entry that the model is working on, not the server's date, because a
log may be imported years after it was written. Nothing in this module opens or resolves an alert.
"""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Q

from memory.alerts.models.alerts import Alert, AlertState, severity_rank
from memory.constraints import forecasts
from memory.kernel.models.users import MemoryUser
from memory.versions import runs
from memory.versions.models.runs import Run, RunOutcome
from workers.execution.loading import LoadPlan, loaded, plan_run
from workers.execution.results import finding_of
from workers.findings import MAX_ALERTS
from workers.sandbox.client import Sandbox
from workers.sandbox.results import ConstraintResult, SandboxError
from workers.sandbox.runner import runner_name

# Total time limit for all constraints' forecasts, since a constraint's author is waiting for them.
FORECAST_SECONDS = 5.0


def execute(run: Run) -> None:
    """Store the alerts of the run's version as of `run.instant`, and how they will change later.

    If the version's own code fails, no alerts are stored. Raises SandboxError if no sandbox is
    available or if the sandbox fails.
    """
    output: dict[str, Any] = {}
    try:
        output = _outlook(run)
    except SandboxError as error:
        if error.infrastructure:
            raise
    runs.finish(run, runs.Result(outcome=RunOutcome.OK, output=output, runner=runner_name()))


def _outlook(run: Run) -> dict[str, Any]:
    """Return the day, the alerts and their changes; snoozed alerts are left out."""
    user, at = run.user, run.instant
    output: dict[str, Any] = {"day": day_of(user, at).isoformat(), "alerts": [], "coming": []}
    if run.checkpoint is None:
        return output
    plan = plan_run(user, run.checkpoint)
    with loaded(plan) as sandbox:
        ran = plan.run_constraints(sandbox, at)
        paths = [one.path for one in ran.results]
        coming = foresee(sandbox, plan, at, paths)
    alerts = alerts_of(ran.results, put_off=put_off(user))
    return {**output, "alerts": alerts[:MAX_ALERTS], "coming": coming[:MAX_ALERTS]}


def day_of(user: MemoryUser, at: datetime.datetime) -> datetime.date:
    """Return the date of a point in time in the user's time zone."""
    return at.astimezone(ZoneInfo(user.time_zone)).date()


def alerts_of(
    results: Iterable[ConstraintResult], *, put_off: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Return the alerts in these results, most severe first, except for the alerts in `put_off`."""
    alerts = [
        {"path": result.path, "severity": alert.severity, "message": alert.message}
        for result in results
        if result.error is None
        for alert in result.alerts
        if not put_off or finding_of(result.path, alert).fingerprint not in put_off
    ]
    return sorted(alerts, key=lambda one: -severity_rank(one["severity"]))


def put_off(user: MemoryUser) -> list[str]:
    """Return the fingerprints of the findings whose alerts are snoozed."""
    chosen = Q(state=AlertState.SNOOZED) | Q(duplicate_of__state=AlertState.SNOOZED)
    snoozed = Alert.objects.live().filter(chosen, user=user)
    return [*snoozed.values_list("fingerprint", flat=True)]


def foresee(
    sandbox: Sandbox, plan: LoadPlan, at: datetime.datetime, paths: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the days on which these constraints' alerts open, change and resolve.

    Alerts that cannot be forecast within the time limit, or whose constraint fails, are left out.
    """
    if not paths or not forecasts.horizon():
        return []
    limits, time_zone = plan.allowance.limits, plan.user.time_zone
    bounded = replace(limits, total_seconds=min(limits.total_seconds, FORECAST_SECONDS))
    try:
        until = at + forecasts.horizon()
    except OverflowError:  # the horizon would end after datetime.max
        return []
    try:
        made = sandbox.forecast(
            paths,
            now=at,
            until=until,
            time_zone=time_zone,
            bindings=plan.bindings,
            limits=bounded,
        ).results
    except SandboxError as error:
        if error.infrastructure:
            raise
        return []
    results = {one.path: {**vars(one), "error": None} for one in made if one.error is None}
    forecast = forecasts.foreseen(results, time_zone, at, until)
    changes: dict[str, dict[str, Any]] = {}
    for event in forecast.timeline:
        if event["kind"] in ("opens", "changes", "resolves"):
            subject = [event["key"]] if event["key"] is not None else event["records"]
            alert = changes.setdefault(
                event["fingerprint"], {"path": event["constraint"], "of": subject, "changes": []}
            )
            when = event["day"] or event["at"]
            alert["changes"].append([when, event["kind"], event["severity"]])
    return list(changes.values())
