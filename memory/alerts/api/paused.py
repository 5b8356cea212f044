"""`/v1/paused-constraints/` and `/v1/constraint-precision/`: paused constraints, and precision."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts import feedback, paused_constraints
from memory.alerts.api.alert_serializers import ReasonSerializer
from memory.alerts.models.alerts import AlertFeedback, PausedConstraint
from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import as_conflict
from memory.kernel.http.filters import StrictView
from memory.kernel.http.pages import PAGE, PageSerializer, page_of
from memory.kernel.http.serializers import validated


class PausedConstraintSerializer(serializers.ModelSerializer[PausedConstraint]):
    """A constraint that is or was paused for a user."""

    user_id = serializers.CharField(source="user.user_id")

    class Meta:
        model = PausedConstraint
        fields = [
            "id",
            "user_id",
            "constraint",
            "reason",
            "paused_at",
            "paused_by",
            "resumed_at",
            "resumed_by",
            "resumed_because",
        ]


class PausedConstraintFilter(django_filters.FilterSet):
    """Filters for paused constraints."""

    user_id = django_filters.CharFilter(field_name="user__user_id")
    # A boolean filter would silently ignore an invalid value.
    resumed = extend_schema_field(  # type: ignore[type-var] # it decorates filters, too
        {
            "type": "string",
            "enum": ["false", "true"],
            "description": "true for constraints that were resumed, false for those that are still"
            " paused.",
        }
    )(
        django_filters.TypedChoiceFilter(
            choices=[("true", "true"), ("false", "false")],
            coerce=lambda text: text == "true",
            field_name="resumed_at",
            lookup_expr="isnull",
            exclude=True,
        )
    )

    class Meta:
        model = PausedConstraint
        fields = ["user_id", "constraint", "resumed"]


class PausedConstraints(
    StrictView, mixins.ListModelMixin, viewsets.GenericViewSet[PausedConstraint]
):
    """List the constraints that were paused for being too noisy, most recently paused first."""

    certain_users = True
    queryset = PausedConstraint.objects.none()
    serializer_class = PausedConstraintSerializer
    lookup_url_kwarg = "paused_id"
    lookup_value_converter = "uuid"
    filterset_class = PausedConstraintFilter
    ordering = ["-paused_at", "id"]

    def get_queryset(self) -> QuerySet[PausedConstraint]:
        """Return the paused constraints in the caller's workspace."""
        reach = principal_of(self.request).reach("user")
        return PausedConstraint.objects.filter(reach, user__erased_at=None).select_related("user")

    @operations.write({200: PausedConstraintSerializer}, request=ReasonSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, paused_id: str) -> Response:
        """Resume the constraint and run it; 409 if it is no longer paused."""
        reason = validated(ReasonSerializer, request.data)["reason"]

        def resume() -> PausedConstraint:
            actor = str(principal_of(request))
            with as_conflict(paused_constraints.NotPaused):
                return paused_constraints.resume(self.get_object(), actor=actor, reason=reason)

        self.once(resume)
        return Response(self.get_serializer(self.get_object()).data)


class JudgedSerializer(serializers.Serializer[Any]):
    """The number of a constraint's alerts judged useful and the number judged wrong."""

    useful = serializers.IntegerField(help_text="How often an alert was judged useful.")
    wrong = serializers.IntegerField(help_text="How often an alert was judged wrong.")
    precision = serializers.FloatField(
        allow_null=True, help_text="useful / (useful + wrong); null without feedback."
    )


class ConstraintPrecisionSerializer(JudgedSerializer):
    """The precision of a constraint."""

    constraint = serializers.CharField(help_text="The constraint's path.")


class ConstraintPrecisionsSerializer(PageSerializer):
    """A page of the constraints that have feedback, with their precision."""

    results = ConstraintPrecisionSerializer(many=True)


class Precisions(StrictView):
    """The precision of each constraint, across all users in the workspace."""

    @operations.read(responses=ConstraintPrecisionsSerializer, parameters=PAGE)
    def get(self, request: Request) -> Response:
        """List the constraints that have feedback, least precise first.

        Feedback on constraints with the same path is added up across users.
        """
        workspace = principal_of(request).workspace
        judged = feedback.count_verdicts(
            AlertFeedback.objects.filter(alert__user__workspace=workspace)
        )
        rows = [
            {"constraint": path, **serialize_precision(precision)}
            for path, precision in judged.items()
        ]
        return Response(page_of(request, rows, lambda row: (row["precision"], row["constraint"])))


def serialize_precision(precision: feedback.Precision) -> dict[str, Any]:
    """Return a precision, and the counts it is computed from, as JSON."""
    return dict(JudgedSerializer(precision).data)
