"""`/v1/users/{user_id}/constraints/`: the constraints in one user's project."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import Http404
from drf_spectacular.helpers import forced_singular_serializer
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts import failing_constraints, feedback
from memory.alerts.api.paused import (
    JudgedSerializer,
    PausedConstraintSerializer,
    serialize_precision,
)
from memory.alerts.models.alerts import AlertFeedback, PausedConstraint, Severity
from memory.constraints import applicability, trials
from memory.kernel.http import operations, waiting
from memory.kernel.http.etags import CHANGED, IF_MATCH, require_match
from memory.kernel.http.pages import PAGE, PageSerializer, page_of
from memory.kernel.http.serializers import StrictSerializer, numbers, strings, validated
from memory.kernel.http.stored import EvidenceField, RunErrorField, WarningField
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope
from memory.project import EditError, Outline
from memory.project.edits import MAX_SOURCE
from memory.project.names import check_lower_name
from memory.project.paths import FOLDER, constraint_files, constraint_path
from memory.versions import checkpoints
from memory.versions.api.checkpoints import DECISIONS, PROPOSAL_WAIT_SECONDS, propose
from memory.versions.api.edit_schemas import SEQ
from memory.versions.api.moments import AS_OF, AsOfSerializer, KnownView
from memory.versions.api.runs import (
    FAILURES,
    QUERY_WAIT_SECONDS,
    MomentSerializer,
    RunSerializer,
    VersionField,
    answer_run,
    instant_asked,
    known_state,
)
from memory.versions.checkpoints import AnyState, outline
from memory.versions.models.runs import RunOutcome, RunStatus


def _missing(what: str) -> dict[str, Any]:
    """Return the error messages for a missing or empty field, each followed by `what`."""
    return {
        "required": f"This field is required. {what}",
        "blank": f"This field may not be blank. {what}",
    }


# Error messages for a constraint without source or tests; also used for workspace constraints.
NO_SOURCE = _missing(
    "Give the source in Python: a function named check that yields alerts (see"
    " docs/constraints.md)."
)
NO_TESTS = _missing(
    "Give the tests in Python: functions named test_… that call run_check, one with a state for"
    " which the constraint fires and one with a state for which it does not (see"
    " docs/constraints.md)."
)


class ConstraintFailureSerializer(serializers.Serializer[Any]):
    """A constraint's current failure."""

    since = serializers.DateTimeField()
    message = serializers.CharField(help_text="The error, and how to fix it if that is known.")
    entries = numbers(
        "The numbers of the log entries after which the constraint first failed, if known."
    )


class ConstraintSerializer(serializers.Serializer[Any]):
    """A constraint in the user's project, or a workspace constraint."""

    name = serializers.CharField()
    path = serializers.CharField(
        help_text="Paths of workspace constraints begin with `workspace/`."
    )
    summary = serializers.CharField(help_text="What the constraint watches for, in one line.")
    applies = serializers.BooleanField(help_text="Whether the constraint runs for this user.")
    reasons = strings("Why the constraint does not run for this user; empty if it does.")
    notes = strings("Which of the user's records the constraint leaves out, and why.")
    feedback = JudgedSerializer(help_text="The feedback on the constraint's alerts for this user.")
    paused = PausedConstraintSerializer(
        allow_null=True,
        help_text="When and why the constraint was paused; null if it is not paused.",
    )
    failing = ConstraintFailureSerializer(
        allow_null=True,
        help_text="Null if the constraint is not failing. A failing constraint raises no new alerts"
        " until it is fixed.",
    )


class ConstraintPageSerializer(PageSerializer):
    """A page of constraints."""

    results = ConstraintSerializer(many=True)


class ConstraintDetailSerializer(ConstraintSerializer):
    """A constraint with its source and its tests."""

    source = serializers.CharField()  # type: ignore[assignment]
    tests = serializers.CharField()


class NewConstraintSerializer(StrictSerializer):
    """A constraint, with tests in which it fires and tests in which it does not."""

    rules = {"properties": {"sources": {"items": SEQ}}}

    source = serializers.CharField(  # type: ignore[assignment]
        max_length=MAX_SOURCE, error_messages=NO_SOURCE
    )
    tests = serializers.CharField(max_length=MAX_SOURCE, error_messages=NO_TESTS)
    sources = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        default=list,
        help_text="The numbers of the log entries that the constraint is based on, if any.",
    )


