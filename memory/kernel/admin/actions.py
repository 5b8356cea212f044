"""Staff actions: auditing, confirmation pages and reasons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from memory.kernel.admin.display import counted, first_lines
from memory.kernel.admin.links import MAX_LINKS, link, list_url, page_url
from memory.kernel.staff import audit
from memory.kernel.staff.models import AuditKind
from memory.kernel.texts import MAX_REASON

Row = TypeVar("Row", bound=models.Model)

# Maximum number of rows that one confirmation covers.
MAX_CONFIRMED = 1000


@dataclass(frozen=True)
class Menu:
    """Actions of a row's page that unfold below one button, with the fields that belong to them.

    `note` labels the field for a reason. `template` is the path of further fields, which belong to
    the last action.
    """

    label: str
    actions: Sequence[str]
    note: str = ""
    template: str = ""


def audit_action(act: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap an action so that it is audited before it runs, and doesn't run if auditing fails.

    An action whose consequences the screen states runs only once they are confirmed.
    """

    @wraps(act)
    def noted(model_admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> Any:
        confirmed = model_admin.is_confirmed(request, name, rows)
        asks = name in model_admin.asking and not confirmed
        kind = AuditKind.VIEW if asks else AuditKind.ACT
        audit.note(request.user, kind, audit.subject_of(rows), name)
        if asks and name in model_admin.consequences:
            return _ask_plainly(model_admin, request, name, rows)
        return act(model_admin, request, rows)

    return noted


def label_of(action: str) -> str:
    """Return the text of an action's button."""
    return action.replace("_", " ").capitalize()


def _ask_plainly(
    model_admin: Any, request: HttpRequest, name: str, rows: QuerySet[Row]
) -> TemplateResponse | None:
    """Return a page that states an action's consequences and lists the rows."""
    chosen = list(rows[: MAX_CONFIRMED + 1])
    if len(chosen) > MAX_CONFIRMED:
        messages.error(request, f"Nothing was done: select at most {MAX_CONFIRMED:,} rows.")
        return None
    number_of_rows = counted(len(chosen), str(model_admin.opts.verbose_name))
    return ask(
        request,
        name,
        chosen,
        model_admin.model,
        title=f"{label_of(name)} {number_of_rows}?",
        verb=label_of(name),
        for_good=name in model_admin.dangerous,
        template="confirm",
        consequences=model_admin.consequences[name],
        shown=first_lines(list(map(link, chosen)), MAX_LINKS),
    )


def ask(
    request: HttpRequest,
    action: str,
    rows: Sequence[Row],
    model: type[Row],
    *,
    title: str,
    verb: str,
    for_good: bool = False,
    template: str = "",
    **extra: object,
) -> TemplateResponse:
    """Return a page that asks staff to confirm an action on these rows and give a reason.

    The reason is required if the action is irreversible (`for_good`).
    """
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
        "from_page": _is_from_page(request, rows),
        "kept": request.POST.getlist("shown"),
        "note": note_of(request),
        "max_reason": MAX_REASON,
        "back_url": back_url(request, rows),
        **extra,
    }
    return TemplateResponse(request, f"admin/memory/{template or action}.html", context)


def back_url(request: HttpRequest, rows: Sequence[models.Model] | QuerySet[Any]) -> str:
    """Return the page on which an action was chosen: the row's, or else the list."""
    return page_url(rows[0]) if _is_from_page(request, rows) else request.get_full_path()


def _is_from_page(request: HttpRequest, rows: Sequence[models.Model] | QuerySet[Any]) -> bool:
    return "from_page" in request.POST and len(rows) == 1


def note_of(request: HttpRequest, otherwise: str = "") -> str:
    """Return the note entered with an action, or `otherwise` if there is none."""
    return (request.POST.get("note") or "").strip()[:MAX_REASON] or otherwise


def confirmed_reason(request: HttpRequest) -> str:
    """Return the reason entered for an action that requires one.

    Returns "" if the action hasn't been confirmed, or was confirmed without a reason, in which case
    a message asks for one.
    """
    reason = note_of(request)
    if "confirmed" not in request.POST:
        return ""
    if not reason:
        messages.error(request, "Nothing was done: give a reason.")
    return reason


def report(
    request: HttpRequest,
    noun: str,
    number: int,
    chosen: int,
    what: str,
    otherwise: str,
    *,
    undo: str = "",
    undoable: Sequence[models.Model] = (),
) -> None:
    """Say how many rows an action has changed, and how many it skipped for the reason given.

    `undo` names the action that reverts the change of the `undoable` rows.
    """
    if number:
        done(request, f"{counted(number, noun)} {what}.", undo, undoable, of=number)
    if number < chosen:
        messages.warning(request, f"{counted(chosen - number, noun)} skipped: {otherwise}.")


def done(
    request: HttpRequest, message: str, undo: str, rows: Sequence[models.Model], *, of: int = 0
) -> None:
    """Say what was done, with a button for the action that undoes it for these rows.

    If something was done to more rows (`of`) than can be undone, the button says so.
    The message may stand beside the next row, so it names the user of a single one: by the id, not
    by the name, since a cookie holds it until it is shown.
    """
    if undo and rows:
        user = getattr(rows[0], "user", None) if len(rows) == 1 else None
        named = format_html("<span>For {}.</span> ", link(user, str(user))) if user else ""
        label = f"Undo {len(rows)} of {of}" if len(rows) < of else "Undo"
        button = _undo_button(request, undo, label, [row.pk for row in rows])
        message = format_html("{} {}{}", message, named, button)
    messages.success(request, message)


def _undo_button(
    request: HttpRequest, action: str, label: str, keys: Sequence[object]
) -> SafeString:
    """Return the fields and the button of the form around each message (base_site.html)."""
    fields = [
        ("action", action),
        ("undo", "1"),
        ("from_page", request.POST.get("from_page", "")),
        *(("_selected_action", key) for key in keys),
    ]
    return format_html(
        '{}<button type="submit" class="undo" formaction="{}">{}</button>',
        format_html_join("", '<input type="hidden" name="{}" value="{}">', fields),
        request.get_full_path(),
        label,
    )


def staff_of(request: HttpRequest) -> str:
    """Return the staff member's name as it appears in histories."""
    return f"staff:{request.user.get_username()}"
