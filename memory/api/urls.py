"""URLs of the API, version 1."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularJSONAPIView

from memory.api import (
    alerts,
    asking,
    backtests,
    checkpoints,
    constraints,
    context,
    entries,
    forecasts,
    history,
    imports,
    paused,
    projects,
    runs,
    search,
    unknown,
    users,
    webhooks,
    workspace_constraints,
)

USER = "users/<str:user_id>/"
WEBHOOK = "webhooks/<uuid:endpoint_id>/"
CONSTRAINT = "constraints/<str:name>/"
BACKTEST = "backtests/<uuid:backtest_id>/"

urlpatterns = [
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("users/", users.Users.as_view(), name="users"),
    path(USER, users.User.as_view(), name="user"),
    path(f"{USER}entries/", entries.Entries.as_view(), name="entries"),
    path(f"{USER}entries/<int:seq>/", entries.Entry.as_view(), name="entry"),
    path(f"{USER}checkpoints/", checkpoints.Checkpoints.as_view(), name="checkpoints"),
    path(
        f"{USER}checkpoints/<int:version>/",
        checkpoints.OneCheckpoint.as_view(),
        name="checkpoint",
    ),
    path(
        f"{USER}checkpoints/<int:version>/files/<path:path>",
        checkpoints.CheckpointFile.as_view(),
        name="checkpoint-file",
    ),
    path(
        f"{USER}checkpoints/<int:version>/restore/",
        history.Restore.as_view(),
        name="restore",
    ),
    path(f"{USER}diff/", history.Difference.as_view(), name="diff"),
    path(f"{USER}forecast/", forecasts.UserForecast.as_view(), name="forecast"),
    path(f"{USER}import/", imports.Import.as_view(), name="import"),
    path(f"{USER}manifest/", projects.Manifest.as_view(), name="manifest"),
    path(f"{USER}state/", projects.State.as_view(), name="state"),
    path(
        f"{USER}state/<str:domain>/<str:collection>/",
        projects.Collection.as_view(),
        name="collection",
    ),
    path(f"{USER}query/", runs.Query.as_view(), name="query"),
    path(f"{USER}context/", context.Context.as_view(), name="context"),
    path(f"{USER}ask/", asking.Ask.as_view(), name="ask"),
    path(f"{USER}search/", search.Search.as_view(), name="search"),
    path(f"{USER}constraints/", constraints.Constraints.as_view(), name="constraints"),
    path(f"{USER}constraints/<str:name>/", constraints.Constraint.as_view(), name="constraint"),
    path(f"{USER}alerts/", alerts.UserAlertList.as_view(), name="user-alerts"),
    path(f"{USER}backtests/", backtests.UserBacktests.as_view(), name="user-backtests"),
    path(f"{USER}runs/", runs.UserRuns.as_view(), name="user-runs"),
    path("alerts/", alerts.AlertList.as_view(), name="alerts"),
    path("alerts/<uuid:alert_id>/", alerts.OneAlert.as_view(), name="alert"),
    path("alerts/<uuid:alert_id>/acknowledge/", alerts.Acknowledge.as_view(), name="acknowledge"),
    path("alerts/<uuid:alert_id>/resolve/", alerts.Resolve.as_view(), name="resolve"),
    path("alerts/<uuid:alert_id>/snooze/", alerts.Snooze.as_view(), name="snooze"),
    path("alerts/<uuid:alert_id>/reopen/", alerts.Reopen.as_view(), name="reopen"),
    path("alerts/<uuid:alert_id>/feedback/", alerts.Feedback.as_view(), name="feedback"),
    path("paused-constraints/", paused.PausedConstraints.as_view(), name="paused-constraints"),
    path("paused-constraints/<uuid:paused_id>/resume/", paused.Resume.as_view(), name="resume"),
    path("constraint-precision/", paused.Precisions.as_view(), name="constraint-precision"),
    path(
        "constraints/",
        workspace_constraints.WorkspaceConstraints.as_view(),
        name="workspace-constraints",
    ),
    path(
        CONSTRAINT,
        workspace_constraints.OneWorkspaceConstraint.as_view(),
        name="workspace-constraint",
    ),
    path(
        f"{CONSTRAINT}coverage/",
        workspace_constraints.ConstraintCoverage.as_view(),
        name="workspace-constraint-coverage",
    ),
    path(
        f"{CONSTRAINT}versions/",
        workspace_constraints.ConstraintVersions.as_view(),
        name="workspace-constraint-versions",
    ),
    path(
        f"{CONSTRAINT}versions/<int:number>/",
        workspace_constraints.ConstraintVersion.as_view(),
        name="workspace-constraint-version",
    ),
    path(
        f"{CONSTRAINT}versions/<int:number>/approve/",
        workspace_constraints.ApproveVersion.as_view(),
        name="approve-version",
    ),
    path(
        f"{CONSTRAINT}versions/<int:number>/backtests/",
        backtests.VersionBacktests.as_view(),
        name="backtest-version",
    ),
    path("backtests/", backtests.Backtests.as_view(), name="backtests"),
    path(BACKTEST, backtests.OneBacktest.as_view(), name="backtest"),
    path(
        f"{BACKTEST}findings/",
        backtests.BacktestFindings.as_view(),
        name="backtest-findings",
    ),
    path(f"{BACKTEST}cancel/", backtests.CancelBacktest.as_view(), name="cancel-backtest"),
    path(
        "constraint-library/",
        workspace_constraints.ConstraintLibrary.as_view(),
        name="constraint-library",
    ),
    path(
        "constraint-library/<str:name>/",
        workspace_constraints.OneLibraryConstraint.as_view(),
        name="library-constraint",
    ),
    path("runs/<uuid:run_id>/", runs.OneRun.as_view(), name="run"),
    path("webhooks/", webhooks.Endpoints.as_view(), name="webhooks"),
    path(WEBHOOK, webhooks.Endpoint.as_view(), name="webhook"),
    path(f"{WEBHOOK}rotate-secret/", webhooks.RotateSecret.as_view(), name="rotate-secret"),
    path(f"{WEBHOOK}test/", webhooks.SendTest.as_view(), name="test-webhook"),
    path(f"{WEBHOOK}replay/", webhooks.ReplayGivenUp.as_view(), name="replay-given-up"),
    path(f"{WEBHOOK}deliveries/", webhooks.Deliveries.as_view(), name="deliveries"),
    path(
        f"{WEBHOOK}deliveries/<uuid:delivery_id>/",
        webhooks.OneDelivery.as_view(),
        name="delivery",
    ),
    path(
        f"{WEBHOOK}deliveries/<uuid:delivery_id>/replay/",
        webhooks.ReplayDelivery.as_view(),
        name="replay-delivery",
    ),
    re_path("", unknown.Unknown.as_view(), name="unknown"),
]