class TriedAlertSerializer(serializers.Serializer[Any]):
    """An alert that the constraint would raise."""

    fingerprint = serializers.CharField(help_text="The fingerprint that the alert would have.")
    severity = serializers.ChoiceField(choices=Severity.choices)
    message = serializers.CharField()
    key = serializers.CharField(allow_null=True)
    evidence = EvidenceField()
    entries = numbers()


class TriedConstraintSerializer(serializers.Serializer[Any]):
    """The findings of a constraint in a given state at a given evaluation time."""

    id = serializers.UUIDField(source="pk", help_text="The id of the run.")
    status = serializers.ChoiceField(choices=RunStatus.choices)
    outcome = serializers.ChoiceField(choices=RunOutcome.choices)
    constraint = serializers.CharField(
        source="input.constraint", default=str, help_text="The constraint's path."
    )
    applies = serializers.BooleanField(
        source="output.applies",
        default=lambda: True,
        help_text="Whether the constraint applies to the state; always true for a user's own"
        " constraint.",
    )
    reasons = strings(
        "Why the constraint does not apply; empty if it does.",
        source="output.reasons",
        default=list,
    )
    alerts = TriedAlertSerializer(many=True, source="output.alerts", default=list)
    checkpoint = VersionField()
    as_of = AsOfSerializer(
        source="input.as_of",
        allow_null=True,
        default=None,
        help_text="Null means the current state.",
    )
    instant = serializers.DateTimeField(help_text="The evaluation time.")
    stdout = serializers.CharField()
    error = RunErrorField()
    warning = WarningField()


class Constraints(KnownView, viewsets.ViewSet):
    """The newest version's constraints and the workspace's, or an earlier version's constraints."""

    scopes = {"run": Scope.READ}
    costly = ("update", "run")
    lookup_url_kwarg = "name"
    lookup_value_converter = "str"

    @operations.read(
        operation_id="users_constraints_list",
        responses=forced_singular_serializer(ConstraintPageSerializer),  # type: ignore[no-untyped-call]
        parameters=[AS_OF, *PAGE],
    )
    def list(self, request: Request, user_id: str) -> Response:
        """List the constraints in the user's project, then the workspace's current constraints."""
        then = self.snapshot()
        state_outline = outline(then.checkpoint)
        judged = _judged(then.user, is_now=then.is_now)
        rows = [_summary(state_outline, name, judged) for name in state_outline.constraints]
        if then.is_now:
            applicabilities = applicability.applicabilities(then.user, state_outline)
            rows += [_summarize_workspace_constraint(one, judged) for one in applicabilities]
        # The user's own constraints come first.
        return Response(
            page_of(request, rows, lambda row: (row["path"].startswith(FOLDER), row["path"]))
        )

    @operations.read(responses=ConstraintDetailSerializer, parameters=[AS_OF])
    def retrieve(self, request: Request, user_id: str, name: str) -> Response:
        """Return the constraint with its source and tests."""
        then = self.snapshot()
        detail = _detail(then.user, then.checkpoint, name, is_now=then.is_now)
        if detail is None:
            raise Http404(f"This user has no constraint {name!r}.")
        return Response(detail)

    @operations.write(
        {**DECISIONS, **CHANGED}, [waiting.WAIT, IF_MATCH], request=NewConstraintSerializer
    )
    def update(self, request: Request, user_id: str, name: str) -> Response:
        """Create or change the constraint; the gate decides, as for all proposed edits.

        With `If-Match`, the gate also refuses to overwrite a concurrent change
        (`changed_meanwhile`).
        """
        limit = waiting.seconds(request, default=PROPOSAL_WAIT_SECONDS)
        try:
            check_lower_name(name, "constraint")
        except EditError as error:
            raise serializers.ValidationError({"name": [str(error)]}) from None
        given = validated(NewConstraintSerializer, request.data)
        edit = {
            "op": "write_constraint",
            "name": name,
            "source": given["source"],
            "tests_source": given["tests"],
            "sources": given["sources"],
        }
        user = self.memory_user()
        return propose(
            self, user, lambda: [edit], limit, expects=lambda: _expected(request, user, name)
        )

    @operations.write({**DECISIONS, **CHANGED}, [waiting.WAIT, IF_MATCH])
    def destroy(self, request: Request, user_id: str, name: str) -> Response:
        """Delete the constraint with its tests; its alerts are resolved."""
        limit = waiting.seconds(request, default=PROPOSAL_WAIT_SECONDS)
        user = self.memory_user()

        def edits() -> list[dict[str, Any]]:
            if name not in outline(user.head).constraints:
                raise Http404(f"This user has no constraint {name!r}.")
            return [{"op": "delete_constraint", "name": name, "sources": []}]

        return propose(self, user, edits, limit, expects=lambda: _expected(request, user, name))

    @operations.write(
        {200: TriedConstraintSerializer, 202: RunSerializer, **FAILURES},
        [waiting.WAIT],
        request=MomentSerializer,
    )
    @action(detail=True, methods=["post"])
    def run(self, request: Request, user_id: str, name: str) -> Response:
        """Run one of the user's or the workspace's live constraints on the current or a past state.

        The constraint is run in its current form, and opens no alerts. `as_of` and `by` select the
        state, by default the current one; `at` is the evaluation time, by default the moment of
        `as_of`, or now. 422 with the error if the constraint failed; 202 with the run if it did not
        finish in time.
        """
        limit = waiting.seconds(request, default=QUERY_WAIT_SECONDS)
        body = validated(MomentSerializer, request.data)
        user = self.memory_user()
        try:
            path, source_hash = trials.constraint_of(user, name)
        except trials.NoSuchConstraint as error:
            raise Http404(str(error)) from None
        state, _ = known_state(user, body)
        instant = instant_asked(user, body, state)
        return answer_run(
            self,
            user,
            lambda: trials.try_constraint(state, path, source_hash, instant),
            TriedConstraintSerializer,
            limit,
        )


