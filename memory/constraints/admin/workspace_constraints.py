"""Workspace constraints, written here or through the API: approval, rollout, disabling."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, F, IntegerField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Concat
from django.forms import Script
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.alerts import feedback
from memory.alerts.models.alerts import Alert, AlertFeedback, AlertState
from memory.constraints import (
    applicability,
    constraint_library,
    workspace_constraints,
)
from memory.constraints.admin.backtests import (
    ask_to_approve,
    describe_reach,
    show_dry_run,
    start_backtest,
    tested_of,
)
from memory.constraints.admin.workspace_constraint_form import ConstraintForm
from memory.constraints.admin.workspace_constraint_versions import (
    actions_for_version,
    newest_version,
    reason_of,
    show_backtest,
    show_checks,
    show_state,
)
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.admin.actions import done, staff_of
from memory.kernel.admin.base import MemoryAdmin, section
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    folded,
    inline,
    lines,
    source,
    visible,
)
from memory.kernel.admin.links import link, link_to_list, page_url
from memory.kernel.admin.rows import cached_on_row
from memory.kernel.models.large import defer_large
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff import access
from memory.project.paths import CONSTRAINTS, FOLDER
from memory.project.shapes import ShapeError

_LIVE = [state for state in AlertState.values if state != AlertState.RESOLVED]
_MOST_VERSIONS = 50
_SOON = "This takes a few seconds. Reload the constraint's page to see the verdict."
# Maximum number of users matched against a constraint for its page; the API matches all users.
_MOST_USERS = 200
_HELP = (
    "See docs/workspace-constraints.md. The constraint is checked in a sandbox, without any"
    " user's data, and is not run for any user until it is approved."
)


class EnabledFilter(admin.SimpleListFilter):
    """A list filter by state: runs, disabled, or without an approved version."""

    title = "state"
    parameter_name = "runs"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "runs"), ("disabled", "disabled"), ("no", "has no approved version")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        match self.value():
            case "yes":
                return queryset.filter(enabled=True, live__isnull=False, percentage__gt=0)
            case "disabled":
                return queryset.filter(enabled=False)
            case "no":
                return queryset.filter(live__isnull=True)
        return None


@admin.register(WorkspaceConstraint)
class WorkspaceConstraintAdmin(MemoryAdmin[WorkspaceConstraint]):
    """Constraints for all of a workspace's users, with their text, checks and coverage."""

    class Media:
        """The editor, and the script that shows the result of a backtest."""

        js = [
            Script("memory/vendor/editor.min.js", defer=True),
            Script("memory/progress.js", defer=True),
        ]

    form = ConstraintForm
    list_display = ["name", "workspace", "standing", "percentage", "version", "newest", "alerts"]
    list_filter = [EnabledFilter, "workspace"]
    list_select_related = ["workspace", "live"]
    search_fields = ["name", "description"]
    search_help_text = "Search by name or description."
    ordering = ["workspace", "name"]
    actions = ["approve", "backtest", "enable", "disable"]
    consequences = {
        "disable": "The constraints run for nobody from now on, and their live alerts are resolved."
        " Enabling them again runs them for the same users, and opens alerts anew.",
    }
    asking = ["approve", *consequences]
    dangerous = ["disable"]
    when_empty = "There are no workspace constraints yet. Add one, for example from the library."

    def get_fieldsets(self, request: HttpRequest, obj: WorkspaceConstraint | None = None) -> Any:
        if obj is None:
            texts = section("Text", ("source", "tests"), description=_HELP)
            return [section(None, "workspace", "start_from", "name", "description"), texts]
        share: Any = "percentage"
        if self.has_approve_permission(request):
            share = ("percentage", "sure")
        return [
            section(None, ("workspace", "standing", "version", "alerts", "judged"), facts=True),
            section(None, share, "description"),
            section("Text", ("source", "tests", "dry_run"), description=_HELP),
            section("Versions", "versions"),
            section("Users the constraint applies to", "fits"),
            section("More", "created_at", "created_by", "changed_at", "changed_by"),
        ]

    def get_readonly_fields(
        self, request: HttpRequest, obj: WorkspaceConstraint | None = None
    ) -> list[str]:
        """Fix workspace and name; staff who may not approve can't change the percentage."""
        if obj is None:
            return []
        shown = ["workspace", "standing", "version", "alerts", "judged"]
        shown += ["dry_run", "versions", "fits"]
        shown += ["created_at", "created_by", "changed_at", "changed_by"]
        return shown if self.has_approve_permission(request) else [*shown, "percentage"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkspaceConstraint]:
        versions = WorkspaceConstraintVersion.objects.filter(constraint=OuterRef("pk"))
        newest = versions.order_by("-number")
        alerts = (
            Alert.objects.filter(
                user__workspace=OuterRef("workspace"), constraint=OuterRef("of_path")
            )
            .filter(state__in=_LIVE)
            .order_by()
            .values("constraint")
            .annotate(number=Count("*"))
            .values("number")
        )
        path = Concat(Value(f"{FOLDER}{CONSTRAINTS}"), F("name"), Value(".py"))
        return (
            super()
            .get_queryset(request)
            .annotate(of_path=path)
            .annotate(
                live_alerts=Coalesce(Subquery(alerts), 0, output_field=IntegerField()),
                newest_number=Subquery(newest.values("number")[:1]),
                newest_state=Subquery(newest.values("state")[:1]),
            )
        )

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the library above the form, each constraint with what it does."""
        library = [constraint_library.read(name) for name in constraint_library.names()]
        return super().add_view(request, form_url, {"library": library, **(extra_context or {})})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Choose the workspace if the staff member sees only one."""
        workspaces = access.seen_by(request.user, Workspace.objects.all())[:2]
        only = {"workspace": str(workspaces[0].pk)} if len(workspaces) == 1 else {}
        return {**only, **super().get_changeform_initial_data(request)}

    def context_of(self, request: HttpRequest, row: WorkspaceConstraint) -> dict[str, Any]:
        return {**super().context_of(request, row), "steps": _show_steps(row)}

    def actions_for(self, row: WorkspaceConstraint) -> Collection[str]:
        switch = "disable" if row.enabled else "enable"
        return [*actions_for_version(newest_version(row)), switch]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require access to content: the author sees findings, which may contain content."""
        return super().has_add_permission(request) and access.sees_content(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require access to content: nobody may overwrite text that they may not see."""
        return super().has_change_permission(request, obj) and access.sees_content(request.user)

    def save_model(
        self,
        request: HttpRequest,
        obj: WorkspaceConstraint,
        form: forms.ModelForm[WorkspaceConstraint],
        change: bool,
    ) -> None:
        """Store the changes; if the text differs, create the constraint's next version."""
        text = {name: form.cleaned_data[name] for name in ("source", "tests")}
        by = staff_of(request)
        if not change:
            made = workspace_constraints.create(
                obj.workspace, obj.name, description=obj.description, by=by, **text
            )
            obj.pk, obj._state.adding = made.pk, False
            messages.info(request, f"The first version is being checked. {_SOON}")
            return
        named = ("description", "percentage")
        given = {name: form.cleaned_data[name] for name in named if name in form.changed_data}
        if obj.live is not None and "percentage" in given:
            obj.live.constraint = obj  # with the new percentage
            # Count the users first: the change locks their rows until the request has ended.
            if reach := describe_reach(obj.live):
                messages.info(request, reach)
        workspace_constraints.change(obj, by=by, **given)
        newest = newest_version(obj)
        if text != {"source": visible(newest.source), "tests": visible(newest.tests)}:
            version = workspace_constraints.propose(obj, by=by, **text)
            messages.info(request, f"Version {version.number} is being checked. {_SOON}")

    @content_column("source")
    def source(self, constraint: WorkspaceConstraint) -> str:
        """Show the newest version's source to staff who may not change the source."""
        return source(newest_version(constraint).source)

    @content_column("tests")
    def tests(self, constraint: WorkspaceConstraint) -> str:
        """Show the newest version's tests to staff who may not change the tests."""
        return source(newest_version(constraint).tests)

    @plain_column("state")
    def standing(self, constraint: WorkspaceConstraint) -> str:
        if not constraint.enabled:
            return badge("stopped", "disabled")
        if constraint.live is None:
            return badge("waiting", "no approved version")
        if not constraint.percentage:
            return badge("waiting", "enabled for no users")
        return badge("valid", "runs")

    @plain_column("useful alerts")
    def judged(self, constraint: WorkspaceConstraint) -> str:
        counts = feedback.count_verdicts(
            AlertFeedback.objects.filter(
                alert__user__workspace=constraint.workspace_id, alert__constraint=constraint.path
            )
        )
        return feedback.describe_precision(counts.get(constraint.path, feedback.UNJUDGED))

    @plain_column("live version")
    def version(self, constraint: WorkspaceConstraint) -> str:
        live = constraint.live
        return link(live, f"v{live.number}") if live else NOTHING

    @plain_column("newest version")
    def newest(self, constraint: WorkspaceConstraint) -> str:
        state = VersionState(getattr(constraint, "newest_state", VersionState.CHECKING))
        number = getattr(constraint, "newest_number", 1)
        return format_html("v{} {}", number, badge(state, state.label))

    @plain_column("live alerts", "live_alerts")
    def alerts(self, constraint: WorkspaceConstraint) -> str:
        number = getattr(constraint, "live_alerts", 0)
        if not number:
            return "none"
        return link_to_list(
            Alert,
            counted(number, "alert"),
            user__workspace__id__exact=constraint.workspace_id,
            state__in=",".join(_LIVE),
            q=constraint.path,
        )

    @content_column("dry run")
    def dry_run(self, constraint: WorkspaceConstraint) -> str:
        """Show the checks of the newest version, and what it would have raised."""
        newest = newest_version(constraint)
        backtest = newest.backtests.order_by("-created_at").first()
        return format_html(
            "<div>{} {}</div>{}{}",
            link(newest, f"v{newest.number}"),
            show_state(newest),
            folded("Checks", show_checks(newest), unfold=newest.state == VersionState.REFUSED),
            show_dry_run(backtest) if backtest else show_backtest(newest),
        )

    @content_column("all versions")
    def versions(self, constraint: WorkspaceConstraint) -> str:
        versions = defer_large(constraint.versions.order_by("-number"), keep=["verdict"])
        return lines(
            format_html(
                "{} {} {}",
                link(version, f"v{version.number}"),
                show_state(version),
                inline(reason_of(version)),
            )
            for version in versions[:_MOST_VERSIONS]
        )

    @content_column("users")
    def fits(self, constraint: WorkspaceConstraint) -> str:
        version = constraint.live or newest_version(constraint)
        tally = _tally(constraint)
        if isinstance(tally, str):
            return inline(tally)
        only = " (only the first users were checked)" if tally.after else ""
        return lines(
            [
                f"v{version.number}, among {counted(tally.users, 'user')} with a project{only}:",
                f"applies to {counted(tally.applies, 'user')}, {tally.within} of them within the"
                f" rollout percentage of {constraint.percentage} %",
                *(
                    format_html("{}: {}", inline(reason), counted(number, "user"))
                    for reason, number in tally.reasons.items()
                ),
            ]
        )

    @admin.action(
        description="Approve the newest versions of the selected constraints",
        permissions=["approve"],
    )
    def approve(
        self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint]
    ) -> TemplateResponse | None:
        return ask_to_approve(request, map(newest_version, queryset), queryset)

    @admin.action(
        description="Backtest the newest versions of the selected constraints",
        permissions=["approve"],
    )
    def backtest(self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint]) -> None:
        for constraint in queryset:
            start_backtest(request, newest_version(constraint))

    @admin.action(description="Enable the selected constraints", permissions=["approve"])
    def enable(self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint]) -> None:
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Disable the selected constraints", permissions=["approve"])
    def disable(self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint]) -> None:
        """Disable the constraints for all users, which resolves their alerts."""
        self._switch(request, queryset, enabled=False)

    def _switch(
        self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint], *, enabled: bool
    ) -> None:
        chosen = [one for one in queryset if one.enabled is not enabled]
        verb = "enabled" if enabled else "disabled"
        for constraint in chosen:
            workspace_constraints.change(constraint, by=staff_of(request), enabled=enabled)
            self.log_change(request, constraint, f"{verb.capitalize()}.")
        undo = "disable" if enabled else ""
        done(request, f"{counted(len(chosen), 'constraint')} {verb}.", undo, chosen)


