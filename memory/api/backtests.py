"""`/v1/backtests/`: the alerts that constraints would have raised in the past."""

from collections.abc import Callable
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import generics, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api import idempotency
from memory.api.authentication import principal_of
from memory.api.errors import Conflict, NamesNothing
from memory.api.filters import refuse_unknown
from memory.api.moments import ByField
from memory.api.serializers import StrictSerializer
from memory.api.users import UserScopedView
from memory.api.workspace_constraints import WorkspaceView
from memory.models import Backtest, BacktestFinding
from memory.models.alerts import Severity
from memory.models.log import By
from memory.models.workspaces import Scope
from memory.temporal import backtest_reports, backtests

MAX_SOURCE = 64 * 1024
HISTORY = (
    "`recorded`: over what was known, as it came in. `occurred`: over what was the case, by the"
    " typed entries' own times, also of history that was loaded today; of users of whom something"
    " else than typed entries has made records, nothing is known then."
)


class NewBacktestSerializer(StrictSerializer):
    """How far a backtest of a version looks back, and on how many users."""

    days = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=backtests.MAX_DAYS,
        default=backtests.DAYS,
        help_text="So far back, but of each user no farther than the first version.",
    )
    users = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=backtests.MAX_USERS,
        default=backtests.USERS,
        help_text="If it fits more users, so many are picked, the same ones each time.",
    )
    by = ByField(default=By.RECORDED, help_text=HISTORY)


class NewOwnBacktestSerializer(StrictSerializer):
    """A constraint of the user's, and how far to look back."""

    constraint = serializers.CharField(
        max_length=300,
        help_text="Its name in the newest version, as `PUT` takes it: drug_allergy; or its path.",
    )
    source = serializers.CharField(  # type: ignore[assignment]
        required=False,
        max_length=MAX_SOURCE,
        trim_whitespace=False,
        help_text="Python that is run as that constraint, new or changed. Nothing is written.",
    )
    days = serializers.IntegerField(
        required=False, min_value=1, max_value=backtests.MAX_DAYS, default=backtests.DAYS
    )
    by = ByField(default=By.RECORDED, help_text=HISTORY)


class BacktestSerializer(serializers.ModelSerializer[Backtest]):
    """A backtest, and how far it got."""

    version = serializers.IntegerField(
        source="version.number", default=None, allow_null=True, help_text="Of the constraint."
    )
    user_id = serializers.CharField(
        source="user.user_id",
        default=None,
        allow_null=True,
        help_text="Whose own constraint it is; null of a workspace's.",
    )
    users = serializers.IntegerField(source="most_users", help_text="If more, so many are picked.")

    class Meta:
        model = Backtest
        fields = [
            *("id", "constraint", "version", "user_id", "days", "users", "by", "until", "state"),
            *("reason", "created_at", "created_by", "started_at", "finished_at"),
        ]


class _ByMonthSerializer(serializers.Serializer[Any]):
    month = serializers.CharField(help_text="2026-03")
    findings = serializers.IntegerField()


class _OnDaySerializer(serializers.Serializer[Any]):
    day = serializers.DateField()
    findings = serializers.IntegerField()


class _OfUserSerializer(serializers.Serializer[Any]):
    user_id = serializers.CharField()
    findings = serializers.IntegerField()


class _BySeveritySerializer(serializers.Serializer[Any]):
    info = serializers.IntegerField()
    warning = serializers.IntegerField()
    critical = serializers.IntegerField()


PROBLEMS = ("error", "alert_limit", "redacted", "unknown", "failed")


class BacktestProblemSerializer(serializers.Serializer[Any]):
    """Where the constraint would have failed or been paused, or could not be followed."""

    user_id = serializers.CharField()
    kind = serializers.ChoiceField(
        choices=PROBLEMS,
        help_text="`failed`: of this user nothing is known. `unknown`: from then on.",
    )
    message = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField(allow_null=True, help_text="Of the user's project.")


