"""`/v1/constraints/`: workspace constraints, which can apply to any user in the workspace."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Count, OuterRef, Prefetch, QuerySet, Subquery
from django.http import Http404
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts.models.alerts import Alert, AlertState
from memory.constraints import applicability, workspace_constraints
from memory.constraints.api.workspace_constraint_serializers import (
    ConstraintChangeSerializer,
    ConstraintCoverageSerializer,
    NewVersionSerializer,
    NewWorkspaceConstraintSerializer,
    VersionDetailSerializer,
    WorkspaceConstraintDetailSerializer,
    WorkspaceConstraintSerializer,
)
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.http import etags, operations, waiting
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import Conflict, ProblemSerializer, as_conflict
from memory.kernel.http.filters import StrictView
from memory.kernel.http.problems import CONTENT_TYPE
from memory.kernel.http.serializers import validated
from memory.kernel.models.large import defer_large
from memory.kernel.models.workspaces import Scope
from memory.project.shapes import ShapeError

# Default wait for a version's checks; a type check and two sandboxes take a few seconds.
JUDGING_WAIT_SECONDS = 20.0
CONFLICT: Mapping[Any, OpenApiResponse] = {
    (409, CONTENT_TYPE): OpenApiResponse(
        ProblemSerializer, "The request conflicts with the current state."
    )
}


class WorkspaceView(StrictView):
    """Base class for views of the caller's workspace."""

    def constraint(self) -> WorkspaceConstraint:
        """Return the constraint in the URL; raises Http404 if it does not exist."""
        name = self.kwargs["name"]
        constraint = next(iter(constraints_of(self.request).filter(name=name)), None)
        if constraint is None:
            raise Http404(f"This workspace has no constraint {name!r}.")
        return constraint

    def version(self, number: int) -> WorkspaceConstraintVersion:
        """Return this version of the constraint in the URL; raises Http404 if there is none."""
        constraint = self.constraint()
        version = constraint.versions.filter(number=number).first()
        if version is None:
            raise Http404(f"{constraint.name} has no version {number}.")
        return version


def constraints_of(request: Request) -> QuerySet[WorkspaceConstraint]:
    """Return the constraints in the caller's workspace, with the columns shown in list views."""
    newest = WorkspaceConstraintVersion.objects.filter(constraint=OuterRef("pk"))
    workspace = principal_of(request).workspace
    rows = defer_large(WorkspaceConstraint.objects.filter(workspace=workspace), "live")
    return rows.annotate(newest=Subquery(newest.order_by("-number").values("number")[:1]))


def count_alerts(request: Request, constraints: Collection[WorkspaceConstraint]) -> None:
    """Set `alerts` on each of these constraints to the constraint's number of live alerts."""
    counts = dict(
        Alert.objects.filter(
            user__workspace=principal_of(request).workspace,
            constraint__in=[constraint.path for constraint in constraints],
        )
        .exclude(state=AlertState.RESOLVED)
        .order_by()
        .values_list("constraint")
        .annotate(number=Count("*"))
    )
    for constraint in constraints:
        constraint.alerts = counts.get(constraint.path, 0)  # type: ignore[attr-defined]


