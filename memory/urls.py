"""URLs of the API, version 1."""

from collections.abc import Iterator

from django.urls import URLPattern, path, re_path, register_converter
from django.urls.converters import StringConverter

from memory.alerts.api import alert_actions, alerts, paused, webhooks
from memory.constraints.api import (
    backtests,
    constraints,
    forecasts,
    library_constraints,
    workspace_constraints,
)
from memory.export.api import export
from memory.integrations.api import imports, merging
from memory.kernel.http import document, unknown
from memory.kernel.models.users import USER_ID_IN_PATH
from memory.log.api import entries
from memory.privacy.api import erasures
from memory.recall.api import asking, context, projects, queries, search
from memory.users import api
from memory.versions.api import checkpoints, history, reopening, runs


class UserIdConverter(StringConverter):
    """Matches a user's id, which may have slashes: the path arrives decoded."""

    regex = USER_ID_IN_PATH


class LastUserIdConverter(UserIdConverter):
    """Matches a user's id at the end of a path, where a slash is the path's own."""

    regex = rf"{USER_ID_IN_PATH}(?<!/)"


register_converter(UserIdConverter, "user")
register_converter(LastUserIdConverter, "last_user")

USER = "users/<user:user_id>/"
WEBHOOK = "webhooks/<uuid:endpoint_id>/"
CONSTRAINT = "constraints/<str:name>/"
BACKTEST = "backtests/<uuid:backtest_id>/"
ALERT = "alerts/<uuid:alert_id>/"
VERSION = f"{USER}checkpoints/<int:version>/"
DELIVERY = f"{WEBHOOK}deliveries/<uuid:delivery_id>/"
RUN = "runs/<uuid:run_id>/"

ENDPOINTS = [
    path("openapi.json", document.Document.as_view(), name="openapi"),
    path("users/", api.Users.as_view(), name="users"),
    path(USER, api.User.as_view(), name="user"),
    path(f"{USER}entries/", entries.Entries.as_view(), name="entries"),
    path(f"{USER}entries/<int:seq>/", entries.Entry.as_view(), name="entry"),
    path(f"{USER}outcomes/reopen/", reopening.Reopen.as_view(), name="reopen-outcomes"),
    path(f"{USER}redactions/<int:seq>/", entries.OneRedaction.as_view(), name="redaction"),
    path(f"{USER}checkpoints/", checkpoints.Checkpoints.as_view(), name="checkpoints"),
    path(VERSION, checkpoints.OneCheckpoint.as_view(), name="checkpoint"),
    path(
        f"{VERSION}files/<path:path>", checkpoints.CheckpointFile.as_view(), name="checkpoint-file"
    ),
    path(f"{VERSION}restore/", history.Restore.as_view(), name="restore"),
    path(f"{USER}diff/", history.Difference.as_view(), name="diff"),
    path(f"{USER}forecast/", forecasts.UserForecast.as_view(), name="forecast"),
    path(f"{USER}export/", export.Export.as_view(), name="export"),
    path(f"{USER}subject-access/", export.SubjectAccess.as_view(), name="subject-access"),
    path(f"{USER}git/info/refs", export.GitRefs.as_view(), name="git"),
    path(f"{USER}git/git-upload-pack", export.GitUploadPack.as_view(), name="git"),
    path(f"{USER}git/git-receive-pack", export.GitReceivePack.as_view(), name="git"),
    path(f"{USER}import/", imports.Import.as_view(), name="import"),
    path(f"{USER}merge/", merging.MergeUser.as_view(), name="merge"),
    path(f"{USER}manifest/", projects.Manifest.as_view(), name="manifest"),
    path(f"{USER}state/", projects.State.as_view(), name="state"),
    path(
        f"{USER}state/<str:domain>/<str:collection>/",
        projects.Collection.as_view(),
        name="collection",
    ),
    path(f"{USER}query/", queries.Query.as_view(), name="query"),
    path(f"{USER}context/", context.Context.as_view(), name="context"),
    path(f"{USER}ask/", asking.Ask.as_view(), name="ask"),
    path(f"{USER}search/", search.Search.as_view(), name="search"),
    path(f"{USER}constraints/", constraints.Constraints.as_view(), name="constraints"),
    path(f"{USER}constraints/<str:name>/", constraints.Constraint.as_view(), name="constraint"),
    path(
        f"{USER}constraints/<str:name>/run/",
        constraints.RunConstraint.as_view(),
        name="run-constraint",
    ),
    path(f"{USER}alerts/", alerts.UserAlertList.as_view(), name="user-alerts"),
    path(f"{USER}backtests/", backtests.UserBacktests.as_view(), name="user-backtests"),
    path(f"{USER}runs/", runs.UserRuns.as_view(), name="user-runs"),
    path("erasures/<uuid:erasure_id>/", erasures.OneErasure.as_view(), name="erasure"),
    path("alerts/", alerts.AlertList.as_view(), name="alerts"),
    path(ALERT, alerts.OneAlert.as_view(), name="alert"),
    path(f"{ALERT}acknowledge/", alert_actions.Acknowledge.as_view(), name="acknowledge"),
    path(f"{ALERT}resolve/", alert_actions.Resolve.as_view(), name="resolve"),
    path(f"{ALERT}snooze/", alert_actions.Snooze.as_view(), name="snooze"),
    path(f"{ALERT}reopen/", alert_actions.Reopen.as_view(), name="reopen"),
    path(f"{ALERT}feedback/", alert_actions.Feedback.as_view(), name="feedback"),
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
    path(f"{BACKTEST}cancel/", backtests.CancelBacktest.as_view(), name="cancel-backtest"),
    path(
        "constraint-library/",
        library_constraints.ConstraintLibrary.as_view(),
        name="constraint-library",
    ),
    path(
        "constraint-library/<str:name>/",
        library_constraints.OneLibraryConstraint.as_view(),
        name="library-constraint",
    ),
    path(RUN, runs.OneRun.as_view(), name="run"),
    path(f"{RUN}cancel/", runs.CancelRun.as_view(), name="cancel-run"),
    path(f"{RUN}retry/", runs.RetryRun.as_view(), name="retry-run"),
    path("webhooks/", webhooks.Endpoints.as_view(), name="webhooks"),
    path(WEBHOOK, webhooks.Endpoint.as_view(), name="webhook"),
    path(f"{WEBHOOK}rotate-secret/", webhooks.RotateSecret.as_view(), name="rotate-secret"),
    path(f"{WEBHOOK}test/", webhooks.SendTest.as_view(), name="test-webhook"),
    path(f"{WEBHOOK}replay/", webhooks.ReplayGivenUp.as_view(), name="replay-given-up"),
    path(f"{WEBHOOK}deliveries/", webhooks.Deliveries.as_view(), name="deliveries"),
    path(DELIVERY, webhooks.OneDelivery.as_view(), name="delivery"),
    path(f"{DELIVERY}replay/", webhooks.ReplayDelivery.as_view(), name="replay-delivery"),
]


def _without_final_slash() -> Iterator[URLPattern]:
    for one in ENDPOINTS:
        if (route := str(one.pattern)).endswith("/"):
            if route == USER:
                route = route.replace("<user:", "<last_user:")
            yield path(route.removesuffix("/"), one.callback, name=one.name)


# The final slash is optional. `reverse` takes the last route of a name, so that links have it.
urlpatterns = [
    *_without_final_slash(),
    *ENDPOINTS,
    re_path("", unknown.Unknown.as_view(), name="unknown"),
]
