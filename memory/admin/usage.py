"""Workspace usage and pending work."""

from django.contrib import admin

from memory.admin.base import ReadOnlyAdmin
from memory.admin.columns import column
from memory.admin.links import link
from memory.kernel.admission.quotas import MIB
from memory.kernel.models.workspaces import WorkspaceUse

SHOWN = ("name", "users", "entries", "log_size", "pending_records", "pending_structure")


@admin.register(WorkspaceUse)
class WorkspaceUseAdmin(ReadOnlyAdmin[WorkspaceUse]):
    """Usage by workspace; each workspace's own page shows its quotas."""

    list_display = [*SHOWN]
    list_display_links = ["users"]
    list_select_related = ["workspace"]
    search_fields = ["workspace__name", "=workspace__public_id"]
    search_help_text = "Search by a workspace's name or public id."
    ordering = ["-entries"]
    when_empty = "Nothing has been counted yet: the dispatcher counts once a minute."
    fields = [*SHOWN]

    name = column("workspace", link, "workspace", "workspace__name")

    @admin.display(description="logs", ordering="log_bytes")
    def log_size(self, use: WorkspaceUse) -> str:
        return f"{use.log_bytes / MIB:,.1f} MiB"
