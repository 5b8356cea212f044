"""Workspaces and their settings."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Count, QuerySet
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from memory.alerts import feedback
from memory.alerts.models.alerts import AlertFeedback
from memory.kernel import encryption
from memory.kernel.admin.actions import Menu, note_of, staff_of
from memory.kernel.admin.base import section
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import NOTHING, badge, counted, inline, lines
from memory.kernel.admin.links import link_to_list
from memory.kernel.admin.pauses import PausableAdmin
from memory.kernel.admin.rows import cached_on_row
from memory.kernel.models.users import LaneName, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace
from memory.kernel.settings import (
    alert_settings,
    environment,
    language_models,
    retention_settings,
    track_record_settings,
)
from memory.kernel.settings.environment import Setting
from memory.kernel.settings.language_models import Budget
from memory.kernel.settings.sandbox_limits import LIMITS, ceiling, effective
from memory.kernel.staff import access
from memory.llm import llm_budgets, llm_spending, track_records
from memory.llm.admin import money, show_track_record
from memory.llm.llm_spending import Spent
from memory.llm.models import LlmCall
from memory.llm.track_records import TrackRecord
from memory.log import batching, lanes
from memory.operations import workload

LLM_FIELDS = environment.LANGUAGE_MODEL.overridable
JUDGED_FIELDS = environment.TRACK_RECORD.overridable
MAX_JUDGED = 50
KEY_FIELDS = ("new_llm_api_key", "forget_llm_api_key")


class WorkspaceForm(forms.ModelForm[Workspace]):
    """The form for a workspace. Its language model's API key can be set but is never shown."""

    new_llm_api_key = forms.CharField(
        label="New API key",
        required=False,
        strip=True,
        max_length=500,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Replaces the stored key. The new key is stored encrypted and never shown.",
    )
    forget_llm_api_key = forms.BooleanField(
        label="Remove the API key",
        required=False,
        help_text="Deletes the stored key.",
    )

    class Meta:
        model = Workspace
        fields = [
            "name",
            "time_zone",
            "users_by_entry",
            "name_field",
            "single_use",
            *(field for group in environment.GROUPS for field in group.overridable),
        ]
        help_texts = {
            field: setting.help_text
            for group in environment.GROUPS
            if group is not environment.LANGUAGE_MODEL
            for field, setting in group.overridable.items()
        }

    def clean(self) -> dict[str, Any]:
        """Encrypt the API key, so that it is validated together with the other settings."""
        cleaned = super().clean() or {}
        new = cleaned.get("new_llm_api_key")
        if cleaned.get("forget_llm_api_key"):
            self.instance.llm_api_key = None
        if new:
            if not new.isascii() or not new.isprintable():
                self.add_error(
                    "new_llm_api_key",
                    "The key contains invalid characters. Use only visible ASCII characters.",
                )
            try:
                self.instance.llm_api_key = encryption.encrypt(new.encode())
            except encryption.EncryptionError as error:
                self.add_error("new_llm_api_key", f"The key cannot be stored. {error}")
        return cleaned


