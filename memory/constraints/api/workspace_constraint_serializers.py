"""Serializers for workspace constraints and their versions."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from memory.constraints import (
    applicability,
    backtest_reports,
    constraint_library,
    workspace_constraints,
)
from memory.constraints.api.constraints import NO_SOURCE, NO_TESTS
from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.http.serializers import LOWER_NAME, StrictSerializer
from memory.kernel.http.stored import VerdictField

MAX_DESCRIPTION = 1000


class VersionSerializer(serializers.ModelSerializer[WorkspaceConstraintVersion]):
    """A version of a workspace constraint; a version never changes and is checked only once."""

    reason = serializers.SerializerMethodField(
        help_text="The first check that failed, if the version was refused; otherwise empty."
    )

    class Meta:
        model = WorkspaceConstraintVersion
        fields = [
            *("number", "state", "reason", "created_at", "created_by"),
            *("judged_at", "approved_at", "approved_by"),
        ]

    def get_reason(self, version: WorkspaceConstraintVersion) -> str:
        """Return the first check that failed, or an empty string if none did."""
        return str((version.verdict or {}).get("reason", ""))


class TestedSerializer(serializers.Serializer[backtest_reports.Tested]):
    """The verdict on whether a version has been backtested enough to be approved."""

    enough = serializers.BooleanField()
    detail = serializers.CharField(help_text="Why the backtest is sufficient, or why not.")
    backtest = serializers.UUIDField(
        source="backtest.pk",
        default=None,
        allow_null=True,
        help_text="The id of the backtest that `detail` is about.",
    )


class VersionDetailSerializer(VersionSerializer):
    """A version with its source and each check's findings."""

    tested = serializers.SerializerMethodField(
        help_text="Whether the version has been backtested enough to be approved."
    )
    tests = serializers.CharField()
    verdict = VerdictField(
        allow_null=True,
        help_text="Every check with its findings; null while the version is being checked.",
    )

    class Meta(VersionSerializer.Meta):
        fields = [*VersionSerializer.Meta.fields, "source", "tests", "verdict", "tested"]

    @extend_schema_field(TestedSerializer)
    def get_tested(self, version: WorkspaceConstraintVersion) -> dict[str, Any]:
        """Return whether the version has been backtested enough."""
        return dict(TestedSerializer(backtest_reports.tested(version)).data)


class WorkspaceConstraintSerializer(serializers.ModelSerializer[WorkspaceConstraint]):
    """A constraint for all users in the workspace whose projects match its shape."""

    path = serializers.CharField(
        help_text="The path that alerts and runs use to refer to the constraint."
    )
    live = serializers.IntegerField(
        source="live.number",
        default=None,
        allow_null=True,
        help_text="The number of the approved version that is live.",
    )
    newest = serializers.IntegerField(help_text="The number of the newest version.")
    alerts = serializers.IntegerField(
        help_text="The number of the constraint's alerts that are not resolved."
    )

    class Meta:
        model = WorkspaceConstraint
        fields = [
            *("name", "path", "description", "enabled", "percentage", "live", "newest"),
            *("alerts", "created_at", "created_by", "changed_at", "changed_by"),
        ]


class WorkspaceConstraintDetailSerializer(WorkspaceConstraintSerializer):
    """A workspace constraint with its versions, newest first."""

    versions = VersionSerializer(many=True)

    class Meta(WorkspaceConstraintSerializer.Meta):
        fields = [*WorkspaceConstraintSerializer.Meta.fields, "versions"]


def _text(**options: Any) -> serializers.CharField:
    return serializers.CharField(max_length=workspace_constraints.MAX_SOURCE, **options)


class NewVersionSerializer(StrictSerializer):
    """A constraint's source, with tests in which it fires and tests in which it does not."""

    rules = {"properties": {name: {"pattern": r"\S"} for name in ("source", "tests")}}

    source = _text(  # type: ignore[assignment]
        help_text="See docs/workspace-constraints.md.", error_messages=NO_SOURCE
    )
    tests = _text(error_messages=NO_TESTS)


class NewWorkspaceConstraintSerializer(StrictSerializer):
    """A workspace constraint to be created, from its source or from the library."""

    rules = {
        "properties": {
            "name": LOWER_NAME,
            "library": {"format": "library-name"},
            **{name: {"pattern": r"\S"} for name in ("source", "tests")},
        },
        "if": {"required": ["library"]},
        "then": {"propertyNames": {"enum": ["library", "description"]}},
        "else": {"required": ["name", "source", "tests"]},
    }

    name = serializers.CharField(
        required=False,
        max_length=100,
        help_text="The constraint's name, a valid Python name; for a library constraint, its name"
        " in the library.",
    )
    description = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=MAX_DESCRIPTION
    )
    library = serializers.CharField(
        required=False,
        max_length=100,
        help_text="The name of a library constraint whose source and tests are used.",
    )
    source = _text(required=False, error_messages=NO_SOURCE)  # type: ignore[assignment]
    tests = _text(required=False, error_messages=NO_TESTS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Take the source and tests from the library if a library constraint is named."""
        if "library" in attrs:
            if extra := sorted({"source", "tests"} & set(attrs)):
                raise serializers.ValidationError(
                    {name: ["Give either this or `library`, not both."] for name in extra}
                )
            try:
                library_constraint = constraint_library.read(attrs.pop("library"))
            except KeyError:
                raise serializers.ValidationError({"library": [describe_library()]}) from None
            if attrs.setdefault("name", library_constraint.name) != library_constraint.name:
                message = (
                    "A library constraint keeps its name, because its tests import it under that"
                    " name."
                )
                raise serializers.ValidationError({"name": [message]})
            return {
                **attrs,
                "source": library_constraint.source,
                "tests": library_constraint.tests,
                "description": attrs["description"] or library_constraint.summary,
            }
        if missing := [name for name in ("name", "source", "tests") if name not in attrs]:
            message = "Give name, source and tests, or `library` for a constraint from the library."
            raise serializers.ValidationError({name: [message] for name in missing})
        return attrs


class ConstraintChangeSerializer(StrictSerializer):
    """A change to a workspace constraint."""

    enabled = serializers.BooleanField(
        required=False, help_text="False means that the constraint runs for no user."
    )
    percentage = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=100,
        help_text="Rollout percentage: the percentage of users for whom the constraint is enabled."
        " Raising it only adds users.",
    )
    description = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_DESCRIPTION
    )


class ConstraintCoverageSerializer(serializers.Serializer[applicability.Coverage]):
    """Of at most 1000 users with a project, the number that a version applies to."""

    users = serializers.IntegerField(help_text="The number of users checked.")
    applies = serializers.IntegerField(help_text="The number of users that the version applies to.")
    within = serializers.IntegerField(
        help_text="The number of users that the version applies to and who are within the rollout"
        " percentage."
    )
    reasons = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Reason why the version does not apply → number of users.",
    )
    after = serializers.IntegerField(
        allow_null=True,
        help_text="The ?after= value that checks the next users; null at the end.",
    )


def describe_library() -> str:
    """Return a sentence that names the constraints in the library."""
    return f"The library has these constraints: {', '.join(constraint_library.names())}."
