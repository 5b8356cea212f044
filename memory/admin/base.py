"""What the screens share: rows that nobody edits, their actions, and links between them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.utils import quote
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.admin.display import NOTHING, badge, inline, lines, shortened, summary, visible
from memory.models import Alert, LogEntry, MemoryUser

Row = TypeVar("Row", bound=models.Model)

Key: TypeAlias = int | str | UUID

# What a checkpoint consists of: up to megabytes each.
HEAVY = ("tree", "outline", "edits", "verdict")

_MAX_LINKS = 100


MAX_NOTE = 2000


class NotedActionForm(ActionForm):
    """What to do with the chosen rows, and why."""

    note = forms.CharField(label="Why:", required=False, max_length=MAX_NOTE)


class MemoryAdmin(admin.ModelAdmin[Row]):
    """A screen of one kind of row.

    The actions of the list are also buttons on the page of each row for which `actions_for` names
    them; with `action_note`, which says what it is for, a note goes with them. `when_empty` is what
    an empty list says.
    """

    action_note = ""

    empty_value_display = NOTHING
    list_per_page = 50
    list_max_show_all = 200
    show_full_result_count = False
    actions: Sequence[Any] = []
    when_empty = "There is nothing here yet."

    class Media:
        css = {"all": ["memory/admin.css"]}

    def actions_for(self, row: Row) -> Collection[str]:
        """Name the actions that make sense for this row."""
        return list(self.actions)

    def action_checkbox(self, obj: Row) -> SafeString:
        """Offer the row for an action, under a name that cannot steer the page."""
        return SafeString(visible(str(super().action_checkbox(obj))))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, and say so when it is empty."""
        return super().changelist_view(
            request, {"when_empty": self.when_empty, **(extra_context or {})}
        )

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Row | None = None,
    ) -> HttpResponse:
        """Show a row with its actions, under a name that cannot steer the page."""
        if obj is not None:
            allowed = self.get_actions(request)
            context["subtitle"] = visible(str(obj))
            context["list_url"] = _list_url(self.model)
            context["action_note"] = self.action_note
            context["row_key"] = str(obj.pk)
            context["row_actions"] = [
                (name, name.replace("_", " ").capitalize())
                for name in self.actions_for(obj)
                if name in allowed
            ]
        return super().render_change_form(request, context, add, change, form_url, obj)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Row], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """Do the action; who came from the page of a row goes back there."""
        response = super().response_action(request, queryset, *args, **kwargs)
        if "from_page" in request.POST and isinstance(response, HttpResponseRedirect):
            row = queryset.filter(pk__in=request.POST.getlist("_selected_action")).first()
            if row is not None:
                return HttpResponseRedirect(page_url(row))
        return response


def note_of(request: HttpRequest, otherwise: str = "") -> str:
    """Return the note that goes with an action."""
    return (request.POST.get("note") or "").strip()[:MAX_NOTE] or otherwise


def staff_of(request: HttpRequest) -> str:
    """Return who acts, as histories name them."""
    return f"staff:{request.user.get_username()}"


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

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Who may change rows of this kind may use the actions of their screen."""
        name = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return request.user.has_perm(name)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Row | None:
        """Return the row to be shown. It is never saved, so its texts are made visible in it."""
        row = super().get_object(request, object_id, from_field)
        for field in self.opts.concrete_fields if row else ():
            value = getattr(row, field.attname)
            if isinstance(value, str) and isinstance(field, models.CharField | models.TextField):
                setattr(row, field.attname, visible(value))
        return row


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
    return format_html('<a href="{}">{}</a>', page_url(row), inline(text or str(row)))


def link_to_key(model: type[models.Model], key: Key | None, text: str) -> SafeString | str:
    """Return a link to the page of the row with this primary key."""
    if key is None:
        return inline(text)
    return format_html('<a href="{}">{}</a>', _page_url(model, key), inline(text))


def link_to_list(model: type[models.Model], text: str, **filters: Any) -> SafeString:
    """Return a link to the list of the model's rows that match the filters."""
    return format_html('<a href="{}?{}">{}</a>', _list_url(model), urlencode(filters), text)


def link_to_entry(entry: LogEntry) -> SafeString:
    """Return a link to the entry, with the beginning of what it says."""
    return format_html(
        '<a href="{}">#{}</a> {} {}',
        page_url(entry),
        entry.seq,
        badge(entry.kind, entry.get_kind_display()),
        inline(summary(entry)),
    )


def links_to_entries(user: MemoryUser, seqs: Iterable[int]) -> SafeString | str:
    """Return links to these entries of the user's log, with the beginning of what they say."""
    wanted = sorted(set(seqs))
    entries = LogEntry.objects.filter(user=user, seq__in=wanted[:_MAX_LINKS]).order_by("seq")
    rows: list[SafeString | str] = [link_to_entry(entry) for entry in entries]
    if len(wanted) > _MAX_LINKS:
        rows.append(f"… and {len(wanted) - _MAX_LINKS} more, up to #{wanted[-1]}")
    return lines(rows)


def links_to_alerts(alerts: QuerySet[Alert]) -> SafeString | str:
    """Return links to these alerts, the newest first, with their severity and state."""
    return lines(
        format_html(
            "{} {} {}",
            badge(alert.severity, alert.get_severity_display()),
            badge(alert.state, alert.get_state_display()),
            link(alert, shortened(alert.message)),
        )
        for alert in alerts.order_by("-opened_at")[:_MAX_LINKS]
    )


def _page_url(model: type[models.Model], key: Key) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return reverse(name, args=[quote(key)])


def _list_url(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
