"""Make forecasts, but only for constraints that don't have a current forecast yet."""

import ast
import datetime
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from memory.constraints import forecasts
from memory.constraints.models.forecasts import Forecast
from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import parse_python
from memory.kernel.users import is_erased
from memory.kernel.work import leases
from memory.project import Outline
from memory.project.paths import constraint_path
from memory.versions import checkpoints
from workers.execution.loading import LoadPlan, loaded, plan_run
from workers.sandbox.results import ConstraintForecast, SandboxError

logger = structlog.get_logger(__name__)

# Matches code that may read any domain: code that refers to other constraints, or to a class by its
# quoted name.
_ANYWHERE = re.compile(r"\bconstraints\b|\bRef\s*\[\s*[\"']")


def make(forecast: Forecast) -> None:
    """Make a forecast that the caller has claimed; give up after too many attempts."""
    if forecast.attempts > settings.UAC_MAX_ATTEMPTS:  # each attempt's worker was killed
        error = forecast.last_error or "the worker was killed repeatedly"
        _give_up(forecast, error)
        return
    try:
        _make(forecast)
    except leases.LeaseLost:
        raise
    except Exception as error:
        if forecast.attempts < settings.UAC_MAX_ATTEMPTS or is_erased(error):
            raise
        logger.exception("forecast_failed")
        _give_up(forecast, str(error))


def _give_up(forecast: Forecast, error: str) -> None:
    """Record that no forecast can be made: the daily run still happens, and requests one again."""
    with suppress(leases.LeaseLost):
        given_up = {"due_at": None, "dead_since": timezone.now(), "last_error": error[:4000]}
        leases.write(forecast, **_done(**given_up))
        logger.warning("forecast_given_up", error=error[:1000])


def _done(**columns: Any) -> dict[str, Any]:
    return {**leases.RELEASED, "attempts": 0, "dead_since": None, **columns}


def _make(forecast: Forecast) -> None:
    started = time.monotonic()
    user = MemoryUser.objects.select_related("workspace", "head").get(pk=forecast.user_id)
    checkpoint, start = user.head, user.alerts_instant
    if checkpoint is None or start is None or user.alerts_version != checkpoint.version:
        # The constraints haven't run on this version yet; when they do, that run will request a
        # forecast again.
        leases.write(forecast, **_done(due_at=None))
        return
    plan = plan_run(user, checkpoint)
    basis = forecasts.basis_of(user, plan.applicabilities or ())
    end = start + forecasts.horizon()
    results, counts = _find(plan, forecast.results, start, end)
    ends = [datetime.datetime.fromisoformat(one["end"]) for one in results.values()]
    outlook = forecasts.foreseen(results, user.time_zone, start, min([*ends, end]))
    with transaction.atomic():
        locked = MemoryUser.objects.locked(user.pk)
        leases.write(
            forecast,
            **_done(
                last_error="",
                checkpoint=checkpoint,
                basis=basis,
                computed_at=timezone.now(),
                start=start,
                horizon_days=settings.UAC_FORECAST_DAYS,
                known_until=outlook.known_until,
                needs_daily=outlook.needs_daily,
                results=results,
                timeline=outlook.timeline,
                timings={"seconds": time.monotonic() - started, **counts},
            ),
        )
        # In the meantime, another run may have requested a forecast, or another version may have
        # become the head.
        Forecast.objects.filter(pk=forecast.pk, due_at=forecast.due_at).update(due_at=None)
        written = Forecast.objects.get(pk=forecast.pk)
        after = locked.alerts_instant
        if (
            after is not None
            and locked.head_id == checkpoint.pk
            and locked.time_zone == user.time_zone
            and forecasts.is_fresh(written, checkpoint, after, basis)
        ):
            forecasts.wake(locked, written, after)


