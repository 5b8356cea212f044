"""Sandbox hosts: the workers that run users' code."""

from typing import Any

from django.contrib import admin
from django.utils import timezone
from django.utils.safestring import SafeString

from memory.admin.base import ReadOnlyAdmin
from memory.admin.display import badge, inline, pretty, sandbox_badge
from memory.admin.links import link_to_list
from memory.models import Run, SandboxHost
from memory.work import hosts


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

    list_display = [
        "host",
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
    fields = ["host", "state", "seen_at", "started_at", "threads", "said", "executed"]

    @admin.display(description="host", ordering="name")
    def host(self, host: SandboxHost) -> str:
        """Show the worker's name."""
        return inline(host.name)

    @admin.display(description="state", ordering="seen_at")
    def state(self, host: SandboxHost) -> SafeString:
        """Show whether the host is alive and accepts work."""
        return state_of(host)

    @admin.display(description="runner")
    def kind_of_sandbox(self, host: SandboxHost) -> str:
        """Show which kind of sandbox the host uses."""
        return sandbox_badge(str(host.report.get("runner", "")))

    @admin.display(description="ready")
    def ready(self, host: SandboxHost) -> Any:
        """Show how many fresh (single-use) sandboxes are ready."""
        return host.report.get("fresh")

    @admin.display(description="kept for users")
    def resident(self, host: SandboxHost) -> Any:
        """Show how many sandboxes are kept for their users' next requests."""
        return host.report.get("leases")

    @admin.display(description="report on the sandboxes")
    def said(self, host: SandboxHost) -> str:
        """Show the host's full report on its sandboxes."""
        return pretty(host.report)

    @admin.display(description="runs")
    def executed(self, host: SandboxHost) -> SafeString:
        """Link to the runs that the host executed."""
        return link_to_list(Run, "executed runs", host__exact=host.name)
