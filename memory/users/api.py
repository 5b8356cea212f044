"""`/v1/users/`: creating, reading, changing and erasing users."""

from typing import Any

from django.core.exceptions import ValidationError as ModelValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.database.timeouts import retry_deadlocks
from memory.kernel.http import etags, operations
from memory.kernel.http.authentication import NOT_FOR_CERTAIN_USERS, Principal, principal_of
from memory.kernel.http.errors import Conflict
from memory.kernel.http.serializers import ObjectField, StrictSerializer, validated
from memory.kernel.http.stored import AnyObjectField
from memory.kernel.http.unknown import NO_ENDPOINT
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.fields import time_zone_named
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import USER_ID_PATTERN, USER_ID_RULE, MemoryUser, user_id_fault
from memory.kernel.models.workspaces import Scope
from memory.kernel.texts import MAX_REASON
from memory.kernel.users import (
    UserExists,
    change_user,
    create_user,
    find_user,
)
from memory.kernel.workspaces import reaches
from memory.llm import lane_status
from memory.log import copies, entry_log
from memory.privacy import user_erasure
from memory.privacy.api.erasures import ErasureSerializer, ReasonSerializer
from memory.privacy.models import UserErasure


class TimeZoneField(serializers.CharField):
    """The name of an IANA time zone, which is read in any case."""

    def run_validation(self, data: Any = empty) -> str:
        """Return the name as IANA writes it."""
        try:
            return time_zone_named(super().run_validation(data))
        except ModelValidationError as error:
            raise serializers.ValidationError(error.messages) from None


class NewUserSerializer(StrictSerializer):
    """A user to be created."""

    rules = {
        "properties": {
            "user_id": {"pattern": f"^{USER_ID_PATTERN.pattern}$"},
            "time_zone": {"format": "time-zone"},
        }
    }

    user_id = serializers.CharField(
        allow_blank=True,  # validate_user_id states the whole rule in one error
        help_text=f"The user's id in your product. {USER_ID_RULE}; percent-encode it in paths.",
    )
    time_zone = TimeZoneField(
        required=False,
        max_length=64,
        help_text="IANA name, e.g. Europe/Berlin. Default: the workspace's time zone, otherwise"
        " UTC.",
    )
    metadata = ObjectField(default=dict)

    def validate_user_id(self, value: str) -> str:
        """Raise ValidationError for an id that no user may have."""
        if fault := user_id_fault(value):
            raise serializers.ValidationError(fault)
        return value


class UserChangeSerializer(StrictSerializer):
    """A change to a user."""

    rules = {"properties": {"time_zone": {"format": "time-zone"}}}

    time_zone = TimeZoneField(required=False, max_length=64)
    metadata = ObjectField(required=False)


class CoverageSerializer(serializers.Serializer[entry_log.Coverage]):
    """The number of entries in the log, by outcome."""

    total = serializers.IntegerField()
    pending = serializers.IntegerField()
    covered = serializers.IntegerField()
    dismissed = serializers.IntegerField()
    rejected = serializers.IntegerField()


class StandingSerializer(serializers.Serializer[lane_status.LaneStatus]):
    """The state of the language model's work on the user's entries."""

    state = serializers.ChoiceField(choices=lane_status.LaneState.choices)
    waiting = serializers.IntegerField(
        help_text="The number of entries waiting for the language model."
    )
    until = serializers.DateTimeField(
        allow_null=True, help_text="When the work will begin or be retried, if that is known."
    )
    reason = serializers.CharField(
        help_text="Why the work is stopped or, if it is due, how many users are ahead in the queue;"
        " otherwise empty."
    )


class UserSerializer(serializers.ModelSerializer[MemoryUser]):
    """A user, as shown in lists."""

    metadata = AnyObjectField()
    head = serializers.IntegerField(
        source="head.version",
        default=None,
        allow_null=True,
        help_text="The number of the newest accepted version.",
    )

    merged_into = serializers.SerializerMethodField(
        help_text="The user that this one was merged into. A merged user accepts no more entries."
    )

    class Meta:
        model = MemoryUser
        fields = ["user_id", "time_zone", "metadata", "created_at", "head", "merged_into"]

    def get_merged_into(self, user: MemoryUser) -> str | None:
        """Return the user that this one was merged into."""
        return user.merged_into.user_id if user.merged_into else None


