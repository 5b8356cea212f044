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
from rest_framework import generics, serializers, status
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
from memory.kernel.models.workspaces import Scope
from memory.kernel.outgoing.destinations import AddressRefused


class Managed(StrictView):
    """Base class for views that need the scope `manage`."""

    scopes = dict.fromkeys(("get", "post", "patch", "delete"), Scope.MANAGE)

    def where_the_workspace_is(self) -> AbstractContextManager[None]:
        """Return a context that parses times without a UTC offset in the workspace's time zone."""
        return timezone.override(ZoneInfo(principal_of(self.request).workspace.time_zone))

    def endpoints(self) -> QuerySet[WebhookEndpoint]:
        """Return the endpoints in the caller's workspace."""
        workspace = principal_of(self.request).workspace
        return outbox.counts(WebhookEndpoint.objects.filter(workspace=workspace))

    def endpoint(self) -> WebhookEndpoint:
        """Return the endpoint in the URL; raises Http404 if it does not exist."""
        return get_object_or_404(self.endpoints(), pk=self.kwargs["endpoint_id"])

    def deliveries(self) -> QuerySet[Delivery]:
        """Return the messages for the endpoint in the URL; raises Http404 if it does not exist."""
        return Delivery.objects.filter(endpoint=self.endpoint()).select_related("endpoint")

    def send(self, send: Callable[[], Delivery]) -> Response:
        """Send a message, unless this repeats a request; return a 202 with the message's URL."""
        delivery: Delivery = self.once(lambda: _refusing(send))
        location = reverse("delivery", args=[delivery.endpoint_id, delivery.pk])
        return operations.accepted(DeliverySerializer(delivery).data, location)

    def make_secret(self, make: Callable[[], tuple[WebhookEndpoint, str]]) -> dict[str, Any]:
        """Make an endpoint or a secret, unless this repeats a request; return both as JSON.

        A repeated request returns the same secret, unless the endpoint has a newer one.
        """

        def write() -> list[str]:
            endpoint, secret = _refusing(make)
            return [str(endpoint.pk), sha256(secret)]

        self.kwargs["endpoint_id"], digest = self.once(write)
        endpoint = self.endpoint()
        secret = webhook_endpoints.secret_of(str(endpoint.pk))
        is_same = secret is not None and sha256(secret) == digest
        return {**EndpointSerializer(endpoint).data, "secret": secret if is_same else None}

    def delivery(self) -> Delivery:
        """Return the message in the URL; raises Http404 if it does not exist."""
        return get_object_or_404(self.deliveries(), pk=self.kwargs["delivery_id"])


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


class Endpoints(Managed, generics.ListAPIView[WebhookEndpoint]):
    """List the webhook endpoints in the workspace, oldest first."""

    queryset = WebhookEndpoint.objects.none()
    serializer_class = EndpointSerializer
    ordering = ["created_at", "id"]

    def get_queryset(self) -> QuerySet[WebhookEndpoint]:
        """Return the endpoints in the caller's workspace."""
        return self.endpoints()

    @operations.write({201: EndpointWithSecretSerializer}, request=NewEndpointSerializer)
    def post(self, request: Request) -> Response:
        """Create an endpoint; the response contains its secret, which is shown only once."""
        fields = validated(NewEndpointSerializer, request.data)
        workspace = principal_of(request).workspace
        answer = self.make_secret(lambda: webhook_endpoints.create(workspace, **fields))
        return operations.created(answer, reverse("webhook", args=[answer["id"]]))


