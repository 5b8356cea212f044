"""Workspace constraints, written here or through the API: approval, rollout, disabling."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.validators import MaxValueValidator
from django.db.models import Count, F, IntegerField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Concat
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.admin import skeletons
from memory.admin.backtests import approve_version, start_backtest
from memory.admin.base import MemoryAdmin, ReadOnlyAdmin, link, link_to_list
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    durations,
    gate,
    inline,
    lines,
    sandbox,
    shortened,
    source,
    visible,
)
from memory.constraints import applicability, constraint_library, workspace_constraints
from memory.models import Alert, WorkspaceConstraint, WorkspaceConstraintVersion
from memory.models.alerts import AlertState
from memory.models.workspace_constraints import VersionState
from memory.project.shapes import ShapeError
from memory.staff import access
from memory.temporal import backtest_reports

_LIVE = [state for state in AlertState.values if state != AlertState.RESOLVED]
_MOST_VERSIONS = 50
_SOON = "This takes a few seconds: reload the constraint's page to see the verdict."
# Maximum number of users matched against a constraint for its page; the API matches all users.
_MOST_USERS = 200
_FOUND = ["found", "tested", "ran_in"]


def _editor(rows: int) -> forms.Textarea:
    return forms.Textarea(attrs={"class": "code", "rows": rows, "cols": 100, "spellcheck": "false"})


class ConstraintForm(forms.ModelForm[WorkspaceConstraint]):
    """The form for the text of a constraint, which becomes the constraint's next version."""

    start_from = forms.ChoiceField(
        required=False,
        help_text="The library constraint to start from. Its name is kept; source or tests entered"
        " below replace its own.",
    )
    source = forms.CharField(required=False, strip=False, widget=_editor(40))
    tests = forms.CharField(required=False, strip=False, widget=_editor(30))

    class Meta:
        model = WorkspaceConstraint
        fields = ["workspace", "name", "description", "percentage"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            names = constraint_library.names()
            choices = [("", "empty source"), *((name, name) for name in names)]
            self.fields["start_from"].choices = choices  # type: ignore[attr-defined]
            self.fields["name"].required = False
        else:
            del self.fields["start_from"]
            newest = _newest(self.instance)
            # In Python source, an escape sequence means the same as the character, and cannot alter
            # the page.
            self.initial["source"] = visible(newest.source)
            self.initial["tests"] = visible(newest.tests)
            self.initial["description"] = visible(self.instance.description)
        # Read-only staff get a form without fields.
        if percentage := self.fields.get("percentage"):
            percentage.validators.append(MaxValueValidator(100))
        if description := self.fields.get("description"):
            description.widget.attrs["class"] = "vLargeTextField"

    def clean(self) -> dict[str, Any]:
        """Take the text from the library, if one of its constraints is chosen, and validate it."""
        cleaned = super().clean() or {}
        for name in ("source", "tests"):
            cleaned[name] = (cleaned.get(name) or "").replace("\r\n", "\n")
        if chosen := cleaned.get("start_from"):
            known = constraint_library.read(chosen)
            if cleaned.get("name") not in ("", known.name):
                self.add_error(
                    "name",
                    "Leave the name empty: the library's tests import the constraint as"
                    f" {known.name}.",
                )
            cleaned["name"] = known.name
            for name in ("source", "tests"):
                cleaned[name] = cleaned[name] if cleaned[name].strip() else getattr(known, name)
            cleaned["description"] = cleaned.get("description") or known.summary
        self.instance.name = cleaned.get("name") or self.instance.name
        try:
            if not self.instance.name:
                raise workspace_constraints.BadConstraint(
                    "name", "Give a name, or start from the library."
                )
            if self.instance._state.adding:
                workspace_constraints.check_name(self.instance.name)
                workspace = cleaned.get("workspace")
                if workspace and workspace.constraints.filter(name=self.instance.name).exists():
                    self.add_error("name", "The workspace already has a constraint with this name.")
            workspace_constraints.check_text(cleaned["source"], cleaned["tests"])
        except workspace_constraints.BadConstraint as error:
            self.add_error(error.field if error.field in self.fields else None, str(error))
        return cleaned


class EnabledFilter(admin.SimpleListFilter):
    """A list filter by state: runs, disabled, or without an approved version."""

    title = "state"
    parameter_name = "runs"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the filter's choices."""
        return [("yes", "runs"), ("disabled", "disabled"), ("no", "has no approved version")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Keep the constraints that match the choice."""
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
    """Constraints for all users of a workspace, with their text, checks and coverage."""

    form = ConstraintForm
    list_display = ["name", "workspace", "standing", "percentage", "version", "newest", "alerts"]
    list_filter = [EnabledFilter, "workspace"]
    list_select_related = ["workspace", "live"]
    search_fields = ["name", "description"]
    search_help_text = "Search by name or description."
    ordering = ["workspace", "name"]
    actions = ["enable", "disable"]
    when_empty = "There are no workspace constraints yet. Add one, for example from the library."

    def get_fieldsets(self, request: HttpRequest, obj: WorkspaceConstraint | None = None) -> Any:
        """Show a constraint's fields and, if the constraint already exists, its state as well."""
        text = ("Text", {"fields": ["source", "tests"], "description": _HELP})
        if obj is None:
            asked = ["workspace", "start_from", "name", "description"]
            return [(None, {"fields": asked}), text]
        head = ["name", "workspace", "standing", "percentage", "version", "alerts"]
        return [
            (None, {"fields": [*head, "description"]}),
            ("Versions", {"fields": ["found", "versions"]}),
            ("Users to whom the constraint applies", {"fields": ["fits"]}),
            text,
            ("More", {"fields": ["created_at", "creator", "changed_at", "changer"]}),
        ]

    def get_readonly_fields(
        self, request: HttpRequest, obj: WorkspaceConstraint | None = None
    ) -> list[str]:
        """Make workspace and name read-only, and the percentage for staff who may not approve."""
        if obj is None:
            return []
        shown = ["name", "workspace", "standing", "version", "alerts", "found", "versions", "fits"]
        shown += ["created_at", "creator", "changed_at", "changer"]
        return shown if self.has_approve_permission(request) else [*shown, "percentage"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkspaceConstraint]:
        """Annotate the number of live alerts, and the number and state of the newest version."""
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
        path = Concat(Value("workspace/constraints/"), F("name"), Value(".py"))
        return (
            super()
            .get_queryset(request)
            .defer("live__source", "live__tests", "live__verdict", "live__bytecode")
            .annotate(of_path=path)
            .annotate(
                live_alerts=Coalesce(Subquery(alerts), 0, output_field=IntegerField()),
                newest_number=Subquery(newest.values("number")[:1]),
                newest_state=Subquery(newest.values("state")[:1]),
            )
        )

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Start from the console query that the URL names, if any."""
        return {**super().get_changeform_initial_data(request), **skeletons.initial_of(request)}

    def actions_for(self, row: WorkspaceConstraint) -> Collection[str]:
        """Offer to enable or to disable the constraint."""
        return ["disable" if row.enabled else "enable"]

    def has_approve_permission(self, request: HttpRequest) -> bool:
        """Return whether the staff member may approve constraints and roll them out."""
        return request.user.has_perm("memory.approve_workspaceconstraint")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require access to content: the author sees findings, which may contain content."""
        return super().has_add_permission(request) and access.sees_content(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require access to content: nobody may overwrite a text that they may not see."""
        return super().has_change_permission(request, obj) and access.sees_content(request.user)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: a constraint is disabled instead, since its alerts name it."""
        return False

    def save_model(
        self,
        request: HttpRequest,
        obj: WorkspaceConstraint,
        form: forms.ModelForm[WorkspaceConstraint],
        change: bool,
    ) -> None:
        """Store the changes; if the text differs, create the constraint's next version."""
        text = {name: form.cleaned_data[name] for name in ("source", "tests")}
        by = _staff(request)
        if not change:
            made = workspace_constraints.create(
                obj.workspace, obj.name, description=obj.description, by=by, **text
            )
            obj.pk, obj._state.adding = made.pk, False
            messages.info(request, f"The first version is being checked. {_SOON}")
            return
        named = ("description", "percentage")
        given = {name: form.cleaned_data[name] for name in named if name in form.changed_data}
        workspace_constraints.change(obj, by=by, **given)
        newest = _newest(obj)
        if text != {"source": visible(newest.source), "tests": visible(newest.tests)}:
            version = workspace_constraints.propose(obj, by=by, **text)
            messages.info(request, f"Version {version.number} is being checked. {_SOON}")

    @admin.display(description="source")
    def source(self, constraint: WorkspaceConstraint) -> str:
        """Show the newest version's source to staff who may not change it."""
        return source(_newest(constraint).source)

    @admin.display(description="tests")
    def tests(self, constraint: WorkspaceConstraint) -> str:
        """Show the newest version's tests to staff who may not change them."""
        return source(_newest(constraint).tests)

    @admin.display(description="state")
    def standing(self, constraint: WorkspaceConstraint) -> str:
        """Show whether the constraint runs and, if it does not, why."""
        if not constraint.enabled:
            return badge("stopped", "disabled")
        if constraint.live is None:
            return badge("waiting", "no approved version")
        if not constraint.percentage:
            return badge("waiting", "enabled for no users")
        return badge("valid", "runs")

    @admin.display(description="live version")
    def version(self, constraint: WorkspaceConstraint) -> str:
        """Link to the version that runs."""
        live = constraint.live
        return link(live, f"v{live.number}") if live else NOTHING

    @admin.display(description="newest version")
    def newest(self, constraint: WorkspaceConstraint) -> str:
        """Show the newest version's number and state."""
        state = VersionState(getattr(constraint, "newest_state", VersionState.CHECKING))
        number = getattr(constraint, "newest_number", 1)
        return format_html("v{} {}", number, badge(state, state.label))

    @admin.display(description="live alerts", ordering="live_alerts")
    def alerts(self, constraint: WorkspaceConstraint) -> str:
        """Link to the constraint's live alerts."""
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

    @admin.display(description="newest version")
    def found(self, constraint: WorkspaceConstraint) -> str:
        """Show the checks of the newest version, with their results."""
        newest = _newest(constraint)
        return format_html(
            "{} {}{}{}",
            link(newest, f"v{newest.number}"),
            _state(newest),
            _found(newest),
            _tested(newest),
        )

    @admin.display(description="all versions")
    def versions(self, constraint: WorkspaceConstraint) -> str:
        """Link to the constraint's versions, newest first."""
        found = constraint.versions.order_by("-number").defer("source", "tests", "bytecode")
        return lines(
            format_html(
                "{} {} {}",
                link(version, f"v{version.number}"),
                _state(version),
                inline(_told(version)),
            )
            for version in found[:_MOST_VERSIONS]
        )

    @admin.display(description="created by")
    def creator(self, constraint: WorkspaceConstraint) -> str:
        """Show who created the constraint."""
        return inline(constraint.created_by)

    @admin.display(description="changed by")
    def changer(self, constraint: WorkspaceConstraint) -> str:
        """Show who last changed the live version or the users for whom the constraint runs."""
        return inline(constraint.changed_by) if constraint.changed_by else NOTHING

    @admin.display(description="users")
    def fits(self, constraint: WorkspaceConstraint) -> str:
        """Count the users to whom the constraint applies, and show why others are left out."""
        version = constraint.live or _newest(constraint)
        try:
            found = applicability.coverage(version, most=_MOST_USERS)
        except ShapeError as error:
            return inline(str(error))
        only = " (only the first users were checked)" if found.after else ""
        return lines(
            [
                f"v{version.number}, among {counted(found.users, 'user')} with a project{only}:",
                f"applies to {counted(found.applies, 'user')}, {found.within} of them within the"
                f" rollout percentage of {constraint.percentage} %",
                *(
                    format_html("{}: {}", inline(reason), counted(number, "user"))
                    for reason, number in found.reasons.items()
                ),
            ]
        )

    @admin.action(description="Enable the selected constraints", permissions=["approve"])
    def enable(self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint]) -> None:
        """Enable the constraints."""
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Disable the selected constraints", permissions=["approve"])
    def disable(self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint]) -> None:
        """Disable the constraints for all users, which resolves their alerts."""
        self._switch(request, queryset, enabled=False)

    def _switch(
        self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraint], *, enabled: bool
    ) -> None:
        chosen = [one for one in queryset if one.enabled is not enabled]
        done = "enabled" if enabled else "disabled"
        for constraint in chosen:
            workspace_constraints.change(constraint, by=_staff(request), enabled=enabled)
            self.log_change(request, constraint, f"{done.capitalize()}.")
        messages.success(request, f"{counted(len(chosen), 'constraint')} {done}.")


