"""Reconcile a user's alerts with the findings from one constraint run.

As long as runs keep yielding the same finding (judged by fingerprint, not by wording), its alert
stays live; once a run no longer yields it, the alert is resolved. If two constraints report the
same finding, only one alert is listed (`memory.alerts.duplicates`). If a constraint fails, its
alerts stay as they are, and another alert tells staff about the failure. A constraint that exceeds
its alert limit is paused (`memory.alerts.paused_constraints`): it changes no alerts until it is
resumed.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from django.utils import timezone

from memory.alerts.duplicates import (
    join_duplicates,
    list_duplicates,
    originals_of,
    record_lost_causes,
)
from memory.alerts.findings import (
    RESOLVES,
    ConstraintFinding,
    differences,
    make_finding,
    most_severe,
)
from memory.alerts.handover import take_over
from memory.alerts.models.alerts import Alert, AlertKind, Severity, severity_rank
from memory.alerts.paused_constraints import (
    ExceededLimit,
    find_exceeded,
    pause,
    record_severity_rise,
    resume_changed,
)
from memory.alerts.transitions import (
    CONSTRAINTS,
    Step,
    keep_alert,
    lock_current,
    open_alert,
    release_hold,
    resolve_alert,
)
from memory.kernel.daily_runs import next_run
from memory.kernel.models.users import MemoryUser
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.models.runs import Run

# If a run's timestamp is further in the future than this, the clock it came from was wrong; later
# runs with correct timestamps are not considered older than that run.
AHEAD = datetime.timedelta(hours=1)


def apply(
    run: Run,
    findings: Sequence[ConstraintFinding],
    *,
    completed: Collection[str],
    existing: Collection[str],
    over_limit: Mapping[str, Sequence[ConstraintFinding]] | None = None,
    sources: Mapping[str, str] | None = None,
    ended: Mapping[str, str] = MappingProxyType({}),
    takes_now: bool | None = None,
) -> bool:
    """Bring the user's alerts in line with the findings from one constraint run.

    `completed` contains the constraints that ran to completion, and `existing` all of the version's
    constraints. If an existing constraint did not complete, its alerts stay as they are. For a
    constraint that no longer exists, `ended` may give the reason. `over_limit` maps each constraint
    that was stopped at the alert limit to a few of its findings, most severe first. `sources`
    contains the source hashes of constraints that aren't files in the version. `takes_now`
    indicates whether any constraint takes the current time as a parameter; if it is given, the next
    run is scheduled as well.

    Returns False, and does nothing, if the alerts already reflect a newer version or evaluation
    time. Call this in the same transaction as `runs.finish`.
    """
    user = _advance(run, takes_now)
    if user is None:
        return False
    step = Step(user, CONSTRAINTS, run=run)
    hashes = {**(run.checkpoint.tree if run.checkpoint else {}), **(sources or {})}
    by_fingerprint = most_severe(findings)
    current = lock_current(user)
    paused = resume_changed(current, existing, hashes, step)
    new = [
        finding
        for fingerprint, finding in by_fingerprint.items()
        if finding.constraint not in paused and _is_new(current.get(fingerprint), finding)
    ]
    exceeded = find_exceeded(findings, new, over_limit or {}, paused, step)
    heard = _drop_paused(by_fingerprint, paused, exceeded)
    originals = originals_of(current)

    opened, graver = _open_and_keep(current, heard, step)
    quoted = [finding for some in (over_limit or {}).values() for finding in some]
    record_severity_rise(paused, [*by_fingerprint.values(), *quoted], current, step)
    silenced = paused | {excess.constraint for excess in exceeded}
    gone = [
        one
        for one in current.values()
        if _is_gone(one, by_fingerprint, completed, existing, silenced)
    ]
    _resolve_gone(gone, existing, ended, step)
    list_duplicates(current, heard, graver, step)
    join_duplicates(opened, current, heard, step)
    record_lost_causes(current, originals, step)
    for excess in exceeded:
        live = [alert for alert in current.values() if not alert.holds_back]
        pause(excess, hashes.get(excess.constraint, ""), live, step)
    step.record()
    return True


def _advance(run: Run, takes_now: bool | None) -> MemoryUser | None:
    """Lock the user; set the version that the alerts reflect and the time of the next run.

    Returns None if the alerts already reflect a newer version or evaluation time.
    """
    user = MemoryUser.objects.locked(run.user_id)
    version = run.checkpoint.version if run.checkpoint else 0
    newest = user.alerts_instant
    if newest is None or newest > timezone.now() + AHEAD:
        newest = run.instant
    if (version, run.instant) < (user.alerts_version, newest):
        return None
    user.alerts_version, user.alerts_instant = version, run.instant
    if takes_now is not None:
        user.constraints_due_at = next_run(user, run.instant, soon=takes_now)
    user.save(update_fields=["alerts_version", "alerts_instant", "constraints_due_at"])
    user.workspace = run.user.workspace
    return user


def _drop_paused(
    findings: Mapping[str, ConstraintFinding],
    paused: Collection[str],
    exceeded: Sequence[ExceededLimit],
) -> dict[str, ConstraintFinding]:
    """Return the findings that may open or change alerts: all but those from paused constraints."""
    silenced = {*paused, *(excess.constraint for excess in exceeded if not excess.may_open)}
    return {
        fingerprint: finding
        for fingerprint, finding in findings.items()
        if finding.kind != AlertKind.FINDING or finding.constraint not in silenced
    }


def _open_and_keep(
    current: dict[str, Alert], heard: Mapping[str, ConstraintFinding], step: Step
) -> tuple[list[Alert], list[Alert]]:
    """Open new alerts and update existing ones; return (opened, graver).

    The opened alerts are also added to `current`; `graver` are the alerts that became more severe.
    """
    opened, graver = [], []
    for fingerprint, finding in heard.items():
        alert = current.get(fingerprint)
        if _is_new(alert, finding):
            if alert is not None:
                release_hold(alert)
            current[fingerprint] = open_alert(finding, step)
            opened.append(current[fingerprint])
        elif alert is not None and not alert.holds_back:
            if severity_rank(finding.severity) > alert.rank:
                graver.append(alert)
            keep_alert(alert, finding, step)
    for alert in opened:
        take_over(alert, step)
    return opened, graver


def _resolve_gone(
    gone: Sequence[Alert], existing: Collection[str], ended: Mapping[str, str], step: Step
) -> None:
    """Resolve the alerts whose findings the run no longer yields, each with a reason."""
    assert step.run is not None
    for alert in gone:
        if alert.holds_back:
            release_hold(alert)
            continue
        reason = "no longer reported"
        if alert.constraint not in existing:
            reason = ended.get(alert.constraint, "constraint deleted")
        resolve_alert(alert, step, reason + _grounds(alert, step.run))


def _is_gone(
    alert: Alert,
    findings: Mapping[str, ConstraintFinding],
    completed: Collection[str],
    existing: Collection[str],
    silenced: Collection[str],
) -> bool:
    """Return whether a run shows that an alert no longer applies."""
    failed = alert.constraint in existing and alert.constraint not in completed
    if alert.fingerprint in findings or failed or alert.kind == AlertKind.CONSTRAINT_PAUSED:
        return False
    return alert.kind != AlertKind.FINDING or alert.constraint not in silenced


def _is_new(existing: Alert | None, finding: ConstraintFinding) -> bool:
    """Return whether a finding opens an alert.

    A finding whose alert was resolved manually opens a new one only if the finding has changed
    since.
    """
    return existing is None or (
        existing.holds_back and bool(differences(make_finding(existing), finding))
    )


def _grounds(alert: Alert, run: Run) -> str:
    """For a critical alert, name the language model's version and the entry that resolved it."""
    if alert.severity != Severity.CRITICAL or run.checkpoint is None:
        return ""
    marker = {"code": RESOLVES, "fingerprint": alert.fingerprint}
    checkpoint = (
        Checkpoint.objects.filter(
            user=alert.user_id,
            origin=Origin.LLM,
            version__lte=run.checkpoint.version,
            created_at__gte=alert.opened_at,
            verdict__checks__contains=[{"findings": [marker]}],
        )
        .order_by("-version")
        .first()
    )
    if checkpoint is None:
        return ""
    entry = next(
        finding["entry"]
        for check in checkpoint.verdict["checks"]
        for finding in check["findings"]
        if {**finding, **marker} == finding
    )
    version = checkpoint.version
    return f": by the language model's version {version}, because entry {entry} mentions it"
