"""`/v1/erasures/{id}/`: the progress of a user's erasure and, once it is done, its record."""

from django.db.models import QuerySet
from rest_framework import generics, serializers

from memory.kernel.http.authentication import principal_of
from memory.kernel.http.filters import StrictView
from memory.kernel.http.serializers import StrictSerializer
from memory.kernel.texts import MAX_REASON
from memory.privacy.models import UserErasure

MISSING = "Give the reason as ?reason=…; it stays on record."


class ReasonSerializer(StrictSerializer):
    """The reason for an erasure."""

    reason = serializers.CharField(
        max_length=MAX_REASON,
        error_messages=dict.fromkeys(("required", "blank"), MISSING),
    )


class ErasureSerializer(serializers.ModelSerializer[UserErasure]):
    """An erasure in progress or done; once done, this record is all that remains of the user."""

    state = serializers.SerializerMethodField(
        help_text="under_way: data about the user is no longer returned, but not all of it is"
        " deleted yet; done: all of it is deleted."
    )
    user = serializers.UUIDField(
        source="user.public_id",
        help_text="The id that identifies the erased user, even in backups.",
    )
    entries = serializers.IntegerField(
        source="user.last_seq",
        help_text="The number of entries in the user's log; their content is deleted.",
    )
    last_hash = serializers.SerializerMethodField(
        help_text="The hash of the log's newest entry, which the log can be verified against."
    )
    counts = serializers.DictField(
        child=serializers.IntegerField(), help_text="Kind → number of rows erased so far."
    )

    class Meta:
        model = UserErasure
        fields = [
            *("id", "state", "user", "by", "reason", "created_at", "finished_at"),
            *("entries", "last_hash", "counts"),
        ]

    def get_state(self, row: UserErasure) -> str:
        """Return the state of the erasure."""
        return "done" if row.due_at is None else "under_way"

    def get_last_hash(self, row: UserErasure) -> str:
        """Return the newest entry's hash in hexadecimal."""
        return bytes(row.user.last_hash).hex()


class OneErasure(StrictView, generics.RetrieveAPIView[UserErasure]):
    """Return the erasure with the `id` from the 202 response."""

    certain_users = True
    queryset = UserErasure.objects.none()
    serializer_class = ErasureSerializer
    lookup_url_kwarg = "erasure_id"

    def get_queryset(self) -> QuerySet[UserErasure]:
        """Return the erasures in the caller's workspace."""
        reach = principal_of(self.request).reach("user")
        return UserErasure.objects.filter(reach).select_related("user")