@admin.register(WorkspaceConstraintVersion)
class WorkspaceConstraintVersionAdmin(ReadOnlyAdmin[WorkspaceConstraintVersion]):
    """Versions of workspace constraints, with their text and checks."""

    list_display = ["name", "workspace", "standing", "told", "creator", "created_at"]
    list_filter = ["state", "constraint__workspace"]
    list_select_related = ["constraint__workspace"]
    search_fields = ["constraint__name"]
    search_help_text = "Search by name."
    ordering = ["-created_at"]
    actions = ["approve", "backtest"]
    when_empty = "No workspace constraint has been written yet."
    fieldsets = [
        (None, {"fields": ["constraint_link", "workspace", "standing", *_FOUND]}),
        ("Text", {"fields": ["shown_source", "shown_tests"]}),
        (
            "Author and time",
            {"fields": ["created_by", "created_at", "judged_at", "approved_by", "approved_at"]},
        ),
        (
            "Work status",
            {"classes": ["collapse"], "fields": ["durations", "attempts", "last_error"]},
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkspaceConstraintVersion]:
        """Defer the columns that are not shown."""
        return super().get_queryset(request).defer("source", "tests", "bytecode")

    def actions_for(self, row: WorkspaceConstraintVersion) -> Collection[str]:
        """Offer approval and backtests.

        A version that was approved before can be approved again here. A version that has only
        passed its checks is approved from its backtest's page, unless there are no users to
        backtest it on.
        """
        if row.state not in (VersionState.PASSED, VersionState.APPROVED):
            return []
        able = row.state == VersionState.APPROVED or _is_for_nobody(row)
        approve = ["approve"] if able and row.constraint.live_id != row.pk else []
        return [*approve, "backtest"]

    def has_approve_permission(self, request: HttpRequest) -> bool:
        """Return whether the staff member may approve constraints."""
        return request.user.has_perm("memory.approve_workspaceconstraint")

    @admin.display(description="version", ordering="constraint__name")
    def name(self, version: WorkspaceConstraintVersion) -> str:
        """Show the constraint's name and the version's number."""
        return str(version)

    @admin.display(description="workspace", ordering="constraint__workspace__name")
    def workspace(self, version: WorkspaceConstraintVersion) -> str:
        """Link to the workspace."""
        return link(version.constraint.workspace)

    @admin.display(description="constraint")
    def constraint_link(self, version: WorkspaceConstraintVersion) -> str:
        """Link to the constraint."""
        return format_html("{} v{}", link(version.constraint), version.number)

    @admin.display(description="state", ordering="state")
    def standing(self, version: WorkspaceConstraintVersion) -> str:
        """Show the version's state, and whether it is live."""
        live = version.constraint.live_id == version.pk
        return format_html("{} {}", _state(version), badge("valid", "live") if live else "")

    @admin.display(description="findings")
    def told(self, version: WorkspaceConstraintVersion) -> str:
        """Show the first failed check."""
        return inline(_told(version)) or NOTHING

    @admin.display(description="checks")
    def found(self, version: WorkspaceConstraintVersion) -> str:
        """Show the result of each check."""
        return _found(version) or NOTHING

    @admin.display(description="backtest")
    def tested(self, version: WorkspaceConstraintVersion) -> str:
        """Show whether a backtest allows approval of the version, with a link to the backtest."""
        return _tested(version) or NOTHING

    @admin.display(description="executed in")
    def ran_in(self, version: WorkspaceConstraintVersion) -> str:
        """Show the kind of sandbox used for the checks, with a warning if it is for development."""
        return sandbox((version.verdict or {}).get("runner", ""))

    @admin.display(description="created by", ordering="created_by")
    def creator(self, version: WorkspaceConstraintVersion) -> str:
        """Show who created the version."""
        return inline(version.created_by)

    @admin.display(description="source")
    def shown_source(self, version: WorkspaceConstraintVersion) -> str:
        """Show the version's source."""
        return source(version.source)

    @admin.display(description="tests")
    def shown_tests(self, version: WorkspaceConstraintVersion) -> str:
        """Show the version's tests."""
        return source(version.tests)

    @admin.display(description="seconds by stage")
    def durations(self, version: WorkspaceConstraintVersion) -> str:
        """Show how long each stage of the checks took."""
        return durations((version.verdict or {}).get("timings", {}))

    @admin.action(description="Approve the selected versions", permissions=["approve"])
    def approve(self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraintVersion]) -> None:
        """Make the selected versions live."""
        for version in queryset.order_by("number"):
            approve_version(request, version)

    @admin.action(description="Backtest the selected versions", permissions=["approve"])
    def backtest(
        self, request: HttpRequest, queryset: QuerySet[WorkspaceConstraintVersion]
    ) -> None:
        """Backtest the versions over the histories of the users to whom they apply."""
        for version in queryset:
            start_backtest(request, version)


