"""What a rollback to an earlier version will do to alerts."""

from collections.abc import Set

from memory.alerts.models.alerts import Alert, AlertKind
from memory.kernel.models.users import MemoryUser
from memory.project import RecordId
from memory.project.paths import is_own_constraint


def affected_alerts(
    user: MemoryUser,
    removed: Set[RecordId],
    changed: Set[RecordId],
    constraints: Set[str],
) -> tuple[list[Alert], list[Alert]]:
    """Return the user's live alerts that a rollback will resolve, and those that it may resolve.

    It will resolve those based on records that it removes, and those of own constraints that are
    not among `constraints`, the paths in the earlier version. It may resolve those based on records
    that it changes.
    """
    live = Alert.objects.listed().live().filter(user=user, kind=AlertKind.FINDING)
    resolving, uncertain = [], []
    for alert in live.order_by("opened_at", "pk").prefetch_related("duplicates"):
        records = {
            RecordId(item["domain"], item["collection"], item["key"]) for item in alert.evidence
        }
        without_constraint = all(
            is_own_constraint(cause.constraint) and cause.constraint not in constraints
            for cause in alert.causes
        )
        if without_constraint or records & removed:
            resolving.append(alert)
        elif records & changed:
            uncertain.append(alert)
    return resolving, uncertain