def _detail(
    user: MemoryUser, checkpoint: AnyState | None, name: str, *, is_now: bool = True
) -> dict[str, Any] | None:
    """Describe a constraint; return None if the version has no constraint with this name."""
    state_outline = outline(checkpoint)
    if checkpoint is None or name not in state_outline.constraints:
        return None
    path, tests = constraint_files(name)
    files = checkpoints.read_files(checkpoint, [path, tests])
    return {
        **_summary(state_outline, name, _judged(user, is_now=is_now)),
        "source": files[path],
        "tests": files.get(tests, ""),
    }


def _expected(request: Request, user: MemoryUser, name: str) -> dict[str, str]:
    """Return the hashes that the constraint's files must have when the gate judges the change.

    The hashes are keyed by path; the mapping is empty unless `If-Match` contains an ETag. Raises
    Changed if the constraint no longer matches `If-Match`.
    """
    if "If-Match" not in request.headers or not require_match(
        request, _detail(user, user.head, name)
    ):
        return {}
    assert user.head is not None
    return {path: user.head.tree.get(path, "") for path in constraint_files(name)}


@dataclass(frozen=True)
class Judged:
    """The feedback on a user's constraints, their pauses and their failures, each keyed by path."""

    verdicts: Mapping[str, feedback.Precision]
    paused: Mapping[str, PausedConstraint]
    failing: Mapping[str, failing_constraints.Failure]


def _judged(user: MemoryUser, *, is_now: bool) -> Judged:
    """Return the feedback on the user's constraints, their pauses and, if `is_now`, failures."""
    paused = PausedConstraint.objects.filter(user=user, resumed_at=None).select_related("user")
    return Judged(
        feedback.count_verdicts(AlertFeedback.objects.filter(alert__user=user)),
        {row.constraint: row for row in paused},
        failing_constraints.find_failures(user) if is_now else {},
    )


def _summary(state_outline: Outline, name: str, judged: Judged) -> dict[str, Any]:
    path = constraint_path(name)
    return {
        "name": name,
        "path": path,
        "summary": state_outline.constraints[name],
        "applies": True,
        "reasons": [],
        "notes": [],
        **_life(path, judged),
    }


def _summarize_workspace_constraint(
    result: applicability.Applicability, judged: Judged
) -> dict[str, Any]:
    path = result.constraint.path
    return {
        "name": result.constraint.name,
        "path": path,
        "summary": result.constraint.description,
        "applies": result.applies,
        "reasons": list(result.reasons),
        "notes": list(result.match.notes),
        **_life(path, judged, runs=result.applies),
    }


def _life(path: str, judged: Judged, *, runs: bool = True) -> dict[str, Any]:
    pause = judged.paused.get(path)
    failure = failing_constraints.failure_of(path, judged.failing) if runs else None
    return {
        "feedback": serialize_precision(judged.verdicts.get(path, feedback.UNJUDGED)),
        "paused": PausedConstraintSerializer(pause).data if pause else None,
        "failing": ConstraintFailureSerializer(failure).data if failure else None,
    }