class UserDetailSerializer(UserSerializer):
    """A user with the state of the user's log."""

    entries = serializers.SerializerMethodField()
    structure = serializers.SerializerMethodField()

    class Meta(UserSerializer.Meta):
        fields = [*UserSerializer.Meta.fields, "entries", "structure"]

    @extend_schema_field(CoverageSerializer)
    def get_entries(self, user: MemoryUser) -> dict[str, Any]:
        """Return the number of log entries by outcome."""
        return dict(CoverageSerializer(entry_log.coverage(user)).data)

    @extend_schema_field(StandingSerializer)
    def get_structure(self, user: MemoryUser) -> dict[str, Any]:
        """Return the state of the language model's work and, if the work is stopped, why."""
        return dict(StandingSerializer(lane_status.read_status(user)).data)


class Users(UserScopedView, mixins.ListModelMixin, viewsets.GenericViewSet[MemoryUser]):
    """List the users in the workspace."""

    # Needs `manage` because erased data cannot be restored.
    scopes = {"destroy": Scope.MANAGE}
    queryset = MemoryUser.objects.none()
    serializer_class = UserSerializer
    lookup_url_kwarg = "user_id"
    lookup_value_converter = "user"
    ordering = ["user_id"]

    def check_permissions(self, request: Request) -> None:
        """Raise Http404 for what is a misspelt endpoint of a user rather than an id with a slash.

        The server gets a path decoded and cannot tell them apart, except by the users it knows.
        """
        user_id = self.kwargs.get("user_id", "")
        if "/" in user_id and isinstance(request.user, Principal):
            user = find_user(request.user.workspace, user_id)
            if user is None or not reaches(request.user.key, user):
                raise Http404(NO_ENDPOINT)
        super().check_permissions(request)

    def get_queryset(self) -> QuerySet[MemoryUser]:
        """Return the users in the caller's workspace."""
        users = MemoryUser.objects.filter(principal_of(self.request).reach())
        return defer_large(users, "head", "merged_into", keep=MemoryUser.LARGE)

    @operations.write({201: UserDetailSerializer}, request=NewUserSerializer)
    def create(self, request: Request) -> Response:
        """Create a user; 409 if the workspace already has a user with this id."""
        if principal_of(request).key.user_pks is not None:
            raise Http404(NOT_FOR_CERTAIN_USERS)
        given = validated(NewUserSerializer, request.data)

        def create() -> MemoryUser:
            try:
                return create_user(principal_of(request).workspace, **given)
            except ModelValidationError as error:
                raise serializers.ValidationError(error.message_dict) from None
            except UserExists:
                message = f"This workspace already has a user {given['user_id']!r}."
                raise Conflict(message) from None

        user = self.once(create)
        location = reverse("user-detail", args=[user.user_id])
        return operations.created(UserDetailSerializer(user).data, location)

    @operations.read(responses=UserDetailSerializer)
    def retrieve(self, request: Request, user_id: str) -> Response:
        """Return the user with the head version and the number of log entries by outcome."""
        return Response(self._serialize_user())

    def _serialize_user(self) -> dict[str, Any]:
        return dict(UserDetailSerializer(self.memory_user()).data)

    @operations.write(
        {200: UserDetailSerializer, **etags.CHANGED}, [etags.IF_MATCH], request=UserChangeSerializer
    )
    def partial_update(self, request: Request, user_id: str) -> Response:
        """Change the user's time zone or metadata."""
        given = validated(UserChangeSerializer, request.data)
        user = self.memory_user()

        def change() -> MemoryUser:
            with etags.unchanged(request, user, self._serialize_user):
                change_user(user, **given)
            return user

        return Response(UserDetailSerializer(self.once(change)).data)

    @operations.write(
        {202: ErasureSerializer, **etags.CHANGED},
        [
            etags.IF_MATCH,
            OpenApiParameter(
                "reason",
                {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "pattern": r"\S"},
                required=True,
                description="The reason for the erasure, which stays on record: at most 2000"
                " characters, without the user_id.",
            ),
        ],
    )
    def destroy(self, request: Request, user_id: str) -> Response:
        """Erase the user: all stored data about the user is permanently deleted.

        202 with the erasure, which can be read again by its `id`. From then on, the user does not
        exist (404), and the `user_id` can be used again. Requires the scope `manage`.
        """
        reason = validated(ReasonSerializer, request.query_params.dict())["reason"]

        @retry_deadlocks
        def erase() -> UserErasure:
            by = str(principal_of(request))
            user = self.memory_user()
            try:
                with transaction.atomic():
                    copies.lock_families([user.pk])  # same lock order as in an erasure
                    with etags.unchanged(request, user, self._serialize_user):
                        return user_erasure.ask(user, by=by, reason=reason)
            except user_erasure.ErasureRefused as error:
                raise serializers.ValidationError({"reason": [str(error)]}) from None

        row = self.once(erase, nameless=True)
        return operations.accepted(ErasureSerializer(row).data, reverse("erasure", args=[row.pk]))
