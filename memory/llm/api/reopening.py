"""Reopen entries that were settled incorrectly."""

from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import as_conflict
from memory.kernel.http.serializers import (
    DayEndField,
    DayStartField,
    StrictSerializer,
    numbers,
    validated,
)
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.workspaces import Scope
from memory.llm import reopening
from memory.log.models.entries import Outcome
from memory.versions.api.history import MAX_REASON

MAX_ENTRIES = 1000


class SelectionSerializer(StrictSerializer):
    """Selects the entries to reopen, which meet all conditions; `outcomes` alone is not enough."""

    rules = {
        "if": {"required": ["entries"]},
        "else": {
            "anyOf": [{"required": [name]} for name in ("session_id", "since", "until", "model")]
        },
    }

    entries = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        required=False,
        min_length=1,
        max_length=MAX_ENTRIES,
        help_text="The numbers of the entries to reopen.",
    )
    session_id = serializers.CharField(required=False, max_length=200)
    since = DayStartField(
        required=False,
        help_text="Only entries settled on or after this day, or at or after this time; a time"
        " without a UTC offset is interpreted in the user's time zone.",
    )
    until = DayEndField(
        required=False,
        help_text="Only entries settled up to and including this day, or before this time; a"
        " time without a UTC offset is interpreted in the user's time zone.",
    )
    model = serializers.CharField(
        required=False,
        max_length=220,
        help_text="Only entries settled by this language model, named as in the log of model calls,"
        " such as openai:gpt-5.",
    )
    outcomes = serializers.ListField(
        child=serializers.ChoiceField(Outcome.choices),
        required=False,
        allow_empty=False,
        help_text="Only entries with these outcomes; default: all.",
    )
    reason = serializers.CharField(default="", allow_blank=True, max_length=MAX_REASON)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a body without any condition, which would reopen everything."""
        if not attrs.keys() - {"reason", "outcomes"}:
            message = (
                "Select the entries: give at least one of entries, session_id, since, until or"
                " model."
            )
            raise serializers.ValidationError({"entries": [message]})
        return attrs


class ReopeningSerializer(serializers.Serializer[Any]):
    """The reopened entries."""

    entries = numbers("The numbers of the entries that were reopened and will be processed again.")
    dismissed = numbers(
        "The numbers of the facts that were dismissed because they will be derived again from the"
        " reopened messages."
    )
    version = serializers.IntegerField(
        source="checkpoint.version",
        allow_null=True,
        default=None,
        help_text="The version that records the reopening; null if the project has no version yet."
        " Restoring an earlier version undoes the reopening.",
    )


class Reopen(UserScopedView):
    """Reopen entries in a user's log."""

    scopes = {"post": Scope.MANAGE}
    costly = ("post",)

    @operations.write({200: ReopeningSerializer}, request=SelectionSerializer)
    def post(self, request: Request, user_id: str) -> Response:
        """Make incorrectly settled entries pending again, whatever their outcome.

        Records derived from the entries are kept until they are changed. Typed entries are not
        reopened. Requires the scope `manage`; 409 if no entry matches.
        """
        user = self.memory_user()
        with timezone.override(ZoneInfo(user.time_zone)):
            given = validated(SelectionSerializer, request.data)
        reason = given.pop("reason")

        def reopen() -> dict[str, Any]:
            by = str(principal_of(request))
            selection = reopening.Selection(**given)
            with as_conflict(reopening.NothingToReopen, reopening.TooManyToReopen):
                reopened = reopening.reopen(user, selection, by=by, reason=reason)
            return dict(ReopeningSerializer(reopened).data)

        return Response(self.once(reopen, user))