class BacktestSummarySerializer(serializers.Serializer[Any]):
    """What a backtest comes to, as far as it got."""

    conclusion = serializers.CharField(help_text="How far it got, in a sentence.")
    looked_at = serializers.IntegerField(help_text="Users held against what it needs.")
    fits = serializers.IntegerField(help_text="Of these, it fits so many, and is run on them.")
    sampled = serializers.BooleanField(help_text="Whether there are users who were not looked at.")
    done = serializers.IntegerField(help_text="Of those whom it fits, so many are done.")
    failed = serializers.IntegerField(help_text="Of these, so many could not be looked at.")
    fired = serializers.IntegerField(help_text="Of these, it would have alerted so many.")
    since = serializers.DateTimeField(allow_null=True, help_text="How far back there was history.")
    findings = serializers.IntegerField(help_text="Alerts that there would have been.")
    left_out = serializers.IntegerField(help_text="More of them, which were not kept.")
    by_severity = _BySeveritySerializer(help_text="Each by the gravest that it had.")
    by_month = _ByMonthSerializer(many=True, help_text="By the month in which they open.")
    busiest = _OnDaySerializer(allow_null=True, help_text="The day on which most of them open.")
    open = serializers.IntegerField(help_text="So many would be open at the end.")
    most = _OfUserSerializer(many=True, help_text="The users with the most.")
    troubled = serializers.IntegerField(help_text="Users with problems.")
    problems = BacktestProblemSerializer(many=True, help_text="The first of them.")


class BacktestDetailSerializer(BacktestSerializer):
    """A backtest with what it comes to."""

    summary = serializers.SerializerMethodField()

    class Meta(BacktestSerializer.Meta):
        fields = [*BacktestSerializer.Meta.fields, "summary"]

    @extend_schema_field(BacktestSummarySerializer)
    def get_summary(self, backtest: Backtest) -> dict[str, Any]:
        """Summarise the findings."""
        return dict(BacktestSummarySerializer(backtest_reports.summary(backtest)).data)


class ChangeOfFindingSerializer(serializers.Serializer[Any]):
    """A change of an alert that there would have been."""

    at = serializers.DateTimeField()
    version = serializers.IntegerField(help_text="Of the user's project.")
    changed = serializers.ListField(child=serializers.CharField())
    severity = serializers.ChoiceField(choices=Severity.choices)


class BacktestFindingSerializer(serializers.ModelSerializer[BacktestFinding]):
    """An alert that there would have been."""

    user_id = serializers.CharField(source="result.user.user_id")
    evidence = serializers.JSONField(help_text="The records that it rested on then.")
    entries = serializers.ListField(child=serializers.IntegerField())
    changes = ChangeOfFindingSerializer(many=True)

    class Meta:
        model = BacktestFinding
        fields = [
            *("id", "user_id", "fingerprint", "severity", "message", "evidence", "entries"),
            *("opened_at", "day", "version", "changes", "resolved_at", "resolved_version"),
        ]


class BacktestFilter(django_filters.FilterSet):
    """The filters of backtests."""

    user_id = django_filters.CharFilter(field_name="user__user_id", help_text="Of the user's own.")

    class Meta:
        model = Backtest
        fields = ["constraint", "state", "user_id"]


class BacktestFindingFilter(django_filters.FilterSet):
    """The filters of a backtest's findings."""

    user_id = django_filters.CharFilter(field_name="result__user__user_id")

    class Meta:
        model = BacktestFinding
        fields = ["user_id", "severity"]


def _visible(view: generics.GenericAPIView[Any]) -> QuerySet[Backtest]:
    if getattr(view, "swagger_fake_view", False):
        return Backtest.objects.none()
    found = Backtest.objects.filter(principal_of(view.request).reach("user", "workspace"))
    return found.select_related("version", "user").defer("version__source", "version__tests")


class Backtests(generics.ListAPIView[Backtest]):
    """The backtests of the workspace, newest first."""

    certain_users = True
    serializer_class = BacktestSerializer
    filterset_class = BacktestFilter
    ordering = ["-created_at", "id"]

    def get_queryset(self) -> QuerySet[Backtest]:
        """Return the backtests of the caller's workspace."""
        return _visible(self)


class OneBacktest(generics.RetrieveAPIView[Backtest]):
    """One backtest: how far it got, and what it comes to."""

    certain_users = True
    serializer_class = BacktestDetailSerializer
    lookup_url_kwarg = "backtest_id"

    def get_queryset(self) -> QuerySet[Backtest]:
        """Return the backtests of the caller's workspace."""
        return _visible(self)