@admin.register(Workspace)
class WorkspaceAdmin(PausableAdmin[Workspace]):
    """Workspaces, the server's tenants."""

    form = WorkspaceForm
    list_display = ["name", "users", "keys", "own_model", "own_limits", "created_at"]
    fieldsets = [
        section(
            None,
            *("name", "time_zone", "users_by_entry", "name_field", "paused", "users", "keys"),
            *("public_id", "created_at"),
        ),
        section(
            "Sandbox limits",
            "in_effect",
            "single_use",
            *LIMITS,
            description="Blank limits use the server's defaults. Changes take"
            " effect with the next run.",
        ),
        section(
            environment.LANGUAGE_MODEL.title,
            "llm_in_effect",
            "llm_spent",
            *LLM_FIELDS,
            *KEY_FIELDS,
            description="Blank settings use the server's defaults. Changes take"
            " effect with the next call.",
        ),
        section(
            environment.TRACK_RECORD.title,
            "track_record",
            *JUDGED_FIELDS,
            description="A model is stopped if too many of its proposals are rejected or"
            " undone. Entries then wait, and nothing is lost. So that no single user can stop"
            " the model for everyone, the mean percentage across users must also exceed the"
            " limit. Blank settings use the server's defaults. Changes take effect with the"
            " next call.",
        ),
        section(
            environment.STRUCTURING.title,
            "structure_in_effect",
            *environment.STRUCTURING.overridable,
            description="Messages, facts and corrections are processed in batches, because"
            " every batch costs tokens. Blank settings use the server's defaults."
            " Changes take effect with the next entry.",
        ),
        section(
            environment.ALERTS.title,
            "alerts_in_effect",
            "precision",
            *environment.ALERTS.overridable,
            description="Blank settings use the server's defaults. Changes apply to"
            " alerts that open and runs that begin afterwards.",
        ),
        section(
            environment.QUOTAS.title,
            "quotas_in_effect",
            *environment.QUOTAS.overridable,
            description="Blank quotas use the server's defaults. Changes take"
            " effect with the next request.",
        ),
        section(
            environment.RETENTION.title,
            "retention_in_effect",
            *environment.RETENTION.overridable,
            description="Blank settings use the server's defaults. Expired data is"
            " permanently deleted within minutes.",
        ),
        section(
            environment.CONTENT.title,
            "content_in_effect",
            *environment.CONTENT.overridable,
            description="What happens to sensitive content that enters from now on: it is stored,"
            " masked, allowed in typed data only (and masked elsewhere), or refused with its entry."
            " Blank settings use the server's defaults. Changes take effect with the next request.",
        ),
    ]
    readonly_fields = [
        *("alerts_in_effect", "precision", "retention_in_effect", "content_in_effect"),
        *("paused", "users", "keys", "in_effect", "public_id", "created_at"),
        *("llm_in_effect", "llm_spent", "structure_in_effect", "quotas_in_effect"),
        "track_record",
    ]
    actions = ["pause", "resume", "let_model_go_on"]
    menus = [Menu("Language model", ["let_model_go_on"], note="Reason")]
    search_fields = ["name", "=public_id"]
    search_help_text = "Search by name or public id."
    when_empty = "There are no workspaces yet. Add one, and an API key for its backend."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workspace]:
        users = Coalesce("use__users", 0)
        return super().get_queryset(request).annotate(user_count=users, key_count=Count("api_keys"))

    def actions_for(self, row: Workspace) -> Collection[str]:
        record = _record_of(row)
        stopped = record and record.stopped
        return [*self.pausing_for(row), *(["let_model_go_on"] if stopped else [])]

    def save_model(
        self, request: HttpRequest, obj: Workspace, form: forms.ModelForm[Workspace], change: bool
    ) -> None:
        """Store the workspace, and retry work that failed for lack of a budget or a key."""
        super().save_model(request, obj, form, change)
        if {*LLM_FIELDS, *KEY_FIELDS, *JUDGED_FIELDS} & set(form.changed_data):
            waiting = lanes.due(LaneName.STRUCTURE).filter(user__workspace=obj)
            # The retry waits until the transaction has released its lock on the workspace, since a
            # worker that holds a lane may be waiting for that lock.
            transaction.on_commit(lambda: lanes.hurry(waiting))

    @admin.action(description="Let the language model continue", permissions=["change"])
    def let_model_go_on(self, request: HttpRequest, queryset: QuerySet[Workspace]) -> None:
        """Resume models stopped because of their track records; each starts a new track record."""
        if not (reason := note_of(request)):
            messages.error(
                request, "Nothing was changed: give a reason for letting the model continue."
            )
            return
        rows = [row for row in queryset if track_records.why_stopped(row)]
        for row in rows:
            model = track_records.resume(row, by=staff_of(request), reason=reason)
            lanes.hurry(lanes.due(LaneName.STRUCTURE).filter(user__workspace=row))
            self.log_change(request, row, f"Let {model} continue: {reason}")
        if rows:
            number = counted(len(rows), "workspace")
            message = f"The language model continues in {number}, with a new track record."
            messages.success(request, message)
        if left := queryset.count() - len(rows):
            message = f"{counted(left, 'workspace')} skipped: the language model is not stopped."
            messages.warning(request, message)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require access to all workspaces: without it, the new workspace would not be visible."""
        return super().has_add_permission(request) and access.sees_all(request.user)

    @plain_column("users at the last count", "user_count")
    def users(self, workspace: Workspace) -> str:
        """Link to the workspace's users; the number of users is updated once a minute."""
        text = counted(getattr(workspace, "user_count", 0), "user")
        return link_to_list(MemoryUser, text, workspace__id__exact=workspace.pk)

    @plain_column("API keys", "key_count")
    def keys(self, workspace: Workspace) -> str:
        text = counted(getattr(workspace, "key_count", 0), "API key")
        return link_to_list(ApiKey, text, workspace__id__exact=workspace.pk)

    @plain_column("own model", "llm_model")
    def own_model(self, workspace: Workspace) -> str:
        return workspace.llm_model or NOTHING

    @plain_column("effective")
    def llm_in_effect(self, workspace: Workspace) -> str:
        chosen = workspace.chosen_llm
        stopped = None if workspace._state.adding else llm_budgets.why_stopped(workspace)
        try:
            connection = language_models.connection(chosen)
        except language_models.LanguageModelError as error:
            return lines([format_html("{} {}", badge("bad", "no calls"), str(error))])
        key = "no key" if not connection.api_key else "the server's key"
        if chosen.api_key is not None:
            key = "the workspace's own key"
        return lines(
            [
                format_html("{} {}", badge("failing", "calls stopped"), stopped)
                if stopped
                else badge("valid", "calls are made"),
                format_html("<b>{}</b> at {}, with {}", connection.name, connection.base_url, key),
                *_budget_lines(language_models.budget(chosen)),
            ]
        )

    @plain_column("track record")
    def track_record(self, workspace: Workspace) -> str:
        record = _record_of(workspace)
        shown = show_track_record(workspace, record) if record else []
        return lines([*shown, track_record_settings.describe_limits(workspace.track_record_limits)])

    @plain_column("effective")
    def structure_in_effect(self, workspace: Workspace) -> str:
        holds = workspace.effective(environment.STRUCTURING)
        return f"Work begins {batching.describe_batching(holds)}."

    @plain_column("effective")
    def alerts_in_effect(self, workspace: Workspace) -> str:
        return lines(alert_settings.describe_limits(workspace.alert_limits))

    @plain_column("effective")
    def retention_in_effect(self, workspace: Workspace) -> str:
        return lines(
            retention_settings.describe_retention(workspace.effective(environment.RETENTION))
        )

    @plain_column("effective")
    def content_in_effect(self, workspace: Workspace) -> str:
        policy = workspace.content_policy
        told = [
            f"{capfirst(environment.SENSITIVE[kind])}: {action.replace('_', ' ')}."
            for kind, action in policy.items()
        ]
        return lines(told or ["Everything is stored."])

    @plain_column("effective")
    def quotas_in_effect(self, workspace: Workspace) -> str:
        chosen = workspace.overrides(environment.QUOTAS)
        used = {} if workspace._state.adding else workload.used(workspace)
        labels = {field.name: field.verbose_name for field in Workspace._meta.concrete_fields}
        return lines(
            format_html(
                "{}: {}<b>{}</b>, {}",
                capfirst(str(labels[name])),
                f"{used[name]:,} of " if name in used else "",
                f"{most:,}",
                "server default" if chosen[name] is None else "set for this workspace",
            )
            for name, most in workspace.effective(environment.QUOTAS).items()
        )

    @content_column("useful alerts by constraint")
    def precision(self, workspace: Workspace) -> str:
        if workspace._state.adding:
            return NOTHING
        judged = feedback.count_verdicts(
            AlertFeedback.objects.filter(alert__user__workspace=workspace)
        )
        worst_first = sorted(judged.items(), key=lambda item: item[1].precision or 0)
        return lines(
            format_html("{}: {}", inline(path), feedback.describe_precision(counts))
            for path, counts in worst_first[:MAX_JUDGED]
        )

    @plain_column("spent")
    def llm_spent(self, workspace: Workspace) -> str:
        if workspace._state.adding:
            return NOTHING
        day, month = llm_spending.spent(workspace, timezone.now())
        return lines(
            [
                *(_spent_line(name, spent) for name, spent in (("Today", day), ("Month", month))),
                link_to_list(LlmCall, "all calls", workspace__id__exact=workspace.pk),
            ]
        )

    @plain_column("own limits")
    def own_limits(self, workspace: Workspace) -> str:
        own = [field for field in LIMITS if getattr(workspace, field) is not None]
        return ", ".join(["single_use"] * workspace.single_use + own) or NOTHING

    @plain_column("effective")
    def in_effect(self, workspace: Workspace) -> str:
        own = workspace.overrides(environment.SANDBOXES)
        holding, everywhere = asdict(effective(own)), asdict(effective({}))
        labels = {field.name: field.verbose_name for field in Workspace._meta.concrete_fields}
        kept = settings.UAC_SANDBOX_LEASE_SECONDS
        life = f"kept for {kept:g} s after its last use, for the same user"
        if workspace.single_use or not kept:
            life = "destroyed after every use"
        return lines(
            ["Container: " + life]
            + [
                format_html(
                    "{}: <b>{}</b>, {}; at most {}",
                    capfirst(str(labels[field])),
                    limit.amount(holding[field]),
                    _origin(limit, getattr(workspace, field), holding[field], everywhere[field]),
                    limit.amount(ceiling(field)),
                )
                for field, limit in LIMITS.items()
            ]
        )