@cached_on_row
def _tally(constraint: WorkspaceConstraint) -> applicability.Coverage | str:
    """Return to how many users the constraint applies, or why this is unknown."""
    version = constraint.live or newest_version(constraint)
    try:
        return applicability.coverage(version, most=_MOST_USERS)
    except ShapeError as error:
        return str(error)


def _show_steps(constraint: WorkspaceConstraint) -> SafeString:
    """Show how far the newest version has come, and what to do next.

    Each step links to the page where it is taken, or to what it has found.
    """
    newest = newest_version(constraint)
    is_checked = newest.state in (VersionState.PASSED, VersionState.APPROVED)
    is_live = constraint.live_id == newest.pk
    share = constraint.percentage if constraint.enabled and is_live else 0
    tested = tested_of(newest)
    version = page_url(newest)
    backtest = page_url(tested.backtest) if tested.backtest else version
    # A backtest of some users, or of none, suffices for an approval, but it is not the whole step.
    part = f", but not on {counted(tested.unseen, 'user')}" if tested.unseen else ""
    if tested.enough and not tested.evaluated:
        part = " on 0 users"
    tally = _tally(constraint)
    runs_for_nobody = share > 0 and not isinstance(tally, str) and not (tally.within or tally.after)
    nobody = ", but for 0 users" if runs_for_nobody else ""
    steps = [
        ("checked", _mark(is_checked), version),
        (f"backtested{part}", _mark(is_checked and tested.enough, in_part=bool(part)), backtest),
        ("approved", _mark(is_live), version),
        (
            f"rolled out to {share} %{nobody}",
            _mark(share > 0, in_part=share < 100 or runs_for_nobody),
            "#id_percentage",
        ),
    ]
    if newest.state == VersionState.REFUSED:
        following = "Refused: see why below, and save another text."
    elif not is_checked:
        following = "It is being checked."
    elif not (tested.enough or is_live):
        following = "See what its backtest says." if tested.backtest else "Next: backtest it."
    elif not is_live:
        following = "Next: approve it."
    elif not constraint.enabled:
        following = "Next: enable it."
    else:
        following = "" if share else "Next: set the percentage of users, and save."
    return format_html(
        '<ol class="steps" aria-label="Progress of v{}"><li>v{}</li>{}</ol><p class="quiet">{}</p>',
        newest.number,
        newest.number,
        format_html_join(
            "",
            '<li class="{}"><a href="{}">{}</a></li>',
            ((mark, url, name) for name, mark, url in steps),
        ),
        following,
    )


def _mark(is_done: bool, *, in_part: bool = False) -> str:
    """Return the style of a step: done, done in part, or still to be taken."""
    if not is_done:
        return "step"
    return "part" if in_part else "done"
