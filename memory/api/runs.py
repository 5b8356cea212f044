"""`/v1/runs/`: every execution, and the queries that start one."""

import datetime
from collections.abc import Mapping
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory import answers, runs
from memory.api import waiting
from memory.api.authentication import principal_of
from memory.api.errors import Conflict
from memory.api.moments import AsOfSerializer, instant_of, known_of
from memory.api.serializers import StrictSerializer
from memory.api.users import UserScopedView
from memory.history import Known
from memory.models import Checkpoint, MemoryUser, Run
from memory.models.runs import RunKind, RunOutcome, RunStatus, RunTrigger, warning_of

MAX_CODE = 20_000
QUERY_WAIT_SECONDS = 10.0
# A question is answered many times a second: what it needs to know of the user.
ASKED = MemoryUser.objects.select_related("head").only(
    "user_id", "last_seq", "time_zone", "head__version"
)


class RunSerializer(serializers.ModelSerializer[Run]):
    """A run as it is now."""

    user_id = serializers.CharField(source="user.user_id")
    checkpoint = serializers.IntegerField(
        source="checkpoint.version", default=None, allow_null=True
    )

    warning = serializers.SerializerMethodField(
        help_text="What to know of the sandbox that computed it, if anything."
    )

    class Meta:
        model = Run
        fields = [
            "id",
            "user_id",
            "kind",
            "trigger",
            "status",
            "outcome",
            "checkpoint",
            "instant",
            "input",
            "output",
            "error",
            "stdout",
            "runner",
            "warning",
            "timings",
            "memory_bytes",
            "attempts",
            "queued_at",
            "started_at",
            "finished_at",
        ]

    def get_warning(self, run: Run) -> str | None:
        """Warn of a sandbox that is for development."""
        return warning_of(run.runner)


class RunFilter(django_filters.FilterSet):
    """How runs can be narrowed."""

    class Meta:
        model = Run
        fields = ["kind", "status", "outcome"]


class RunSummarySerializer(RunSerializer):
    """A run as the lists show it: without what went in and came out."""

    class Meta(RunSerializer.Meta):
        fields = [name for name in RunSerializer.Meta.fields if name not in ("input", "output")]


def with_version(found: QuerySet[Run]) -> QuerySet[Run]:
    """Join the users and, of the checkpoints, what an answer names."""
    return found.select_related("user", "checkpoint").defer(
        "checkpoint__tree",
        "checkpoint__outline",
        "checkpoint__edits",
        "checkpoint__verdict",
        "user__metadata",
    )


class UserRuns(UserScopedView, generics.ListAPIView[Run]):
    """The runs of one user, newest first, without their input and output."""

    serializer_class = RunSummarySerializer
    filterset_class = RunFilter
    ordering = ["-queued_at", "id"]

    def get_queryset(self) -> QuerySet[Run]:
        """Return the user's runs."""
        if getattr(self, "swagger_fake_view", False):
            return Run.objects.none()
        return with_version(Run.objects.filter(user=self.memory_user())).defer("output", "input")


class OneRun(generics.RetrieveAPIView[Run]):
    """One run, by the id that a `202` named."""

    serializer_class = RunSerializer
    lookup_url_kwarg = "run_id"

    def get_queryset(self) -> QuerySet[Run]:
        """Return the runs of the caller's workspace."""
        if getattr(self, "swagger_fake_view", False):
            return Run.objects.none()
        return with_version(
            Run.objects.filter(user__workspace=principal_of(self.request).workspace)
        )


class MomentSerializer(StrictSerializer):
    """What was known when, and what day it is said to be."""

    as_of = serializers.CharField(
        required=False,
        max_length=100,
        help_text="Ask what was known as of an entry's number (120), a version (v7) or a moment.",
    )
    at = serializers.CharField(
        required=False,
        max_length=100,
        help_text="The day (2026-03-01) or the moment with its offset that the code is told is"
        " now. It filters no records.",
    )


class QuerySerializer(MomentSerializer):
    """Python over the user's state: an expression, or statements whose last is an expression."""

    code = serializers.CharField(max_length=MAX_CODE)


class EvidenceSerializer(serializers.Serializer[Any]):
    """A record on which an answer rests, and the entries on which it rests itself."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    key = serializers.CharField()
    sources = serializers.ListField(child=serializers.IntegerField())

    def get_fields(self) -> dict[str, Any]:
        """Return them with the class, which is no name in Python."""
        return {"class": serializers.CharField(), **super().get_fields()}


class CollectionReadSerializer(serializers.Serializer[Any]):
    """A collection that the code reads."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    count = serializers.IntegerField(help_text="Its records.")


