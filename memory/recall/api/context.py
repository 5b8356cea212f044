"""`/v1/users/{user_id}/context/`: a user's context for an agent's prompt."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations
from memory.kernel.http.serializers import MomentField, StrictSerializer, numbers, validated
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.users import ASKED
from memory.log.models.entries import Trust
from memory.recall import context
from memory.recall.api.completing import (
    DATES,
    TAKEN_AS,
    QuestionDatesSerializer,
    complete_question,
)
from memory.recall.api.search import MeaningSerializer
from memory.recall.api.turns import TurnsField
from memory.versions.api.moments import AsOfSerializer, read_state

MAX_QUERY = 10_000


class ContextRequestSerializer(StrictSerializer):
    """The message that an agent is about to answer, and the maximum size of the context."""

    rules = {"properties": {"as_of": {"format": "moment"}}}

    query = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=MAX_QUERY,
        help_text="The last message, or the topic. If empty, the context consists of the manifest"
        " and the open alerts only.",
    )
    messages = TurnsField()
    tokens = serializers.IntegerField(
        default=2000,
        min_value=1,
        max_value=context.MAX_TOKENS,
        help_text="The maximum size of the context in tokens, which are estimated from the scripts"
        " of the texts.",
    )
    as_of = MomentField(
        required=False,
        help_text="Use what was known as of an entry (its number, such as 120), a version (v7), a"
        " day (at its end) or a point in time. Alerts are then left out, because they only exist in"
        " their current state.",
    )
    trust = serializers.ListField(
        child=serializers.ChoiceField(choices=Trust.choices),
        default=Trust.values,
        min_length=1,
        max_length=len(Trust),
        help_text="Only records, facts and messages of these classes; a record has the class of the"
        " least trusted of its entries. By default all, and those that the user did not say are"
        " marked.",
    )


class PartSerializer(serializers.Serializer[context.ContextPart]):
    """A part of the context."""

    name = serializers.ChoiceField(
        choices=["manifest", "alerts", "state", "facts", "archive", "timeline"]
    )
    tokens = serializers.IntegerField()
    lines = serializers.IntegerField()
    left_out = serializers.IntegerField(help_text="The number of lines that did not fit.")
    entries = numbers("The numbers of the entries that this part cites.")


class ContextSerializer(serializers.Serializer[context.Context]):
    """The context: one block of text, ready for a prompt."""

    text = serializers.CharField()
    tokens = serializers.IntegerField(help_text="The estimated size of `text` in tokens.")
    stable_characters = serializers.IntegerField(
        help_text="The number of characters at the beginning of `text` that do not depend on the"
        " query, so that a provider can keep them in its prompt cache."
    )
    taken_as = serializers.CharField(
        source="question.taken_as", allow_null=True, help_text=TAKEN_AS
    )
    dates = QuestionDatesSerializer(source="question.dates", allow_null=True, help_text=DATES)
    parts = PartSerializer(many=True)
    entries = numbers("The numbers of all cited entries.")
    lapsed = serializers.IntegerField(
        help_text="How many relevant records and facts are left out because they have lapsed: the"
        " last day on which they hold is over."
    )
    meaning = MeaningSerializer(
        allow_null=True,
        help_text="How the search by meaning contributed, as in a search response; null without a"
        " query.",
    )
    checkpoint = serializers.IntegerField(source="snapshot.version", allow_null=True)
    as_of = AsOfSerializer(
        source="snapshot.to_json", allow_null=True, help_text="Null means the current state."
    )


class Context(UserScopedView):
    """Get what an agent should know about a user before answering."""

    costly = ("post",)
    reads_only = True

    @operations.read(request=ContextRequestSerializer, responses=ContextSerializer)
    def post(self, request: Request, user_id: str) -> Response:
        """Return the manifest, the open alerts, and the records, facts and messages relevant to the
        query, within a token budget; each line cites its entries."""
        data = validated(ContextRequestSerializer, request.data)
        question = complete_question(self.memory_user(ASKED), data)
        snapshot = read_state(self.memory_user(), data)
        trust = [Trust(name) for name in data["trust"]]
        result = context.compose(snapshot, question, data["tokens"], trust)
        return Response(ContextSerializer(result).data)
