"""The life cycle of alerts: findings open, change and resolve them, and people handle them.

A constraint fires by yielding a finding. The same finding (by fingerprint, not by wording) keeps
its alert alive; when a run no longer makes it, the alert is resolved. A finding that two
constraints share is shown as one alert (`memory.alerting.duplicates`). A constraint that failed has
yielded nothing: its alerts stay as they are, and an alert for the staff reports the failure. One
that exceeds an alert limit is paused (`memory.alerting.alert_limits`), and changes no alert until
it is resumed.

Every function here locks the user's row first, so that no two locking orders can deadlock.
"""

import datetime
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import transaction
from django.db.models import (
    Case,
    CharField,
    F,
    Func,
    JSONField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.utils import timezone

from memory.alerting import alert_events, alert_limits, duplicates
from memory.alerting.alert_limits import Flood
from memory.canonical import canonical_json, sha256
from memory.delivery import webhooks
from memory.models import (
    Alert,
    AlertEvent,
    AlertFeedback,
    Checkpoint,
    Delivery,
    MemoryUser,
    Merge,
    PausedConstraint,
    Run,
)
from memory.models.alerts import (
    LIVE_STATES,
    AlertEventKind,
    AlertKind,
    AlertState,
    Severity,
    severity_rank,
)
from memory.models.checkpoints import Origin
from memory.models.runs import RunKind, RunTrigger
from memory.work import runs
from memory.workspace_settings.alert_settings import EffectiveSettings

# The actors of events that no person caused.
CONSTRAINTS = "constraints"
CLOCK = "clock"
REDACTION = "redaction"
MERGE = "merge"
MODEL = "language model"
# The gate's codes for a critical alert that a model's edits resolve, or would.
RESOLVES = "critical_alert_resolves"
HELD = "critical_alert_held"
# The placeholder for text that may quote something redacted, until the alert is reworded.
REDACTED = "(redacted)"
# A run that lies further ahead than this was dated by a wrong clock: later runs by the right clock
# are not older.
AHEAD = datetime.timedelta(hours=1)
MAX_SNOOZE = datetime.timedelta(days=366)
# The part of an error of a user's code that is shown, in characters; and the consequence of each.
MAX_ERROR = 1500
UNWATCHED = "Until it runs again, it raises no new alert."
# Sorts before the keys of all alerts.
FIRST = UUID(int=0)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One alert as a constraint yielded it.

    `evidence` names records: domain, collection, key, class and sources (the seqs of the entries
    that the record rests on).
    """

    constraint: str
    severity: Severity
    message: str
    key: str | None = None
    evidence: Sequence[Mapping[str, Any]] = ()
    kind: AlertKind = AlertKind.FINDING

    @property
    def fingerprint(self) -> str:
        """The identity of a finding: constraint, kind, and key or records; never wording."""
        identity: list[Any] = [self.constraint, self.kind]
        if self.key is not None:
            identity += ["key", self.key]
        else:
            records = {
                f"{item['domain']}.{item['collection']}:{item['key']}" for item in self.evidence
            }
            identity += ["evidence", sorted(records)]
        return sha256(canonical_json(identity))

    @property
    def records(self) -> list[str]:
        """The records of the evidence, sorted, so that the order of a set makes no difference."""
        return sorted(canonical_json(dict(item)) for item in self.evidence)

    @property
    def entries(self) -> list[int]:
        """The log entries behind the evidence, ascending."""
        return sorted({seq for item in self.evidence for seq in item["sources"]})


def failure(
    constraint: str, error: Mapping[str, Any], *, critical: bool = False, advice: str = ""
) -> Finding:
    """Return the staff's alert for a constraint that failed.

    `critical` is set if the constraint may itself raise critical alerts. `advice` says what to fix.
    """
    where = f" at line {error['line']}" if error.get("line") else ""
    said = f"{constraint} failed{where}: {error['type']}: {error['message']}"[:MAX_ERROR]
    return Finding(
        constraint=constraint,
        kind=AlertKind.CONSTRAINT_ERROR,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        message=" ".join(filter(None, [said.rstrip(".") + ".", advice, UNWATCHED])),
        key="failed",
    )


@dataclass(frozen=True)
class Step:
    """A transaction in which alerts of a user change: the user, the actor, the time and the run.

    Events are collected as they happen and stored at the end: the feed's counter is locked last.
    """

    user: MemoryUser
    actor: str
    at: datetime.datetime = field(default_factory=timezone.now)
    run: Run | None = None
    events: list[AlertEvent] = field(default_factory=list)

    @property
    def limits(self) -> EffectiveSettings:
        """How alerts live in the workspace."""
        return self.user.workspace.alert_limits

    def tell(self, alert: Alert, kind: AlertEventKind, **detail: Any) -> None:
        """Add an event of an alert; duplicates have no events."""
        if alert.duplicate_of_id is not None:
            return
        self.events.append(
            AlertEvent(
                alert=alert, kind=kind, actor=self.actor, run=self.run, at=self.at, detail=detail
            )
        )

    def untell(self, alert: Alert) -> None:
        """Remove the collected events of an alert."""
        self.events[:] = [event for event in self.events if event.alert != alert]

    def record(self) -> None:
        """Store the events in the feed; call it last."""
        alert_events.record(self.user, self.events)


def apply(
    run: Run,
    findings: Sequence[Finding],
    *,
    spoke: Collection[str],
    existing: Collection[str],
    flooded: Mapping[str, Sequence[Finding]] | None = None,
    sources: Mapping[str, str] | None = None,
    ended: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Bring the user's alerts in line with the findings of one run of the constraints.

    `spoke` are the constraints that ran to their end, `existing` all of the version's. Alerts of an
    existing constraint that did not end stay as they are; for one that does not exist, `ended` may
    give the reason. `flooded` are constraints that were stopped at the alert limit, each with a few
    of its findings, most severe first; `sources` the hashes of constraints that are no files of the
    version.

    Returns False, and does nothing, if alerts of a newer version or instant are in place already.
    Runs in a transaction of the caller, together with `runs.finish`.
    """
    user = MemoryUser.objects.select_for_update(no_key=True).get(pk=run.user_id)
    version = run.checkpoint.version if run.checkpoint else 0
    newest = user.alerts_instant
    if newest is None or newest > timezone.now() + AHEAD:
        newest = run.instant
    if (version, run.instant) < (user.alerts_version, newest):
        return False
    user.alerts_version, user.alerts_instant = version, run.instant
    user.save(update_fields=["alerts_version", "alerts_instant"])

    user.workspace = run.user.workspace
    step = Step(user, CONSTRAINTS, run=run)
    hashes = {**(run.checkpoint.tree if run.checkpoint else {}), **(sources or {})}
    found = most_severe(findings)
    known = _known(user)
    paused = _still_paused(known, existing, hashes, step)
    new = [
        finding
        for fingerprint, finding in found.items()
        if finding.constraint not in paused and _is_new(known.get(fingerprint), finding)
    ]
    said = [finding for finding in findings if finding.kind == AlertKind.FINDING]
    quoted = [finding for some in (flooded or {}).values() for finding in some]
    floods_now = alert_limits.find(
        user, said, new, flooded or {}, step.limits, step.at, without=paused
    )
    silenced = paused | {flood.constraint for flood in floods_now if not flood.may_open}
    originals = _originals(known)
    heard = {
        fingerprint: finding
        for fingerprint, finding in found.items()
        if finding.kind != AlertKind.FINDING or finding.constraint not in silenced
    }

    opened, graver = [], []
    for fingerprint, finding in heard.items():
        alert = known.get(fingerprint)
        if _is_new(alert, finding):
            if alert is not None:
                _let_go(alert)
            known[fingerprint] = _open(finding, step)
            _take_over(known[fingerprint], step)
            opened.append(known[fingerprint])
        elif alert is not None and not alert.holds_back:
            if severity_rank(finding.severity) > alert.rank:
                graver.append(alert)
            _keep(alert, finding, step)
    _tell_graver(paused, [*found.values(), *quoted], known, step)
    silenced |= {flood.constraint for flood in floods_now}
    for alert in known.values():
        if not _is_gone(alert, found, spoke, existing, silenced):
            continue
        if alert.holds_back:
            _let_go(alert)
        else:
            gone = ended.get(alert.constraint, "constraint deleted")
            reason = "no longer found" if alert.constraint in existing else gone
            _resolve(alert, step, reason + _grounds(alert, run))
    _list_duplicates(known, heard, graver, step)
    _join_duplicates(opened, known, heard, step)
    _tell_of_lost_causes(known, originals, step)
    for flood in floods_now:
        live = [alert for alert in known.values() if not alert.holds_back]
        _pause(flood, hashes.get(flood.constraint, ""), live, step)
    step.record()
    return True


def _is_gone(
    alert: Alert,
    found: Mapping[str, Finding],
    spoke: Collection[str],
    existing: Collection[str],
    silenced: Collection[str],
) -> bool:
    """Return whether a run shows that an alert is over."""
    failed = alert.constraint in existing and alert.constraint not in spoke
    if alert.fingerprint in found or failed or alert.kind == AlertKind.CONSTRAINT_PAUSED:
        return False
    return alert.kind != AlertKind.FINDING or alert.constraint not in silenced


def most_severe(findings: Sequence[Finding]) -> dict[str, Finding]:
    """Return the most severe finding of each fingerprint."""
    found: dict[str, Finding] = {}
    for finding in findings:
        earlier = found.get(finding.fingerprint)
        if earlier is None or severity_rank(finding.severity) > severity_rank(earlier.severity):
            found[finding.fingerprint] = finding
    return found


def _known(user: MemoryUser) -> dict[str, Alert]:
    """Return the alerts that are live or hold back new ones, by fingerprint."""
    alerts = Alert.objects.select_for_update(no_key=True).filter(user=user)
    known = alerts.filter(Q(state__in=LIVE_STATES) | Q(holds_back=True))
    return {alert.fingerprint: alert for alert in known}


def _is_new(known: Alert | None, finding: Finding) -> bool:
    """Return whether a finding opens an alert; while unchanged, a manual resolution holds."""
    return known is None or (known.holds_back and bool(differences(_as_finding(known), finding)))


def differences(before: Finding, finding: Finding) -> list[str]:
    """Return the names of the aspects of a finding that changed.

    These are its severity and its records, with their entries. Wording counts only for a finding
    without records, since a message may count days.
    """
    changed = []
    if before.severity != finding.severity:
        changed.append("severity")
    if before.records != finding.records:
        changed.append("evidence")
    if not finding.evidence and before.message not in (finding.message, REDACTED):
        changed.append("message")
    return changed


def _as_finding(alert: Alert) -> Finding:
    return Finding(
        constraint=alert.constraint,
        severity=Severity(alert.severity),
        message=alert.message,
        evidence=alert.evidence,
    )


def _open(finding: Finding, step: Step) -> Alert:
    alert = Alert(
        user=step.user,
        kind=finding.kind,
        constraint=finding.constraint,
        fingerprint=finding.fingerprint,
        severity=finding.severity,
        message=finding.message,
        evidence=list(finding.evidence),
        entries=finding.entries,
        opened_at=step.at,
        changed_at=step.at,
        last_run=step.run,
    )
    _now_open(alert, step)
    alert.save(force_insert=True)
    step.tell(alert, AlertEventKind.OPENED, severity=finding.severity)
    return alert


def _keep(alert: Alert, finding: Finding, step: Step) -> None:
    changed = differences(_as_finding(alert), finding)
    alert.last_run = step.run
    if alert.duplicate_of_id is not None:  # it has the state of the listed alert
        alert.severity, alert.message = finding.severity, finding.message
        alert.evidence, alert.entries = list(finding.evidence), finding.entries
        alert.save()
        return
    if not changed:
        # A countdown is reworded at every run: the new text is shown, but is no event.
        alert.message = finding.message
        alert.save(update_fields=["last_run", "message"])
        return
    if alert.message != finding.message and "message" not in changed:
        changed.append("message")
    wakes = alert.state == AlertState.SNOOZED and alert.snoozed_until is None
    was = {"severity": alert.severity, "message": alert.message}
    became = {"severity": finding.severity, "message": finding.message}
    graver = severity_rank(finding.severity) > severity_rank(alert.severity)
    alert.severity, alert.message = finding.severity, finding.message
    if "evidence" in changed:
        alert.evidence, alert.entries = list(finding.evidence), finding.entries
    alert.changed_at = step.at
    if alert.state == AlertState.OPEN:
        if "severity" in changed:
            _reschedule(alert, step.limits, step.at if graver else alert.open_since)
    elif graver or wakes:
        # The people who acknowledged or snoozed it had seen other or less severe findings.
        reason = "more severe" if graver else "changed"
        _reopen(alert, step, reason=reason, changed=changed)
        return
    alert.save()
    told = {"changed": changed, "graver": True} if graver else {"changed": changed}
    step.tell(alert, AlertEventKind.CHANGED, **told, before=was, after=became)


def _now_open(alert: Alert, step: Step) -> None:
    alert.state, alert.open_since, alert.changed_at = AlertState.OPEN, step.at, step.at
    alert.snoozed_until = alert.resolved_at = alert.escalated_at = None
    alert.holds_back = False
    alert.escalate_at = None
    _reschedule(alert, step.limits, step.at)


def _reschedule(alert: Alert, limits: EffectiveSettings, since: datetime.datetime) -> None:
    """Set when it is escalated; once it was, it is not again while it stays open."""
    if alert.duplicate_of_id is not None:
        alert.escalate_at = None
        return
    wait = limits.escalates_after(alert.severity)
    due = since + wait if wait is not None else None
    if due is not None and alert.escalate_at is not None and since != alert.open_since:
        due = min(due, alert.escalate_at)  # a higher severity never delays it
    alert.escalate_at = due if alert.escalated_at is None else None


def _let_go(alert: Alert) -> None:
    alert.holds_back = False
    alert.save(update_fields=["holds_back"])


def _grounds(alert: Alert, run: Run) -> str:
    """Return by which version and entry of a language model a critical alert is resolved."""
    if alert.severity != Severity.CRITICAL or run.checkpoint is None:
        return ""
    told = {"code": RESOLVES, "fingerprint": alert.fingerprint}
    checkpoint = (
        Checkpoint.objects.filter(
            user=alert.user_id,
            origin=Origin.LLM,
            version__lte=run.checkpoint.version,
            created_at__gte=alert.opened_at,
            verdict__checks__contains=[{"findings": [told]}],
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
        if {**finding, **told} == finding
    )
    version = checkpoint.version
    return f": by the language model's version {version}, since entry {entry} speaks of it"


def tell_held(user: MemoryUser, reasons: Mapping[str, str], run: Run) -> None:
    """Record in the history of live alerts, by fingerprint, that edits would have silenced them.

    It is recorded once until something else happens to the alert. Call it in a transaction.
    """
    locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
    step = Step(locked, MODEL, run=run)
    live = Alert.objects.filter(user=user, fingerprint__in=reasons, state__in=LIVE_STATES)
    held = {}
    for alert in live.select_related("duplicate_of").order_by("pk"):
        held[alert.duplicate_of or alert] = reasons[alert.fingerprint]
    for alert, reason in held.items():
        last = AlertEvent.objects.filter(alert=alert).order_by("-seq").first()
        if last is None or "held" not in last.detail:
            step.tell(alert, AlertEventKind.CHANGED, changed=[], held=reason)
    step.record()


# -- Duplicates ------------------------------------------------------------------------------


def _originals(known: Mapping[str, Alert]) -> set[UUID | None]:
    """Return the primary keys of the alerts that have a live duplicate."""
    live = (alert for alert in known.values() if alert.state != AlertState.RESOLVED)
    return {alert.duplicate_of_id for alert in live}


def _is_one_problem(one: Finding, other: Finding) -> bool:
    """Return whether two findings of different constraints on the same records are one problem.

    They are one if there are several records. A single record may have several problems, so then
    the two must have the same words or the same key.
    """
    several = min(len(set(one.records)), len(set(other.records))) > 1
    same_key = one.key is not None and one.key == other.key
    return several or same_key or duplicates.say_the_same(one.message, other.message)


def _are_two_problems(original: Alert, duplicate: Alert, heard: Mapping[str, Finding]) -> bool:
    one, other = heard.get(original.fingerprint), heard.get(duplicate.fingerprint)
    return one is not None and other is not None and not _is_one_problem(one, other)


def _list_duplicates(
    known: Mapping[str, Alert],
    heard: Mapping[str, Finding],
    graver: Collection[Alert],
    step: Step,
) -> None:
    """List the duplicates that their original no longer covers.

    They are opened, whatever people did with the original: nobody has seen the duplicate's message.
    This also applies to one of the `graver` whose original is acknowledged or snoozed, and to one
    whose findings in `heard` are a different problem. A duplicate that was resolved by hand with
    its original stays resolved on its own, and can be reopened from then on.
    """
    by_key = {alert.pk: alert for alert in known.values()}
    for alert in known.values():
        if alert.duplicate_of_id is None:
            continue
        original = by_key.get(alert.duplicate_of_id)
        if alert.state != AlertState.RESOLVED:
            is_told = (
                original is not None
                and duplicates.covers(original, alert)
                and not _are_two_problems(original, alert, heard)
            )
            is_seen = alert not in graver or (original and original.state == AlertState.OPEN)
            if not (is_told and is_seen):
                _list(alert, step)
        elif alert.holds_back and not (original and original.holds_back):
            _list(alert, step)
            alert.holds_back = True
            _resolve(alert, step, "resolved by hand together with another alert")


def _list(duplicate: Alert, step: Step) -> None:
    """Open a duplicate as an alert of its own; it keeps the time at which it was first found."""
    duplicate.was_duplicate_of_id, duplicate.duplicate_of = duplicate.duplicate_of_id, None
    _now_open(duplicate, step)
    duplicate.save()
    step.tell(duplicate, AlertEventKind.OPENED, severity=duplicate.severity)


def _join_duplicates(
    opened: Sequence[Alert], known: Mapping[str, Alert], heard: Mapping[str, Finding], step: Step
) -> None:
    """Make alerts that have just opened duplicates of open ones with the same problem.

    Alerts that a merge restored as acknowledged or snoozed are joined with others in the same
    state. An alert has one duplicate at most: two findings of one constraint are two alerts.
    """
    live = [alert for alert in known.values() if alert.state == AlertState.OPEN]
    listed = [alert for alert in live if alert.duplicate_of_id is None and alert not in opened]
    listed.sort(key=lambda alert: alert.opened_at)
    taken = _originals(known)
    for alert in opened:
        finding = heard[alert.fingerprint]
        free = (
            other
            for other in listed
            if other.pk not in taken
            and (other.state, other.snoozed_until) == (alert.state, alert.snoozed_until)
            and _is_one_problem(heard.get(other.fingerprint) or _as_finding(other), finding)
        )
        original = duplicates.find_original(alert, free)
        if original is None:
            listed.append(alert)
            continue
        taken.add(original.pk)
        step.untell(alert)
        alert.duplicate_of, alert.escalate_at = original, None
        if alert.state != AlertState.RESOLVED:
            alert.state, alert.snoozed_until = AlertState.OPEN, None
        alert.save()
        if original not in opened:
            _tell_of_causes(original, step, more=True)


def _tell_of_lost_causes(
    known: Mapping[str, Alert], before: Collection[UUID | None], step: Step
) -> None:
    """Record which alerts have lost the duplicate that they had `before`."""
    lost = set(before) - _originals(known)
    for alert in known.values():
        if alert.pk in lost and alert.state != AlertState.RESOLVED:
            _tell_of_causes(alert, step, more=False)


def _tell_of_causes(alert: Alert, step: Step, *, more: bool) -> None:
    alert.changed_at = step.at
    alert.save(update_fields=["changed_at"])
    step.tell(alert, AlertEventKind.CHANGED, changed=["causes"], more=more)


def find_orphans(among: QuerySet[Alert]) -> Iterator[Alert]:
    """Yield the live duplicates among these alerts that no other alert covers.

    Processes of an earlier release, which know of no duplicates, leave such orphans behind.
    """
    live = among.filter(duplicate_of__isnull=False).exclude(state=AlertState.RESOLVED)
    same = Q(severity=F("duplicate_of__severity"), evidence=F("duplicate_of__evidence"))
    suspects = live.exclude(same & ~Q(duplicate_of__state=AlertState.RESOLVED))
    yield from filter(_is_orphan, suspects.select_related("duplicate_of").order_by())


def list_orphans(limit: int, after: UUID = FIRST) -> tuple[int, UUID | None]:
    """List the orphans among the next `limit` live duplicates, by the keys of their alerts.

    Returns how many were listed, and the key after which to continue: None behind the last one.
    """
    live = Alert.objects.filter(duplicate_of__gt=after).exclude(state=AlertState.RESOLVED)
    keys = live.order_by("duplicate_of_id").values_list("duplicate_of_id", flat=True)
    page = list(keys[:limit])
    if not page:
        return 0, None
    listed = sum(map(_list_orphan, find_orphans(live.filter(duplicate_of__lte=page[-1]))))
    return listed, page[-1] if len(page) == limit else None


def _is_orphan(alert: Alert) -> bool:
    """Return whether a duplicate is live and its original does not cover it."""
    original = alert.duplicate_of
    is_live = alert.state != AlertState.RESOLVED
    return is_live and original is not None and not duplicates.covers(original, alert)


def _list_orphan(alert: Alert) -> bool:
    with _free_step_on(alert) as (step, row):
        if row is None or not _is_orphan(row):
            return False
        _list(row, step)
        return True


def _with_duplicates(alert: Alert) -> list[Alert]:
    """Return an alert and its duplicates in the same state: live, or resolved by hand."""
    rows = Alert.objects.select_for_update(no_key=True).filter(duplicate_of=alert)
    if alert.state == AlertState.RESOLVED:
        return [alert, *rows.filter(holds_back=True)]
    return [alert, *rows.filter(state__in=LIVE_STATES)]


# -- Past states -----------------------------------------------------------------------------


# The state after an event of that kind; other events do not change it.
_STATES_AFTER = {
    AlertEventKind.OPENED: AlertState.OPEN,
    AlertEventKind.REOPENED: AlertState.OPEN,
    AlertEventKind.ACKNOWLEDGED: AlertState.ACKNOWLEDGED,
    AlertEventKind.SNOOZED: AlertState.SNOOZED,
    AlertEventKind.RESOLVED: AlertState.RESOLVED,
}


def live_at(found: QuerySet[Alert], moment: datetime.datetime) -> QuerySet[Alert]:
    """Select the alerts that were live at a moment, each annotated with its `state_then`.

    That is the state after the newest event up to the moment.
    """
    steps = AlertEvent.objects.filter(alert=OuterRef("pk"), kind__in=_STATES_AFTER, at__lte=moment)
    states = [When(kind=kind, then=Value(state)) for kind, state in _STATES_AFTER.items()]
    told = steps.annotate(state_then=Case(*states, output_field=CharField()))
    state = Subquery(told.order_by("-seq").values("state_then")[:1])
    began = found.filter(opened_at__lte=moment)
    return began.annotate(state_then=state).filter(state_then__in=LIVE_STATES)


# -- By hand -----------------------------------------------------------------------------------


class AlertNotOpen(Exception):
    """The alert is in no state in which this can be done: there is nothing left to do."""


class SnoozeRefused(ValueError):
    """An alert cannot be snoozed until then."""


@contextmanager
def step_on(alert: Alert, actor: str) -> Iterator[tuple[Step, Alert]]:
    """Change an alert in a transaction, in which it is locked and refreshed."""
    with transaction.atomic():
        user = MemoryUser.objects.select_for_update(no_key=True).get(pk=alert.user_id)
        step = Step(user, actor)
        yield step, Alert.objects.select_for_update(no_key=True).get(pk=alert.pk)
        step.record()


def acknowledge(alert: Alert, *, actor: str, note: str = "") -> Alert:
    """Mark a live alert as seen; a repetition changes nothing. Raises AlertNotOpen if resolved."""
    with step_on(alert, actor) as (step, row):
        _check_live(row)
        if row.state != AlertState.ACKNOWLEDGED:
            _put_aside(row, AlertState.ACKNOWLEDGED, step)
            step.tell(row, AlertEventKind.ACKNOWLEDGED, note=note)
    return row


def snooze(alert: Alert, *, actor: str, until: datetime.datetime | None, note: str = "") -> Alert:
    """Snooze a live alert until a moment, or (None) until its finding changes.

    A change is one of severity or of records; a higher severity ends any snooze. Raises
    SnoozeRefused for a moment that has passed or is more than a year away, and AlertNotOpen if the
    alert is resolved.
    """
    now = timezone.now()
    if until is not None and until <= now:
        raise SnoozeRefused("This moment has passed: name one in the future.")
    if until is not None and until > now + MAX_SNOOZE:
        raise SnoozeRefused(
            f"At most {MAX_SNOOZE.days} days from now; without a moment, it is snoozed until it"
            " changes."
        )
    with step_on(alert, actor) as (step, row):
        _check_live(row)
        _put_aside(row, AlertState.SNOOZED, step, until=until)
        told = until.isoformat() if until else "it changes"
        step.tell(row, AlertEventKind.SNOOZED, until=told, note=note)
    return row


def reopen(alert: Alert, *, actor: str, note: str = "") -> Alert:
    """Reopen an alert that was acknowledged, snoozed, or resolved by hand and is still found.

    Raises AlertNotOpen if it is open, or resolved for good.
    """
    with step_on(alert, actor) as (step, row):
        if row.state == AlertState.OPEN:
            raise AlertNotOpen("this alert is open already")
        if row.state == AlertState.RESOLVED and not row.holds_back:
            raise AlertNotOpen("this alert is resolved: what it told of is no longer found")
        for one in _with_duplicates(row):
            _reopen(one, step, reason="by hand", note=note)
    return row


def resolve(alert: Alert, *, actor: str, reason: str) -> Alert:
    """Resolve an alert by hand; while the constraint finds the same unchanged, none is opened.

    Resolving the alert about a paused constraint resumes the constraint. Raises AlertNotOpen if it
    is resolved already.
    """
    with step_on(alert, actor) as (step, row):
        _check_live(row)
        if row.kind == AlertKind.CONSTRAINT_PAUSED:
            paused = PausedConstraint.objects.filter(
                user=step.user, constraint=row.constraint, resumed_at=None
            )
            for one in paused:
                _resume(one, step, reason)
                _run_again(step.user)
        for resolved in _with_duplicates(row):
            resolved.holds_back = resolved.kind != AlertKind.CONSTRAINT_PAUSED
            _resolve(resolved, step, reason)
    return row


def _check_live(alert: Alert) -> None:
    if alert.state == AlertState.RESOLVED:
        raise AlertNotOpen("this alert is resolved already")


def _put_aside(
    alert: Alert, state: AlertState, step: Step, *, until: datetime.datetime | None = None
) -> None:
    alert.state, alert.changed_at = state, step.at
    alert.snoozed_until, alert.escalate_at = until, None
    alert.save()


def _reopen(alert: Alert, step: Step, **detail: Any) -> None:
    _now_open(alert, step)
    alert.save()
    step.tell(alert, AlertEventKind.REOPENED, **detail)


def _resolve(alert: Alert, step: Step, reason: str) -> None:
    alert.resolved_at = step.at
    if step.run is not None:
        alert.last_run = step.run
    _put_aside(alert, AlertState.RESOLVED, step)
    step.tell(alert, AlertEventKind.RESOLVED, reason=reason)


# -- By the clock ------------------------------------------------------------------------------


def wake(limit: int) -> int:
    """Reopen alerts whose snooze has ended, `limit` at most; return how many."""
    due = Alert.objects.filter(snoozed_until__lte=timezone.now()).order_by("snoozed_until")
    return sum(map(_wake, due[:limit]))


def escalate(limit: int) -> int:
    """Escalate alerts that have been open too long for their severity, `limit` at most."""
    due = Alert.objects.filter(escalate_at__lte=timezone.now()).order_by("escalate_at")
    return sum(map(_escalate, due[:limit]))


def _wake(alert: Alert) -> bool:
    with _free_step_on(alert) as (step, row):
        if row is None or row.snoozed_until is None or row.snoozed_until > step.at:
            return False
        _reopen(row, step, reason=f"snoozed until {row.snoozed_until:%Y-%m-%d %H:%M} UTC")
        return True


def _escalate(alert: Alert) -> bool:
    with _free_step_on(alert) as (step, row):
        if row is None or row.escalate_at is None or row.escalate_at > step.at:
            return False
        row.escalate_at, row.escalated_at = None, step.at
        row.save(update_fields=["escalate_at", "escalated_at"])
        minutes = int((step.at - row.open_since).total_seconds() // 60)
        step.tell(row, AlertEventKind.ESCALATED, reason=f"open for {minutes} minutes")
        return True


@contextmanager
def _free_step_on(alert: Alert) -> Iterator[tuple[Step, Alert | None]]:
    """Like `step_on`, but yield None if the user's row is locked: the next tick tries again."""
    with transaction.atomic():
        users = MemoryUser.objects.select_for_update(no_key=True, skip_locked=True)
        user = users.filter(pk=alert.user_id).first()
        step = Step(user or alert.user, CLOCK)
        alerts = Alert.objects.select_for_update(no_key=True)
        yield step, alerts.get(pk=alert.pk) if user else None
        step.record()


# -- Merging ---------------------------------------------------------------------------------------


def hand_over(user: MemoryUser, into: MemoryUser) -> dict[str, Any]:
    """Resolve the alerts of a user who is merged into another; return fingerprint → state.

    When the other user's constraints find the same fingerprint, that alert gets this state. Call it
    in a transaction in which both rows are locked.
    """
    step = Step(user, MERGE)
    known = _known(user)
    standings = {alert.pk: _standing(alert) for alert in known.values()}
    handed = {}
    for fingerprint, alert in known.items():
        if alert.kind == AlertKind.FINDING:
            own = standings[alert.pk]
            handed[fingerprint] = standings.get(alert.duplicate_of_id or alert.pk, own)
        if alert.state == AlertState.RESOLVED:
            _let_go(alert)
        else:
            _resolve(alert, step, f"merged into {into}")
    step.record()
    return handed


def _standing(alert: Alert) -> dict[str, Any]:
    until = alert.snoozed_until
    return {
        "alert": str(alert.pk),
        "state": alert.state,
        "until": until.isoformat() if until else None,
    }


def _take_over(alert: Alert, step: Step) -> None:
    """Give an alert that has just opened the state of the same alert of a merged user."""
    row = Merge.objects.filter(user=step.user, alerts__has_key=alert.fingerprint).first()
    if row is None:
        return
    was = row.alerts[alert.fingerprint]
    _forget_handed(row, [alert.fingerprint])
    note = f"as alert {was['alert']} of {row.merged}"
    until = datetime.datetime.fromisoformat(was["until"]) if was["until"] else None
    match was["state"]:
        case AlertState.ACKNOWLEDGED:
            _put_aside(alert, AlertState.ACKNOWLEDGED, step)
            step.tell(alert, AlertEventKind.ACKNOWLEDGED, note=note)
        case AlertState.SNOOZED if until is None or until > step.at:
            _put_aside(alert, AlertState.SNOOZED, step, until=until)
            told = until.isoformat() if until else "it changes"
            step.tell(alert, AlertEventKind.SNOOZED, until=told, note=note)
        case AlertState.RESOLVED:
            alert.holds_back = True
            _resolve(alert, step, f"resolved by hand, {note}")


def _forget_handed(row: Merge, fingerprints: Sequence[str]) -> None:
    """Remove fingerprints in one statement, since users of a merge may write concurrently."""
    left = Func(
        F("alerts"),
        Value(list(fingerprints), output_field=ArrayField(TextField())),
        template="(%(expressions)s)",
        arg_joiner=" - ",
        output_field=JSONField(),
    )
    Merge.objects.filter(pk=row.pk).update(alerts=left)


# -- Redaction -----------------------------------------------------------------------------------


def redact(user: MemoryUser, seqs: Collection[int], since: datetime.datetime | None) -> None:
    """Redact the user's alerts that rest on these entries or may quote them.

    Those are all that were live since the project first held something of these entries (None: it
    never did), with people's notes; the next run of the constraints rewords the live ones. Those
    that rest on one of the entries are resolved, without their records. Call it in a transaction in
    which the user's row is locked.
    """
    step = Step(user, REDACTION)
    chosen = Q(entries__overlap=list(seqs))
    if since is not None:
        chosen |= Q(resolved_at=None) | Q(resolved_at__gte=since)
    rows = Alert.objects.filter(chosen, user=user)
    alerts = list(rows.select_for_update(no_key=True))
    # People's notes and reasons, and the wording of messages.
    said = Func(
        F("detail"),
        template="%(expressions)s - 'note' - 'reason' - 'held' - 'before' - 'after'",
    )
    AlertEvent.objects.filter(alert__in=rows).update(detail=said)
    AlertFeedback.objects.filter(alert__in=rows).update(note="")
    deliveries = Delivery.objects.filter(alert__in=rows).values_list("pk", flat=True)
    for alert in alerts:
        alert.message = REDACTED
        if set(seqs).isdisjoint(alert.entries):
            alert.save(update_fields=["message"])
            continue
        # A fingerprint can be guessed from keys, and is not compared with anything any more.
        for merge in Merge.objects.filter(merged=user, alerts__has_key=alert.fingerprint):
            _forget_handed(merge, [alert.fingerprint])
        alert.evidence, alert.holds_back = [], False
        alert.fingerprint = secrets.token_hex(32)
        alert.save()
        if alert.state != AlertState.RESOLVED:
            _resolve(alert, step, "redacted")
    _list_duplicates(_known(user), {}, (), step)
    step.record()
    webhooks.redact(user, deliveries)


# -- Paused constraints ------------------------------------------------------------------------


class NotPaused(Exception):
    """The constraint is not paused: it was resumed already."""


def resume(paused: PausedConstraint, *, actor: str, reason: str) -> PausedConstraint:
    """Resume a paused constraint, and run it. Raises NotPaused if it was resumed already."""
    with transaction.atomic():
        user = MemoryUser.objects.select_for_update(no_key=True).get(pk=paused.user_id)
        row = PausedConstraint.objects.select_for_update(no_key=True).get(pk=paused.pk)
        if row.resumed_at is not None:
            raise NotPaused(f"{row.constraint} is not paused any more")
        step = Step(user, actor)
        _resume(row, step, reason)
        _run_again(user)
        about = _known(user).get(_about(row.constraint, Severity.WARNING, "").fingerprint)
        if about is not None:
            _resolve(about, step, f"resumed: {reason}")
        step.record()
    return row


def _run_again(user: MemoryUser) -> None:
    if user.head is not None and user.merged_into_id is None:
        runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.RESUMED, checkpoint=user.head)


def _resume(row: PausedConstraint, step: Step, reason: str) -> None:
    row.resumed_at, row.resumed_by, row.resumed_because = step.at, step.actor, reason
    row.save(update_fields=["resumed_at", "resumed_by", "resumed_because"])


def _still_paused(
    known: dict[str, Alert],
    existing: Collection[str],
    hashes: Mapping[str, str],
    step: Step,
) -> set[str]:
    """Return the paused constraints, after resuming those that changed or no longer exist."""
    paused = set()
    for row in PausedConstraint.objects.filter(user=step.user, resumed_at=None):
        if row.constraint not in existing:
            reason = "constraint deleted"
        elif hashes.get(row.constraint, "") != row.source_hash:
            reason = "constraint changed"
        else:
            paused.add(row.constraint)
            continue
        _resume(row, step, reason)
        about = known.pop(_about(row.constraint, Severity.WARNING, "").fingerprint, None)
        if about is not None:
            _resolve(about, step, reason)
    return paused


def _pause(
    flood: Flood,
    source_hash: str,
    live: Sequence[Alert],
    step: Step,
) -> None:
    PausedConstraint.objects.create(
        user=step.user,
        constraint=flood.constraint,
        source_hash=source_hash,
        reason=flood.reason,
        paused_at=step.at,
        paused_by=step.actor,
    )
    grave = Severity.CRITICAL in (
        *(alert.severity for alert in live if alert.constraint == flood.constraint),
        *(finding.severity for finding in flood.findings),
    )
    severity = Severity.CRITICAL if grave else Severity.WARNING
    _open(_about(flood.constraint, severity, flood.message), step)


def _tell_graver(
    paused: Collection[str], found: Sequence[Finding], known: Mapping[str, Alert], step: Step
) -> None:
    """Notify the staff when a paused constraint finds something critical for the first time.

    No alert is opened for it, and whoever acknowledged the pause did not know of it.
    """
    for finding in found:
        if finding.constraint not in paused or finding.severity != Severity.CRITICAL:
            continue
        about = known.get(_about(finding.constraint, Severity.CRITICAL, "").fingerprint)
        if about is not None and about.severity != Severity.CRITICAL:
            message = f"{about.message} Since then it found {alert_limits.quoted(finding)}"
            _keep(about, _about(finding.constraint, Severity.CRITICAL, message), step)


def _about(constraint: str, severity: Severity, message: str) -> Finding:
    """Return the staff's alert for a constraint that is paused."""
    return Finding(
        constraint=constraint,
        kind=AlertKind.CONSTRAINT_PAUSED,
        severity=severity,
        message=message,
        key="paused",
    )