class Endpoint(Managed):
    """One webhook endpoint."""

    @operations.read(responses=EndpointSerializer)
    def get(self, request: Request, endpoint_id: str) -> Response:
        """Return the endpoint and its state."""
        return Response(EndpointSerializer(self.endpoint()).data)

    @operations.write(
        {200: EndpointSerializer, **etags.CHANGED},
        [etags.IF_MATCH],
        request=EndpointChangeSerializer,
    )
    def patch(self, request: Request, endpoint_id: str) -> Response:
        """Change the endpoint; when it is re-enabled, it first receives its waiting messages."""
        fields = validated(EndpointChangeSerializer, request.data)

        def change() -> None:
            endpoint = self.endpoint()
            with etags.unchanged(request, endpoint, self._told):
                _refusing(lambda: webhook_endpoints.change(endpoint, **fields))

        self.once(change)
        return Response(self._told())

    @operations.write({204: None, **etags.CHANGED}, [etags.IF_MATCH])
    def delete(self, request: Request, endpoint_id: str) -> Response:
        """Delete the endpoint and all its messages; undelivered messages are lost."""

        def delete() -> None:
            endpoint = self.endpoint()
            together = transaction.atomic() if "If-Match" in request.headers else nullcontext()
            with together:
                webhook_endpoints.hold_events(endpoint)
                with etags.unchanged(request, endpoint, self._told):
                    webhook_endpoints.delete(endpoint)

        self.once(delete)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _told(self) -> dict[str, Any]:
        return dict(EndpointSerializer(self.endpoint()).data)


class RotateSecret(Managed):
    """Rotate the secret of an endpoint."""

    @operations.write({200: EndpointWithSecretSerializer}, request=NothingSerializer)
    def post(self, request: Request, endpoint_id: str) -> Response:
        """Create a new secret, which is shown only once.

        For 24 hours, messages are signed with the previous secret as well.
        """
        validated(NothingSerializer, request.data)
        endpoint = self.endpoint()
        return Response(
            self.make_secret(lambda: (endpoint, webhook_endpoints.rotate_secret(endpoint)))
        )


class SendTest(Managed):
    """Send a test message."""

    @operations.write({202: DeliverySerializer}, request=NothingSerializer)
    def post(self, request: Request, endpoint_id: str) -> Response:
        """Send a message of the type `ping`, once; 409 if the endpoint is disabled."""
        validated(NothingSerializer, request.data)
        endpoint = self.endpoint()
        return self.send(lambda: outbox.send_test(endpoint))


class ReplayGivenUp(Managed):
    """Resend permanently failed messages."""

    @operations.write({202: ReplayResultSerializer}, request=SinceSerializer)
    def post(self, request: Request, endpoint_id: str) -> Response:
        """Resend the permanently failed messages that were created at or after a given time."""
        with self.where_the_workspace_is():
            since = validated(SinceSerializer, request.data)["since"]
        endpoint = self.endpoint()
        replayed = self.once(lambda: outbox.replay_given_up(endpoint, since))
        location = reverse("deliveries", args=[endpoint_id]) + "?state=pending"
        return operations.accepted({"replayed": replayed}, location)


class Deliveries(Managed, generics.ListAPIView[Delivery]):
    """List the messages for an endpoint, newest first."""

    queryset = Delivery.objects.none()
    serializer_class = DeliverySerializer
    filterset_class = DeliveryFilter
    ordering = ["-created_at", "id"]

    def get_queryset(self) -> QuerySet[Delivery]:
        """Return the messages for the endpoint."""
        return self.deliveries().defer("payload")

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Apply the filters, parsing times without a UTC offset in the workspace's time zone."""
        with self.where_the_workspace_is():
            return super().filter_queryset(queryset)


class OneDelivery(Managed):
    """One message for an endpoint."""

    @operations.read(responses=DeliveryDetailSerializer)
    def get(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        """Return the message as it is sent to the endpoint, with every delivery attempt."""
        return Response(DeliveryDetailSerializer(self.delivery()).data)


class ReplayDelivery(Managed):
    """Resend one message."""

    @operations.write({202: DeliverySerializer}, request=NothingSerializer)
    def post(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        """Resend the message with the same id; 409 while it is still being delivered."""
        validated(NothingSerializer, request.data)
        delivery = self.delivery()

        def replay() -> Delivery:
            outbox.replay(delivery)
            return delivery

        return self.send(replay)
