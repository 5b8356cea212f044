"""Webhook endpoints, their messages, and every call made to them."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from memory.alerts.admin.links import link_to_entries_of
from memory.alerts.delivery import outbox, webhook_endpoints, webhook_messages
from memory.alerts.models.alerts import AlertEventKind, AlertKind
from memory.alerts.models.webhooks import (
    Delivery,
    DeliveryAttempt,
    DeliveryStanding,
    DeliveryState,
    WebhookEndpoint,
)
from memory.kernel import encryption
from memory.kernel.admin.actions import done, report
from memory.kernel.admin.base import MemoryAdmin, ReadOnlyAdmin, ReadOnlyInline
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import (
    NOTHING,
    ago,
    badge,
    counted,
    inline,
    preformatted,
    pretty,
    shortened,
)
from memory.kernel.admin.filters import presence_filter
from memory.kernel.admin.links import link, link_to_list
from memory.kernel.outgoing.destinations import AddressRefused
from memory.kernel.staff import access

# A message's states that look like states of other rows.
_TONES = {DeliveryStanding.GIVEN_UP: "error", DeliveryStanding.HELD: "paused"}
CHOSEN = ("url", "description", "event_types", "alert_kinds", "least_severity")


class EndpointForm(forms.ModelForm[WebhookEndpoint]):
    """The form for a webhook endpoint's settings."""

    event_types = forms.MultipleChoiceField(
        choices=AlertEventKind.choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="The types of events that the endpoint receives; all types if none is selected.",
    )
    alert_kinds = forms.MultipleChoiceField(
        choices=AlertKind.choices,
        initial=[AlertKind.FINDING],
        widget=forms.CheckboxSelectMultiple,
        help_text="The kinds of alerts that the endpoint receives. Findings are meant for your"
        " users; failed and paused constraints are meant for the constraints' maintainers.",
    )

    class Meta:
        model = WebhookEndpoint
        fields = ["workspace", *CHOSEN]

    def clean_url(self) -> str:
        url = str(self.cleaned_data["url"])
        try:
            webhook_endpoints.check_url(url)
        except AddressRefused as error:
            raise ValidationError(str(error)) from None
        return url

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        workspace = cleaned.get("workspace")
        if self.instance._state.adding:
            if not encryption.available():
                raise ValidationError(
                    "The endpoint's secret cannot be stored: set UAC_ENCRYPTION_KEYS on the server."
                )
            if workspace and workspace.webhooks.count() >= webhook_endpoints.MAX_ENDPOINTS:
                raise ValidationError(
                    f"A workspace may have at most {webhook_endpoints.MAX_ENDPOINTS} endpoints."
                )
        return cleaned


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(MemoryAdmin[WebhookEndpoint]):
    """Webhook endpoints, with their state."""

    form = EndpointForm
    list_display = ["address", "workspace", "standing", "waiting", "lost", "description"]
    list_filter = [
        "enabled",
        presence_filter("failing", "failing_since", filled="fail", empty="do not fail"),
        "workspace",
    ]
    list_select_related = ["workspace"]
    search_fields = ["url", "description", "workspace__name"]
    search_help_text = "Search by URL, description or workspace."
    ordering = ["workspace__name", "created_at"]
    actions = ["send_test", "replay_given_up", "enable", "disable", "rotate_secret"]
    consequences = {
        "disable": "Nothing is sent to these endpoints until they are enabled again. Messages wait"
        " meanwhile, and are sent then.",
        "rotate_secret": "Messages are signed with a new secret, which is shown once. Until the old"
        " one expires, they are signed with both; a receiver that knows only the old one then"
        " refuses them.",
    }
    asking = [*consequences]
    dangerous = ["rotate_secret"]
    when_empty = "There are no webhook endpoints yet."
    readonly_fields = [
        *("standing", "last_failure", "waiting", "lost", "every", "failing_since", "not_before"),
        *("disabled_at", "disabled_reason", "previous_secret_until", "created_at"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookEndpoint]:
        return outbox.counts(super().get_queryset(request))

    def get_fields(self, request: HttpRequest, obj: WebhookEndpoint | None = None) -> Any:
        fields = ["workspace", *CHOSEN]
        return [*fields, *self.readonly_fields] if obj else fields

    def get_readonly_fields(
        self, request: HttpRequest, obj: WebhookEndpoint | None = None
    ) -> list[str]:
        return [*self.readonly_fields, "workspace"] if obj else []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require access to content, since endpoints receive content."""
        return super().has_add_permission(request) and access.sees_content(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require access to content, since endpoints receive content.

        Disabling an endpoint requires no such access.
        """
        return super().has_change_permission(request, obj) and access.sees_content(request.user)

    def actions_for(self, row: WebhookEndpoint) -> Collection[str]:
        first = ["send_test", "disable"] if row.enabled else ["enable"]
        return [*first, "rotate_secret", *(["replay_given_up"] if self._lost(row) else [])]

    @plain_column("URL", "url")
    def address(self, endpoint: WebhookEndpoint) -> str:
        return inline(shortened(endpoint.url))

    @plain_column("state", "enabled")
    def standing(self, endpoint: WebhookEndpoint) -> str:
        if not endpoint.enabled:
            return badge("revoked", "disabled")
        return badge("warning", "failing") if endpoint.failing_since else badge("ok", "enabled")

    @content_column("last failure")
    def last_failure(self, endpoint: WebhookEndpoint) -> str:
        calls = DeliveryAttempt.objects.filter(delivery__endpoint=endpoint).exclude(error="")
        failed = calls.order_by("-at").first() if endpoint.failing_since else None
        if failed is None:
            return NOTHING
        return format_html("{}: {}", link(failed), inline(shortened(failed.error, 300)))

    @plain_column("waiting")
    def waiting(self, endpoint: WebhookEndpoint) -> str:
        number = getattr(endpoint, DeliveryState.PENDING.value, 0)
        return self._messages(endpoint, number, DeliveryState.PENDING)

    @plain_column("failed permanently")
    def lost(self, endpoint: WebhookEndpoint) -> str:
        return self._messages(endpoint, self._lost(endpoint), DeliveryState.GIVEN_UP)

    @plain_column("messages")
    def every(self, endpoint: WebhookEndpoint) -> str:
        return link_to_list(Delivery, "all messages", endpoint__id__exact=endpoint.pk)

    def save_model(
        self,
        request: HttpRequest,
        obj: WebhookEndpoint,
        form: forms.ModelForm[WebhookEndpoint],
        change: bool,
    ) -> None:
        chosen = {name: getattr(obj, name) for name in CHOSEN}
        if change:
            webhook_endpoints.change(obj, **chosen)
            return
        created, secret = webhook_endpoints.create(obj.workspace, **chosen)
        obj.pk = created.pk
        obj._state.adding = False
        self._show_secret(request, created, secret)

    @admin.action(description="Send a test to the selected endpoints", permissions=["change"])
    def send_test(self, request: HttpRequest, queryset: QuerySet[WebhookEndpoint]) -> None:
        enabled = queryset.filter(enabled=True)
        self._each(request, enabled, outbox.send_test, "A test was sent to", "Sent a test.")

    @admin.action(description="Enable the selected endpoints", permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[WebhookEndpoint]) -> None:
        """Enable the endpoints; their waiting messages are sent first."""
        disabled = queryset.filter(enabled=False)
        self._each(
            request, disabled, webhook_endpoints.enable, "Enabled", "Enabled.", undo="disable"
        )

    @admin.action(description="Disable the selected endpoints", permissions=["operate"])
    def disable(self, request: HttpRequest, queryset: QuerySet[WebhookEndpoint]) -> None:
        """Disable the endpoints; their waiting messages are kept."""
        reason = f"Disabled by {request.user.get_username()}."
        enabled = queryset.filter(enabled=True)
        self._each(
            request,
            enabled,
            lambda one: webhook_endpoints.disable(one, reason),
            "Disabled",
            reason,
            undo="enable",
        )

    @admin.action(description="Rotate the selected endpoints' secrets", permissions=["change"])
    def rotate_secret(self, request: HttpRequest, queryset: QuerySet[WebhookEndpoint]) -> None:
        for endpoint in queryset:
            try:
                self._show_secret(request, endpoint, webhook_endpoints.rotate_secret(endpoint))
            except encryption.EncryptionError as error:
                messages.error(request, str(error))
                return
            self.log_change(request, endpoint, "Rotated the secret.")

    @admin.action(description="Send permanently failed messages again", permissions=["change"])
    def replay_given_up(self, request: HttpRequest, queryset: QuerySet[WebhookEndpoint]) -> None:
        number = sum(outbox.replay_given_up(endpoint, endpoint.created_at) for endpoint in queryset)
        messages.success(request, f"{counted(number, 'message')} will be sent again.")

    def _each(
        self,
        request: HttpRequest,
        endpoints: QuerySet[WebhookEndpoint],
        act: Callable[[WebhookEndpoint], object],
        verb: str,
        logged: str,
        *,
        undo: str = "",
    ) -> None:
        chosen = list(endpoints)
        for endpoint in chosen:
            act(endpoint)
            self.log_change(request, endpoint, logged)
        done(request, f"{verb} {counted(len(chosen), 'endpoint')}.", undo, chosen)

    def _show_secret(self, request: HttpRequest, endpoint: WebhookEndpoint, secret: str) -> None:
        messages.success(
            request,
            format_html(
                "Copy the new secret for {} now, since it cannot be shown again:"
                ' <code class="secret">{}</code>',
                inline(shortened(endpoint.url)),
                secret,
            ),
        )

    @staticmethod
    def _lost(endpoint: WebhookEndpoint) -> int:
        return int(getattr(endpoint, DeliveryState.GIVEN_UP.value, 0))

    @staticmethod
    def _messages(endpoint: WebhookEndpoint, number: int, state: DeliveryState) -> str:
        if not number:
            return NOTHING
        filters = {"endpoint__id__exact": endpoint.pk, "state__exact": state.value}
        return link_to_list(Delivery, counted(number, "message"), **filters)


class _Call:
    """Columns shared by the call list and a message's page."""

    labels: Mapping[str, str] = {"answer": "response"}

    @plain_column("took", "seconds")
    def took(self, attempt: DeliveryAttempt) -> str:
        return f"{attempt.seconds:.2f} s"


class DeliveryAttemptInline(_Call, ReadOnlyInline[DeliveryAttempt, Delivery]):
    """The calls made to deliver a message, shown on its page."""

    model = DeliveryAttempt
    verbose_name_plural = "calls"
    fields = ["at", "took", "address", "status", "error", "answer"]
    readonly_fields = ["took", "error", "answer"]
    ordering = ["at"]


class TypeFilter(admin.SimpleListFilter):
    """A filter by message type; its choices are fixed rather than collected from all messages."""

    title = "type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        types = [*(kind.event_type for kind in AlertEventKind), webhook_messages.PING]
        return [(one, one) for one in types]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Delivery]
    ) -> QuerySet[Delivery] | None:
        return queryset.filter(type=self.value()) if self.value() else None


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin[Delivery]):
    """Messages, newest first, with every call made to deliver them."""

    list_display = ["type", "standing", "endpoint_link", "about", "attempts", "created_at"]
    list_filter = [
        "state",
        TypeFilter,
        "endpoint__workspace",
        ("endpoint", admin.RelatedFieldListFilter),
    ]
    list_select_related = ["endpoint", "alert", "event"]
    search_fields = ["=id", "alert__user__user_id", "event__user__user_id", "endpoint__url"]
    search_help_text = "Search by user id, URL or message id."
    ordering = ["-created_at", "-seq"]
    actions = ["replay"]
    when_empty = "There are no messages yet. Messages are sent to a workspace's enabled endpoints."
    fields = [
        *("type", "message_id", "standing", "waits_for", "endpoint_link", "about", "seq"),
        *("attempts", "run_after", "last_error", "created_at", "settled_at", "body"),
    ]
    inlines = [DeliveryAttemptInline]

    def actions_for(self, row: Delivery) -> Collection[str]:
        return [] if row.state == DeliveryState.PENDING else ["replay"]

    @plain_column("message id")
    def message_id(self, delivery: Delivery) -> str:
        return delivery.message_id

    @plain_column("state", "state")
    def standing(self, delivery: Delivery) -> str:
        """Show the state in the colours of the attempts."""
        return badge(_TONES.get(delivery.standing, delivery.standing), delivery.standing.label)

    @plain_column("waits for")
    def waits_for(self, delivery: Delivery) -> str:
        """Link to what keeps a message waiting.

        That is the earlier message about the same alert, or else the endpoint, if calls to it fail:
        messages that have never been sent then wait, too.
        """
        if before := outbox.before(delivery):
            return link(before, str(before))
        endpoint = delivery.endpoint
        if delivery.standing != DeliveryStanding.PENDING or endpoint.failing_since is None:
            return NOTHING
        return format_html(
            "{}: calls to it have failed for {}",
            link(endpoint, "its endpoint"),
            ago(endpoint.failing_since),
        )

    @plain_column("endpoint", "endpoint__url")
    def endpoint_link(self, delivery: Delivery) -> str:
        return link(delivery.endpoint, shortened(delivery.endpoint.url, 60))

    @content_column("about")
    def about(self, delivery: Delivery) -> str:
        if delivery.alert is not None:
            return link(delivery.alert, shortened(str(delivery.alert), 60))
        return link_to_entries_of(delivery.event) if delivery.event else NOTHING

    @content_column("body")
    def body(self, delivery: Delivery) -> str:
        try:
            return pretty(json.loads(delivery.payload))
        except ValueError:
            return preformatted(delivery.payload)

    @admin.action(description="Send the selected messages again", permissions=["operate"])
    def replay(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        """Send the messages again, with the same ids."""
        chosen = list(queryset.select_related("endpoint"))
        done = 0
        for delivery in chosen:
            try:
                outbox.replay(delivery)
            except outbox.DeliveryPending:
                continue
            done += 1
            self.log_change(request, delivery, "Sent again.")
        report(request, "message", done, len(chosen), "will be sent again", "already on the way")


@admin.register(DeliveryAttempt)
class DeliveryAttemptAdmin(_Call, ReadOnlyAdmin[DeliveryAttempt]):
    """Calls to endpoints, newest first."""

    labels = {"delivery": "message"}

    list_display = ["at", "outcome", "delivery", "url", "address", "took"]
    list_filter = ["status"]
    list_select_related = ["delivery__endpoint"]
    search_fields = [
        *("=delivery__id", "delivery__endpoint__url"),
        *("delivery__alert__user__user_id", "delivery__event__user__user_id"),
    ]
    search_help_text = "Search by user id, URL or message id."
    ordering = ["-at", "-id"]
    when_empty = "No endpoint has been called yet."
    fields = ["at", "outcome", "delivery", "url", "address", "took", "error", "answer"]

    @plain_column("outcome", "status")
    def outcome(self, attempt: DeliveryAttempt) -> str:
        return badge("error" if attempt.error else "ok", str(attempt.status or "no response"))

    @plain_column("URL")
    def url(self, attempt: DeliveryAttempt) -> str:
        return inline(shortened(attempt.delivery.endpoint.url, 60))
