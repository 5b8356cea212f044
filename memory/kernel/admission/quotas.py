"""Quotas: how much a workspace may have, and how much of it may wait; counting what it has.

Totals are counted periodically: if every append updated them, a workspace's appends would have to
wait for each other. Entries that arrive between two counts may therefore exceed a quota, but only
by as many as the rate limits allow. Pending entries are counted more often. Exceeding a quota never
affects entries that are already in the log.
"""

import time
from collections.abc import Mapping
from typing import NoReturn

from django.conf import settings
from django.db import connection

from memory.kernel.admission.refusals import refuse
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace, WorkspaceUse
from memory.kernel.settings import environment

MIB = 2**20
# The highest value a quota can have.
MAX_QUOTA = 2**31 - 1
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
        "counted": environment.SETTINGS["UAC_STRUCTURE_ENTRIES"].maximum,
        "model": bool(settings.UAC_LLM_MODEL),
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def usage_of(workspace: Workspace) -> WorkspaceUse:
    """Return the workspace's latest counts, which were read at most BELIEVED_SECONDS ago."""
    now = time.monotonic()
    until, use = _believed.get(workspace.pk, (0.0, None))
    if use is None or now >= until:
        row = WorkspaceUse.objects.filter(workspace=workspace).first()
        use = row or WorkspaceUse(workspace=workspace)
        _believed[workspace.pk] = (now + BELIEVED_SECONDS, use)
    return use


def check_entries(workspace: Workspace, user: MemoryUser, number: int) -> None:
    """Raise LimitExceeded if `number` more entries would exceed one of the workspace's quotas."""
    quotas = quotas_of(workspace)
    if _exceeded(quotas, user, number, usage_of(workspace)) is None:
        return
    now = time.monotonic()
    if now >= _count_own_at.get(workspace.pk, 0.0):
        _count_own_at[workspace.pk] = now + OWN_SECONDS
        _believed.pop(workspace.pk, None)
        for statement in (TOTALS, PENDING):
            _count(statement, workspace)
    match _exceeded(quotas, user, number, usage_of(workspace)):
        case "max_pending_entries" as quota, sentence:
            refuse_for_now(workspace, quota, sentence, PENDING_WAIT)
        case quota, sentence:
            _refuse(workspace, quota, sentence)


def _exceeded(
    quotas: Mapping[str, int], user: MemoryUser, number: int, use: WorkspaceUse
) -> tuple[str, str] | None:
    """Return the name of the first quota that would be exceeded, and what there is already."""
    pending = use.pending_records + use.pending_structure
    if user.last_seq + number > quotas["max_entries_per_user"]:
        has = f"The number of entries in this user's log is {user.last_seq:,}"
        return "max_entries_per_user", has
    if use.entries + number > quotas["max_entries"]:
        return "max_entries", f"The number of entries in this workspace's logs is {use.entries:,}"
    if use.log_bytes >= quotas["max_log_mib"] * MIB:
        return "max_log_mib", f"The size of this workspace's logs is {use.log_bytes / MIB:,.1f} MiB"
    # If the workspace has no backlog, even a batch larger than the quota is accepted.
    if pending and pending + number > quotas["max_pending_entries"]:
        has = f"The number of pending entries in this workspace is {pending:,}"
        return "max_pending_entries", has
    return None


def check_users(workspace: Workspace) -> None:
    """Raise LimitExceeded if the workspace already has its maximum number of users."""
    quota = quotas_of(workspace)["max_users"]
    if quota > FEW_USERS and usage_of(workspace).users < NEAR * quota:
        return
    if MemoryUser.objects.filter(workspace=workspace)[quota - 1 : quota].exists():
        _refuse(workspace, "max_users", f"The number of users in this workspace is {quota:,}")


def quotas_of(workspace: Workspace) -> dict[str, int]:
    """Return the workspace's effective quotas, keyed by field."""
    return workspace.effective(environment.QUOTAS)


def _refuse(workspace: Workspace, quota: str, has: str) -> NoReturn:
    rest = f"the quota is {quotas_of(workspace)[quota]:,} ({quota})."
    refuse(workspace, quota, f"{has}, and {rest} The server's operator can raise it.")


def refuse_for_now(workspace: Workspace, quota: str, has: str, wait: float) -> NoReturn:
    """Refuse work that may be asked for again in `wait` seconds; raises LimitExceeded."""
    rest = f"the maximum is {quotas_of(workspace)[quota]:,} ({quota})."
    refuse(workspace, quota, f"{has}, and {rest} Try again in {wait:.0f} s.", wait)