def _find(
    plan: LoadPlan,
    earlier: Mapping[str, Any],
    start: datetime.datetime,
    end: datetime.datetime,
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the constraints' forecasts by path, and how many of them were made and reused.

    An `earlier` forecast is reused if it still covers at least half of the horizon.
    """
    keys = keys_of(plan)
    half = start + forecasts.horizon() / 2
    stored = {
        path: earlier[path]
        for path, key in keys.items()
        if _is_good(earlier.get(path), key, plan.user.time_zone, start, half)
    }
    missing = [path for path in keys if path not in stored]
    made = _look_ahead(plan, missing, start, end) if missing else []
    for one in made:
        stored[one.path] = _to_json(one, keys[one.path], start, end)
    counts = {
        "looked_at": len(missing),
        "used_again": len(keys) - len(missing),
        "calls": sum(one.calls for one in made),
    }
    return {path: stored[path] for path in keys}, counts


def _look_ahead(
    plan: LoadPlan, paths: Sequence[str], start: datetime.datetime, end: datetime.datetime
) -> Sequence[ConstraintForecast]:
    try:
        with loaded(plan) as sandbox:
            return sandbox.forecast(
                paths,
                now=start,
                until=end,
                time_zone=plan.user.time_zone,
                bindings=plan.bindings,
                limits=plan.allowance.limits,
            ).results
    except SandboxError as error:
        if error.infrastructure or error.error is None:
            raise
        return [ConstraintForecast(path=path, error=error.error) for path in paths]


def _is_good(
    result: Mapping[str, Any] | None,
    key: str,
    time_zone: str,
    start: datetime.datetime,
    half: datetime.datetime,
) -> bool:
    """Return whether a constraint's existing forecast is still valid and reaches far enough."""
    if result is None or result["key"] != key or result["error"] is not None:
        return False
    begin, end = (datetime.datetime.fromisoformat(result[one]) for one in ("start", "end"))
    if result["until"] is not None:
        end = min(end, forecasts.instant_of(result["until"], time_zone))
    return begin <= start and half <= end


def _to_json(
    made: ConstraintForecast, key: str, start: datetime.datetime, end: datetime.datetime
) -> dict[str, Any]:
    return {
        "key": key,
        "start": start.isoformat(),
        "end": end.isoformat(),
        "error": made.error.to_json() if made.error else None,
        "takes_now": made.takes_now,
        "findings": [list(one) for one in made.findings],
        "changes": [list(one) for one in made.changes],
        "until": made.until,
    }


def keys_of(plan: LoadPlan, own: Sequence[str] | None = None) -> dict[str, str]:
    """Map each path to a hash of all that the constraint's findings depend on, except the clock.

    `own` are the paths of the user's own constraints to include; by default, all are included.
    """
    outline, tree = plan.outline, plan.checkpoint.tree
    paths = [constraint_path(name) for name in outline.constraints]
    schemas = {domain.schema_path: name for name, domain in outline.domains.items()}
    own_paths = paths if own is None else own
    texts = checkpoints.read_files(plan.checkpoint, {*own_paths, *schemas})
    imported = {name: domains_in(texts.get(path, ""), outline) for path, name in schemas.items()}
    most = plan.allowance.limits.alerts

    def key(source: object, domains: set[str], bindings: object) -> str:
        pending, reached = set(domains), set[str]()
        while pending:
            name = pending.pop()
            reached.add(name)
            pending |= imported.get(name, set()) - reached
        prefixes = tuple(f"domains/{name}/" for name in reached)
        files = sorted(item for item in tree.items() if item[0].startswith(prefixes))
        parts = [forecasts.RULES, plan.user.time_zone, most, source, bindings, files]
        return sha256(canonical_json(parts))

    keys = {}
    for path in own_paths:
        every = "constraints" in texts[path]
        source = sorted((one, tree[one]) for one in (paths if every else [path]))
        keys[path] = key(source, domains_in(texts[path], outline), None)
    for path, bindings in plan.bindings.items():
        if path in plan.sources:
            domains = {collection["domain"] for bound in bindings.values() for collection in bound}
            keys[path] = key(plan.sources[path], domains, bindings)
    return keys


def domains_in(text: str, outline: Outline) -> set[str]:
    """Return the domains that a file's code may read.

    Listing too many domains merely leads to unneeded forecasts. The text is parsed rather than just
    searched, since `from domains . home . state import leases` is valid Python as well.
    """
    names = set[str]()
    for node in ast.walk(parse_python(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "domains")
    imported = {tuple(name.split(".")[:2]) for name in names if name.split(".")[0] == "domains"}
    if ("domains",) in imported or _ANYWHERE.search(text):
        return set(outline.domains)
    return {name for _, name in imported} & set(outline.domains)
