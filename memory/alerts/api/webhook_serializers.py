"""Serializers for webhook endpoints and their messages, and the filters for messages."""

import datetime
from typing import Any

import django_filters
from django.db.models import QuerySet
from rest_framework import serializers

from memory.alerts.delivery import webhook_messages
from memory.alerts.models.alerts import AlertEventKind, AlertKind, Severity
from memory.alerts.models.webhooks import (
    Delivery,
    DeliveryAttempt,
    DeliveryStanding,
    DeliveryState,
    WebhookEndpoint,
    validate_printable,
)
from memory.kernel.http.serializers import DayStartField, StrictSerializer

# Message type → the kind of event that messages of that type report.
KINDS = {kind.event_type: kind for kind in AlertEventKind}
TYPES = list(KINDS)


class EventTypesField(serializers.ListField):
    """A list of event kinds, given as the types of the messages that report such events."""

    child = serializers.ChoiceField(choices=TYPES)

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return the event kinds."""
        names = dict.fromkeys(super().to_internal_value(data))
        return [KINDS[name] for name in names]

    def to_representation(self, data: Any) -> list[Any]:
        """Return the message types."""
        return [AlertEventKind(kind).event_type for kind in data]


class EndpointSerializer(serializers.ModelSerializer[WebhookEndpoint]):
    """An endpoint and its state, without its secret, which cannot be read."""

    event_types = EventTypesField(
        help_text="Event types that the endpoint receives; empty for all."
    )
    alert_kinds = serializers.ListField(child=serializers.ChoiceField(choices=AlertKind.choices))
    pending = serializers.IntegerField(help_text="The number of messages waiting to be delivered.")
    given_up = serializers.IntegerField(help_text="The number of messages that failed permanently.")

    class Meta:
        model = WebhookEndpoint
        fields = [
            "id",
            "url",
            "description",
            "event_types",
            "alert_kinds",
            "least_severity",
            "enabled",
            "disabled_at",
            "disabled_reason",
            "failing_since",
            "failures",
            "not_before",
            "previous_secret_until",
            "created_at",
            "pending",
            "given_up",
        ]


class EndpointWithSecretSerializer(EndpointSerializer):
    """An endpoint with its secret, which is shown only once."""

    secret = serializers.CharField(
        allow_null=True,
        help_text="Store the secret: it is not shown again unless the request is repeated with the"
        " same `Idempotency-Key`, and then only if the secret has not been rotated in the"
        " meantime; otherwise null.",
    )

    class Meta(EndpointSerializer.Meta):
        fields = [*EndpointSerializer.Meta.fields, "secret"]


class NewEndpointSerializer(StrictSerializer):
    """An endpoint to be created."""

    rules = {
        "properties": {
            "url": {"format": "webhook-url"},
            "description": {"format": "printable"},
            "alert_kinds": {"minItems": 1},
        }
    }

    url = serializers.CharField(
        max_length=2000,
        help_text="An https URL with a public address, on port 443 or any port from 1024 up.",
    )
    description = serializers.CharField(
        max_length=200, allow_blank=True, required=False, validators=[validate_printable]
    )
    event_types = EventTypesField(
        required=False, help_text="Event types that the endpoint receives; empty (default) for all."
    )
    alert_kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=AlertKind.choices),
        allow_empty=False,
        required=False,
        help_text="Kinds of alerts that the endpoint receives; by default, alerts about your"
        " users.",
    )
    least_severity = serializers.ChoiceField(choices=Severity.choices, required=False)


class EndpointChangeSerializer(NewEndpointSerializer):
    """A change to an endpoint."""

    url = serializers.CharField(
        max_length=2000,
        required=False,
        help_text="The new URL, to which waiting messages are sent, too.",
    )
    enabled = serializers.BooleanField(required=False)


class NothingSerializer(StrictSerializer):
    """An empty object."""


class SinceSerializer(StrictSerializer):
    """The creation time from which messages are to be resent."""

    since = DayStartField(
        help_text="Messages created on or after this day, or at or after this time, are resent; a"
        " time without a UTC offset is interpreted in the workspace's time zone."
    )


class ReplayResultSerializer(serializers.Serializer[Any]):
    """The result of resending messages."""

    replayed = serializers.IntegerField(help_text="The number of messages that are resent.")


class AttemptSerializer(serializers.ModelSerializer[DeliveryAttempt]):
    """One attempt to deliver a message to its endpoint."""

    class Meta:
        model = DeliveryAttempt
        fields = ["at", "seconds", "address", "status", "error", "answer"]


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """A message and the state of its delivery."""

    message_id = serializers.CharField(help_text="The value of the header `webhook-id`.")
    state = serializers.ChoiceField(source="standing", choices=DeliveryStanding.choices)
    next_attempt_at = serializers.SerializerMethodField(
        help_text="The earliest time of the next attempt; null if none is due."
    )

    class Meta:
        model = Delivery
        fields = [
            "id",
            "message_id",
            "type",
            "alert",
            "seq",
            "state",
            "attempts",
            "last_error",
            "created_at",
            "settled_at",
            "next_attempt_at",
        ]

    def get_next_attempt_at(self, delivery: Delivery) -> str | None:
        """Return the earliest time of the next attempt; None if none is due."""
        if delivery.standing != DeliveryStanding.PENDING:
            return None
        return serializers.DateTimeField().to_representation(delivery.run_after)


class DeliveryDetailSerializer(DeliverySerializer):
    """A message with its body and every delivery attempt."""

    calls = AttemptSerializer(many=True)

    class Meta(DeliverySerializer.Meta):
        fields = [*DeliverySerializer.Meta.fields, "payload", "calls"]


class DeliveryFilter(django_filters.FilterSet):
    """Filters for messages."""

    state = django_filters.ChoiceFilter(choices=DeliveryStanding.choices, method="in_state")
    type = django_filters.ChoiceFilter(
        choices=[(name, name) for name in (webhook_messages.PING, *TYPES)]
    )
    alert = django_filters.UUIDFilter(field_name="alert_id")
    since = django_filters.IsoDateTimeFilter(method="written_since")

    class Meta:
        model = Delivery
        fields = ["state", "type", "alert", "since"]

    def in_state(self, deliveries: QuerySet[Delivery], name: str, value: str) -> QuerySet[Delivery]:
        """Select the messages whose state, as shown in responses, is `value`."""
        pending = value in (DeliveryStanding.PENDING, DeliveryStanding.HELD)
        if not pending:
            return deliveries.filter(state=value)
        return deliveries.filter(
            state=DeliveryState.PENDING, endpoint__enabled=value == DeliveryStanding.PENDING
        )

    def written_since(
        self, deliveries: QuerySet[Delivery], name: str, value: datetime.datetime
    ) -> QuerySet[Delivery]:
        """Select messages created at or after a time; raises ValidationError if out of range."""
        try:
            return deliveries.filter(created_at__gte=value.astimezone(datetime.UTC))
        except OverflowError:
            raise serializers.ValidationError(
                {name: ["Give a time between the years 1 and 9999 in UTC."]}
            ) from None