class WorkspaceConstraints(
    WorkspaceView, mixins.ListModelMixin, viewsets.GenericViewSet[WorkspaceConstraint]
):
    """List the workspace constraints."""

    costly = ("create",)
    scopes = {"partial_update": Scope.MANAGE}
    queryset = WorkspaceConstraint.objects.none()
    serializer_class = WorkspaceConstraintSerializer
    lookup_field = "name"
    ordering = ["name"]

    def get_queryset(self) -> QuerySet[WorkspaceConstraint]:
        """Return the constraints in the caller's workspace."""
        return constraints_of(self.request)

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return a page of constraints, each with its number of live alerts."""
        page = super().paginate_queryset(queryset)
        count_alerts(self.request, page or [])
        return page

    @operations.write(
        {201: WorkspaceConstraintDetailSerializer},
        [waiting.WAIT],
        request=NewWorkspaceConstraintSerializer,
    )
    def create(self, request: Request) -> Response:
        """Create a constraint with its first version, which is then checked.

        The constraint does not run for any user yet. 409 if the workspace has a different
        constraint with this name; an existing identical constraint is returned.
        """
        limit = waiting.seconds(request, default=JUDGING_WAIT_SECONDS)
        given = validated(NewWorkspaceConstraintSerializer, request.data)
        principal = principal_of(request)

        def write() -> WorkspaceConstraint:
            try:
                return workspace_constraints.create(principal.workspace, **given, by=str(principal))
            except workspace_constraints.BadConstraint as error:
                raise _refused(error) from None
            except workspace_constraints.ConstraintExists:
                constraint = constraints_of(request).get(name=given["name"])
                first = constraint.versions.order_by("number")[0]
                if (first.source, first.tests) != (given["source"], given["tests"]):
                    raise Conflict(
                        f"This workspace already has a constraint {given['name']!r}; write a new"
                        " version of it."
                    ) from None
                return constraint

        constraint = self.once(write)
        _await(constraint.versions.order_by("number")[0], limit)
        location = reverse("workspace-constraint-detail", args=[constraint.name])
        return operations.created(_detail(request, constraint.name), location)

    @operations.read(
        operation_id="constraint_retrieve", responses=WorkspaceConstraintDetailSerializer
    )
    def retrieve(self, request: Request, name: str) -> Response:
        """Return the constraint with its versions."""
        self.constraint()
        return Response(_detail(request, name))

    @operations.write(
        {200: WorkspaceConstraintDetailSerializer, **etags.CHANGED},
        [etags.IF_MATCH],
        request=ConstraintChangeSerializer,
    )
    def partial_update(self, request: Request, name: str) -> Response:
        """Enable or disable the constraint, or change its rollout percentage or description.

        Affected users' alerts are updated soon afterwards, a few users at a time. Requires the
        scope `manage`.
        """
        given = validated(ConstraintChangeSerializer, request.data)
        by, constraint = str(principal_of(request)), self.constraint()

        def change() -> WorkspaceConstraint:
            with etags.unchanged(request, constraint, lambda: _detail(request, name)):
                return workspace_constraints.change(constraint, by=by, **given)

        self.once(change)
        return Response(_detail(request, name))

    @operations.read(
        responses={200: ConstraintCoverageSerializer, **CONFLICT},
        parameters=[
            OpenApiParameter(
                "version",
                {"type": "integer", "minimum": 1, "maximum": 999_999_999},
                description="The version to check. Default: the live version, or the newest if none"
                " is live.",
            ),
            OpenApiParameter(
                "after",
                {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
                description="The `after` value of the previous response, to check the next users.",
            ),
        ],
    )
    @action(detail=True)
    def coverage(self, request: Request, name: str) -> Response:
        """Count the users that the constraint applies to, and the reasons that exclude the others.

        409 if the version declares no shape that can be compared with a project.
        """
        constraint = self.constraint()
        newest: int = constraint.newest  # type: ignore[attr-defined]
        default = constraint.live.number if constraint.live else newest
        version = self.version(_number(request, "version", default))
        try:
            coverage = applicability.coverage(version, after=_number(request, "after", 0))
        except ShapeError as error:
            raise Conflict(f"Version {version.number}: {error}.") from None
        return Response(ConstraintCoverageSerializer(coverage).data)


class ConstraintVersions(WorkspaceView, viewsets.GenericViewSet[WorkspaceConstraintVersion]):
    """The versions of a workspace constraint."""

    costly = ("create",)
    scopes = {"approve": Scope.MANAGE}
    lookup_url_kwarg = "number"
    lookup_value_converter = "int"

    @operations.write({201: VersionDetailSerializer}, [waiting.WAIT], request=NewVersionSerializer)
    def create(self, request: Request, name: str) -> Response:
        """Create the next version, which is then checked; without changes, return the newest."""
        limit = waiting.seconds(request, default=JUDGING_WAIT_SECONDS)
        given = validated(NewVersionSerializer, request.data)
        by = str(principal_of(request))
        constraint = self.constraint()

        def propose() -> WorkspaceConstraintVersion:
            try:
                return workspace_constraints.propose(constraint, by=by, **given)
            except workspace_constraints.BadConstraint as error:
                raise _refused(error) from None

        version = self.once(propose)
        _await(version, limit)
        location = reverse("constraint-version-detail", args=[name, version.number])
        return operations.created(VersionDetailSerializer(version).data, location)

    @operations.read(responses=VersionDetailSerializer)
    def retrieve(self, request: Request, name: str, number: int) -> Response:
        """Return the version with its source and each check's findings."""
        return Response(VersionDetailSerializer(self.version(number)).data)

    @operations.write({200: WorkspaceConstraintDetailSerializer}, request=None)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, name: str, number: int) -> Response:
        """Approve a version that passed its checks, which makes it live.

        The version may be older than the live version. 409 if the version has not passed its
        checks, or if there are users with a project but none of the version's backtests has
        finished; a version that was approved before needs no backtest. Requires the scope `manage`.
        """
        by, version = str(principal_of(request)), self.version(number)

        def write() -> WorkspaceConstraint:
            with as_conflict(workspace_constraints.NotApprovable):
                return workspace_constraints.approve(version, by=by)

        self.once(write)
        return Response(_detail(request, name))


def _detail(request: Request, name: str) -> dict[str, Any]:
    versions = defer_large(WorkspaceConstraintVersion.objects.all(), keep=["verdict"])
    constraints = constraints_of(request).prefetch_related(
        Prefetch("versions", versions.order_by("-number"))
    )
    constraint = constraints.get(name=name)
    count_alerts(request, [constraint])
    return dict(WorkspaceConstraintDetailSerializer(constraint).data)


def _await(version: WorkspaceConstraintVersion, limit: float) -> None:
    """Wait up to `limit` seconds for the version to be judged, and refresh the instance."""

    def is_judged() -> bool:
        version.refresh_from_db(fields=["state", "verdict", "judged_at"])
        return version.state != VersionState.CHECKING

    if limit and not is_judged():
        waiting.until(is_judged, limit, workspace_pk=version.constraint.workspace_id)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 2**31):
        raise serializers.ValidationError({name: [f"Give a number, not {text[:100]!r}."]})
    return int(text)


def _refused(error: workspace_constraints.BadConstraint) -> serializers.ValidationError:
    return serializers.ValidationError({error.field: [str(error)]})
