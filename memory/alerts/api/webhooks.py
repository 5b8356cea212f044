"""`/v1/webhooks/`: webhook endpoints, and the state of their messages.

All requests need a key with the scope `manage`, since an endpoint receives events about all users.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts.api.webhook_serializers import (
    DeliveryDetailSerializer,
    DeliveryFilter,
    DeliverySerializer,
    EndpointChangeSerializer,
    EndpointSerializer,
    EndpointWithSecretSerializer,
    NewEndpointSerializer,
    NothingSerializer,
    ReplayResultSerializer,
    SinceSerializer,
)
from memory.alerts.delivery import outbox, webhook_endpoints
from memory.alerts.models.webhooks import Delivery, WebhookEndpoint
from memory.kernel.canonical import sha256
from memory.kernel.encryption import EncryptionError
from memory.kernel.http import etags, operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import Conflict
from memory.kernel.http.filters import StrictView
from memory.kernel.http.serializers import validated
from memory.kernel.models.large import defer_large
from memory.kernel.models.workspaces import Scope
from memory.kernel.outgoing.destinations import AddressRefused


class _Managed(StrictView, viewsets.GenericViewSet[Any]):
    scope = Scope.MANAGE

    def in_workspace_time(self) -> AbstractContextManager[None]:
        """Return a context that parses times without a UTC offset in the workspace's time zone."""
        return timezone.override(ZoneInfo(principal_of(self.request).workspace.time_zone))

    def endpoints(self) -> QuerySet[WebhookEndpoint]:
        """Return the endpoints in the caller's workspace."""
        workspace = principal_of(self.request).workspace
        return outbox.counts(WebhookEndpoint.objects.filter(workspace=workspace))

    def send(self, send: Callable[[], Delivery]) -> Response:
        """Send a message, unless this repeats a request; return a 202 with the message's URL."""
        delivery: Delivery = self.once(lambda: _refusing(send))
        location = reverse("delivery-detail", args=[delivery.endpoint_id, delivery.pk])
        return operations.accepted(DeliverySerializer(delivery).data, location)


class Webhooks(mixins.ListModelMixin, _Managed):
    """List the webhook endpoints in the workspace, oldest first."""

    queryset = WebhookEndpoint.objects.none()
    serializer_class = EndpointSerializer
    lookup_url_kwarg = "endpoint_id"
    lookup_value_converter = "uuid"
    ordering = ["created_at", "id"]

    def get_queryset(self) -> QuerySet[WebhookEndpoint]:
        """Return the endpoints in the caller's workspace."""
        return self.endpoints()

    def representation(self) -> dict[str, Any]:
        """Return the endpoint in the URL, as a GET shows it."""
        return dict(EndpointSerializer(self.get_object()).data)

    @operations.write({201: EndpointWithSecretSerializer}, request=NewEndpointSerializer)
    def create(self, request: Request) -> Response:
        """Create an endpoint; the response contains its secret, which is shown only once."""
        fields = validated(NewEndpointSerializer, request.data)
        workspace = principal_of(request).workspace
        answer = self.make_secret(lambda: webhook_endpoints.create(workspace, **fields))
        return operations.created(answer, reverse("webhook-detail", args=[answer["id"]]))

    @operations.read(EndpointSerializer)
    def retrieve(self, request: Request, endpoint_id: str) -> Response:
        """Return the endpoint and its state."""
        return Response(self.representation())

    @operations.write(
        {200: EndpointSerializer, **etags.CHANGED},
        [etags.IF_MATCH],
        request=EndpointChangeSerializer,
    )
    def partial_update(self, request: Request, endpoint_id: str) -> Response:
        """Change the endpoint; when it is re-enabled, it first receives its waiting messages."""
        fields = validated(EndpointChangeSerializer, request.data)

        def change() -> None:
            endpoint = self.get_object()
            with etags.unchanged(request, endpoint, self.representation):
                _refusing(lambda: webhook_endpoints.change(endpoint, **fields))

        self.once(change)
        return Response(self.representation())

    @operations.write({204: None, **etags.CHANGED}, [etags.IF_MATCH])
    def destroy(self, request: Request, endpoint_id: str) -> Response:
        """Delete the endpoint and all its messages; undelivered messages are lost."""

        def delete() -> None:
            endpoint = self.get_object()
            together = transaction.atomic() if "If-Match" in request.headers else nullcontext()
            with together:
                webhook_endpoints.hold_events(endpoint)
                with etags.unchanged(request, endpoint, self.representation):
                    webhook_endpoints.delete(endpoint)

        self.once(delete)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @operations.write({200: EndpointWithSecretSerializer}, request=NothingSerializer)
    @action(detail=True, methods=["post"], url_path="rotate-secret")
    def rotate_secret(self, request: Request, endpoint_id: str) -> Response:
        """Create a new secret, which is shown only once.

        For 24 hours, messages are signed with the previous secret as well.
        """
        validated(NothingSerializer, request.data)
        endpoint = self.get_object()
        return Response(
            self.make_secret(lambda: (endpoint, webhook_endpoints.rotate_secret(endpoint)))
        )

    @operations.write({202: DeliverySerializer}, request=NothingSerializer)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, endpoint_id: str) -> Response:
        """Send a message of the type `ping`, once; 409 if the endpoint is disabled."""
        validated(NothingSerializer, request.data)
        endpoint = self.get_object()
        return self.send(lambda: outbox.send_test(endpoint))

    @operations.write({202: ReplayResultSerializer}, request=SinceSerializer)
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, endpoint_id: str) -> Response:
        """Resend the permanently failed messages that were created at or after a given time."""
        with self.in_workspace_time():
            since = validated(SinceSerializer, request.data)["since"]
        endpoint = self.get_object()
        replayed = self.once(lambda: outbox.replay_given_up(endpoint, since))
        location = reverse("delivery-list", args=[endpoint_id]) + "?state=pending"
        return operations.accepted({"replayed": replayed}, location)

    def make_secret(self, make: Callable[[], tuple[WebhookEndpoint, str]]) -> dict[str, Any]:
        """Make an endpoint or a secret, unless this repeats a request; return both as JSON.

        A repeated request returns the same secret, unless the endpoint has a newer one.
        """

        def write() -> list[str]:
            endpoint, secret = _refusing(make)
            return [str(endpoint.pk), sha256(secret)]

        self.kwargs["endpoint_id"], digest = self.once(write)
        secret = webhook_endpoints.secret_of(self.kwargs["endpoint_id"])
        is_same = secret is not None and sha256(secret) == digest
        return {**self.representation(), "secret": secret if is_same else None}


