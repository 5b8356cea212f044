"""Base classes for the admin screens: visible rows, masked content, audited actions and views."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.admin.utils import (
    NotRelationField,
    flatten_fieldsets,
    get_model_from_relation,
)
from django.contrib.admin.utils import get_fields_from_path as fields_of_path
from django.contrib.admin.views.main import ChangeList
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import (
    FieldDoesNotExist,
    ObjectDoesNotExist,
    PermissionDenied,
    ValidationError,
)
from django.db import models
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from memory.kernel.admin import masking
from memory.kernel.admin.actions import Menu, audit_action, label_of, note_of
from memory.kernel.admin.columns import FieldColumn, columns_of, is_plain
from memory.kernel.admin.display import NOTHING, inline, visible
from memory.kernel.admin.filters import OwnChoicesFilter, WorkFilter
from memory.kernel.admin.links import list_url, page_url
from memory.kernel.admin.paging import BoundedPaginator
from memory.kernel.admin.steady_lists import SteadyChangeList, keep_rows
from memory.kernel.models.large import large_columns
from memory.kernel.models.privacy import masked_columns, owner_paths, workspace_path
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff import access, audit
from memory.kernel.staff.models import AuditKind
from memory.kernel.texts import MAX_REASON
from memory.kernel.work.kinds import KINDS

Row = TypeVar("Row", bound=models.Model)
Parent = TypeVar("Parent", bound=models.Model)


def section(
    title: str | None,
    *fields: str | tuple[str, ...],
    collapsed: bool = False,
    facts: bool = False,
    description: str | None = None,
) -> tuple[str | None, Any]:
    """Return a section of a row's page; a tuple of fields stands in one line.

    The fields of `facts` stand side by side, each below its label.
    """
    classes = [*(["collapse"] if collapsed else []), *(["facts"] if facts else [])]
    return title, {"fields": [*fields], "classes": classes, "description": description}


class LabelledSplitDateTime(AdminSplitDateTime):
    """A date and time input whose two parts are labelled for screen readers."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        for part, label in zip(self.widgets, ("Date", "Time"), strict=True):
            part.attrs["aria-label"] = label


# The large column with the name of the user that a row belongs to.
_NAMES = "user__metadata"


