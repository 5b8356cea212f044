"""`/v1/users/{user_id}/constraints/`: the rules of one user's project."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory import checkpoints
from memory.api import idempotency, waiting
from memory.api.checkpoints import DECISIONS, PROPOSAL_WAIT_SECONDS, propose
from memory.api.moments import AS_OF, KnownView
from memory.api.serializers import StrictSerializer
from memory.project import EditError, Outline
from memory.project.names import check_lower_name
from memory.retrieval import outline

MAX_SOURCE = 64 * 1024


class ConstraintSerializer(serializers.Serializer[Any]):
    """A constraint of the newest version."""

    name = serializers.CharField()
    path = serializers.CharField()
    summary = serializers.CharField(help_text="First line of its docstring.")


class ConstraintDetailSerializer(ConstraintSerializer):
    """A constraint with its source and its tests."""

    source = serializers.CharField()  # type: ignore[assignment]
    tests = serializers.CharField()


class NewConstraintSerializer(StrictSerializer):
    """A constraint and the tests that show it speak and be silent."""

    source = serializers.CharField(  # type: ignore[assignment]
        max_length=MAX_SOURCE
    )
    tests = serializers.CharField(max_length=MAX_SOURCE)
    sources = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        default=list,
        help_text="The log entries that it comes from, if any.",
    )


class Constraints(KnownView):
    """The constraints of the newest version, or of an earlier one."""

    parameters = {"GET": ["as_of"]}

    @extend_schema(responses=ConstraintSerializer(many=True), parameters=[AS_OF])
    def get(self, request: Request, user_id: str) -> Response:
        """List the constraints."""
        known = outline(self.known().checkpoint)
        return Response({"results": [_summary(known, name) for name in known.constraints]})


class Constraint(KnownView):
    """One constraint."""

    parameters = {"GET": ["as_of"], "PUT": ["wait"], "DELETE": ["wait"]}

    @extend_schema(responses=ConstraintDetailSerializer, parameters=[AS_OF])
    def get(self, request: Request, user_id: str, name: str) -> Response:
        """Return the constraint with its source and tests."""
        checkpoint = self.known().checkpoint
        known = outline(checkpoint)
        if checkpoint is None or name not in known.constraints:
            raise Http404(f"This user has no constraint {name!r}.")
        path, tests = f"constraints/{name}.py", f"tests/test_{name}.py"
        files = checkpoints.read_files(checkpoint, [path, tests])
        return Response(
            {**_summary(known, name), "source": files[path], "tests": files.get(tests, "")}
        )

    @extend_schema(
        request=NewConstraintSerializer,
        responses=DECISIONS,
        parameters=[waiting.WAIT, idempotency.HEADER],
    )
    def put(self, request: Request, user_id: str, name: str) -> Response:
        """Write the constraint, new or changed; the gate decides, as for any proposed edits."""
        limit = waiting.seconds(request, default=PROPOSAL_WAIT_SECONDS)
        try:
            check_lower_name(name, "constraint")
        except EditError as error:
            raise serializers.ValidationError({"name": [str(error)]}) from None
        body = NewConstraintSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        edit = {
            "op": "write_constraint",
            "name": name,
            "source": body.validated_data["source"],
            "tests_source": body.validated_data["tests"],
            "sources": body.validated_data["sources"],
        }
        return propose(request, self.memory_user(), lambda: [edit], limit)

    @extend_schema(
        responses=DECISIONS,
        parameters=[waiting.WAIT, idempotency.HEADER],
    )
    def delete(self, request: Request, user_id: str, name: str) -> Response:
        """Delete the constraint with its tests; its alerts are resolved."""
        limit = waiting.seconds(request, default=PROPOSAL_WAIT_SECONDS)
        user = self.memory_user()

        def edits() -> list[dict[str, Any]]:
            if name not in outline(user.head).constraints:
                raise Http404(f"This user has no constraint {name!r}.")
            return [{"op": "delete_constraint", "name": name, "sources": []}]

        return propose(request, user, edits, limit)


def _summary(known: Outline, name: str) -> dict[str, str]:
    return {
        "name": name,
        "path": f"constraints/{name}.py",
        "summary": known.constraints[name],
    }
