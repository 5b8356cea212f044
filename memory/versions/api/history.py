"""Differences between two points in time, and rollback to an earlier version."""

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.admission import slots
from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.serializers import StrictSerializer, numbers, strings, validated
from memory.kernel.http.stored import RecordNameSerializer, TypedRecordField
from memory.kernel.http.user_scope import UserScopedView
from memory.log.models.entries import By
from memory.versions import differences, past_states, rollback
from memory.versions.api.checkpoints import CheckpointDetailSerializer
from memory.versions.api.moments import BY, MOMENT, AsOfSerializer, read_by, read_state_as_of
from memory.versions.models.checkpoints import Checkpoint
from sandbox_image.uac import Severity

MAX_REASON = 500


class RecordChangeSerializer(serializers.Serializer[Any]):
    """A change to one record, with the numbers of the entries that caused it."""

    domain = serializers.CharField(source="record.domain")
    collection = serializers.CharField(source="record.collection")
    key = serializers.CharField(source="record.key")
    before = TypedRecordField(
        allow_null=True,
        help_text="The record before the change, in typed JSON; null if it did not exist.",
    )
    after = TypedRecordField(
        allow_null=True,
        help_text="The record after the change, in typed JSON; null if it was retired.",
    )
    entries = numbers()


class DifferenceSerializer(serializers.Serializer[Any]):
    """The changes between two points in time."""

    since = AsOfSerializer()
    until = AsOfSerializer(allow_null=True, help_text="Null means now.")
    added = RecordChangeSerializer(many=True)
    changed = RecordChangeSerializer(many=True)
    retired = RecordChangeSerializer(many=True)
    files = strings("The paths of schemas, constraints and tests that differ.")


class Difference(UserScopedView):
    """The changes between two points in time."""

    @operations.read(
        responses=DifferenceSerializer,
        parameters=[
            OpenApiParameter(
                "since",
                MOMENT,
                required=True,
                description="The earlier point in time; accepts the same values as `as_of`"
                " elsewhere, but a day means its start, so that its own changes are included.",
            ),
            OpenApiParameter(
                "until",
                MOMENT,
                description="The later point in time; accepts the same values as `as_of`"
                " elsewhere (a day means its end). Default: now.",
            ),
            BY,
        ],
    )
    def get(self, request: Request, user_id: str) -> Response:
        """Return the added, changed and retired records, with the entries behind each change."""
        user = self.memory_user()
        params = request.query_params
        if "since" not in params:
            raise serializers.ValidationError(
                {"since": [f"This parameter is required. {past_states.FORMS}"]}
            )
        by = read_by(params)
        since = read_state_as_of(user, params["since"], "since", by, at_start=True)
        if "until" in params or by == By.OCCURRED:
            until = read_state_as_of(user, params.get("until"), "until", by)
        else:
            until = past_states.now(user)
        with slots.COMPUTING.hold(user.workspace_id):
            diff = differences.difference(since.checkpoint, until.checkpoint)
            answer = {
                "since": since.to_json(),
                "until": until.to_json(),
                "added": diff.added,
                "changed": diff.changed,
                "retired": diff.retired,
                "files": diff.files,
            }
            return Response(DifferenceSerializer(answer).data)


class RestoreSerializer(StrictSerializer):
    """The reason for a rollback, and what happens to the entries that later versions settled."""

    reason = serializers.CharField(default="", allow_blank=True, max_length=MAX_REASON)
    reopen = serializers.BooleanField(
        default=True,
        help_text="True: the entries that later versions settled become pending and are processed"
        " again; false: they are dismissed.",
    )


class ResolvingAlertSerializer(serializers.Serializer[Any]):
    """An alert that a rollback will or may resolve."""

    id = serializers.UUIDField()
    severity = serializers.ChoiceField([severity.value for severity in Severity])
    message = serializers.CharField()
    constraint = serializers.CharField(help_text="Path of the constraint's source.")


class ExcludedSerializer(serializers.Serializer[Any]):
    """Everything that a rollback to a version would exclude."""

    records = RecordNameSerializer(
        many=True, help_text="Records that this version does not contain."
    )
    alerts = ResolvingAlertSerializer(
        many=True,
        help_text="Live alerts that will resolve, because they are based on these records or come"
        " from a constraint that this version does not have.",
    )
    may_resolve = ResolvingAlertSerializer(
        many=True,
        help_text="Live alerts that may resolve, because they are based on records that have"
        " different values in this version. Further alerts may resolve when the constraints run on"
        " the restored version.",
    )
    entries = numbers(
        "The numbers of the entries that later versions settled, which will become pending again or"
        " be dismissed."
    )


class Restore(UserScopedView):
    """Roll back to an earlier version."""

    costly = ("post",)

    @operations.read(operation_id="users_checkpoints_restore_preview", responses=ExcludedSerializer)
    def get(self, request: Request, user_id: str, version: int) -> Response:
        """Return what a rollback to the version would exclude, without changing anything."""
        user = self.memory_user()
        with slots.COMPUTING.hold(user.workspace_id):
            excluded = rollback.excluded_by_restoring(user, version)
            return Response(ExcludedSerializer(excluded).data)

    @operations.write({201: CheckpointDetailSerializer}, request=RestoreSerializer)
    def post(self, request: Request, user_id: str, version: int) -> Response:
        """Restore the content of the version as a new version; the log stays unchanged."""
        given = validated(RestoreSerializer, request.data)
        user = self.memory_user()

        def restore() -> Checkpoint:
            return rollback.restore(user, version, by=str(principal_of(request)), **given)

        checkpoint = self.once(restore)
        location = reverse("checkpoint-detail", args=[user_id, checkpoint.version])
        return operations.created(CheckpointDetailSerializer(checkpoint).data, location)
