"""Base classes of the admin screens: read-only rows, audited actions and links between rows."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME, ActionForm
from django.contrib.admin.utils import NotRelationField, get_model_from_relation, quote
from django.contrib.admin.utils import get_fields_from_path as fields_of_path
from django.contrib.admin.views.main import ChangeList
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from memory.admin import masking
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    lines,
    preformatted,
    shortened,
    summary,
    visible,
)
from memory.admin.paging import BoundedPaginator
from memory.models import (
    Alert,
    AlertEvent,
    EntryOutcome,
    LogEntry,
    MemoryUser,
    Pause,
    PausedConstraint,
    Workspace,
)
from memory.models.leased import LeasedWork
from memory.models.log import Outcome
from memory.models.staff import AuditKind
from memory.staff import access, audit
from memory.texts import MAX_REASON
from memory.work import stuck

Row = TypeVar("Row", bound=models.Model)
Work = TypeVar("Work", bound=LeasedWork)
Paused = TypeVar("Paused", Pause, PausedConstraint)

Key: TypeAlias = int | str | UUID

# The large columns of a checkpoint, each of which may hold megabytes.
HEAVY = ("tree", "outline", "edits", "verdict")

# A page about work in progress reloads itself at growing intervals, but only a limited number of
# times, since each view is audited.
_AGAIN_SECONDS, _AGAIN_MOST, _LOOKS = 2, 60, 15
_MAX_LINKS = 100
_MAX_PAGES = 1000

# Session key under which a list's rows are kept until the list is shown again after an action.
_KEPT = "kept_rows"


class LabelledSplitDateTime(AdminSplitDateTime):
    """A date and time input whose two parts are labelled for screen readers."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        for part, label in zip(self.widgets, ("Date", "Time"), strict=True):
            part.attrs["aria-label"] = label


class NotedActionForm(ActionForm):
    """The form for choosing an action on the selected rows and giving a reason."""

    note = forms.CharField(label="Reason:", required=False, max_length=MAX_REASON)


class OwnChoicesFilter(admin.RelatedFieldListFilter):
    """A filter by related row that offers only those related rows that the staff member may see."""

    def field_choices(
        self, field: Any, request: HttpRequest, model_admin: Any
    ) -> list[tuple[str, Any]]:
        """Return the choices that the staff member may see."""
        found = super().field_choices(field, request, model_admin)
        model = get_model_from_relation(field)
        if model not in access.PLACES or access.sees_all(request.user):
            return found
        rows = access.seen_by(request.user, model._default_manager.all())
        seen = set(rows.values_list("pk", flat=True))
        return [(key, name) for key, name in found if key in seen]


