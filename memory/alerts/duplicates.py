"""Duplicates: if a user's and a workspace constraint report the same finding, list one alert.

The alert that opened first is listed. The other alert is its duplicate, stored in a separate row.
Like any alert, the duplicate stays live or is resolved depending on its own constraint's findings,
so neither constraint can silence the other. But the duplicate has no events and is not listed; its
constraint is shown as another cause of the listed alert. As soon as the listed alert no longer
covers the duplicate, the duplicate is opened and listed as a separate alert: when in doubt, an
alert is shown twice rather than missed.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from django.db.models import F, Q, QuerySet

from memory.alerts.findings import ConstraintFinding, make_finding
from memory.alerts.models.alerts import LIVE_STATES, Alert, AlertEventKind, AlertKind, AlertState
from memory.alerts.transitions import Step, mark_open, resolve_alert
from memory.kernel.canonical import canonical_json
from memory.project.paths import FOLDER

# Matches a hyphen that is a minus sign, which does not count as punctuation.
_MINUS = re.compile(r"(?<!\w)-(?=\d)")


def find_original(alert: Alert, listed: Iterable[Alert]) -> Alert | None:
    """Return the first listed alert that this alert may duplicate, if there is one.

    One of the two alerts was raised by the user's own constraint and the other by a workspace
    constraint, and both have the same severity, records and entries. Alerts without records cannot
    be matched. `is_one_problem` decides whether the two alerts are about the same problem with
    these records.
    """
    if alert.kind != AlertKind.FINDING or not alert.evidence:
        return None
    for other in listed:
        if (
            other.kind == AlertKind.FINDING
            and other.severity == alert.severity
            and _is_of_workspace(other) != _is_of_workspace(alert)
            and _records(other) == _records(alert)
        ):
            return other
    return None


def covers(original: Alert, duplicate: Alert) -> bool:
    """Return whether a listed alert still covers its duplicate, which then stays unlisted."""
    return (
        original.state != AlertState.RESOLVED
        and bool(duplicate.evidence)
        and original.rank >= duplicate.rank
        and _records(original) >= _records(duplicate)
    )


def is_same_message(message: str, other: str) -> bool:
    """Return whether two messages consist of the same words, ignoring case and punctuation."""
    return _words(message) == _words(other)


def _words(message: str) -> list[str]:
    text = _MINUS.sub("\N{MINUS SIGN}", message.casefold())
    return "".join(" " if unicodedata.category(one)[0] == "P" else one for one in text).split()


def _is_of_workspace(alert: Alert) -> bool:
    return alert.constraint.startswith(FOLDER)


def _records(alert: Alert) -> set[str]:
    return {canonical_json(dict(item)) for item in alert.evidence}


def originals_of(current: Mapping[str, Alert]) -> set[UUID | None]:
    """Return the primary keys of the alerts that have a live duplicate."""
    live = (alert for alert in current.values() if alert.state != AlertState.RESOLVED)
    return {alert.duplicate_of_id for alert in live}


def is_one_problem(one: ConstraintFinding, other: ConstraintFinding) -> bool:
    """Return whether two constraints' findings about the same records report the same problem.

    Findings about several records always do. A single record may have several problems, so two
    findings about one record must also have the same wording or the same key.
    """
    several = min(len(set(one.records)), len(set(other.records))) > 1
    same_key = one.key is not None and one.key == other.key
    return several or same_key or is_same_message(one.message, other.message)


def _are_two_problems(
    original: Alert, duplicate: Alert, heard: Mapping[str, ConstraintFinding]
) -> bool:
    one, other = heard.get(original.fingerprint), heard.get(duplicate.fingerprint)
    return one is not None and other is not None and not is_one_problem(one, other)


def list_duplicates(
    current: Mapping[str, Alert],
    heard: Mapping[str, ConstraintFinding],
    graver: Collection[Alert],
    step: Step,
) -> None:
    """List duplicates that their originals no longer cover as separate alerts.

    Such a duplicate is opened even if its original was acknowledged or snoozed, because nobody has
    seen the duplicate's message. The same applies to a duplicate that has become more severe
    (`graver`) while its original is acknowledged or snoozed, and to a duplicate whose finding in
    `heard` reports a different problem from its original's. A duplicate that was resolved manually,
    together with its original, becomes a separate resolved alert, which can be reopened.
    """
    by_key = {alert.pk: alert for alert in current.values()}
    for alert in current.values():
        if alert.duplicate_of_id is None:
            continue
        original = by_key.get(alert.duplicate_of_id)
        if alert.state != AlertState.RESOLVED:
            is_reported = (
                original is not None
                and covers(original, alert)
                and not _are_two_problems(original, alert, heard)
            )
            is_seen = alert not in graver or (original and original.state == AlertState.OPEN)
            if not (is_reported and is_seen):
                _list(alert, step)
        elif alert.holds_back and not (original and original.holds_back):
            _list(alert, step)
            alert.holds_back = True
            resolve_alert(alert, step, "resolved manually, together with another alert")


def _list(duplicate: Alert, step: Step) -> None:
    """Open a duplicate as a separate alert, keeping its original opening time."""
    duplicate.was_duplicate_of_id, duplicate.duplicate_of = duplicate.duplicate_of_id, None
    mark_open(duplicate, step)
    duplicate.save()
    step.add_event(duplicate, AlertEventKind.OPENED, severity=duplicate.severity)


def join_duplicates(
    opened: Sequence[Alert],
    current: Mapping[str, Alert],
    heard: Mapping[str, ConstraintFinding],
    step: Step,
) -> None:
    """Make newly opened alerts duplicates of the listed alerts about the same problem.

    An alert that a merge restored as acknowledged or snoozed can only duplicate an alert in the
    same state. An alert has at most one duplicate, because two findings from one constraint are two
    alerts.
    """
    live = [alert for alert in current.values() if alert.state == AlertState.OPEN]
    listed = [alert for alert in live if alert.duplicate_of_id is None and alert not in opened]
    listed.sort(key=lambda alert: alert.opened_at)
    taken = originals_of(current)
    for alert in opened:
        finding = heard[alert.fingerprint]
        free = (
            other
            for other in listed
            if other.pk not in taken
            and (other.state, other.snoozed_until) == (alert.state, alert.snoozed_until)
            and is_one_problem(heard.get(other.fingerprint) or make_finding(other), finding)
        )
        original = find_original(alert, free)
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
            _record_causes(original, step, more=True)


def record_lost_causes(
    current: Mapping[str, Alert], before: Collection[UUID | None], step: Step
) -> None:
    """Record an event for each live alert in `before` that has lost its duplicate.

    `before` contains the primary keys of the alerts that used to have a duplicate.
    """
    lost = set(before) - originals_of(current)
    for alert in current.values():
        if alert.pk in lost and alert.state != AlertState.RESOLVED:
            _record_causes(alert, step, more=False)


def _record_causes(alert: Alert, step: Step, *, more: bool) -> None:
    alert.changed_at = step.at
    alert.save(update_fields=["changed_at"])
    step.add_event(alert, AlertEventKind.CHANGED, changed=["causes"], more=more)


def find_orphans(among: QuerySet[Alert]) -> Iterator[Alert]:
    """Yield the live duplicates among these alerts whose originals do not cover them."""
    live = among.filter(duplicate_of__isnull=False, state__in=LIVE_STATES)
    same = Q(severity=F("duplicate_of__severity"), evidence=F("duplicate_of__evidence"))
    suspects = live.exclude(same & ~Q(duplicate_of__state=AlertState.RESOLVED))
    for alert in suspects.select_related("duplicate_of").order_by():
        if alert.duplicate_of is not None and not covers(alert.duplicate_of, alert):
            yield alert


def lock_duplicates(alert: Alert) -> list[Alert]:
    """Return an alert and its live duplicates or, if it is resolved, its manually resolved ones."""
    rows = Alert.objects.select_for_update(no_key=True).filter(duplicate_of=alert)
    if alert.state == AlertState.RESOLVED:
        return [alert, *rows.filter(holds_back=True)]
    return [alert, *rows.live()]
