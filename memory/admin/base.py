"""What the screens share: rows that nobody edits, their actions, and links between them."""

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

# What a checkpoint consists of: up to megabytes each.
HEAVY = ("tree", "outline", "edits", "verdict")

# A page of what is being done loads itself again: ever later, and not for ever, since each look is
# noted.
_AGAIN_SECONDS, _AGAIN_MOST, _LOOKS = 2, 60, 15
_MAX_LINKS = 100
_MAX_PAGES = 1000

# The rows of a list on which somebody has just acted, in the session.
_KEPT = "kept_rows"


class NotedActionForm(ActionForm):
    """What to do with the chosen rows, and why."""

    note = forms.CharField(label="Why:", required=False, max_length=MAX_REASON)


class OwnChoicesFilter(admin.RelatedFieldListFilter):
    """A filter by another row, of which only those are offered that somebody of the staff sees."""

    def field_choices(
        self, field: Any, request: HttpRequest, model_admin: Any
    ) -> list[tuple[str, Any]]:
        """Return the choices."""
        found = super().field_choices(field, request, model_admin)
        model = get_model_from_relation(field)
        if model not in access.PLACES or access.sees_all(request.user):
            return found
        rows = access.seen_by(request.user, model._default_manager.all())
        seen = set(rows.values_list("pk", flat=True))
        return [(key, name) for key, name in found if key in seen]