class MemoryAdmin(admin.ModelAdmin[Row]):
    """A screen for one kind of row.

    The list's actions also appear as buttons on a row's page if `actions_for` returns them for that
    row; `action_note` labels the input for a note that can accompany them. `when_empty` is the text
    shown for an empty list. The actions in `asking` first show a confirmation page, and act only
    once they are confirmed; those in `dangerous` require a note, and their buttons are red and come
    last.

    What a screen shows depends on the staff member: only rows of the workspaces that they may see
    (`memory.staff.access`), with content hidden unless they may see it (`memory.admin.masking`).
    Their actions and views are recorded (`memory.staff.audit`).
    """

    action_note = ""
    asking: Collection[str] = ()
    dangerous: Collection[str] = ()

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
        """Return the rows of the workspaces that the staff member may see; all views call this."""
        return access.seen_by(request.user, super().get_queryset(request))

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        """Limit filter choices to visible rows; for models that hold work, add a status filter."""
        is_work = any(kind.model is self.model for kind in stuck.KINDS.values())
        own = [self._own_choices(one) for one in super().get_list_filter(request)]
        return [*own, *([WorkFilter] if is_work else [])]

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
        """Offer only visible rows; staff who may not see all workspaces must choose a workspace."""
        model = db_field.remote_field.model
        if model in access.PLACES and "queryset" not in kwargs:
            kwargs["queryset"] = access.seen_by(request.user, model._default_manager.all())
        if model is Workspace and not access.sees_all(request.user):
            kwargs["required"] = True
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    # -- Hidden content ------------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> Any:
        """For staff who may not see content, mask the columns that contain it."""
        names = super().get_list_display(request)
        return names if access.sees_content(request.user) else masking.masked(self, names)

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """Make the same columns link to the row's page, whether they are masked or not."""
        names = super().get_list_display_links(request, list_display)
        if names is None or access.sees_content(request.user):
            return names
        return masking.masked(self, names)

    def get_readonly_fields(self, request: HttpRequest, obj: Row | None = None) -> Any:
        """Make hidden fields read-only."""
        names = super().get_readonly_fields(request, obj)
        if access.sees_content(request.user):
            return names
        fields = [field.name for field in self.opts.concrete_fields if field.editable]
        return [*(names or ()), *(name for name in fields if not masking.is_open(self.model, name))]

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Exclude hidden fields from the search, since the results would reveal them."""
        names = list(super().get_search_fields(request))
        if access.sees_content(request.user):
            return names
        return [name for name in names if not self._tells_content(name.lstrip("^=@"))]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Refuse URL filters on hidden fields, since the results would reveal them."""
        if not access.sees_content(request.user) and (
            self._tells_content(lookup) or not self._is_known(lookup)
        ):
            return False
        return super().lookup_allowed(lookup, value, request)

    def _is_known(self, lookup: str) -> bool:
        """Return whether a lookup begins with a field of the model or is one of the list's filters.

        An annotation is neither a field nor a filter, and may contain hidden content.
        """
        name = lookup.split("__")[0]
        fields = {"pk", *(field.name for field in self.opts.get_fields())}
        fields |= {field.attname for field in self.opts.concrete_fields}
        filters = {getattr(one, "parameter_name", None) for one in self.list_filter}
        return name in fields | filters

    def _tells_content(self, lookup: str) -> bool:
        """Return whether a lookup uses a hidden field of this model or a related one."""
        model: Any = self.model
        for name in lookup.split("__"):
            try:
                field = model._meta.pk if name == "pk" else model._meta.get_field(name)
            except FieldDoesNotExist:
                return False  # a suffix such as `exact`, or a lookup that Django refuses
            if field.name in masking.content_fields(model):
                return True
            if model is MemoryUser and field.name == "metadata":
                return True
            if not field.is_relation:
                return False
            model = field.related_model
        return False

    def action_checkbox(self, obj: Row) -> SafeString:
        """Return a row's checkbox, with a label that cannot alter the page."""
        label = format_html("Select this object for an action - {}", masking.name_of(obj))
        # On reload, browsers restore ticks by position, but another row may be there by now.
        attributes = {"class": "action-select", "aria-label": label, "autocomplete": "off"}
        box = forms.CheckboxInput(attributes, lambda _: False)
        rendered = str(box.render(ACTION_CHECKBOX_NAME, str(obj.pk)))
        return SafeString(visible(rendered))  # nosec B703 # Django has escaped it

    # -- Lists and pages -----------------------------------------------------------------------

    def subtitle_of(self, row: Row) -> str:
        """Return the heading of a row's page."""
        return masking.name_of(row)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Use a list class that keeps the rows in place right after an action."""
        return SteadyChangeList

    def actions_for(self, row: Row) -> Collection[str]:
        """Return the names of the actions that make sense for this row."""
        return list(self.actions)

    def is_confirmed(self, request: HttpRequest, action: str, rows: QuerySet[Row]) -> bool:
        """Return whether the action has been confirmed and has a reason, if it needs one."""
        has_reason = bool(note_of(request)) or action not in self.dangerous
        return "confirmed" in request.POST and has_reason

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, or a note if it is empty; audit the view if the rows are about people."""
        response = super().changelist_view(
            request, {"when_empty": self.when_empty, **(extra_context or {})}
        )
        found = getattr(response, "context_data", None) or {}
        if "cl" in found and audit.tells_of_people(self.model):
            shown = [row.pk for row in found["cl"].result_list]
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
        if not access.sees_content(request.user):
            _mask_page(self, context)
        if obj is not None:
            allowed = self.get_actions(request)
            context["subtitle"] = visible(self.subtitle_of(obj))
            context["list_url"] = _list_url(self.model)
            context["action_note"] = self.action_note
            context["dangerous"] = self.dangerous
            context["max_reason"] = MAX_REASON
            context["row_key"] = str(obj.pk)
            context["row_actions"] = [
                (name, name.replace("_", " ").capitalize())
                for name in sorted(self.actions_for(obj), key=lambda one: one in self.dangerous)
                if name in allowed
            ]
            self._note_view(request, obj, "page")
        return super().render_change_form(request, context, add, change, form_url, obj)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the changes that the staff have made to a row; audit the view."""
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data:
            response.context_data["title"] = "Change history"
            self._note_view(request, response.context_data["object"], "history")
        return response

    def _note_view(self, request: HttpRequest, row: Row, what: str) -> None:
        if audit.tells_of_people(self.model):
            audit.note(request.user, AuditKind.VIEW, self._subject(row), what)

    def _subject(self, row: Row) -> audit.Subject:
        return audit.subject_of(self.model._base_manager.filter(pk=row.pk))

    # -- Actions -------------------------------------------------------------------------------

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Return whether the staff member may use actions; this requires the change permission."""
        name = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return request.user.has_perm(name)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions, each wrapped so that it is audited, whatever its result."""
        found: dict[str, Any] = super().get_actions(request)
        return {
            name: (_noted(act, name), name, description)
            for name, (act, _, description) in found.items()
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

        An action on all matching rows is refused if there are more of them than the list can show.
        """
        all_of_them = request.POST.get("select_across", "0") != "0"
        if all_of_them and BoundedPaginator(queryset, self.list_per_page).is_cut:
            told = (
                "Nothing was done: more rows match than can be listed. Narrow the selection with"
                " the filters."
            )
            messages.error(request, told)
            return HttpResponseRedirect(request.get_full_path())
        from_page = "from_page" in request.POST
        shown = [] if from_page else self.get_changelist_instance(request).result_list
        keys = [str(row.pk) for row in shown]
        response = super().response_action(request, queryset, *args, **kwargs)
        # If the action itself redirects to another page, that redirect is kept.
        here = getattr(response, "url", None) == request.get_full_path()
        if isinstance(response, HttpResponseRedirect) and here:
            row = queryset.filter(pk__in=request.POST.getlist("_selected_action")).first()
            if from_page and row is not None:
                return HttpResponseRedirect(page_url(row))
            if not from_page:
                request.session[_KEPT] = {"path": request.get_full_path(), "keys": keys}
        return response


