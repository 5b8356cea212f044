"""`/v1/backtests/`: the alerts that constraints would have raised in the past."""

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts.models.alerts import Severity
from memory.constraints import backtest_reports, backtests
from memory.constraints.api.workspace_constraints import WorkspaceView
from memory.constraints.models.backtests import Backtest
from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import NamesNothing, as_conflict
from memory.kernel.http.filters import StrictView
from memory.kernel.http.serializers import StrictSerializer, numbers, validated
from memory.kernel.http.stored import EvidenceField
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.large import defer_large
from memory.kernel.models.workspaces import Scope
from memory.log.models.entries import By
from memory.versions.api.moments import ByField

MAX_SOURCE = 64 * 1024
HISTORY = (
    "`recorded`: based on what was known at each point in time. `occurred`: based on what was true"
    " at each point in time according to the typed entries' own times (`occurred_at`), including"
    " history that was loaded later; users with records that do not come from typed entries cannot"
    " be evaluated this way."
)


class NewBacktestSerializer(StrictSerializer):
    """The period that a backtest of a version covers, and the number of users."""

    days = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=backtests.MAX_DAYS,
        default=backtests.DAYS,
        help_text="How many days to look back, but not beyond a user's first version.",
    )
    users = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=backtests.MAX_USERS,
        default=backtests.USERS,
        help_text="The maximum number of users: if the constraint applies to more users, a fixed"
        " sample of this size is selected.",
    )
    by = ByField(default=By.RECORDED, help_text=HISTORY)


class NewOwnBacktestSerializer(StrictSerializer):
    """One of the user's constraints, and how far back the backtest looks."""

    rules = {"properties": {"constraint": {"pattern": r"^constraints/[a-z][a-z0-9_]*\.py$"}}}

    constraint = serializers.CharField(
        max_length=300,
        help_text="The constraint's name in the newest version, such as drug_allergy, or its path.",
    )
    source = serializers.CharField(  # type: ignore[assignment]
        required=False,
        max_length=MAX_SOURCE,
        trim_whitespace=False,
        help_text="Source to run instead of the constraint's own, or as a new constraint. It is not"
        " saved.",
    )
    days = serializers.IntegerField(
        required=False, min_value=1, max_value=backtests.MAX_DAYS, default=backtests.DAYS
    )
    by = ByField(default=By.RECORDED, help_text=HISTORY)


class BacktestSerializer(serializers.ModelSerializer[Backtest]):
    """A backtest and its progress."""

    version = serializers.IntegerField(
        source="version.number",
        default=None,
        allow_null=True,
        help_text="The workspace constraint's version number; null for a user's own constraint.",
    )
    user_id = serializers.CharField(
        source="user.user_id",
        default=None,
        allow_null=True,
        help_text="The user who owns the constraint; null for a workspace constraint.",
    )
    users = serializers.IntegerField(
        source="most_users",
        help_text="The maximum number of users: the sample size if the constraint applies to more"
        " users.",
    )

    class Meta:
        model = Backtest
        fields = [
            *("id", "constraint", "version", "user_id", "days", "users", "by", "until", "state"),
            *("reason", "created_at", "created_by", "started_at", "finished_at"),
        ]


PROBLEMS = ("error", "alert_limit", "redacted", "unknown", "failed")


class BacktestProblemSerializer(serializers.Serializer[Any]):
    """A user for whom the constraint would have failed or been paused, or could not be run."""

    user_id = serializers.CharField()
    kind = serializers.ChoiceField(
        choices=PROBLEMS,
        help_text="`failed`: the constraint could not be evaluated for the user. `unknown`: nothing"
        " is known about the user from `at` onwards.",
    )
    message = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField(
        allow_null=True, help_text="The version of the user's project."
    )


class BacktestSummarySerializer(serializers.Serializer[Any]):
    """A backtest's results so far."""

    conclusion = serializers.CharField(help_text="The progress in one sentence.")
    looked_at = serializers.IntegerField(
        help_text="The number of users checked to see whether the constraint applies to them."
    )
    fits = serializers.IntegerField(
        help_text="The number of users the constraint applies to and is run for."
    )
    done = serializers.IntegerField(
        help_text="The number of users for whom the backtest is finished."
    )
    failed = serializers.IntegerField(
        help_text="The number of users for whom the constraint could not be evaluated."
    )
    fired = serializers.IntegerField(
        help_text="The number of users for whom the constraint would have raised alerts."
    )
    findings = serializers.IntegerField(
        help_text="The number of alerts that the constraint would have raised."
    )
    left_out = serializers.IntegerField(
        help_text="The number of these alerts that are not listed among the findings."
    )
    problems = BacktestProblemSerializer(
        many=True, help_text="The first problems, each with its user."
    )


