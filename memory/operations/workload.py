"""What workspaces use, and what waits: for staff and metrics."""

from collections.abc import Iterator

from django.db.models import Count, Max

from memory.constraints import backtests
from memory.constraints.models.backtests import GOING_ON, Backtest
from memory.kernel.admission.quotas import MAX_QUOTA, MIB
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace, WorkspaceUse
from memory.versions.models.runs import Run
from memory.versions.runs import count_requested


def waiting() -> Iterator[tuple[str, str, int]]:
    """Yield (workspace public id, kind of work, number) for queued or running work."""
    counted = WorkspaceUse.objects.values_list(
        "workspace__public_id", "pending_records", "pending_structure"
    )
    for public_id, records, structure in counted:
        if records:
            yield str(public_id), "records", records
        if structure:
            yield str(public_id), "structure", structure
    runs = Run.objects.unfinished().order_by()
    for public_id, kind, number in runs.values_list("user__workspace__public_id", "kind").annotate(
        number=Count("pk")
    ):
        yield str(public_id), kind, number
    running = Backtest.objects.filter(state__in=GOING_ON).order_by()
    for public_id, number in running.values_list("workspace__public_id").annotate(
        number=Count("pk")
    ):
        yield str(public_id), "backtest", number


def used(workspace: Workspace) -> dict[str, int]:
    """Return the workspace's usage for each quota; totals are taken from the last count."""
    use = WorkspaceUse.objects.filter(workspace=workspace).first() or WorkspaceUse()
    longest = MemoryUser.objects.filter(workspace=workspace).aggregate(most=Max("last_seq"))
    return {
        "max_users": use.users,
        "max_entries": use.entries,
        "max_entries_per_user": longest["most"] or 0,
        "max_log_mib": use.log_bytes // MIB,
        "max_pending_entries": use.pending_records + use.pending_structure,
        "max_waiting_runs": count_requested(workspace, MAX_QUOTA),
        "max_backtests": backtests.count_running(workspace),
    }
