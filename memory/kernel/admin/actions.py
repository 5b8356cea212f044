"""Staff actions: auditing, confirmation pages and reasons."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.text import capfirst

from memory.kernel.admin.display import counted
from memory.kernel.admin.links import list_url, page_url
from memory.kernel.staff import audit
from memory.kernel.staff.models import AuditKind
from memory.kernel.texts import MAX_REASON

Row = TypeVar("Row", bound=models.Model)


class NotedActionForm(ActionForm):
    """The form for choosing an action on the selected rows and giving a reason."""

    note = forms.CharField(label="Reason:", required=False, max_length=MAX_REASON)


def audit_action(act: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap an action so that it is audited before it runs, and doesn't run if auditing fails."""

    @wraps(act)
    def noted(model_admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> Any:
        asks = name in model_admin.asking and not model_admin.is_confirmed(request, name, rows)
        kind = AuditKind.VIEW if asks else AuditKind.ACT
        audit.note(request.user, kind, audit.subject_of(rows), name)
        return act(model_admin, request, rows)

    return noted


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
    """Return a page that asks staff to confirm an action on these rows and give a reason.

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
    request: HttpRequest, noun: str, done: int, chosen: int, what: str, otherwise: str
) -> None:
    """Say how many rows an action has changed, and how many it skipped for the reason given."""
    if done:
        messages.success(request, f"{counted(done, noun)} {what}.")
    if done < chosen:
        messages.warning(request, f"{counted(chosen - done, noun)} skipped: {otherwise}.")


def staff_of(request: HttpRequest) -> str:
    """Return the staff member's name as it appears in histories."""
    return f"staff:{request.user.get_username()}"
