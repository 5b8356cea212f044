"""URLs of the API, version 1."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularJSONAPIView

from memory.api import (
    alerts,
    checkpoints,
    constraints,
    entries,
    history,
    imports,
    projects,
    runs,
    unknown,
    users,
    webhooks,
)

USER = "users/<str:user_id>/"
WEBHOOK = "webhooks/<uuid:endpoint_id>/"

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
    path(f"{USER}import/", imports.Import.as_view(), name="import"),
    path(f"{USER}manifest/", projects.Manifest.as_view(), name="manifest"),
    path(f"{USER}state/", projects.State.as_view(), name="state"),
    path(
        f"{USER}state/<str:domain>/<str:collection>/",
        projects.Collection.as_view(),
        name="collection",
    ),
    path(f"{USER}query/", runs.Query.as_view(), name="query"),
    path(f"{USER}constraints/", constraints.Constraints.as_view(), name="constraints"),
    path(f"{USER}constraints/<str:name>/", constraints.Constraint.as_view(), name="constraint"),
    path(f"{USER}alerts/", alerts.UserAlertList.as_view(), name="user-alerts"),
    path(f"{USER}runs/", runs.UserRuns.as_view(), name="user-runs"),
    path("alerts/", alerts.AlertList.as_view(), name="alerts"),
    path("alerts/<uuid:alert_id>/", alerts.OneAlert.as_view(), name="alert"),
    path("alerts/<uuid:alert_id>/acknowledge/", alerts.Acknowledge.as_view(), name="acknowledge"),
    path("alerts/<uuid:alert_id>/resolve/", alerts.Resolve.as_view(), name="resolve"),
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