class BacktestFindings(generics.ListAPIView[BacktestFinding]):
    """The alerts that there would have been, by time."""

    certain_users = True
    serializer_class = BacktestFindingSerializer
    filterset_class = BacktestFindingFilter
    ordering = ["opened_at", "id"]

    def get_queryset(self) -> QuerySet[BacktestFinding]:
        """Return the findings of the addressed backtest; raises Http404."""
        if getattr(self, "swagger_fake_view", False):
            return BacktestFinding.objects.none()
        backtest = generics.get_object_or_404(_visible(self), pk=self.kwargs["backtest_id"])
        return backtest_reports.findings_of(backtest)


def _once(request: Request, do: Callable[[], Backtest]) -> idempotency.Written[Backtest]:
    return idempotency.once(
        request,
        do,
        user_of=lambda backtest: backtest.user,
        refer=lambda backtest: str(backtest.pk),
        recall=lambda known: Backtest.objects.get(pk=known.reference),
    )


class _ChangedBacktest(generics.GenericAPIView[Backtest]):
    """An action on one backtest."""

    certain_users = True
    serializer_class = BacktestDetailSerializer
    lookup_url_kwarg = "backtest_id"
    scopes = {"POST": Scope.MANAGE}

    def get_queryset(self) -> QuerySet[Backtest]:
        """Return the backtests of the caller's workspace."""
        return _visible(self)

    def change(self, step: Callable[[Backtest], Backtest]) -> Response:
        """Apply an action, and return the backtest."""
        refuse_unknown(self.request.query_params, ())

        def do() -> Backtest:
            try:
                return step(self.get_object())
            except (backtests.NotGoingOn, backtests.NotGivenUp) as error:
                raise Conflict(str(error)) from None

        written = _once(self.request, do)
        return Response(self.get_serializer(self.get_object()).data, headers=written.headers)


class CancelBacktest(_ChangedBacktest):
    """Cancel a running backtest."""

    @extend_schema(
        request=None,
        responses={200: BacktestDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Cancel it, with a key of the scope `manage`; what it found so far stays.

        409 if it has ended.
        """
        by = str(principal_of(request))
        return self.change(lambda backtest: backtests.cancel(backtest, by=by))


class RetryBacktest(_ChangedBacktest):
    """Retry a backtest that failed permanently."""

    @extend_schema(
        request=None,
        responses={200: BacktestDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Go on with one that was given up because the server failed, with the scope `manage`.

        409 for any other, and where another one goes on in its place.
        """
        return self.change(backtests.retry)


class VersionBacktests(WorkspaceView):
    """The backtests of a version."""

    costly = ("POST",)
    scopes = {"POST": Scope.MANAGE}

    @extend_schema(
        request=NewBacktestSerializer,
        responses={201: BacktestDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        """Run the version over the history of the users whom it fits; with `manage`.

        One of the same numbers that goes on is that one; another one is cancelled. 409 if the
        version has not passed its checks.
        """
        body = NewBacktestSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data

        def start() -> Backtest:
            try:
                return backtests.start(
                    self.version(number),
                    by=str(principal_of(request)),
                    days=given["days"],
                    most_users=given["users"],
                    times=By(given["by"]),
                )
            except backtests.NotTestable as error:
                raise Conflict(str(error)) from None

        return _started(_once(request, start))


class UserBacktests(UserScopedView):
    """Backtests of a user's own constraints."""

    costly = ("POST",)
    scopes = {"POST": Scope.MANAGE}

    @extend_schema(
        request=NewOwnBacktestSerializer,
        responses={201: BacktestDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, user_id: str) -> Response:
        """Run a constraint of the user's newest version over the user's history; with `manage`.

        With `source` it is that text which runs, before it is proposed: nothing is changed.
        """
        body = NewOwnBacktestSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
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

        return _started(_once(request, start))


def _started(written: idempotency.Written[Backtest]) -> Response:
    """Return the 201 of a backtest, with its address."""
    location = reverse("backtest", args=[written.result.pk])
    return Response(
        BacktestDetailSerializer(written.result).data,
        status=status.HTTP_201_CREATED,
        headers={**written.headers, "Location": location},
    )