class SteadyChangeList(ChangeList):
    """A list that, right after an action on some of its rows, shows the same rows as before.

    Otherwise these rows could move or vanish, and another row could appear where somebody is about
    to click. When the list is loaded again, it is sorted and filtered as usual.
    """

    is_kept = False

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the rows; right after an action, fetch the rows shown before it."""
        super().get_results(request)
        if request.method != "GET" or _KEPT not in request.session:
            return
        kept = request.session.pop(_KEPT)
        if kept["path"] != request.get_full_path():
            return
        rows = self.apply_select_related(self.root_queryset.filter(pk__in=kept["keys"]))
        by_key = {str(row.pk): row for row in rows}
        steady = [by_key[key] for key in kept["keys"] if key in by_key]
        self.is_kept = [row.pk for row in steady] != [row.pk for row in self.result_list]
        if self.is_kept:
            self.result_list = steady


def _noted(act: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap an action so that it is audited first, and does not run if the audit fails."""

    @wraps(act)
    def noted(model_admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> Any:
        asks = name in model_admin.asking and not model_admin.is_confirmed(request, name, rows)
        kind = AuditKind.VIEW if asks else AuditKind.ACT
        audit.note(request.user, kind, audit.subject_of(rows), name)
        return act(model_admin, request, rows)

    return noted


def _mask_page(model_admin: Any, context: Any) -> None:
    """On a page and in its inlines, hide all fields that are not open to everybody."""
    page = context["adminform"]
    page.fieldsets, hidden = masking.masked_sets(model_admin, page.fieldsets)
    page.readonly_fields = [*page.readonly_fields, *hidden]
    for rows in context["inline_admin_formsets"] or ():
        rows.fieldsets, hidden = masking.masked_sets(rows.opts, rows.fieldsets)
        rows.readonly_fields = [*rows.readonly_fields, *hidden]


def ask(
    request: HttpRequest,
    action: str,
    rows: Sequence[Row],
    model: type[Row],
    *,
    title: str,
    verb: str,
    for_good: bool = False,
    **told: object,
) -> TemplateResponse:
    """Return the page that asks for confirmation of an action on these rows, and for a reason.

    The reason is required if the action is irreversible (`for_good`).
    """
    from_page = "from_page" in request.POST and len(rows) == 1
    context = {
        **admin.site.each_context(request),
        "title": title,
        "opts": model._meta,
        "media": admin.ModelAdmin(model, admin.site).media,
        "list_url": list_url(model),
        "list_name": capfirst(model._meta.verbose_name_plural),
        "verb": verb,
        "for_good": for_good,
        "action": action,
        "chosen": [str(row.pk) for row in rows],
        "from_page": from_page,
        "note": note_of(request),
        "max_reason": MAX_REASON,
        "back_url": page_url(rows[0]) if from_page else request.get_full_path(),
        **told,
    }
    return TemplateResponse(request, f"admin/memory/{action}.html", context)


def note_of(request: HttpRequest, otherwise: str = "") -> str:
    """Return the note entered with an action, or `otherwise` if there is none."""
    return (request.POST.get("note") or "").strip()[:MAX_REASON] or otherwise


def confirmed_reason(request: HttpRequest) -> str:
    """Return the reason entered for an action that requires one.

    Empty if the action has not been confirmed, or has been confirmed without a reason; in the
    latter case, a message asks for the reason.
    """
    reason = note_of(request)
    if "confirmed" not in request.POST:
        return ""
    if not reason:
        messages.error(request, "Nothing was done: give a reason.")
    return reason


def staff_of(request: HttpRequest) -> str:
    """Return the name under which the staff member appears in histories."""
    return f"staff:{request.user.get_username()}"


class WorkFilter(admin.SimpleListFilter):
    """A list filter by the states of work that the front page counts."""

    title = "work status"
    parameter_name = "work"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices: each state of each kind of work that this model stores."""
        kinds = [kind for kind in stuck.KINDS.values() if kind.model is model_admin.model]
        return [
            (f"{kind.name}.{how}", f"{kind.title}: {words}" if len(kinds) > 1 else words)
            for kind in kinds
            for how, words in stuck.STANDINGS.items()
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Keep the rows in the chosen state."""
        name, _, how = (self.value() or "").partition(".")
        kind = stuck.KINDS.get(name)
        if kind is None or how not in stuck.STANDINGS or kind.model is not queryset.model:
            return None
        rows = stuck.by_standing(kind, timezone.now())[how]
        return queryset.filter(pk__in=rows.order_by().values("pk"))


class ReadOnlyAdmin(MemoryAdmin[Row]):
    """A screen for rows that only the server writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: only the server adds rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: only the server changes rows."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: rows are deleted only by the server, for example by an erasure."""
        return False

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Row | None:
        """Return the row with its text fields hidden or escaped for display; it is never saved."""
        row = super().get_object(request, object_id, from_field)
        content = () if access.sees_content(request.user) else masking.content_fields(self.model)
        for field in self.opts.concrete_fields if row else ():
            if not isinstance(field, models.CharField | models.TextField):
                continue  # fields of other types may be large, and deferred
            value = getattr(row, field.attname)
            if isinstance(value, str) and value:  # an empty field has nothing to hide
                is_hidden = field.name in content
                setattr(row, field.attname, masking.HIDDEN if is_hidden else visible(value))
        return row


class PausedAdmin(ReadOnlyAdmin[Paused]):
    """A screen for pauses; subclasses define `resume`."""

    actions = ["resume"]

    def actions_for(self, row: Paused) -> Collection[str]:
        """Offer to resume what is paused, unless it has been resumed already."""
        return [] if row.resumed_at else ["resume"]

    @admin.display(description="state", ordering="resumed_at")
    def standing(self, row: Paused) -> str:
        """Show whether the pause is still in effect."""
        return badge("resolved", "resumed") if row.resumed_at else badge("paused")

    @admin.display(description="reason", ordering="reason")
    def why(self, row: Paused) -> str:
        """Show the reason for the pause."""
        return inline(shortened(row.reason))


class WorkAdmin(ReadOnlyAdmin[Work]):
    """A screen for requested work, which stays due until it is done."""

    actions = ["try_now"]

    def actions_for(self, row: Work) -> Collection[str]:
        """Offer to retry unfinished work."""
        return self.actions if getattr(row, "due_at", None) is not None else []

    @admin.display(description="last error")
    def error(self, row: Work) -> str:
        """Show the error from the last attempt."""
        return preformatted(row.last_error)

    @admin.action(description="Retry now", permissions=["operate"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Work]) -> None:
        """Retry unfinished work now."""
        due = queryset.filter(due_at__isnull=False)
        number = due.update(run_after=timezone.now(), hinted_at=None)
        tried = counted(number, str(self.opts.verbose_name))
        messages.success(request, f"{tried} will be retried now.")


class PresenceFilter(admin.SimpleListFilter):
    """A list filter that separates rows in which a field is set from rows in which it is empty."""

    field: str
    filled: str
    empty: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the two choices, with their labels."""
        return [("yes", self.filled), ("no", self.empty)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Keep the rows that match the choice."""
        if self.value() not in ("yes", "no"):
            return None
        return queryset.filter(**{f"{self.field}__isnull": self.value() == "no"})


def rows_for(request: HttpRequest, model: type[Row]) -> QuerySet[Row]:
    """Return those rows of a model that the staff member may see."""
    rows = access.seen_by(request.user, model._default_manager.all())
    return rows if may_see(request, model) else rows.none()


def may_see(request: HttpRequest, model: type[models.Model]) -> bool:
    """Return whether the staff member may see rows of this model."""
    return request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")


def list_url(model: type[models.Model], /, **filters: Any) -> str:
    """Return the URL of the list of the model's rows that match the filters."""
    return f"{_list_url(model)}?{urlencode(filters)}" if filters else _list_url(model)


def heavy(*paths: str) -> list[str]:
    """Return lookups for `defer` that name the large columns of the checkpoints at these paths."""
    return [f"{path}__{name}" for path in paths for name in HEAVY]


def page_url(row: models.Model) -> str:
    """Return the URL of the row's page."""
    return _page_url(type(row), row.pk)


def link(row: models.Model | None, text: str | None = None) -> SafeString | str:
    """Return a link to the row's page."""
    if row is None:
        return NOTHING
    return format_html('<a href="{}">{}</a>', page_url(row), inline(text or masking.name_of(row)))


def link_to_key(model: type[models.Model], key: Key | None, text: str) -> SafeString | str:
    """Return a link to the page of the row with this primary key."""
    if key is None:
        return inline(text)
    return format_html('<a href="{}">{}</a>', _page_url(model, key), inline(text))


def link_to_list(model: type[models.Model], text: str, **filters: Any) -> SafeString:
    """Return a link to the list of the model's rows that match the filters."""
    return format_html('<a href="{}?{}">{}</a>', _list_url(model), urlencode(filters), text)


def link_to_rejected(event: AlertEvent) -> SafeString:
    """Return a link to the list of the user's rejected entries, which shows the reasons."""
    filters = {"user__id__exact": event.user_id, "outcome__exact": Outcome.REJECTED}
    return link_to_list(EntryOutcome, "rejected entries", **filters)


def link_to_entry(entry: LogEntry) -> SafeString:
    """Return a link to the entry, followed by the beginning of its content."""
    return format_html(
        '<a href="{}">#{}</a> {} {}',
        page_url(entry),
        entry.seq,
        badge(entry.kind, entry.get_kind_display()),
        masking.content(inline(summary(entry))),
    )


def links_to_entries(user: MemoryUser, seqs: Iterable[int]) -> SafeString | str:
    """Return links to these entries of the user's log, each with the beginning of its content."""
    wanted = sorted(set(seqs))
    entries = LogEntry.objects.filter(user=user, seq__in=wanted[:_MAX_LINKS]).order_by("seq")
    rows: list[SafeString | str] = [link_to_entry(entry) for entry in entries]
    if len(wanted) > _MAX_LINKS:
        rows.append(f"… and {len(wanted) - _MAX_LINKS} more, up to #{wanted[-1]}")
    return lines(rows)


def entry_pages(user: MemoryUser, seqs: Iterable[int]) -> dict[int, str]:
    """Return the page URLs of these entries, keyed by number; at most a thousand are looked up."""
    wanted = sorted(set(seqs))[:_MAX_PAGES]
    entries = LogEntry.objects.filter(user=user, seq__in=wanted).order_by()
    found = entries.values_list("seq", "pk")
    return {seq: _page_url(LogEntry, pk) for seq, pk in found}


def links_to_alerts(alerts: QuerySet[Alert]) -> SafeString | str:
    """Return links to these alerts, newest first, each with its severity and state."""
    return lines(link_to_alert(alert) for alert in alerts.order_by("-opened_at")[:_MAX_LINKS])


def link_to_alert(alert: Alert) -> SafeString:
    """Return a link to the alert, with its severity and state."""
    return format_html(
        "{} {} {}",
        badge(alert.severity, alert.get_severity_display()),
        badge(alert.state, alert.get_state_display()),
        link(alert, None if masking.is_hidden() else shortened(alert.message)),
    )


def _page_url(model: type[models.Model], key: Key) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return reverse(name, args=[quote(key)])


def _list_url(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def look_again(request: HttpRequest) -> dict[str, int]:
    """Return the delay in seconds until a page reloads itself, and the number of that reload.

    This is for pages about work in progress. The result is empty once the maximum number of reloads
    has been reached.
    """
    text = request.GET.get("look", "")
    look = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 0
    if look >= _LOOKS:
        return {}
    return {"again_seconds": min(_AGAIN_SECONDS * 2**look, _AGAIN_MOST), "look": look + 1}
