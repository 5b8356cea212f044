"""Retention: the dispatcher deletes a workspace's expired data in small batches.

- A message loses its content, but whatever was derived from the message stays: this is not a
  redaction, and in the log, only the message's own entry changes. A pending message is kept.
- A run is deleted along with its results, unless it was the last one to report a live alert.
- A language model call is deleted, but its spending stays in the ledger.
"""

import datetime
import time
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from memory.alerts.models.alerts import Alert
from memory.kernel.database.deletion import delete_oldest
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import environment
from memory.llm.models import LlmCall, LlmOutcome
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry
from memory.log.models.merges import Merge
from memory.privacy.redaction import clear_content
from memory.versions.models.runs import Run, RunStatus

# How many seconds a process skips a workspace after finding no expired data there.
PAUSE_SECONDS = 300.0
_quiet_until: dict[int, float] = {}


def purge(limit: int) -> int:
    """Remove expired data from each workspace, oldest first, up to `limit` rows of each kind.

    Returns the number of rows cleared or deleted.
    """
    number = 0
    for workspace in Workspace.objects.all():
        if time.monotonic() >= _quiet_until.get(workspace.pk, 0.0):
            purged = purge_workspace(workspace, limit)
            if not purged:
                _quiet_until[workspace.pk] = time.monotonic() + PAUSE_SECONDS
            number += purged
    return number


def purge_workspace(workspace: Workspace, limit: int) -> int:
    """Remove expired data from one workspace, as `purge` does."""
    now, number = timezone.now(), 0
    holds = workspace.effective(environment.RETENTION)
    for name, remove in (
        ("keep_messages_days", _empty_messages),
        ("keep_runs_days", _delete_runs),
        ("keep_llm_calls_days", _delete_calls),
    ):
        if days := holds[name]:
            number += remove(workspace, now - datetime.timedelta(days=days), limit)
    return number


def _empty_messages(workspace: Workspace, before: datetime.datetime, limit: int) -> int:
    decided = EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq"))
    # A merged user's messages are copied to the other user's log and settled there.
    handed_over = Merge.objects.filter(
        merged=OuterRef("user"), due_at=None, last_seq__gte=OuterRef("seq")
    )
    old = LogEntry.objects.filter(
        Exists(decided) | Exists(handed_over),
        user__in=MemoryUser.objects.filter(workspace=workspace, redacting_since=None),
        kind=EntryKind.MESSAGE,
        redacted_at=None,
        recorded_at__lt=before,
    )
    keys: dict[int, list[UUID]] = {}
    for user_pk, key in old.order_by("recorded_at").values_list("user_id", "pk")[:limit]:
        keys.setdefault(user_pk, []).append(key)
    return sum(_empty(user_pk, some) for user_pk, some in keys.items())


def _empty(user_pk: int, keys: list[UUID]) -> int:
    """Clear these entries of a user; if the user's row is locked, leave them to a later call."""
    with transaction.atomic():
        users = MemoryUser.objects.select_for_update(no_key=True, skip_locked=True)
        if not users.filter(pk=user_pk, redacting_since=None).values("pk").first():
            return 0
        old = LogEntry.objects.filter(pk__in=keys, redacted_at=None)
        return clear_content(user_pk, old, timezone.now())


def _delete_runs(workspace: Workspace, before: datetime.datetime, limit: int) -> int:
    live = Alert.objects.live().filter(last_run=OuterRef("pk"))
    old = Run.objects.filter(
        ~Exists(live), user__workspace=workspace, status=RunStatus.DONE, finished_at__lt=before
    )
    return delete_oldest(old, "finished_at", limit)


def _delete_calls(workspace: Workspace, before: datetime.datetime, limit: int) -> int:
    ended = LlmCall.objects.filter(workspace=workspace, started_at__lt=before).exclude(
        outcome=LlmOutcome.STARTED
    )
    return delete_oldest(ended, "started_at", limit)