_HELP = (
    "See docs/workspace-constraints.md. The constraint is checked in a sandbox, without any"
    " user's data, and is not run for any user until it is approved."
)


def _newest(constraint: WorkspaceConstraint) -> WorkspaceConstraintVersion:
    return constraint.versions.order_by("-number")[0]


def _state(version: WorkspaceConstraintVersion) -> SafeString:
    return badge(version.state, version.get_state_display())


def _told(version: WorkspaceConstraintVersion) -> str:
    if version.state == VersionState.CHECKING:
        return shortened(version.last_error, 300)
    return shortened(str((version.verdict or {}).get("reason", "")), 300)


def _found(version: WorkspaceConstraintVersion) -> SafeString | str:
    return gate(version.verdict) if version.verdict else inline(_told(version))


def _staff(request: HttpRequest) -> str:
    return f"staff:{request.user.get_username()}"


def _tested(version: WorkspaceConstraintVersion) -> SafeString | str:
    """Show whether a backtest allows approval of the version, with a link to the backtest."""
    if version.state not in (VersionState.PASSED, VersionState.APPROVED):
        return ""
    tested = backtest_reports.tested(version)
    if tested.backtest is None:
        return inline(tested.detail)
    return format_html("{} {}", link(tested.backtest, "Backtest:"), inline(tested.detail))


def _is_for_nobody(version: WorkspaceConstraintVersion) -> bool:
    tested = backtest_reports.tested(version)
    return tested.enough and tested.backtest is None