class MemoryAdmin(admin.ModelAdmin[Row]):
    """A screen of one kind of row.

    The actions of the list are also buttons on the page of each row for which `actions_for` names
    them; with `action_note`, which says what it is for, a note goes with them. `when_empty` is what
    an empty list says. The actions in `asking` show a page first, and act once they are confirmed;
    the `dangerous` ones need a note, and their buttons are red, and apart.

    Everything here goes by who looks: the rows are those of the workspaces that he sees
    (`memory.staff.access`), what people said is hidden where he may not see it
    (`memory.admin.masking`), and what he did or looked at is noted (`memory.staff.audit`).
    """

    action_note = ""
    asking: Collection[str] = ()
    dangerous: Collection[str] = ()

    empty_value_display = NOTHING
    list_per_page = 50
    list_max_show_all = 200
    paginator = BoundedPaginator
    show_full_result_count = False
    actions: Sequence[Any] = []
    when_empty = "There is nothing here yet."

    class Media:
        css = {"all": ["memory/admin.css"]}

    # -- Whose rows ----------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Row]:
        """Return the rows of the workspaces that the staff sees. Every view goes through here."""
        return access.seen_by(request.user, super().get_queryset(request))

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        """Have filters by workspace, and by other rows, offer what the staff sees; and filter work
        by how it stands."""
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
        """Offer rows that the staff sees; who does not see all workspaces has to name one."""
        model = db_field.remote_field.model
        if model in access.PLACES and "queryset" not in kwargs:
            kwargs["queryset"] = access.seen_by(request.user, model._default_manager.all())
        if model is Workspace and not access.sees_all(request.user):
            kwargs["required"] = True
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    # -- What is hidden ------------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> Any:
        """Hide the columns that tell what people said from who may not see it."""
        names = super().get_list_display(request)
        return names if access.sees_content(request.user) else masking.masked(self, names)

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """Lead to the page from the same columns, hidden or not."""
        names = super().get_list_display_links(request, list_display)
        if names is None or access.sees_content(request.user):
            return names
        return masking.masked(self, names)

    def get_readonly_fields(self, request: HttpRequest, obj: Row | None = None) -> Any:
        """What is hidden cannot be changed."""
        names = super().get_readonly_fields(request, obj)
        if access.sees_content(request.user):
            return names
        fields = [field.name for field in self.opts.concrete_fields if field.editable]
        return [*(names or ()), *(name for name in fields if not masking.is_open(self.model, name))]

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Nobody finds out by a search what is hidden."""
        names = list(super().get_search_fields(request))
        if access.sees_content(request.user):
            return names
        return [name for name in names if not self._tells_content(name.lstrip("^=@"))]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Nor by a filter that is written into the address."""
        if not access.sees_content(request.user) and (
            self._tells_content(lookup) or not self._is_known(lookup)
        ):
            return False
        return super().lookup_allowed(lookup, value, request)

    def _is_known(self, lookup: str) -> bool:
        """Whether it begins with a field or is a filter of the list: what a list computes along is
        neither, and may be of what is hidden."""
        name = lookup.split("__")[0]
        fields = {"pk", *(field.name for field in self.opts.get_fields())}
        fields |= {field.attname for field in self.opts.concrete_fields}
        filters = {getattr(one, "parameter_name", None) for one in self.list_filter}
        return name in fields | filters

    def _tells_content(self, lookup: str) -> bool:
        """Whether a lookup goes by a field of this or another row that is hidden."""
        model: Any = self.model
        for name in lookup.split("__"):
            try:
                field = model._meta.pk if name == "pk" else model._meta.get_field(name)
            except FieldDoesNotExist:
                return False  # `exact`, or what Django itself refuses
            if field.name in masking.content_fields(model):
                return True
            if model is MemoryUser and field.name == "metadata":
                return True
            if not field.is_relation:
                return False
            model = field.related_model
        return False

    def action_checkbox(self, obj: Row) -> SafeString:
        """Offer the row for an action, under a name that cannot steer the page."""
        label = format_html("Select this object for an action - {}", masking.name_of(obj))
        # A browser that restores forms ticks boxes by their place, where another row may stand now.
        attributes = {"class": "action-select", "aria-label": label, "autocomplete": "off"}
        box = forms.CheckboxInput(attributes, lambda _: False)
        rendered = str(box.render(ACTION_CHECKBOX_NAME, str(obj.pk)))
        return SafeString(visible(rendered))  # nosec B703 # by Django, which has escaped it

    # -- Lists and pages -----------------------------------------------------------------------

    def subtitle_of(self, row: Row) -> str:
        """Return what the page of a row is headed with."""
        return masking.name_of(row)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Show a list in which no row moves when something was done with some of them."""
        return SteadyChangeList

    def actions_for(self, row: Row) -> Collection[str]:
        """Name the actions that make sense for this row."""
        return list(self.actions)

    def is_confirmed(self, request: HttpRequest, action: str, rows: QuerySet[Row]) -> bool:
        """Return whether one of the actions that ask is done now."""
        has_reason = bool(note_of(request)) or action not in self.dangerous
        return "confirmed" in request.POST and has_reason

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, and say so when it is empty; note who looked at rows of people."""
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
        """Show a row with its actions, under a name that cannot steer the page; note who looked."""
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
        """Show what the staff changed of a row."""
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
        """Who may change rows of this kind may use such actions, even where he edits none."""
        name = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return request.user.has_perm(name)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Have every action noted, whether or not it comes to an end."""
        found: dict[str, Any] = super().get_actions(request)
        return {
            name: (_noted(act, name), name, description)
            for name, (act, _, description) in found.items()
        }

    def response_add(
        self, request: HttpRequest, obj: Row, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Note who added it, together with what was added."""
        audit.note(request.user, AuditKind.ADD, self._subject(obj))
        return super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Row) -> HttpResponse:
        """Note who changed it, together with the change."""
        audit.note(request.user, AuditKind.CHANGE, self._subject(obj))
        return super().response_change(request, obj)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Row], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """Do the action; who came from the page of a row goes back there.

        Nobody acts on more rows than he was told of.
        """
        all_of_them = request.POST.get("select_across", "0") != "0"
        if all_of_them and BoundedPaginator(queryset, self.list_per_page).is_cut:
            told = "More rows match than are listed: nothing was done. Choose fewer by the filters."
            messages.error(request, told)
            return HttpResponseRedirect(request.get_full_path())
        from_page = "from_page" in request.POST
        shown = [] if from_page else self.get_changelist_instance(request).result_list
        keys = [str(row.pk) for row in shown]
        response = super().response_action(request, queryset, *args, **kwargs)
        # An action that leads elsewhere itself does so.
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

    Else those that were acted on would move or vanish, and another row would come to stand where
    somebody is about to click. When the list is loaded again, it is sorted and filtered anew.
    """

    is_kept = False

    def get_results(self, request: HttpRequest) -> None:
        """Find the rows."""
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
    """Wrap an action so that it is noted before it begins: what cannot be noted is not done."""

    @wraps(act)
    def noted(model_admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> Any:
        asks = name in model_admin.asking and not model_admin.is_confirmed(request, name, rows)
        kind = AuditKind.VIEW if asks else AuditKind.ACT
        audit.note(request.user, kind, audit.subject_of(rows), name)
        return act(model_admin, request, rows)

    return noted


def _mask_page(model_admin: Any, context: Any) -> None:
    """Hide on a page, and in the rows below it, what is not open to everybody."""
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
    """Ask whether to do an action with these rows, and why, on the page that is named after it.

    What is done for good needs a reason.
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
    """Return the note that goes with an action."""
    return (request.POST.get("note") or "").strip()[:MAX_REASON] or otherwise