@extend_schema_view(
    retrieve=extend_schema(
        responses=DeliveryDetailSerializer,
        description="Return the message as it is sent to the endpoint, with every delivery"
        " attempt.",
    )
)
class Deliveries(mixins.ListModelMixin, mixins.RetrieveModelMixin, _Managed):
    """List the messages for an endpoint, newest first."""

    queryset = Delivery.objects.none()
    lookup_url_kwarg = "delivery_id"
    lookup_value_converter = "uuid"
    filterset_class = DeliveryFilter
    ordering = ["-created_at", "id"]

    def get_queryset(self) -> QuerySet[Delivery]:
        """Return the messages for the endpoint; raises Http404 if it does not exist."""
        endpoint = get_object_or_404(self.endpoints(), pk=self.kwargs["endpoint_id"])
        deliveries = Delivery.objects.filter(endpoint=endpoint).select_related("endpoint")
        return defer_large(deliveries) if self.action == "list" else deliveries

    def get_serializer_class(self) -> type[DeliverySerializer]:
        """Return the serializer for one message, or for a list."""
        return DeliverySerializer if self.action == "list" else DeliveryDetailSerializer

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Apply the filters, parsing times without a UTC offset in the workspace's time zone."""
        with self.in_workspace_time():
            return super().filter_queryset(queryset)

    @operations.write({202: DeliverySerializer}, request=NothingSerializer)
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        """Resend the message with the same id; 409 while it is still being delivered."""
        validated(NothingSerializer, request.data)
        delivery: Delivery = self.get_object()

        def replay() -> Delivery:
            outbox.replay(delivery)
            return delivery

        return self.send(replay)


def _refusing(do: Callable[[], Any]) -> Any:
    """Run `do`; turn errors that the caller or operator must fix into a 400 or 409 response."""
    try:
        return do()
    except AddressRefused as error:
        raise serializers.ValidationError({"url": [str(error)]}) from None
    except EncryptionError as error:
        raise Conflict(f"The server cannot store a secret. {error}") from None
    except (webhook_endpoints.TooManyEndpoints, outbox.DeliveryPending, outbox.Disabled) as error:
        raise Conflict(str(error)) from None
