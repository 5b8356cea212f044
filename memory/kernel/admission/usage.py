"""Counting workspaces' usage, and checking it against their quotas.

Totals are counted periodically: if every append updated them, a workspace's appends would have to
wait for each other. Entries that arrive between two counts may therefore exceed a quota, but only
by as many as the rate limits allow. Pending entries are counted more often. Exceeding a quota never
affects entries that are already in the log.
"""

import time
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from memory.kernel.admission import refusals
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace, WorkspaceUse
from memory.kernel.settings import table

MIB = 2**20
# Seconds between counts of the totals and of the pending entries. The intervals grow as needed so
# that counting takes at most AT_MOST (a fraction) of the time.
TOTALS_SECONDS = 60.0
PENDING_SECONDS = 2.0
AT_MOST = 0.01
# Seconds for which a process relies on the last counts it read. Before rejecting a request, the
# process counts the workspace's usage itself, unless it did so within the last OWN_SECONDS, so that
# a dead dispatcher never causes refusals.
BELIEVED_SECONDS = 1.0
OWN_SECONDS = 5.0
# If the quota is at most FEW_USERS, users are recounted whenever one is created; for a larger
# quota, only when the last count is at least NEAR times the quota.
FEW_USERS = 10_000
NEAR = 0.9
# Seconds after which a client whose request was temporarily rejected should retry.
PENDING_WAIT = 30.0


@dataclass
class Exceeded(Exception):
    """The request would exceed a quota; `wait` is in seconds, or None if retrying won't help."""

    limit: str
    detail: str
    wait: float | None = None

    def __str__(self) -> str:
        return self.detail


TOTALS = """
INSERT INTO memory_workspaceuse AS use
    (workspace_id, users, entries, log_bytes, pending_records, pending_structure)
SELECT workspace_id, count(*) FILTER (WHERE erased_at IS NULL), sum(last_seq), sum(log_bytes), 0, 0
FROM memory_memoryuser
WHERE %(workspace)s::bigint IS NULL OR workspace_id = %(workspace)s
GROUP BY workspace_id
ON CONFLICT (workspace_id) DO UPDATE SET
    users = excluded.users, entries = excluded.entries, log_bytes = excluded.log_bytes
WHERE (use.users, use.entries, use.log_bytes)
    IS DISTINCT FROM (excluded.users, excluded.entries, excluded.log_bytes)
"""
# The backlog of a language model's lane is counted up to a limit; beyond it, all entries after the
# lane's cursor are counted. Without a model, nothing processes the lane, so it has no backlog.
PENDING = """
INSERT INTO memory_workspaceuse AS use
    (workspace_id, users, entries, log_bytes, pending_records, pending_structure)
SELECT workspace.id, 0, 0, 0,
    coalesce(sum(person.last_seq - lane.cursor_seq) FILTER (WHERE lane.name = 'records'), 0),
    coalesce(sum(CASE
        WHEN lane.waiting < %(counted)s THEN lane.waiting
        ELSE person.last_seq - lane.cursor_seq
    END) FILTER (WHERE lane.name = 'structure' AND (%(model)s OR workspace.llm_model <> '')), 0)
FROM memory_workspace AS workspace
    LEFT JOIN (memory_lane AS lane JOIN memory_memoryuser AS person ON person.id = lane.user_id)
    ON person.workspace_id = workspace.id AND lane.due_at IS NOT NULL
        AND person.merged_into_id IS NULL
        AND NOT EXISTS (SELECT FROM memory_pause AS pause
            WHERE pause.user_id = person.id AND pause.resumed_at IS NULL)
WHERE %(workspace)s::bigint IS NULL OR workspace.id = %(workspace)s
GROUP BY workspace.id
ON CONFLICT (workspace_id) DO UPDATE SET
    pending_records = excluded.pending_records, pending_structure = excluded.pending_structure
WHERE (use.pending_records, use.pending_structure)
    IS DISTINCT FROM (excluded.pending_records, excluded.pending_structure)
"""

_count_at = {TOTALS: 0.0, PENDING: 0.0}
_count_own_at: dict[int, float] = {}
_believed: dict[int, tuple[float, WorkspaceUse]] = {}