@cached_on_row
def _record_of(workspace: Workspace) -> TrackRecord | None:
    """Return the track record of the workspace's model, if any."""
    model = None if workspace._state.adding else track_records.model_of(workspace)
    return track_records.read(workspace, model) if model else None


def _budget_lines(budget: Budget) -> list[str]:
    limits = [
        (budget.tokens_per_day, "{:,} tokens a day"),
        (budget.tokens_per_month, "{:,} tokens a month"),
        (budget.cost_per_day, "a cost of {:,} a day"),
        (budget.cost_per_month, "a cost of {:,} a month"),
    ]
    parts = [what.format(amount) for amount, what in limits if amount is not None]
    return [
        counted(budget.concurrency, "concurrent call"),
        "at most " + ", ".join(parts) if parts else "without a budget",
    ]


def _spent_line(name: str, spent: Spent) -> SafeString:
    reserved = spent.reserved_tokens
    return format_html(
        "{}: <b>{}</b> in {}, cost {}{}{}",
        name,
        counted(spent.tokens, "token"),
        counted(spent.calls, "call"),
        money(spent.cost),
        f"; estimated for calls without a response: {counted(spent.presumed_tokens, 'token')}"
        if spent.presumed_tokens
        else "",
        f"; reserved for calls in progress: {counted(reserved, 'token')}" if reserved else "",
    )


def _origin(limit: Setting, chosen: float | None, holds: float, everywhere: float) -> str:
    if chosen is not None:
        if holds == chosen:
            return "set for this workspace"
        return f"although this workspace's setting is {limit.amount(chosen)}"
    if holds == everywhere:
        return "server default"
    return f"not the server default of {limit.amount(everywhere)}, because of the other limits"
