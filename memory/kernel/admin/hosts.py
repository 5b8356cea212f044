"""Sandbox hosts: the workers that run users' code."""

from typing import Any

from django.contrib import admin
from django.utils import timezone
from django.utils.safestring import SafeString

from memory.kernel.admin.base import ReadOnlyAdmin
from memory.kernel.admin.columns import plain_column, row_column
from memory.kernel.admin.display import badge, sandbox_badge
from memory.kernel.admin.links import link_to_list
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.work import hosts


def state_of(host: SandboxHost) -> SafeString:
    """Show whether a host is alive and accepts work."""
    if timezone.now() - host.seen_at < hosts.SILENT:
        if hosts.PROBLEM in host.report:
            return badge("failed", "accepts no work")
        return badge("ok", "running")
    return badge("failed", "silent")


@admin.register(SandboxHost)
class SandboxHostAdmin(ReadOnlyAdmin[SandboxHost]):
    """Sandbox workers, and the sandboxes they keep ready."""

    labels = {"name": "host", "report": "report on the sandboxes"}

    list_display = [
        "name",
        "state",
        "seen_at",
        "started_at",
        "threads",
        "kind_of_sandbox",
        "ready",
        "resident",
    ]
    search_fields = ["name"]
    search_help_text = "Search by part of a host's name."
    ordering = ["name"]
    when_empty = (
        "No sandbox worker is running, so changes are not checked, queries are not answered and"
        " no alerts are raised."
    )
    fields = ["name", "state", "seen_at", "started_at", "threads", "report", "executed"]

    state = row_column(state_of, "state", "seen_at", plain=True)

    @plain_column("runner")
    def kind_of_sandbox(self, host: SandboxHost) -> str:
        return sandbox_badge(str(host.report.get("runner", "")))

    @plain_column("ready")
    def ready(self, host: SandboxHost) -> Any:
        return host.report.get("fresh")

    @plain_column("kept for users")
    def resident(self, host: SandboxHost) -> Any:
        return host.report.get("leases")

    @plain_column("runs")
    def executed(self, host: SandboxHost) -> SafeString:
        return link_to_list("run", "executed runs", host__exact=host.name)
