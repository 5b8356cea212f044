"""Redaction in the API: deleting the content of entries, and the progress of it."""

from typing import Any

from django.http import Http404
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.serializers import StrictSerializer, validated
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.workspaces import Scope
from memory.kernel.texts import MAX_REASON
from memory.log.api import entries
from memory.log.models.redactions import Redaction
from memory.privacy import previews, redaction
from memory.versions import past_states


class WhySerializer(StrictSerializer):
    """The reason for a redaction."""

    reason = serializers.CharField(default="", allow_blank=True, max_length=MAX_REASON)


class RedactionSerializer(serializers.ModelSerializer[Redaction]):
    """A redaction and its progress."""

    state = serializers.SerializerMethodField(
        help_text="under_way: the entries are empty; the project may still contain content that"
        " was derived from them, which is not returned. done: that content has also been deleted."
    )

    class Meta:
        model = Redaction
        fields = [
            "seq",
            "asked",
            "entries",
            "by",
            "reason",
            "created_at",
            "state",
            "finished_at",
            "version",
            "records",
            "constraints",
            "reopened",
        ]

    def get_state(self, row: Redaction) -> str:
        """Return the state of the redaction."""
        return "done" if row.due_at is None else "under_way"


class AffectedRecordSerializer(serializers.Serializer[Any]):
    """A record in the newest version that a redaction would change."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    key = serializers.CharField()
    effect = serializers.ChoiceField(
        choices=["removed", "restored"],
        help_text="restored: to what the record was before the entries.",
    )


class AffectedDocumentSerializer(serializers.Serializer[Any]):
    """A document whose file a redaction would remove."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    is_whole = serializers.BooleanField(
        help_text="Whether nothing of the document would be left. Otherwise its file, which holds"
        " the same text, would be removed; other entries stay."
    )


class AffectedSerializer(serializers.Serializer[Any]):
    """What a redaction would remove from one user's memory, as of now."""

    entries = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="The entry, or its copies or originals, and all entries derived from them, unless"
        " redacted before.",
    )
    sources = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="The entries that these were derived from. They would remain, and may say the"
        " same.",
    )
    records = AffectedRecordSerializer(many=True)
    constraints = serializers.ListField(
        child=serializers.CharField(),
        help_text="The constraints that would be deleted or restored.",
    )
    documents = AffectedDocumentSerializer(many=True)


class AffectedElsewhereSerializer(AffectedSerializer):
    """What a redaction would remove from another user's memory, with which this one was merged."""

    user_id = serializers.CharField()


class RedactionPreviewSerializer(AffectedSerializer):
    """What the redaction of an entry would remove, as of now."""

    elsewhere = AffectedElsewhereSerializer(
        many=True,
        help_text="What it would remove from the memories of users with whom this one was merged"
        " and whom the key may see.",
    )


class Entries(entries.Entries):
    """The entries in a user's log, which can be redacted."""

    # Needs `manage`, because redacted content cannot be restored.
    scopes = {"destroy": Scope.MANAGE}
    of_merged = ["destroy"]

    @operations.write(
        {202: RedactionSerializer},
        [
            OpenApiParameter(
                "reason",
                {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "pattern": r"\S"},
                description="The reason for the redaction, which stays on record; at most 2000"
                " characters.",
            ),
        ],
    )
    def destroy(self, request: Request, user_id: str, seq: int) -> Response:
        """Redact the entry and all entries derived from it, deleting their content.

        202 with the redaction, which is itself an entry in the log (`seq`) and lists all redacted
        entries. Content based on them is removed from the project soon after; until then, requests
        that read the project get 503. A repeated request returns the progress. Requires the scope
        `manage`.
        """
        reason = validated(WhySerializer, request.query_params.dict())["reason"]
        user = self.memory_user()

        def redact() -> Redaction:
            by = str(principal_of(request))
            entry = redaction.redact(user, [seq], by=by, reason=reason)
            return Redaction.objects.get(user=user, seq=entry.seq)

        row = self.once(redact)
        location = reverse("redaction", args=[user_id, row.seq])
        return operations.accepted(RedactionSerializer(row).data, location)


class RedactionPreview(UserScopedView):
    """What the redaction of an entry would remove."""

    scopes = {"get": Scope.MANAGE}
    costly = ("get",)

    @operations.read(responses=RedactionPreviewSerializer)
    def get(self, request: Request, user_id: str, seq: int) -> Response:
        """Return what the redaction of this entry would remove, and change nothing.

        Requires the scope `manage`, as the redaction does.
        """
        within = principal_of(request).reach()
        first, *others = previews.preview(self.memory_user(), [seq], within)
        answer = {**_describe(first), "elsewhere": list(map(_describe, others))}
        return Response(RedactionPreviewSerializer(answer).data)


def _describe(preview: previews.Preview) -> dict[str, Any]:
    past_states.refuse_being_redacted(preview.user)
    records = [{**one._asdict(), "effect": effect} for one, effect in preview.records.items()]
    return {
        "user_id": preview.user.user_id,
        "entries": preview.entries,
        "sources": preview.sources,
        "records": records,
        "constraints": preview.constraints,
        "documents": [
            {"id": one.pk, "name": one.name, "is_whole": is_whole}
            for one, is_whole in preview.documents.items()
        ],
    }


class OneRedaction(UserScopedView):
    """One redaction, identified by the `seq` from the 202 response."""

    @operations.read(responses=RedactionSerializer)
    def get(self, request: Request, user_id: str, seq: int) -> Response:
        """Return the redaction and its progress."""
        row = Redaction.objects.filter(user=self.memory_user(), seq=seq).first()
        if row is None:
            raise Http404(f"Entry {seq} is not a redaction.")
        return Response(RedactionSerializer(row).data)