class MemoryAdmin(admin.ModelAdmin[Row]):
    """An admin screen for one model's rows.

    The list's actions also appear as buttons on a row's page. Each button has a fixed place, and is
    disabled while `actions_for` leaves its action out; those of `menus` unfold below one button.
    `when_empty` is the text shown for an empty list. Actions in `asking` show a confirmation page
    first and run only once confirmed: a page of their own, or one with the text in `consequences`.
    Actions in `dangerous` cannot be undone: their buttons are red and come last. They require a
    note, unless `consequences` says enough.

    What a screen shows depends on who is looking: staff see only rows from the workspaces they may
    see (`memory.kernel.staff.access`), with content hidden unless they may see it
    (`memory.kernel.admin.masking`). Everything they view or do is recorded
    (`memory.kernel.staff.audit`).
    """

    menus: Sequence[Menu] = ()
    consequences: Mapping[str, str] = {}
    asking: Collection[str] = ()
    dangerous: Collection[str] = ()

    # The labels of fields, where they differ from the fields' names.
    labels: Mapping[str, str] = {}
    # The large columns that the list shows, and those of related rows that a row's page shows.
    large: Collection[str] = ()
    large_of_related: Collection[str] = ()

    empty_value_display = NOTHING
    list_per_page = 50
    list_max_show_all = 200
    paginator = BoundedPaginator
    show_full_result_count = False
    formfield_overrides = {models.DateTimeField: {"widget": LabelledSplitDateTime}}
    actions: Sequence[Any] = []
    when_empty = "There is nothing here yet."

    class Media:
        css = {"all": ["memory/admin.css"]}

    # -- Visible rows --------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Row]:
        """Return the rows from workspaces the staff member may see; every view calls this."""
        related = self.get_list_select_related(request) or ()
        columns = large_columns(self.model, *related)
        rows = access.seen_by(request.user, super().get_queryset(request))
        return rows.defer(*(name for name in columns if name not in (*self.large, _NAMES)))

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Row | None:
        """Return a row with its large columns, which its page shows."""
        column: Any = self.opts.get_field(from_field) if from_field else self.opts.pk
        related = self.get_list_select_related(request) or ()
        columns = large_columns(self.model, *related)
        of_related_rows = {name for name in columns if "__" in name} - {_NAMES}
        unused = of_related_rows.difference(self.large_of_related)
        rows = self.get_queryset(request).defer(None).defer(*unused)
        if self._is_about_a_user():
            rows = rows.select_related("user__workspace")
        try:
            return rows.get(**{column.name: column.to_python(object_id)})
        except (ObjectDoesNotExist, ValidationError, ValueError):
            return None

    def _get_obj_does_not_exist_redirect(
        self, request: HttpRequest, opts: Any, object_id: str
    ) -> HttpResponseRedirect:
        """Answer that there is no such page: the row may exist in a workspace that is not seen."""
        raise Http404(f"There is no such {self.opts.verbose_name}.")

    def _is_about_a_user(self) -> bool:
        """Return whether the rows belong to a user of the product, not to an account of staff."""
        fields = self.opts.concrete_fields
        return any(one.name == "user" and one.related_model is MemoryUser for one in fields)

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        """Limit choices to visible rows; add filters by workspace and, for work, by status."""
        filters: list[Any] = list(super().get_list_filter(request))
        path = workspace_path(self.model)
        if path is not None and path not in ("pk", *filters):
            filters.append(path)
        is_work = any(kind.model is self.model for kind in KINDS.values())
        return [*map(self._own_choices, filters), *([WorkFilter] if is_work else [])]

    def _own_choices(self, chosen: Any) -> Any:
        name, kind = chosen if isinstance(chosen, list | tuple) else (chosen, None)
        if not isinstance(name, str) or kind not in (None, admin.RelatedFieldListFilter):
            return chosen
        try:
            get_model_from_relation(fields_of_path(self.model, name)[-1])
        except NotRelationField:
            return chosen
        return name, OwnChoicesFilter

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer only visible rows; staff who can't see every workspace must choose one."""
        model = db_field.remote_field.model
        if model._meta.app_label == "memory" and "queryset" not in kwargs:
            kwargs["queryset"] = access.seen_by(request.user, model._default_manager.all())
        if model is Workspace and not access.sees_all(request.user):
            kwargs["required"] = True
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def seen_or_refuse(self, request: HttpRequest, pk: object, *, allowed: bool = True) -> Row:
        """Return a row for one of the model's own pages.

        Raises Http404 if the staff member sees no such row, and PermissionDenied if they may not
        view rows of this model or the page itself is not `allowed`.
        """
        row = self.get_object(request, str(pk))
        if row is None:
            raise Http404(f"There is no such {self.opts.verbose_name}.")
        if not (self.has_view_permission(request, row) and allowed):
            raise PermissionDenied
        return row

    # -- Hidden content ------------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> Any:
        names = super().get_list_display(request)
        return columns_of(self, names, hide=not access.sees_content(request.user), brief=True)

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """Make the same columns link to the row's page, whether or not they are masked."""
        names = super().get_list_display_links(request, list_display)
        wanted = {str(name) for name in names or ()}
        return names and [name for name in list_display if str(name) in wanted]

    def get_list_select_related(self, request: HttpRequest) -> Any:
        """Add the rows that a list links to."""
        chosen = super().get_list_select_related(request)
        fields = {field.name for field in self.opts.concrete_fields if field.is_relation}
        # A user is shown by name, which the workspace says where to find.
        linked = [
            "user__workspace" if name == "user" and self._is_about_a_user() else name
            for name in self.list_display
            if name in fields
        ]
        return [*chosen, *linked] if isinstance(chosen, list | tuple) else linked or chosen

    def get_readonly_fields(self, request: HttpRequest, obj: Row | None = None) -> Any:
        names = super().get_readonly_fields(request, obj)
        if access.sees_content(request.user):
            return names
        fields = [field.name for field in self.opts.concrete_fields if field.editable]
        return [*(names or ()), *(name for name in fields if not is_plain(self, name))]

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Exclude hidden fields from search, since the results would reveal them."""
        names = list(super().get_search_fields(request)) or self._owner_names()
        if access.sees_content(request.user):
            return names
        return [name for name in names if not self._tells_content(name.lstrip("^=@"))]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        if not self.search_fields:
            noun = "user id" if owner_paths(self.model) else "workspace"
            changes.search_help_text = f"Search by {noun}."
        elif len(changes.search_fields) < len(self.search_fields):
            fields = (name.lstrip("^=@").split("__")[-1] for name in changes.search_fields)
            changes.search_help_text = f"Search by {', '.join(fields).replace('_', ' ')}."
        return changes

    def _owner_names(self) -> list[str]:
        users = [f"{path}__user_id" for path in owner_paths(self.model)]
        workspace = workspace_path(self.model)
        return users or ([f"{workspace}__name"] if workspace else [])

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Reject URL filters on hidden fields, since the results would reveal them."""
        if not access.sees_content(request.user) and (
            self._tells_content(lookup) or not self._is_known(lookup, request)
        ):
            return False
        return super().lookup_allowed(lookup, value, request)

    def _is_known(self, lookup: str, request: HttpRequest) -> bool:
        """Return whether a lookup starts with a model field or is one of the list's filters.

        Annotations are neither, and may contain hidden content.
        """
        name = lookup.split("__")[0]
        fields = {"pk", *(field.name for field in self.opts.get_fields())}
        fields |= {field.attname for field in self.opts.concrete_fields}
        filters = {getattr(one, "parameter_name", None) for one in self.get_list_filter(request)}
        return name in fields | filters

    def _tells_content(self, lookup: str) -> bool:
        """Return whether a lookup uses a hidden field of this model or a related one."""
        model: Any = self.model
        for name in lookup.split("__"):
            try:
                field = model._meta.pk if name == "pk" else model._meta.get_field(name)
            except FieldDoesNotExist:
                return False  # a suffix such as `exact`, or a lookup that Django rejects
            if field.name in masked_columns(model):
                return True
            if not field.is_relation:
                return False
            model = field.related_model
        return False

    def action_checkbox(self, obj: Row) -> SafeString:
        """Return a row's checkbox; its label is escaped, so that the label can't alter the page."""
        label = format_html("Select this object for an action - {}", masking.name_of(obj))
        # On reload, browsers restore checked boxes by position, but a different row may be there
        # now.
        attributes = {"class": "action-select", "aria-label": label, "autocomplete": "off"}
        box = forms.CheckboxInput(attributes, lambda _: False)
        rendered = str(box.render(ACTION_CHECKBOX_NAME, str(obj.pk)))
        return SafeString(visible(rendered))  # nosec B703 # Django has escaped it

    # -- Lists and pages -----------------------------------------------------------------------

    def title_of(self, row: Row) -> str:
        return capfirst(str(self.opts.verbose_name))

    def subtitle_of(self, row: Row) -> str:
        return masking.name_of(row)

    def bands_of(self, row: Row) -> list[str]:
        """Return what a reader of the row's page must not overlook."""
        return []

    def context_of(self, request: HttpRequest, row: Row) -> dict[str, Any]:
        """Return what the template of the row's page shows besides its fields and actions."""
        return {"bands": self.bands_of(row)}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SteadyChangeList

    def actions_for(self, row: Row) -> Collection[str]:
        """Return the names of the actions that make sense for this row."""
        return list(self.actions)

    def is_confirmed(self, request: HttpRequest, action: str, rows: QuerySet[Row]) -> bool:
        """Return whether the action has been confirmed and has a reason, if it needs one."""
        needs_reason = action in self.dangerous and action not in self.consequences
        return "confirmed" in request.POST and (bool(note_of(request)) or not needs_reason)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, or a note if it is empty; audit the view if the rows are about people."""
        response = super().changelist_view(
            request,
            {
                "title": capfirst(str(self.opts.verbose_name_plural)),
                "when_empty": self.when_empty,
                **(extra_context or {}),
            },
        )
        context = getattr(response, "context_data", None) or {}
        if "cl" in context and audit.tells_of_people(self.model):
            shown = [row.pk for row in context["cl"].result_list]
            rows = self.model._default_manager.filter(pk__in=shown)
            audit.note(request.user, AuditKind.VIEW, audit.subject_of(rows), "list")
        return response

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Row | None = None,
    ) -> HttpResponse:
        """Show a row's page with its actions and an escaped heading; audit the view."""
        hide, page = not access.sees_content(request.user), context["adminform"]
        if context.get("errors"):
            # A refused form has already changed the row that it was not allowed to save.
            stored = self.model() if obj is None else self.get_object(request, str(obj.pk)) or obj
            page.form.instance, obj = stored, obj and stored
        shown = {str(name) for name in page.readonly_fields}
        editable = set(flatten_fieldsets(page.fieldsets)) - shown
        for screen, part in [
            (self, page),
            *((rows.opts, rows) for rows in context["inline_admin_formsets"] or ()),
        ]:
            part.fieldsets = [
                (
                    title,
                    {
                        **options,
                        "fields": columns_of(
                            screen,
                            options["fields"],
                            hide=hide,
                            brief=False,
                            editable=editable if screen is self else (),
                        ),
                    },
                )
                for title, options in part.fieldsets
            ]
            stand_ins = [
                one for one in flatten_fieldsets(part.fieldsets) if isinstance(one, FieldColumn)
            ]
            part.readonly_fields = [*part.readonly_fields, *stand_ins]
        context["list_url"] = list_url(self.model)
        if obj is not None:
            allowed = self.get_actions(request)
            context["title"] = visible(self.title_of(obj))
            context["subtitle"] = inline(self.subtitle_of(obj))
            context |= self.context_of(request, obj)
            context["max_reason"] = MAX_REASON
            context["row_key"] = str(obj.pk)
            context["tools"] = list(self._tools(obj, allowed))
            # What staff did without a form is in the audit alone.
            context["has_history"] = self.has_change_permission(request, obj) and (
                LogEntry.objects.filter(
                    content_type=get_content_type_for_model(obj), object_id=str(obj.pk)
                ).exists()
            )
            self._note_view(request, obj, "page")
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _tools(self, row: Row, allowed: Collection[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the buttons and menus of a row's page, each in its fixed place."""
        fitting = self.actions_for(row)
        menus = {name: menu for menu in self.menus for name in menu.actions}
        names = [str(name) for name in self.actions if name in allowed]
        for menu, group in groupby(
            sorted(names, key=lambda name: name in self.dangerous), key=menus.get
        ):
            buttons = [
                {
                    "name": name,
                    "label": label_of(name),
                    "fits": name in fitting,
                    "asks": name in self.asking,
                    "is_dangerous": name in self.dangerous,
                }
                for name in group
            ]
            yield {"menu": menu, "buttons": buttons, "fits": any(one["fits"] for one in buttons)}

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data:
            row = response.context_data["object"]
            response.context_data |= {
                "title": "Change history",
                "subtitle": inline(self.subtitle_of(row)),
            }
            self._note_view(request, row, "history")
        return response

    def _note_view(self, request: HttpRequest, row: Row, what: str) -> None:
        if audit.tells_of_people(self.model):
            audit.note(request.user, AuditKind.VIEW, self._subject(row), what)

    def _subject(self, row: Row) -> audit.Subject:
        return audit.subject_of(self.model._base_manager.filter(pk=row.pk))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: staff revoke, disable or erase, and only the server deletes rows.

        Other rows and histories refer to them. A workspace may go only after all its users.
        """
        return False

    # -- Actions -------------------------------------------------------------------------------

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Return whether the staff member may use actions; this requires the change permission."""
        name = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return request.user.has_perm(name)

    def has_approve_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memory.approve_workspaceconstraint")

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions, each wrapped so that it is audited whether or not it succeeds."""
        actions: dict[str, Any] = super().get_actions(request)
        return {
            name: (audit_action(act, name), name, description)
            for name, (act, _, description) in actions.items()
        }

    def response_add(
        self, request: HttpRequest, obj: Row, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Audit the addition in the transaction that adds the row."""
        audit.note(request.user, AuditKind.ADD, self._subject(obj))
        return super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Row) -> HttpResponse:
        """Audit the change in the transaction that changes the row."""
        audit.note(request.user, AuditKind.CHANGE, self._subject(obj))
        return super().response_change(request, obj)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Row], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """Run the action; return to the row's page if the request came from there.

        An action on all matching rows is rejected if more rows match than the list can show.
        """
        all_of_them = request.POST.get("select_across", "0") != "0"
        if all_of_them and BoundedPaginator(queryset, self.list_per_page).is_cut:
            message = (
                "Nothing was done: more rows match than can be listed. Narrow the selection with"
                " the filters."
            )
            messages.error(request, message)
            return HttpResponseRedirect(request.get_full_path())
        if not all_of_them:
            # What was chosen may no longer match the list's filters.
            queryset = self.get_queryset(request)
            if related := self.get_list_select_related(request):
                queryset = queryset.select_related(*related)
        from_page = request.POST.get("from_page", "")
        # A page whose rows have been kept once says which they are: an undo keeps them, too.
        keys = request.POST.getlist("shown")
        if not (keys or from_page):
            keys = [str(row.pk) for row in self.get_changelist_instance(request).result_list]
        response = super().response_action(request, queryset, *args, **kwargs)
        # If the action itself redirects to another page, keep that redirect.
        here = getattr(response, "url", None) == request.get_full_path()
        if isinstance(response, HttpResponseRedirect) and here:
            # A page of another screen may have led to the action.
            back = request.POST.get("back", "")
            if url_has_allowed_host_and_scheme(back, allowed_hosts=None):
                return HttpResponseRedirect(back)
            row = queryset.filter(pk__in=request.POST.getlist("_selected_action")).first()
            if from_page == "home":
                keep_rows(request, keys, path=reverse("admin:index"))
                return HttpResponseRedirect(reverse("admin:index"))
            if from_page and row is not None:
                return HttpResponseRedirect(page_url(row))
            if not from_page:
                keep_rows(request, keys)
        return response


class ReadOnlyAdmin(MemoryAdmin[Row]):
    """A screen for rows that only the server writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyInline(admin.TabularInline[Row, Parent]):
    """Rows that only the server writes, shown on the page of the row that they belong to."""

    labels: Mapping[str, str] = {}
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