def count_when_due() -> int:
    """Update the counts that are due, for all workspaces; return the number of changed rows."""
    changed = 0
    for statement, seconds in ((TOTALS, TOTALS_SECONDS), (PENDING, PENDING_SECONDS)):
        began = time.monotonic()
        if began >= _count_at[statement]:
            changed += _count(statement)
            took = time.monotonic() - began
            _count_at[statement] = began + max(seconds, took / AT_MOST)
    return changed


def _count(statement: str, workspace: Workspace | None = None) -> int:
    parameters = {
        "workspace": None if workspace is None else workspace.pk,
        "counted": table.SETTINGS["UAC_STRUCTURE_ENTRIES"].maximum,
        "model": bool(settings.UAC_LLM_MODEL),
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def of(workspace: Workspace) -> WorkspaceUse:
    """Return the workspace's latest counts, which were read at most BELIEVED_SECONDS ago."""
    now = time.monotonic()
    until, use = _believed.get(workspace.pk, (0.0, None))
    if use is None or now >= until:
        found = WorkspaceUse.objects.filter(workspace=workspace).first()
        use = found or WorkspaceUse(workspace=workspace)
        _believed[workspace.pk] = (now + BELIEVED_SECONDS, use)
    return use


def check_entries(workspace: Workspace, user: MemoryUser, number: int) -> None:
    """Raise Exceeded if `number` more entries would exceed one of the workspace's quotas."""
    if _lacking(workspace, user, number, of(workspace)):
        now = time.monotonic()
        if now >= _count_own_at.get(workspace.pk, 0.0):
            _count_own_at[workspace.pk] = now + OWN_SECONDS
            _believed.pop(workspace.pk, None)
            for statement in (TOTALS, PENDING):
                _count(statement, workspace)
        if lacking := _lacking(workspace, user, number, of(workspace)):
            refusals.count(workspace, lacking.limit)
            raise lacking


def _lacking(
    workspace: Workspace, user: MemoryUser, number: int, use: WorkspaceUse
) -> Exceeded | None:
    most = quotas_of(workspace)
    pending = use.pending_records + use.pending_structure
    if user.last_seq + number > most["max_entries_per_user"]:
        has = f"The number of entries in this user's log is {user.last_seq:,}"
        return _full("max_entries_per_user", has, most)
    if use.entries + number > most["max_entries"]:
        has = f"The number of entries in this workspace's logs is {use.entries:,}"
        return _full("max_entries", has, most)
    if use.log_bytes >= most["max_log_mib"] * MIB:
        has = f"The size of this workspace's logs is {use.log_bytes / MIB:,.1f} MiB"
        return _full("max_log_mib", has, most)
    # If the workspace has no backlog, even a batch larger than the quota is accepted.
    if pending and pending + number > most["max_pending_entries"]:
        wait = f"The number of pending entries in this workspace is {pending:,}"
        return busy("max_pending_entries", wait, most, PENDING_WAIT)
    return None


def check_users(workspace: Workspace) -> None:
    """Raise Exceeded if the workspace already has its maximum number of users."""
    most = quotas_of(workspace)
    quota = most["max_users"]
    if quota > FEW_USERS and of(workspace).users < NEAR * quota:
        return
    if MemoryUser.objects.filter(workspace=workspace)[quota - 1 : quota].exists():
        refusals.count(workspace, "max_users")
        raise _full("max_users", f"The number of users in this workspace is {quota:,}", most)


def quotas_of(workspace: Workspace) -> dict[str, int]:
    """Return the workspace's effective quotas, keyed by field."""
    return workspace.effective(table.QUOTAS)


def _full(limit: str, has: str, most: dict[str, int]) -> Exceeded:
    rest = f"the quota is {most[limit]:,} ({limit}). The server's operator can raise it."
    return Exceeded(limit, f"{has}, and {rest}")


def busy(limit: str, waits: str, most: dict[str, int], wait: float) -> Exceeded:
    """Return the refusal of work that may be asked for again in `wait` seconds."""
    rest = f"the maximum is {most[limit]:,} ({limit}). Try again in {wait:.0f} s."
    return Exceeded(limit, f"{waits}, and {rest}", wait)