def confirmed_reason(request: HttpRequest) -> str:
    """Return why an action is done that needs a reason; empty where it is not confirmed yet, or
    lacks the reason, of which a message tells."""
    reason = note_of(request)
    if "confirmed" not in request.POST:
        return ""
    if not reason:
        messages.error(request, "Say why: nothing was done.")
    return reason


def staff_of(request: HttpRequest) -> str:
    """Return who acts, as histories name them."""
    return f"staff:{request.user.get_username()}"


class WorkFilter(admin.SimpleListFilter):
    """Work by how it stands, as the front page counts it."""

    title = "how the work stands"
    parameter_name = "work"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices: each standing of each kind of work that such rows are."""
        kinds = [kind for kind in stuck.KINDS.values() if kind.model is model_admin.model]
        return [
            (f"{kind.name}.{how}", f"{kind.title}: {words}" if len(kinds) > 1 else words)
            for kind in kinds
            for how, words in stuck.STANDINGS.items()
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Keep the rows that stand so."""
        name, _, how = (self.value() or "").partition(".")
        kind = stuck.KINDS.get(name)
        if kind is None or how not in stuck.STANDINGS or kind.model is not queryset.model:
            return None
        rows = stuck.by_standing(kind, timezone.now())[how]
        return queryset.filter(pk__in=rows.order_by().values("pk"))


class ReadOnlyAdmin(MemoryAdmin[Row]):
    """A screen of rows that only the server writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds a row by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes a row by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes a row by hand: see erasure."""
        return False

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Row | None:
        """Return the row to be shown. It is never saved, so its texts are made visible in it."""
        row = super().get_object(request, object_id, from_field)
        content = () if access.sees_content(request.user) else masking.content_fields(self.model)
        for field in self.opts.concrete_fields if row else ():
            if not isinstance(field, models.CharField | models.TextField):
                continue  # it may be large, and not have been read
            value = getattr(row, field.attname)
            if isinstance(value, str) and value:  # what is empty hides nothing
                is_hidden = field.name in content
                setattr(row, field.attname, masking.HIDDEN if is_hidden else visible(value))
        return row


class PausedAdmin(ReadOnlyAdmin[Paused]):
    """A screen of what is paused until somebody resumes it; `resume` is the screen's own."""

    actions = ["resume"]

    def actions_for(self, row: Paused) -> Collection[str]:
        """Resumed once is resumed."""
        return [] if row.resumed_at else ["resume"]

    @admin.display(description="state", ordering="resumed_at")
    def standing(self, row: Paused) -> str:
        """Say whether it is paused still."""
        return badge("resolved", "resumed") if row.resumed_at else badge("paused")

    @admin.display(description="why", ordering="reason")
    def why(self, row: Paused) -> str:
        """Show why it was paused."""
        return inline(shortened(row.reason))


