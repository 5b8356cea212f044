"""`/v1/users/{user_id}/ask/`: questions in natural language, answered with a computed value."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations, waiting
from memory.kernel.http.errors import as_conflict
from memory.kernel.http.serializers import strings, validated
from memory.kernel.http.stored import RunErrorField, TimingsField, ValueField
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.settings import language_models
from memory.kernel.settings.language_models import NotConfigured
from memory.recall.api.completing import QuestionDatesSerializer
from memory.recall.api.queries import (
    LAPSED,
    TIES,
    LapsedSerializer,
    RestsOnField,
    SetAsideReadSerializer,
)
from memory.recall.api.turns import TurnsField, input_of, turns_of
from memory.recall.search.question_dates import relative_dates_of
from memory.versions import runs
from memory.versions.api.moments import AsOfSerializer
from memory.versions.api.runs import (
    FAILURES,
    MomentSerializer,
    RunSerializer,
    VersionField,
    answer_run,
    instant_asked,
    known_state,
)
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger

MAX_QUESTION = 4000
# The default wait, which is long because models are slow; UAC_MAX_WAIT_SECONDS caps it.
WAIT_SECONDS = 60.0


class QuestionSerializer(MomentSerializer):
    """A question about the user, in any language that the model understands."""

    question = serializers.CharField(max_length=MAX_QUESTION)
    messages = TurnsField()


class TriedSerializer(serializers.Serializer[Any]):
    """A query that the model wrote."""

    id = serializers.UUIDField(help_text="The id of the run that executed the query.")
    code = serializers.CharField()
    outcome = serializers.ChoiceField(choices=RunOutcome.choices)


class AskedSerializer(serializers.Serializer[Any]):
    """The answer to a question: the value exactly as computed, and the query that computed it."""

    id = serializers.UUIDField(
        source="pk", help_text="The id of the run that answered the question."
    )
    status = serializers.ChoiceField(choices=RunStatus.choices)
    outcome = serializers.ChoiceField(choices=RunOutcome.choices)
    question = serializers.CharField(source="input.question", default=str)
    dates = QuestionDatesSerializer(
        source="input.dates",
        allow_null=True,
        default=None,
        help_text="The period that the question names relative to its day (`yesterday`, `la semana"
        " pasada`), of which the language model is told; null if there is none.",
    )
    known = serializers.BooleanField(
        source="output.known",
        allow_null=True,
        default=None,
        help_text="False: the memory does not contain the answer; see `reason`.",
    )
    reason = serializers.CharField(
        source="output.reason",
        allow_null=True,
        default=None,
        help_text="In the model's words: what is missing, or how the model interpreted an"
        " ambiguous question.",
    )
    value = ValueField(source="output.value", default=None)
    type = serializers.CharField(
        source="output.type",
        allow_null=True,
        default=None,
        help_text="The name of the value's Python type.",
    )
    code = serializers.CharField(source="output.code", allow_null=True, default=None)
    evidence = RestsOnField()
    set_aside = SetAsideReadSerializer(
        many=True,
        source="output.evidence.set_aside",
        default=list,
        help_text="The fields whose values in some records were set aside and that the"
        " code reads: the value does not count these.",
    )
    lapsed = LapsedSerializer(
        many=True, source="output.evidence.lapsed", default=list, help_text=LAPSED
    )
    ties = strings(TIES, source="output.ties", default=list)
    query = serializers.UUIDField(
        source="output.query",
        allow_null=True,
        default=None,
        help_text="The id of the run that computed the value.",
    )
    queries = TriedSerializer(
        many=True,
        source="output.queries",
        default=list,
        help_text="All queries that were run, in order.",
    )
    checkpoint = VersionField()
    as_of = AsOfSerializer(
        source="input.as_of",
        allow_null=True,
        default=None,
        help_text="Null means the current state.",
    )
    instant = serializers.DateTimeField()
    error = RunErrorField()
    timings = TimingsField()


class Ask(UserScopedView):
    """Ask a question about a user in natural language."""

    costly = ("post",)
    reads_only = True

    @operations.write(
        {200: AskedSerializer, 202: RunSerializer, **FAILURES},
        [waiting.WAIT],
        request=QuestionSerializer,
    )
    def post(self, request: Request, user_id: str) -> Response:
        """Have the language model write a query to answer the question; return the query's result.

        200 with the value, or with `known: false` if the memory does not contain the answer; 409 if
        no language model is configured; 422 if the model did not reach an answer; 503 if the model
        or the server failed; 202 with the run if it did not finish in time.
        """
        limit = waiting.seconds(request, default=WAIT_SECONDS)
        data = validated(QuestionSerializer, request.data)
        user = self.memory_user()
        with as_conflict(NotConfigured):
            language_models.connection(user.workspace.chosen_llm)
        snapshot, checkpoint = known_state(user, data)
        instant = instant_asked(user, data, snapshot)

        dates = relative_dates_of(data["question"], user, instant)
        context = {"dates": dates.to_json()} if dates else {}
        context |= input_of(turns_of(data))

        def queue() -> Run:
            return runs.queue(
                user,
                RunKind.ASK,
                RunTrigger.API,
                checkpoint=checkpoint,
                instant=instant,
                input={"question": data["question"], "as_of": snapshot.to_json(), **context},
            )

        return answer_run(self, user, queue, AskedSerializer, limit)
