"""`/v1/runs/`: runs of all kinds, and the queries that start runs."""

import datetime
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import django_filters
import structlog
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse
from rest_framework import generics, mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import ProblemSerializer, Unavailable, as_conflict
from memory.kernel.http.filters import StrictView
from memory.kernel.http.idempotency import IdempotentView
from memory.kernel.http.problems import CONTENT_TYPE, problem
from memory.kernel.http.serializers import (
    MomentField,
    StrictSerializer,
)
from memory.kernel.http.stored import (
    AnyObjectField,
    RunErrorField,
    TimingsField,
    VerdictField,
    WarningField,
)
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.versions import past_states, runs
from memory.versions.api.moments import ByField, instant_of, read_state
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus
from memory.versions.past_states import KnownState

QUERY_WAIT_SECONDS = 10.0


class VersionField(serializers.IntegerField):
    """The number of the version that a run is about; null if it is about none."""

    def __init__(self) -> None:
        super().__init__(source="checkpoint.version", default=None, allow_null=True)


class RunSerializer(serializers.ModelSerializer[Run]):
    """A run in its current state."""

    user_id = serializers.CharField(source="user.user_id")
    checkpoint = VersionField()

    input = AnyObjectField(help_text="What was requested, depending on `kind`.")
    output = AnyObjectField(
        allow_null=True,
        help_text="The result, depending on `kind`: of a query, `value`, `type` and `evidence`; of"
        " a proposal or an import, `version` and `verdict`.",
    )
    error = RunErrorField()
    timings = TimingsField()
    warning = WarningField(
        "A warning if the run used a sandbox meant for development only; otherwise null."
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


class RunFilter(django_filters.FilterSet):
    """Filters for runs."""

    class Meta:
        model = Run
        fields = ["kind", "status", "outcome"]


class RunSummarySerializer(RunSerializer):
    """A run, as shown in lists: without its input and output."""

    class Meta(RunSerializer.Meta):
        fields = [name for name in RunSerializer.Meta.fields if name not in ("input", "output")]


class UserRuns(UserScopedView, generics.ListAPIView[Run]):
    """List a user's runs, newest first, without their input and output."""

    queryset = Run.objects.none()
    serializer_class = RunSummarySerializer
    filterset_class = RunFilter
    ordering = ["-queued_at", "id"]

    def get_queryset(self) -> QuerySet[Run]:
        """Return the user's runs."""
        rows = Run.objects.filter(user=self.memory_user())
        return defer_large(rows, "user", "checkpoint", keep=["error", "stdout"])


class Runs(StrictView, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Run]):
    """Return the run with the `id` from a 202 response."""

    certain_users = True
    queryset = Run.objects.none()
    serializer_class = RunSerializer
    lookup_url_kwarg = "run_id"
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Run]:
        """Return the runs in the caller's workspace."""
        reach = principal_of(self.request).reach("user")
        rows = Run.objects.filter(reach, user__erased_at=None)
        return defer_large(rows, "user", "checkpoint", keep=Run.LARGE)

    @operations.write({200: RunSerializer}, operation_id="runs_cancel", request=None)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, run_id: str) -> Response:
        """Cancel a query, question, proposal or import; the run has no further effect.

        409 if the run is done, or if the server started it.
        """
        return self.change(lambda run: runs.cancel(run, by=str(principal_of(request))))

    @operations.write(
        {202: RunSerializer, 200: RunSerializer}, operation_id="runs_retry", request=None
    )
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, run_id: str) -> Response:
        """Retry a run that failed permanently (`abandoned`); 409 for any other run."""
        return self.change(runs.retry)

    def change(self, step: Callable[[Run], None]) -> Response:
        """Apply `step` to the run; return a response with the run."""

        def write() -> Run:
            run = self.get_object()
            with as_conflict(runs.NotToBeCancelled, runs.NotToBeRetried):
                step(run)
            return run

        self.once(write)
        run = self.get_object()
        return Response(RunSerializer(run).data) if run.status == RunStatus.DONE else under_way(run)


class MomentSerializer(StrictSerializer):
    """The state to read, and the evaluation time."""

    rules = {"properties": {"as_of": {"format": "moment"}, "at": {"format": "day-or-moment"}}}

    as_of = MomentField(
        required=False,
        help_text="Use what was known as of an entry (its number, such as 120), a version (v7), a"
        " day (2026-03-01: at its end, or now if it is today) or a point in time"
        " (2026-03-01T09:00, interpreted in the user's time zone unless it has a UTC offset).",
    )
    by = ByField()
    at = serializers.CharField(
        required=False,
        max_length=100,
        help_text="The evaluation time for the code: a day (2026-03-01: at its end) or a point"
        " in time, interpreted in the user's time zone unless it has a UTC offset. Default: the"
        " moment of `as_of`, if it is one; otherwise now. Of the records, it leaves out only those"
        " that had lapsed by then.",
    )


class FailedRunSerializer(ProblemSerializer):
    """Problem details for a run that did not succeed, with the run's error and verdict."""

    id = serializers.UUIDField(required=False, help_text="The id of the run.")
    outcome = serializers.ChoiceField(choices=RunOutcome.choices, required=False)
    error = RunErrorField(required=False)
    verdict = VerdictField(
        required=False, allow_null=True, help_text="Null if the run did not reach the gate."
    )


