"""Links to alerts, and to the entries that events are about."""

from collections.abc import Mapping

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind, AlertKind, AlertState
from memory.kernel.admin.display import badge, duration, lines, rule_of, shortened
from memory.kernel.admin.links import MAX_LINKS, link_by_content, link_to_list
from memory.kernel.hooks import later
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome, Outcome
from memory.project.paths import constraint_path
from memory.versions import checkpoints
from memory.versions.models.checkpoints import RecordLocation

describe_constraints = later("memory.constraints.applicability:describe_constraints")
# What staff read instead of the technical message of an alert about the constraint itself.
_HEADLINES = {
    AlertKind.CONSTRAINT_ERROR: "“{}” could not be checked: it watches nothing until it is"
    " repaired",
    AlertKind.CONSTRAINT_PAUSED: "“{}” is paused, since it raised too many alerts: it opens no new"
    " ones until it is resumed",
}


def headline_of(alert: Alert, rule: str = "") -> str:
    """Return an alert's message or, if its constraint failed or is paused, what that means."""
    headline = _HEADLINES.get(AlertKind(alert.kind))
    rule = (rule or rule_of(alert.constraint)).rstrip(".")
    return headline.format(rule) if headline else alert.message


def describe_rules(user: MemoryUser) -> Mapping[str, str]:
    """Return in a sentence what each constraint of a user demands, by path."""
    own = checkpoints.outline(user.head).constraints
    described = describe_constraints([user.workspace_id])
    return {
        **{constraint_path(name): doc for name, doc in own.items() if doc},
        **{path: text for (_, path), text in described.items()},
    }


def link_to_entries_of(event: AlertEvent) -> SafeString:
    """Return a link to the list of the user's entries of an event's kind, which shows why."""
    if event.kind == AlertEventKind.REJECTED:
        text, only = "rejected entries", {"outcome__exact": str(Outcome.REJECTED)}
    else:
        text, only = "entries with values set aside", {"set_aside": "yes"}
    return link_to_list(EntryOutcome, text, user__id__exact=event.user_id, **only)


def links_to_alerts(alerts: QuerySet[Alert]) -> SafeString | str:
    """Return links to these alerts, newest first, each with its severity and state."""
    return lines(link_to_alert(alert) for alert in alerts.order_by("-opened_at")[:MAX_LINKS])


def alerts_on_record(location: RecordLocation) -> SafeString | str:
    """Return links to the live and past alerts that cite a record."""
    item = {name: getattr(location, name) for name in ("domain", "collection", "key")}
    return links_to_alerts(
        Alert.objects.listed().filter(user=location.user, evidence__contains=[item])
    )


def link_to_alert(alert: Alert) -> SafeString:
    """Return a link to the alert, with its severity and state (`state_then`, if it has one)."""
    state = AlertState(getattr(alert, "state_then", alert.state))
    return format_html(
        "{} {} {}",
        badge(alert.severity, alert.get_severity_display()),
        badge(state, state.label),
        link_by_content(alert, shortened(headline_of(alert))),
    )


def show_escalation(alert: Alert) -> SafeString | str:
    """Say in how much time an open alert escalates, or that it has; "" if it never does."""
    if alert.escalate_at:
        left = (alert.escalate_at - timezone.now()).total_seconds()
        return f"escalates in {duration(left)}"
    has_escalated = alert.escalated_at and alert.state == AlertState.OPEN
    return format_html("<b>{}</b>", "escalated") if has_escalated else ""
