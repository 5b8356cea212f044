"""Alert redaction: removing text that came from redacted entries."""

import datetime
import secrets
from collections.abc import Collection

from django.db.models import F, Func, Q

from memory.alerts.delivery import outbox
from memory.alerts.duplicates import list_duplicates
from memory.alerts.handover import forget_handed
from memory.alerts.models.alerts import Alert, AlertEvent, AlertFeedback, AlertState
from memory.alerts.models.webhooks import Delivery
from memory.alerts.transitions import REDACTION, Step, lock_current, resolve_alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import REDACTED
from memory.log.models.merges import Merge


def redact(user: MemoryUser, seqs: Collection[int], since: datetime.datetime | None) -> None:
    """Redact the user's alerts that are based on these entries or may quote them.

    An alert may quote the entries if it was live at or after `since`, the time when the project
    first contained data from them (None if it never did). People's notes on these alerts are
    redacted, too. The next constraint run gives the live alerts new messages. Alerts based on one
    of the entries are resolved, and their evidence is removed. Call this in a transaction that has
    locked the user's row.
    """
    step = Step(user, REDACTION)
    chosen = Q(entries__overlap=list(seqs))
    if since is not None:
        chosen |= Q(resolved_at=None) | Q(resolved_at__gte=since)
    rows = Alert.objects.filter(chosen, user=user)
    alerts = list(rows.select_for_update(no_key=True))
    # Remove people's notes and reasons, and the text of messages.
    detail = Func(
        F("detail"),
        template="%(expressions)s - 'note' - 'reason' - 'held' - 'before' - 'after'",
    )
    AlertEvent.objects.filter(alert__in=rows).update(detail=detail)
    AlertFeedback.objects.filter(alert__in=rows).update(note="")
    deliveries = Delivery.objects.filter(alert__in=rows).values_list("pk", flat=True)
    for alert in alerts:
        alert.message = REDACTED
        if set(seqs).isdisjoint(alert.entries):
            alert.save(update_fields=["message"])
            continue
        # Replace the fingerprint: someone could guess record keys from it, and no finding will be
        # matched against it anymore.
        for merge in Merge.objects.filter(merged=user, alerts__has_key=alert.fingerprint):
            forget_handed(merge, [alert.fingerprint])
        alert.evidence, alert.holds_back = [], False
        alert.fingerprint = secrets.token_hex(32)
        alert.save()
        if alert.state != AlertState.RESOLVED:
            resolve_alert(alert, step, "redacted")
    list_duplicates(lock_current(user), {}, (), step)
    step.record()
    outbox.redact(user, deliveries)