class BacktestFindingSerializer(serializers.Serializer[Any]):
    """An alert that the constraint would have raised."""

    user_id = serializers.CharField()
    fingerprint = serializers.CharField(
        help_text="Computed the same way as an alert's fingerprint."
    )
    severity = serializers.ChoiceField(
        choices=Severity.choices,
        help_text="The highest severity that the alert would have reached.",
    )
    message = serializers.CharField(help_text="The message the alert would have opened with.")
    evidence = EvidenceField(help_text="The alert's evidence when it would have opened.")
    entries = numbers()
    opened_at = serializers.DateTimeField()
    day = serializers.DateField(
        help_text="The day the alert would have opened, in the user's time zone."
    )
    version = serializers.IntegerField(
        help_text="The version of the user's project that would have caused the alert to open."
    )
    resolved_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When the alert would have been resolved; null if it would still be open at the"
        " end.",
    )


class BacktestDetailSerializer(BacktestSerializer):
    """A backtest with its report."""

    summary = serializers.SerializerMethodField()
    findings = serializers.SerializerMethodField(
        help_text="The alerts that the constraint would have raised, in chronological order: up to"
        f" {backtests.MAX_FINDINGS_OF_USER} of each user and {backtests.MAX_FINDINGS:,} in total."
    )

    class Meta(BacktestSerializer.Meta):
        fields = [*BacktestSerializer.Meta.fields, "summary", "findings"]

    @extend_schema_field(BacktestSummarySerializer)
    def get_summary(self, backtest: Backtest) -> dict[str, Any]:
        """Return a summary of the findings."""
        return dict(BacktestSummarySerializer(backtest_reports.summary(backtest)).data)

    @extend_schema_field(BacktestFindingSerializer(many=True))
    def get_findings(self, backtest: Backtest) -> list[dict[str, Any]]:
        """Return the alerts that the constraint would have raised."""
        return backtest_reports.findings_of(backtest)


@extend_schema_view(
    retrieve=extend_schema(
        description="Return one backtest with its progress, its results and its findings."
    )
)
class Backtests(StrictView, viewsets.ReadOnlyModelViewSet[Backtest]):
    """List the backtests in the workspace, newest first."""

    certain_users = True
    scopes = {"cancel": Scope.MANAGE}
    queryset = Backtest.objects.none()
    lookup_url_kwarg = "backtest_id"
    lookup_value_converter = "uuid"
    ordering = ["-created_at", "id"]

    def get_queryset(self) -> QuerySet[Backtest]:
        """Return the backtests in the caller's workspace."""
        visible = Backtest.objects.filter(principal_of(self.request).reach("user", "workspace"))
        keep = [] if self.action == "list" else ["report"]
        return defer_large(visible, "version", "user", keep=keep)

    def get_serializer_class(self) -> type[BacktestSerializer]:
        """Return the serializer for one backtest, or for a list."""
        return BacktestSerializer if self.action == "list" else BacktestDetailSerializer

    @operations.write({200: BacktestDetailSerializer}, request=None)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, backtest_id: str) -> Response:
        """Cancel the backtest and keep its findings so far; requires the scope `manage`.

        409 if the backtest has already ended.
        """

        def cancel() -> Backtest:
            with as_conflict(backtests.NotGoingOn):
                return backtests.cancel(self.get_object(), by=str(principal_of(request)))

        self.once(cancel)
        return Response(self.get_serializer(self.get_object()).data)


class VersionBacktests(WorkspaceView):
    """Backtests of one workspace constraint version."""

    costly = ("post",)
    scopes = {"post": Scope.MANAGE}

    @operations.write({201: BacktestDetailSerializer}, request=NewBacktestSerializer)
    def post(self, request: Request, name: str, number: int) -> Response:
        """Run the version over the history of the users it applies to.

        The backtest replaces the version's earlier one. 409 if the version has not passed its
        checks. Requires the scope `manage`.
        """
        given = validated(NewBacktestSerializer, request.data)

        def start() -> Backtest:
            with as_conflict(backtests.NotTestable):
                return backtests.start(
                    self.version(number),
                    by=str(principal_of(request)),
                    days=given["days"],
                    most_users=given["users"],
                    times=By(given["by"]),
                )

        return _started(self.once(start))


class UserBacktests(UserScopedView):
    """Backtests of a user's own constraints."""

    costly = ("post",)
    scopes = {"post": Scope.MANAGE}

    @operations.write({201: BacktestDetailSerializer}, request=NewOwnBacktestSerializer)
    def post(self, request: Request, user_id: str) -> Response:
        """Run a constraint in the user's newest version over the user's history.

        With `source`, that source is run instead, so that it can be tested before it is proposed;
        the project is not changed. The backtest replaces the earlier one of this constraint.
        Requires the scope `manage`.
        """
        given = validated(NewOwnBacktestSerializer, request.data)
        user = self.memory_user()

        def start() -> Backtest:
            try:
                return backtests.start_own(
                    user,
                    given["constraint"],
                    by=str(principal_of(request)),
                    days=given["days"],
                    source=given.get("source"),
                    times=By(given["by"]),
                )
            except backtests.NoSuchConstraint as error:
                raise NamesNothing(error.field, str(error)) from None
            except backtests.BadBacktest as error:
                raise serializers.ValidationError({error.field: [str(error)]}) from None

        return _started(self.once(start))


def _started(backtest: Backtest) -> Response:
    """Return the 201 response for a started backtest, with the backtest's URL."""
    location = reverse("backtest-detail", args=[backtest.pk])
    return operations.created(BacktestDetailSerializer(backtest).data, location)
