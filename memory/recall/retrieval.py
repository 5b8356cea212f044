"""Reading the contents of a project version without running any of its code."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memory.alerts import failing_constraints
from memory.alerts.models.alerts import Alert, AlertKind, AlertState
from memory.constraints import applicability
from memory.kernel.models.hosts import warning_of
from memory.kernel.models.users import MemoryUser
from memory.project import Domain, manifest_text
from memory.project.parse import parse_state
from memory.project.typed import encode
from memory.project.types import format_type
from memory.versions import checkpoints
from memory.versions.checkpoints import AnyState, outline
from memory.versions.models.checkpoints import Checkpoint


@dataclass(frozen=True)
class Manifest:
    """A project's manifest as text, with a warning if the project's code ran without isolation."""

    text: str
    warning: str | None


def open_alerts(user: MemoryUser) -> list[Alert]:
    """Return a user's open and acknowledged alerts, most severe first.

    Alerts about failing constraints are not included.
    """
    live = (
        Alert.objects.listed()
        .filter(user=user, kind=AlertKind.FINDING)
        .exclude(state__in=[AlertState.RESOLVED, AlertState.SNOOZED])
        .select_related("last_run")
        .only("severity", "message", "evidence", "opened_at", "resolved_at", "last_run__runner")
        .prefetch_related("duplicates")
    )
    return most_severe_first(live)


def most_severe_first(alerts: Iterable[Alert]) -> list[Alert]:
    """Sort alerts by severity, most severe first, and then by age, oldest first."""
    return sorted(alerts, key=lambda alert: (-alert.rank, alert.opened_at))


def may_alert(user: MemoryUser) -> bool:
    """Return whether the user has any constraint (their own or the workspace's) that could fire."""
    if user.head is None:
        return False
    current_outline = outline(user.head)
    return bool(current_outline.constraints) or any(
        one.applies for one in applicability.applicabilities(user, current_outline)
    )


def manifest_of(checkpoint: AnyState | None) -> Manifest:
    """Return an earlier version's manifest, without alerts, since alerts describe the present."""
    # A computed state, unlike a version, has not been in a sandbox.
    runner = checkpoint.verdict.get("runner", "") if isinstance(checkpoint, Checkpoint) else ""
    return Manifest(manifest_text(outline(checkpoint), []), warning_of(runner))


def manifest(user: MemoryUser) -> Manifest:
    """Return the current manifest with the open alerts and the failing constraints.

    The alerts and the constraints are sorted, most severe first.
    """
    current_outline, failing = outline(user.head), failing_constraints.alerts_of(user)
    ranked = most_severe_first([*failing, *open_alerts(user)])
    text = manifest_text(
        current_outline,
        [(alert.severity, alert.messages) for alert in ranked],
        failing=failing_constraints.describe_failures(failing, current_outline),
    )
    runners = [alert.last_run.runner if alert.last_run else "" for alert in ranked]
    if user.head:
        runners.append(user.head.verdict.get("runner", ""))
    return Manifest(text, next(filter(None, map(warning_of, runners)), None))


def schema(checkpoint: AnyState | None) -> dict[str, Any]:
    """Return each domain's classes (with their fields), enums, collections and singletons."""
    return {
        name: {
            "classes": {
                class_.name: {field.name: format_type(field.type) for field in class_.fields}
                for class_ in domain.classes.values()
            },
            "enums": {
                enumeration.name: dict(enumeration.members) for enumeration in domain.enums.values()
            },
            "collections": {
                collection.name: {"class": collection.class_name, "count": collection.count}
                for collection in domain.collections.values()
            },
            "singletons": {
                singleton.name: singleton.class_name for singleton in domain.singletons.values()
            },
        }
        for name, domain in outline(checkpoint).domains.items()
    }


@dataclass(frozen=True)
class RecordPage:
    """A page of a collection's records as typed JSON; `next` is the next page's number."""

    version: int
    count: int
    records: Sequence[Any]
    next: int | None


def records(checkpoint: AnyState | None, domain_name: str, name: str, page: int) -> RecordPage:
    """Return a page of a collection, or a singleton. Each file is a page; pages start at 1.

    Raises LookupError if the domain, the collection or the page doesn't exist.
    """
    domain = outline(checkpoint).domains.get(domain_name)
    if domain is None or checkpoint is None:
        raise LookupError(f"There is no domain {domain_name!r}.")
    return records_in(checkpoint, domain, name, page)


def records_in(checkpoint: AnyState, domain: Domain, name: str, page: int) -> RecordPage:
    """Like `records`, but for callers that already have the domain from the version's outline."""
    if name in domain.singletons:
        paths, count = [domain.state_path], 1
    elif name in domain.collections:
        collection = domain.collections[name]
        paths, count = [shard.path for shard in collection.shards], collection.count
    else:
        raise LookupError(f"The domain {domain.name!r} has no collection {name!r}.")
    if not 1 <= page <= len(paths):
        raise LookupError(
            f"{domain.name}.{name} has no page {page}: its last page is {len(paths)}."
        )
    path = paths[page - 1]
    state = parse_state(path, checkpoints.read_file(checkpoint, path), domain)
    return RecordPage(
        version=checkpoint.version,
        count=count,
        records=[encode(record, domain) for record in state.records[name].values()],
        next=page + 1 if page < len(paths) else None,
    )