# The documented responses for runs that did not succeed.
FAILURES: Mapping[Any, OpenApiResponse] = {
    (422, CONTENT_TYPE): OpenApiResponse(
        FailedRunSerializer,
        "The code failed, the gate refused the change, or the model did not reach an answer; or the"
        " `Idempotency-Key` was used for a different request.",
    ),
    (503, CONTENT_TYPE): OpenApiResponse(
        FailedRunSerializer, "The server failed or is temporarily unavailable. Try again."
    ),
}


def answer_run(
    view: IdempotentView,
    user: MemoryUser,
    queue: Callable[[], Run],
    answer: type[serializers.Serializer[Any]],
    limit: float,
) -> Response:
    """Queue a run for an idempotent request, wait for the run, and return the response.

    Waits at most `limit` seconds; the response is a 202 if the run is not done by then. `answer`
    is the response for a finished run. A repeated request whose run the server failed queues
    another one, or the same one if it was abandoned: its client was told to try again.
    """
    run = view.once(queue, user, has_failed=may_run_again)
    return answer_with(view, run, answer, limit)


def answer_with(
    view: IdempotentView,
    run: Run,
    answer: type[serializers.Serializer[Any]],
    limit: float,
    **also: object,
) -> Response:
    """Wait for the run of an idempotent request, and return the response, as `answer_run` does.

    `also` is a part of the response for a finished run.
    """
    if view.is_replayed and run.outcome == RunOutcome.ABANDONED:
        with suppress(runs.NotToBeRetried):  # somebody else was faster
            runs.retry(run)
        run.refresh_from_db()
    run = wait_for(run, limit)
    if run.status != RunStatus.DONE:
        return under_way(run)
    return done(run, {**answer(run).data, **also})


def wait_for(run: Run, limit: float) -> Run:
    """Wait up to `limit` seconds for a run; the request's later log lines include the run's id."""
    structlog.contextvars.bind_contextvars(run=str(run.pk))
    return runs.wait_for(run, limit)


def under_way(run: Run) -> Response:
    """Return the 202 response for an unfinished run."""
    return operations.accepted(RunSerializer(run).data, reverse("run-detail", args=[run.pk]))


def known_state(user: MemoryUser, data: Mapping[str, Any]) -> tuple[KnownState, Checkpoint]:
    """Return the requested state and its version; raises Conflict if the state has no version."""
    snapshot = read_state(user, data)
    with as_conflict(past_states.NoState):
        return snapshot, past_states.version_of(snapshot)


def instant_asked(
    user: MemoryUser, data: Mapping[str, Any], state: KnownState
) -> datetime.datetime:
    """Return the evaluation time: the requested one, that of a state as of a moment, or now.

    Raises ValidationError if the requested time is invalid.
    """
    return instant_of(user, data["at"]) if "at" in data else state.moment or timezone.now()


def done(run: Run, body: Mapping[str, Any]) -> Response:
    """Return the response for a finished run.

    `body` is the response content; if the run did not succeed, problem details are added to it.
    """
    code = _status_of(run)
    if code == status.HTTP_200_OK:
        return Response(body)
    is_unavailable = code == status.HTTP_503_SERVICE_UNAVAILABLE
    headers = {"Retry-After": str(Unavailable.wait)} if is_unavailable else {}
    failed = problem(code, _why(run), _problem_of(run) if code == FAILED else "")
    return Response({**body, **failed}, code, headers=headers, content_type=CONTENT_TYPE)


FAILED = status.HTTP_422_UNPROCESSABLE_ENTITY
# Kind of run → the kind of problem if the run itself fails.
_PROBLEMS = {
    RunKind.QUERY: "code-failed",
    RunKind.CONSTRAINT: "code-failed",
    RunKind.ASK: "no-answer",
    RunKind.PROPOSAL: "gate-refused",
    RunKind.IMPORT: "gate-refused",
}


def _problem_of(run: Run) -> str:
    """Return the kind of problem if the run itself failed."""
    if run.kind == RunKind.QUERY and (run.error or {}).get("type") == "NoValueError":
        return "no-value"
    return _PROBLEMS.get(RunKind(run.kind), "")


def _why(run: Run) -> str:
    """Return the reason why a run did not succeed."""
    error = run.error or {}
    if run.outcome == RunOutcome.MODEL_ERROR:
        return str(error["message"])
    where = f" (line {error['line']})" if error.get("line") else ""
    return f"{run.get_outcome_display()}{where}: {error.get('message') or 'see `error`'}"


def _status_of(run: Run) -> int:
    """Return 200 for a run that succeeded, 503 if the server failed, otherwise 422."""
    if run.outcome == RunOutcome.OK:
        return status.HTTP_200_OK
    if _has_server_failed(run):
        return status.HTTP_503_SERVICE_UNAVAILABLE
    return FAILED


def may_run_again(run: Run) -> bool:
    """Return whether a repeated request queues another run, since the server failed this one.

    A run that was closed for a redaction isn't: its input may quote what is being removed. A query
    writes nothing. Nor is an abandoned run, which can be retried itself.
    """
    if run.outcome == RunOutcome.ABANDONED:
        return False
    is_closed = bool(run.error and run.error["type"] == runs.CLOSED)
    return _has_server_failed(run) and (run.kind == RunKind.QUERY or not is_closed)


def _has_server_failed(run: Run) -> bool:
    """Return whether the server failed or closed the run, rather than the run itself failing."""
    return bool(run.error and run.error.get("infrastructure"))
