"""Workspace constraint versions: their checks, backtests and approval."""

from collections.abc import Collection

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.constraints import workspace_constraints
from memory.constraints.admin.backtests import (
    approve_version,
    ask_to_approve,
    start_backtest,
    tested_of,
)
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import column, content_column, plain_column, row_column
from memory.kernel.admin.display import NOTHING, badge, inline, sandbox, shortened, source
from memory.kernel.admin.links import link
from memory.kernel.admin.rows import cached_on_row
from memory.versions.admin.verdicts import durations, gate


@admin.register(WorkspaceConstraintVersion)
class WorkspaceConstraintVersionAdmin(ReadOnlyAdmin[WorkspaceConstraintVersion]):
    """Workspace constraint versions, with their text and checks."""

    list_display = ["name", "workspace", "standing", "findings", "created_by", "created_at"]
    list_filter = ["state"]
    list_select_related = ["constraint__workspace"]
    large = ["verdict"]
    search_fields = ["constraint__name"]
    search_help_text = "Search by name."
    ordering = ["-created_at"]
    actions = ["approve", "backtest"]
    asking = ["approve"]
    when_empty = "No workspace constraint has been written yet."
    fieldsets = [
        section(None, "constraint_link", "workspace", "standing", "checks", "tested", "ran_in"),
        section("Text", "shown_source", "shown_tests"),
        section(
            "Author and time", "created_by", "created_at", "judged_at", "approved_by", "approved_at"
        ),
        section("Work status", "durations", "attempts", "last_error", collapsed=True),
    ]

    name = row_column(str, "version", "constraint__name", plain=True)
    workspace = column(
        "constraint.workspace", link, "workspace", "constraint__workspace__name", plain=True
    )

    def actions_for(self, row: WorkspaceConstraintVersion) -> Collection[str]:
        return actions_for_version(row)

    @plain_column("constraint")
    def constraint_link(self, version: WorkspaceConstraintVersion) -> str:
        return format_html("{} v{}", link(version.constraint), version.number)

    @plain_column("state", "state")
    def standing(self, version: WorkspaceConstraintVersion) -> str:
        if version.constraint.live_id != version.pk:
            return show_state(version)
        live = badge("valid", "live")
        if not version.constraint.percentage:
            live = badge("waiting", "runs for nobody")
        return format_html("{} {}", show_state(version), live)

    @content_column("findings")
    def findings(self, version: WorkspaceConstraintVersion) -> str:
        return inline(reason_of(version)) or NOTHING

    @content_column("checks")
    def checks(self, version: WorkspaceConstraintVersion) -> str:
        return show_checks(version) or NOTHING

    @content_column("backtest")
    def tested(self, version: WorkspaceConstraintVersion) -> str:
        return show_backtest(version) or NOTHING

    @plain_column("executed in")
    def ran_in(self, version: WorkspaceConstraintVersion) -> str:
        return sandbox((version.verdict or {}).get("runner", ""))

    @content_column("source")
    def shown_source(self, version: WorkspaceConstraintVersion) -> str:
        return source(version.source)

    @content_column("tests")
    def shown_tests(self, version: WorkspaceConstraintVersion) -> str:
        return source(version.tests)

    @plain_column("seconds by stage")
    def durations(self, version: WorkspaceConstraintVersion) -> str:
        return durations((version.verdict or {}).get("timings", {}))

    @admin.action(description="Approve the selected versions", permissions=["approve"])
    def approve(
        self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraintVersion]
    ) -> TemplateResponse | None:
        versions = queryset.order_by("number")
        if not self.is_confirmed(request, "approve", queryset):
            return ask_to_approve(request, versions, versions)
        for version in versions:
            approve_version(request, version)
        return None

    @admin.action(description="Backtest the selected versions", permissions=["approve"])
    def backtest(
        self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraintVersion]
    ) -> None:
        for version in queryset:
            start_backtest(request, version)


@cached_on_row
def newest_version(constraint: WorkspaceConstraint) -> WorkspaceConstraintVersion:
    """Return the constraint's newest version."""
    return constraint.versions.order_by("-number")[0]


def show_state(version: WorkspaceConstraintVersion) -> SafeString:
    """Show the version's state."""
    return badge(version.state, version.get_state_display())


def reason_of(version: WorkspaceConstraintVersion) -> str:
    """Return why the checks failed or, until they are done, the error from the last attempt."""
    if version.state == VersionState.CHECKING:
        return shortened(version.last_error, 300)
    return shortened(str((version.verdict or {}).get("reason", "")), 300)


def show_checks(version: WorkspaceConstraintVersion) -> SafeString | str:
    """Show the result of each check or, until the checks are done, the last error."""
    return gate(version.verdict) if version.verdict else inline(reason_of(version))


def show_backtest(version: WorkspaceConstraintVersion) -> SafeString | str:
    """Show whether a backtest allows the version to be approved, linking to the backtest."""
    if version.state not in (VersionState.PASSED, VersionState.APPROVED):
        return ""
    tested = tested_of(version)
    if tested.backtest is None:
        return inline(tested.detail)
    return format_html("{} {}", link(tested.backtest, "Backtest:"), inline(tested.detail))


def actions_for_version(version: WorkspaceConstraintVersion) -> Collection[str]:
    """Return the actions that a version's state allows."""
    if version.state not in (VersionState.PASSED, VersionState.APPROVED):
        return []
    is_live = version.constraint.live_id == version.pk
    refused = is_live or workspace_constraints.why_not_approvable(version, tested_of(version))
    return ["backtest"] if refused else ["approve", "backtest"]
