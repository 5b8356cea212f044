"""`/v1/users/{user_id}/merge/`: merging an anonymous user into a known one."""

from django.http import Http404
from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.integrations import merging
from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import as_conflict
from memory.kernel.http.serializers import StrictSerializer, validated
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope
from memory.kernel.users import find_user
from memory.kernel.workspaces import reaches
from memory.log.models.merges import Merge


class WhomSerializer(StrictSerializer):
    """The user to be merged into this one."""

    def get_fields(self) -> dict[str, serializers.Field]:  # type: ignore[type-arg]
        """Return the field `from`, which can't be declared because it's a Python keyword."""
        return {"from": serializers.CharField(help_text="The anonymous user's id.")}


class MergeSerializer(serializers.ModelSerializer[Merge]):
    """A merge and its progress."""

    into = serializers.CharField(source="user.user_id")
    state = serializers.SerializerMethodField(
        help_text="under_way: entries are being appended; done: all entries are appended and will"
        " be processed."
    )
    entries = serializers.IntegerField(
        source="last_seq",
        help_text="The number of entries in the merged user's log, including redacted entries.",
    )

    class Meta:
        model = Merge
        fields = [
            *("into", "state", "entries", "copied", "skipped", "left_behind"),
            *("created_at", "finished_at"),
        ]

    def get_fields(self) -> dict[str, serializers.Field]:  # type: ignore[type-arg]
        """Return the fields plus `from`, which can't be declared because it's a Python keyword."""
        return {"from": serializers.CharField(source="merged.user_id"), **super().get_fields()}

    def get_state(self, row: Merge) -> str:
        """Return the state of the merge."""
        return "done" if row.due_at is None else "under_way"


class MergeUser(UserScopedView):
    """Merge an anonymous user into this one."""

    # Needs `manage` because a merge is irreversible.
    scopes = {"post": Scope.MANAGE}
    of_merged = ["post"]

    @operations.read(responses=MergeSerializer)
    def get(self, request: Request, user_id: str) -> Response:
        """Return the progress of merging this user into another."""
        user = self.memory_user()
        row = Merge.objects.filter(merged=user).select_related("user", "merged").first()
        if row is None:
            raise Http404("This user was not merged into another.")
        return Response(MergeSerializer(row).data)

    @operations.write({202: MergeSerializer}, request=WhomSerializer)
    def post(self, request: Request, user_id: str) -> Response:
        """Append another user's log to this user's log, and close the other user.

        202 immediately. From then on, the other user accepts no more entries (409, naming this
        user), and its entries are appended to this log, each exactly once. A repeated request
        returns the progress. docs/merging.md describes what happens to records, facts and alerts.
        Requires the scope `manage`.
        """
        whom = validated(WhomSerializer, request.data)["from"]
        user = self.memory_user()
        merged = self._merged(whom)

        def merge() -> Merge:
            with as_conflict(merging.MergeRefused):
                return merging.merge(user, merged, by=str(principal_of(request)))

        row = self.once(merge)
        return operations.accepted(
            MergeSerializer(row).data, reverse("merge", args=[row.merged.user_id])
        )

    def _merged(self, user_id: str) -> MemoryUser:
        principal = principal_of(self.request)
        user = find_user(principal.workspace, user_id)
        if user is None or not reaches(principal.key, user):
            raise Http404("The user to be merged (`from`) does not exist in this workspace.")
        return user