class RestsOnSerializer(serializers.Serializer[Any]):
    """What an answer rests on."""

    scope = serializers.ChoiceField(
        choices=["value", "selected", "read"],
        help_text="The records in the value; those that the code's one comprehension selects; or"
        " all that the code reads.",
    )
    count = serializers.IntegerField(help_text="So many records are meant.")
    records = EvidenceSerializer(many=True, help_text="The first 1000; of those read, 100.")
    collections = CollectionReadSerializer(many=True)


class AnswerSerializer(serializers.Serializer[Any]):
    """The value exactly as computed, in typed JSON, with what it was computed on."""

    id = serializers.UUIDField(help_text="The run.")
    status = serializers.ChoiceField(choices=RunStatus.choices)
    outcome = serializers.ChoiceField(choices=RunOutcome.choices)
    value = serializers.JSONField()
    type = serializers.CharField(help_text="Name of the value's Python type.")
    evidence = RestsOnSerializer(allow_null=True)
    cached = serializers.BooleanField(
        help_text="Whether it was computed for an earlier request: the run."
    )
    stdout = serializers.CharField()
    code = serializers.CharField()
    checkpoint = serializers.IntegerField()
    as_of = AsOfSerializer(allow_null=True, help_text="Null: as of now.")
    instant = serializers.DateTimeField()
    runner = serializers.CharField()
    warning = serializers.CharField(allow_null=True)
    error = serializers.JSONField()
    timings = serializers.JSONField()


class Query(UserScopedView):
    """Ask the state a question in Python."""

    parameters = {"POST": ["wait"]}
    reads_only = True

    @extend_schema(
        request=QuerySerializer,
        responses={
            200: AnswerSerializer,
            202: RunSerializer,
            422: AnswerSerializer,
            503: AnswerSerializer,
        },
        parameters=[waiting.WAIT],
    )
    def post(self, request: Request, user_id: str) -> Response:
        """Run the code on the user's newest version and return the value.

        200 with the value, which may be an earlier one: of one version the same code says the same,
        whenever it asks for no time, and all day if it asks for `today`. 422 with the outcome and
        the error where the code failed or hit a limit; 503 where the server failed; 202 with the
        run where it was not done in time.
        """
        limit = waiting.seconds(request, default=QUERY_WAIT_SECONDS)
        body = QuerySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        user = self.memory_user(None if {"as_of", "at"} & asked.keys() else ASKED)
        known, checkpoint = known_state(user, asked)
        code, instant = asked["code"], instant_asked(user, asked)
        key = answers.key_of(user, code, instant)
        if (run := answers.earlier(checkpoint, key)) is not None:
            same = {"cached": True, "as_of": known.to_json(), "instant": instant}
            return Response({**answer(run), **same})
        run = runs.queue(
            user,
            RunKind.QUERY,
            RunTrigger.API,
            checkpoint=checkpoint,
            instant=instant,
            input={"code": code, "as_of": known.to_json()},
            answer_key=key,
        )
        run = waiting.for_run(run, limit)
        if run.status != RunStatus.DONE:
            return Response(RunSerializer(run).data, status=status.HTTP_202_ACCEPTED)
        return Response(answer(run), status=status_of(run))


def known_state(user: MemoryUser, asked: Mapping[str, Any]) -> tuple[Known, Checkpoint]:
    """Return what was known as of what is `asked`, and its version; Conflict if there is none."""
    known = known_of(user, asked)
    if known.checkpoint is None:
        raise Conflict(
            "This user has no checkpoint yet, so there is no state to ask;"
            " append typed records first, with ?wait= to know when they are in."
            if user.head is None
            else "There was no checkpoint then yet, so there is no state to ask."
        )
    return known, known.checkpoint


def instant_asked(user: MemoryUser, asked: Mapping[str, Any]) -> datetime.datetime:
    """Return the moment that is asked for; ValidationError if it is none."""
    return instant_of(user, asked["at"]) if "at" in asked else timezone.now()


def status_of(run: Run) -> int:
    """Return 200 for a run that succeeded, 503 where the server failed, else 422."""
    if run.outcome == RunOutcome.OK:
        return status.HTTP_200_OK
    if run.error and run.error.get("infrastructure"):
        return status.HTTP_503_SERVICE_UNAVAILABLE
    return status.HTTP_422_UNPROCESSABLE_ENTITY


def answer(run: Run) -> dict[str, Any]:
    """Return a finished query's answer."""
    output = run.output or {}
    return {
        "id": run.pk,
        "status": run.status,
        "outcome": run.outcome,
        "value": output.get("value"),
        "type": output.get("type"),
        "evidence": output.get("evidence"),
        "cached": False,
        "stdout": run.stdout,
        "code": run.input["code"],
        "as_of": run.input.get("as_of"),
        "checkpoint": run.checkpoint.version if run.checkpoint else None,
        "instant": run.instant,
        "runner": run.runner,
        "warning": warning_of(run.runner),
        "error": run.error,
        "timings": run.timings,
    }
