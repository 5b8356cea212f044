"""`/v1/users/`: the people remembered."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.core.exceptions import ValidationError as ModelValidationError
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import generics, serializers, status
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from memory import lanes, log
from memory.api import idempotency
from memory.api.authentication import principal_of
from memory.api.errors import Conflict
from memory.api.filters import refuse_unknown
from memory.api.serializers import ObjectField, StrictSerializer
from memory.models import MemoryUser
from memory.models.fields import validate_time_zone
from memory.models.users import USER_ID_PATTERN, USER_ID_RULE
from memory.users import UserExists, change_user, create_user, with_head


class UserScopedView(APIView):
    """A view under `/v1/users/{user_id}/`."""

    # Method → the query parameters that it reads. Those of lists are their filters'.
    parameters: Mapping[str, Collection[str]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse parameters that nobody reads: a misspelt one must not vanish silently."""
        super().initial(request, *args, **kwargs)
        method = str(request.method)
        if method == "GET" and isinstance(self, ListModelMixin):
            return
        refuse_unknown(request.query_params, self.parameters.get(method, ()))

    def memory_user(self, users: QuerySet[MemoryUser] | None = None) -> MemoryUser:
        """Return the addressed user of the caller's workspace; raises Http404.

        `users` says what to read of it; by default all but what is large in its head.
        """
        user_id = self.kwargs["user_id"]
        user = None
        if USER_ID_PATTERN.fullmatch(user_id):
            found = (with_head(MemoryUser.objects.all()) if users is None else users).filter(
                workspace=principal_of(self.request).workspace, user_id=user_id
            )
            user = next(iter(found), None)
        if user is None:
            raise Http404(
                "There is no such user in this workspace; create it with POST /v1/users/."
            )
        return user


class NewUserSerializer(StrictSerializer):
    """A user to be created."""

    user_id = serializers.CharField(
        allow_blank=True,  # what it must be is said in one sentence
        help_text="The workspace's own id: 1 to 128 of A-Z a-z 0-9 . _ : @ | + -",
    )
    time_zone = serializers.CharField(
        required=False,
        max_length=64,
        help_text="IANA name, e.g. Europe/Berlin. Left out, it is the workspace's, else UTC.",
    )
    metadata = ObjectField(default=dict)

    def validate_user_id(self, value: str) -> str:
        """Raise ValidationError for an id that no address could hold."""
        if not USER_ID_PATTERN.fullmatch(value):
            raise serializers.ValidationError(f"{USER_ID_RULE}.")
        return value


class UserChangeSerializer(StrictSerializer):
    """What of a user can be changed."""

    time_zone = serializers.CharField(required=False, max_length=64)
    metadata = ObjectField(required=False)

    def validate_time_zone(self, value: str) -> str:
        """Raise ValidationError for a name that is no time zone."""
        try:
            validate_time_zone(value)
        except ModelValidationError as error:
            raise serializers.ValidationError(error.messages) from None
        return value


class CoverageSerializer(serializers.Serializer[log.Coverage]):
    """How many entries the log has, by what became of them."""

    total = serializers.IntegerField()
    pending = serializers.IntegerField()
    covered = serializers.IntegerField()
    dismissed = serializers.IntegerField()
    rejected = serializers.IntegerField()


class StandingSerializer(serializers.Serializer[lanes.Standing]):
    """How it stands with the language model's work on what was said."""

    state = serializers.ChoiceField(choices=lanes.State.choices)
    waiting = serializers.IntegerField(help_text="Entries that wait for it.")
    until = serializers.DateTimeField(
        allow_null=True, help_text="When work begins, or is tried again, if that is known."
    )
    reason = serializers.CharField(help_text="Why it is stopped; empty if it is not.")


class UserSerializer(serializers.ModelSerializer[MemoryUser]):
    """A user as the lists show it."""

    head = serializers.IntegerField(
        source="head.version", default=None, allow_null=True, help_text="Newest accepted version."
    )

    class Meta:
        model = MemoryUser
        fields = ["user_id", "time_zone", "metadata", "created_at", "head"]


class UserDetailSerializer(UserSerializer):
    """A user with the state of its log."""

    entries = serializers.SerializerMethodField()
    structure = serializers.SerializerMethodField()

    class Meta(UserSerializer.Meta):
        fields = [*UserSerializer.Meta.fields, "entries", "structure"]

    @extend_schema_field(CoverageSerializer)
    def get_entries(self, user: MemoryUser) -> dict[str, Any]:
        """Count the log's entries."""
        return dict(CoverageSerializer(log.coverage(user)).data)

    @extend_schema_field(StandingSerializer)
    def get_structure(self, user: MemoryUser) -> dict[str, Any]:
        """Say whether the language model works on what was said, and if not, why."""
        return dict(StandingSerializer(lanes.standing(user)).data)


class Users(generics.ListAPIView[MemoryUser]):
    """List the workspace's users, or create one."""

    serializer_class = UserSerializer
    ordering = ["user_id"]

    def get_queryset(self) -> QuerySet[MemoryUser]:
        """Return the users of the caller's workspace."""
        if getattr(self, "swagger_fake_view", False):
            return MemoryUser.objects.none()
        return with_head(
            MemoryUser.objects.filter(workspace=principal_of(self.request).workspace)
        ).defer("head__tree", "head__outline")

    @extend_schema(
        request=NewUserSerializer,
        responses={201: UserDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request) -> Response:
        """Create a user; 409 if the workspace has one with this id."""
        body = NewUserSerializer(data=request.data)
        body.is_valid(raise_exception=True)

        def create() -> MemoryUser:
            try:
                return create_user(principal_of(request).workspace, **body.validated_data)
            except ModelValidationError as error:
                raise serializers.ValidationError(error.message_dict) from None
            except UserExists:
                raise Conflict(
                    f"This workspace has a user {body.validated_data['user_id']!r} already."
                ) from None

        written = _once(request, create)
        return Response(
            UserDetailSerializer(written.result).data,
            status=status.HTTP_201_CREATED,
            headers=written.headers,
        )


class User(UserScopedView):
    """One user."""

    @extend_schema(responses=UserDetailSerializer)
    def get(self, request: Request, user_id: str) -> Response:
        """Return the user with its head and the counts of its log."""
        return Response(UserDetailSerializer(self.memory_user()).data)

    @extend_schema(
        request=UserChangeSerializer,
        responses={200: UserDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def patch(self, request: Request, user_id: str) -> Response:
        """Change the time zone or the metadata."""
        body = UserChangeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        user = self.memory_user()

        def change() -> MemoryUser:
            change_user(user, **body.validated_data)
            return user

        written = _once(request, change)
        return Response(UserDetailSerializer(written.result).data, headers=written.headers)


def _once(request: Request, do: Callable[[], MemoryUser]) -> idempotency.Written[MemoryUser]:
    return idempotency.once(request, do, user_of=lambda user: user, recall=lambda known: known.user)