class WorkAdmin(ReadOnlyAdmin[Work]):
    """A screen of work that a person has asked for, which is due until it is done."""

    actions = ["try_now"]

    def actions_for(self, row: Work) -> Collection[str]:
        """What is done is not tried again."""
        return self.actions if getattr(row, "due_at", None) is not None else []

    @admin.display(description="last error")
    def error(self, row: Work) -> str:
        """Show what went wrong at the last try."""
        return preformatted(row.last_error)

    @admin.action(description="Try again now", permissions=["operate"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Work]) -> None:
        """Have those that are not done tried again at once."""
        due = queryset.filter(due_at__isnull=False)
        number = due.update(run_after=timezone.now(), hinted_at=None)
        tried = counted(number, str(self.opts.verbose_name))
        messages.success(request, f"{tried} will be tried again at once.")


class PresenceFilter(admin.SimpleListFilter):
    """Rows by whether a field is filled, in words that say what that means."""

    field: str
    filled: str
    empty: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [("yes", self.filled), ("no", self.empty)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Keep the rows that are so."""
        if self.value() not in ("yes", "no"):
            return None
        return queryset.filter(**{f"{self.field}__isnull": self.value() == "no"})


def rows_for(request: HttpRequest, model: type[Row]) -> QuerySet[Row]:
    """Return the rows of a kind that this member of the staff may see; none, if not the kind."""
    rows = access.seen_by(request.user, model._default_manager.all())
    return rows if may_see(request, model) else rows.none()


def may_see(request: HttpRequest, model: type[models.Model]) -> bool:
    """Tell whether this member of the staff may see rows of this kind."""
    return request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")


def list_url(model: type[models.Model], /, **filters: Any) -> str:
    """Return the address of the list of the model's rows that match the filters."""
    return f"{_list_url(model)}?{urlencode(filters)}" if filters else _list_url(model)


def heavy(*paths: str) -> list[str]:
    """Name the large fields of the checkpoints at these paths, for lists to leave behind."""
    return [f"{path}__{name}" for path in paths for name in HEAVY]


def page_url(row: models.Model) -> str:
    """Return the address of the row's page."""
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
    """Return a link to the entries that are rejected of the event's user, with their reasons."""
    filters = {"user__id__exact": event.user_id, "outcome__exact": Outcome.REJECTED}
    return link_to_list(EntryOutcome, "rejected entries", **filters)


def link_to_entry(entry: LogEntry) -> SafeString:
    """Return a link to the entry, with the beginning of what it says."""
    return format_html(
        '<a href="{}">#{}</a> {} {}',
        page_url(entry),
        entry.seq,
        badge(entry.kind, entry.get_kind_display()),
        masking.content(inline(summary(entry))),
    )


def links_to_entries(user: MemoryUser, seqs: Iterable[int]) -> SafeString | str:
    """Return links to these entries of the user's log, with the beginning of what they say."""
    wanted = sorted(set(seqs))
    entries = LogEntry.objects.filter(user=user, seq__in=wanted[:_MAX_LINKS]).order_by("seq")
    rows: list[SafeString | str] = [link_to_entry(entry) for entry in entries]
    if len(wanted) > _MAX_LINKS:
        rows.append(f"… and {len(wanted) - _MAX_LINKS} more, up to #{wanted[-1]}")
    return lines(rows)


def entry_pages(user: MemoryUser, seqs: Iterable[int]) -> dict[int, str]:
    """Return the addresses of these entries' pages by number: the first thousand of them."""
    wanted = sorted(set(seqs))[:_MAX_PAGES]
    entries = LogEntry.objects.filter(user=user, seq__in=wanted).order_by()
    found = entries.values_list("seq", "pk")
    return {seq: _page_url(LogEntry, pk) for seq, pk in found}


def links_to_alerts(alerts: QuerySet[Alert]) -> SafeString | str:
    """Return links to these alerts, the newest first, with their severity and state."""
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
    """Return in how many seconds a page of what is being done loads itself again, if it does, and
    how often it will have then."""
    text = request.GET.get("look", "")
    look = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 0
    if look >= _LOOKS:
        return {}
    return {"again_seconds": min(_AGAIN_SECONDS * 2**look, _AGAIN_MOST), "look": look + 1}
