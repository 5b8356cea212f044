"""Staff emails: finding the events not yet sent for a subscription, and writing the emails.

Events are read from the feed, starting where the last email left off. So nothing is lost while
emails can't be sent: the next email covers all events since the last one.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.alerts.models.alerts import (
    LIVE_STATES,
    Alert,
    AlertEvent,
    AlertEventKind,
    EventCounter,
    Severity,
    severity_rank,
)
from memory.alerts.models.staff_mail import MailCursor, MailMode, StaffSubscription
from memory.kernel.daily_runs import next_hour
from memory.kernel.staff import access
from memory.kernel.texts import one_line
from memory.kernel.work import leases

# Minimum interval between two emails for a subscription; the later email covers all events since
# the earlier one.
PAUSE = datetime.timedelta(seconds=60)
# Maximum number of alerts listed in an email, most severe first; any further alerts are only
# counted.
LISTED = 20
# Maximum number of workspaces covered by one email; further emails cover the rest.
WORKSPACES = 100
MESSAGE_CHARACTERS = 300
SUBJECT_CHARACTERS = 120

CHOICES = ("least_severity", "mode", "hour", "time_zone", "escalations")

Column = Literal["seq", "escalations_seq"]

# The kinds of events, besides escalations, that warrant an email about an alert.
_CAUSE_MORE = Q(detail__changed__contains=["causes"], detail__more=True)
_NEWS = Q(kind__in=[AlertEventKind.OPENED, AlertEventKind.REOPENED]) | (
    Q(kind=AlertEventKind.CHANGED) & (Q(detail__graver=True) | _CAUSE_MORE)
)
_BY_SEVERITY = Case(
    *(When(severity=one, then=Value(severity_rank(one))) for one in Severity.values),
    output_field=IntegerField(),
)


@dataclass(frozen=True, kw_only=True)
class News:
    """The alerts to report in one email for a subscription.

    `counts` is the number of alerts by severity, and `escalated` the number of escalated alerts.
    `up_to` maps each workspace to the last event that the email covers.
    """

    column: Column
    alerts: QuerySet[Alert]
    counts: Mapping[str, int]
    escalated: int
    up_to: Mapping[int, int]
    # Whether this is the last of the emails currently due for the subscription.
    is_last: bool

    @property
    def number(self) -> int:
        """The number of alerts, including those that the email does not list."""
        return sum(self.counts.values())


def start(subscription: StaffSubscription, now: datetime.datetime) -> None:
    """Store a new subscription so that it covers events from now on."""
    with transaction.atomic():
        if subscription._state.adding:
            subscription.save()
        change(subscription, ["staff", "workspace", "enabled", *CHOICES], now)
        MailCursor.objects.filter(subscription=subscription).delete()
        MailCursor.objects.bulk_create(
            MailCursor(
                subscription=subscription,
                workspace_id=counter.workspace_id,
                seq=counter.last_seq,
                escalations_seq=counter.last_seq,
            )
            for counter in _counters(subscription)
        )


def change(subscription: StaffSubscription, fields: Sequence[str], now: datetime.datetime) -> None:
    """Store the changed fields of a subscription, without overwriting what a worker has stored."""
    subscription.digest_due_at = _next_digest(subscription, now)
    subscription.run_after, subscription.attempts, subscription.last_error = now, 0, ""
    subscription.save(
        update_fields=[*fields, "digest_due_at", "run_after", "attempts", "last_error"]
    )


def waiting() -> QuerySet[StaffSubscription]:
    """Select the subscriptions that may have an email due and whose owners can receive it."""
    at_once = Q(mode=MailMode.AT_ONCE) & _has_news("seq")
    escalated = Q(mode=MailMode.DAILY, escalations=True) & _has_news("escalations_seq")
    digest = Q(mode=MailMode.DAILY, digest_due_at__lte=timezone.now())
    return (
        StaffSubscription.objects.filter(enabled=True, staff__is_active=True, staff__is_staff=True)
        .exclude(staff__email="")
        .filter(at_once | escalated | digest)
    )


def due(subscription: StaffSubscription, now: datetime.datetime) -> list[Column]:
    """Return the cursor columns for which an email to the subscriber is due."""
    if subscription.mode == MailMode.AT_ONCE:
        return ["seq"]
    columns: list[Column] = ["escalations_seq"] if subscription.escalations else []
    if subscription.digest_due_at is not None and subscription.digest_due_at <= now:
        columns.append("seq")
    return columns


def news(subscription: StaffSubscription, column: Column) -> Iterator[News]:
    """Yield the news since the positions in this cursor column, one item per email."""
    cursors = dict(subscription.cursors.values_list("workspace_id", column))
    up_to = {
        counter.workspace_id: counter.last_seq
        for counter in _counters(subscription)
        if counter.last_seq > cursors.get(counter.workspace_id, 0)
    }
    workspaces = list(up_to)
    for first in range(0, len(workspaces) or 1, WORKSPACES):
        some = {pk: up_to[pk] for pk in workspaces[first : first + WORKSPACES]}
        is_last = first + WORKSPACES >= len(workspaces)
        yield _news_of(subscription, column, cursors, some, is_last=is_last)


def _news_of(
    subscription: StaffSubscription,
    column: Column,
    cursors: Mapping[int, int],
    up_to: Mapping[int, int],
    *,
    is_last: bool,
) -> News:
    window = Q(pk=None)
    # Events in workspaces that the recipient may not see are skipped permanently: the cursor moves
    # past them.
    seen = access.workspaces_of(subscription.staff)
    for workspace, last in up_to.items():
        if seen is not None and workspace not in seen:
            continue
        window |= Q(workspace=workspace, seq__gt=cursors.get(workspace, 0), seq__lte=last)
    events = AlertEvent.objects.filter(window)
    escalations = events.filter(kind=AlertEventKind.ESCALATED).values("alert")
    wanted = Q(pk=None)
    if column == "seq":
        least = severity_rank(subscription.least_severity)
        severe = [one for one in Severity.values if severity_rank(one) >= least]
        wanted |= Q(pk__in=events.filter(_NEWS).values("alert"), severity__in=severe)
    at_once = "seq" if subscription.mode == MailMode.AT_ONCE else "escalations_seq"
    if subscription.escalations and column == at_once:
        wanted |= Q(pk__in=escalations)
    alerts = Alert.objects.filter(wanted)
    counted = alerts.order_by().values("severity").annotate(number=Count("pk"))
    return News(
        column=column,
        alerts=alerts,
        counts={row["severity"]: row["number"] for row in counted},
        escalated=alerts.filter(pk__in=escalations).count(),
        up_to=up_to,
        is_last=is_last,
    )


def mail(subscription: StaffSubscription, news: News) -> EmailMessage:
    """Return the email about the news, in plain text with each alert message on a single line."""
    by_gravity = news.alerts.order_by(_BY_SEVERITY.desc(), "-opened_at")
    rows = by_gravity.select_related("user__workspace").prefetch_related("duplicates")
    gravest = list(rows[:LISTED])
    counts = ", ".join(
        f"{news.counts[severity]} {severity}"
        for severity in reversed(Severity.values)
        if severity in news.counts
    )
    lines = [f"{news.number} alerts: {counts}." if news.number != 1 else f"1 alert: {counts}."]
    if news.escalated:
        lines.append(f"{news.escalated} escalated: open for too long without acknowledgement.")
    hidden = not access.sees_content(subscription.staff)
    for alert in gravest:
        for cause in alert.causes if hidden else ():
            cause.message = cause.constraint = "(hidden)"
        lines += ["", *_lines(alert)]
    if news.number > LISTED:
        lines += ["", f"… and {news.number - LISTED} more, none more severe: {_address('alert/')}"]
    lines += ["", "--", "You are receiving this because of an e-mail subscription to alerts:"]
    lines.append(_address(f"staffsubscription/{subscription.pk}/change/"))
    only = gravest[0].messages if len(gravest) == news.number == 1 else "alerts"
    subject = one_line(only, SUBJECT_CHARACTERS)
    return EmailMessage(
        subject=f"[UaC] {'escalated: ' if news.escalated else ''}{counts}: {subject}",
        body="\n".join(lines) + "\n",
        to=[subscription.staff.email],
        headers={"Auto-Submitted": "auto-generated"},
    )


def record_progress(subscription: StaffSubscription, news: News, now: datetime.datetime) -> None:
    """Move the cursors past the news once it has been emailed, or if it contains no alerts.

    Raises LeaseLost if another worker has claimed the subscription in the meantime; that worker
    will send the email a second time.
    """
    # Immediate emails also cover escalations, so both cursors move.
    moved = {"seq", "escalations_seq"} if subscription.mode == MailMode.AT_ONCE else {news.column}
    columns: dict[str, datetime.datetime | None] = {}
    if news.number:
        columns |= {"sent_at": now, "run_after": now + PAUSE}
    if subscription.mode == MailMode.DAILY and news.column == "seq" and news.is_last:
        columns["digest_due_at"] = _next_digest(subscription, now)
    with transaction.atomic():
        leases.check(subscription)
        if columns:
            leases.write(subscription, **columns)
        MailCursor.objects.bulk_create(
            [
                MailCursor(subscription=subscription, workspace_id=pk, **dict.fromkeys(moved, last))
                for pk, last in news.up_to.items()
            ],
            update_conflicts=True,
            update_fields=sorted(moved),
            unique_fields=["subscription", "workspace"],
        )


def _counters(subscription: StaffSubscription) -> QuerySet[EventCounter]:
    counters = EventCounter.objects.order_by("workspace")
    if subscription.workspace_id is None:
        return counters
    return counters.filter(workspace=subscription.workspace_id)


def _has_news(column: Column) -> Q:
    cursor = MailCursor.objects.filter(
        subscription=OuterRef(OuterRef("pk")), workspace=OuterRef("workspace")
    )
    counters = EventCounter.objects.annotate(
        mailed=Coalesce(Subquery(cursor.values(column)[:1]), 0)
    ).filter(last_seq__gt=F("mailed"))
    one = Q(Exists(counters.filter(workspace=OuterRef("workspace"))), workspace__isnull=False)
    return one | Q(Exists(counters), workspace__isnull=True)


def _next_digest(
    subscription: StaffSubscription, now: datetime.datetime
) -> datetime.datetime | None:
    if subscription.mode != MailMode.DAILY:
        return None
    return next_hour(subscription.time_zone, subscription.hour, now)


def _lines(alert: Alert) -> list[str]:
    state = "" if alert.state in LIVE_STATES[:1] else f", now {alert.state}"
    workspace = one_line(alert.user.workspace.name, MESSAGE_CHARACTERS)
    constraints = ", ".join(dict.fromkeys(cause.constraint for cause in alert.causes))
    return [
        f"{alert.severity}{state}: {one_line(alert.messages, MESSAGE_CHARACTERS)}",
        f"  user {alert.user.user_id} in {workspace}; {one_line(constraints, MESSAGE_CHARACTERS)};"
        f" open since {alert.open_since:%Y-%m-%d %H:%M} UTC"
        + (f", escalated {alert.escalated_at:%Y-%m-%d %H:%M} UTC" if alert.escalated_at else ""),
        f"  {_address(f'alert/{alert.pk}/change/')}",
    ]


def _address(path: str) -> str:
    return f"{settings.UAC_BASE_URL.rstrip('/')}/admin/memory/{path}"
