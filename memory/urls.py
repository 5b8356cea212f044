"""URLs of the API, version 1."""

from collections.abc import Iterator

from django.urls import URLPattern, path, re_path, register_converter
from django.urls.converters import StringConverter
from rest_framework.routers import SimpleRouter

from memory.alerts.api import alerts, events, paused, webhooks
from memory.constraints.api import (
    backtests,
    constraints,
    forecasts,
    library_constraints,
    workspace_constraints,
)
from memory.export.api import export
from memory.integrations.api import imports, merging
from memory.kernel.http import reference, unknown
from memory.kernel.models.users import USER_ID_IN_PATH
from memory.llm.api import reopening
from memory.privacy.api import documents, erasures, redactions
from memory.recall.api import asking, context, projects, queries, search
from memory.users import api
from memory.versions.api import checkpoints, history, runs, schema


class UserIdConverter(StringConverter):
    """Matches a user's id, which may have slashes: the path arrives decoded."""

    regex = USER_ID_IN_PATH


class LastUserIdConverter(UserIdConverter):
    """Matches a user's id at the end of a path, where a slash is the path's own."""

    regex = rf"{USER_ID_IN_PATH}(?<!/)"


register_converter(UserIdConverter, "user")
register_converter(LastUserIdConverter, "last_user")

USER = "users/<user:user_id>/"
VERSION = f"{USER}checkpoints/<int:version>/"
CONSTRAINT_VERSIONS = "constraints/<str:name>/versions"

router = SimpleRouter(use_regex_path=False)
router.register("alerts", alerts.Alerts, "alert")
router.register("backtests", backtests.Backtests, "backtest")
router.register("constraint-library", library_constraints.ConstraintLibrary, "library-constraint")
router.register("constraints", workspace_constraints.WorkspaceConstraints, "workspace-constraint")
router.register(CONSTRAINT_VERSIONS, workspace_constraints.ConstraintVersions, "constraint-version")
router.register("paused-constraints", paused.PausedConstraints, "paused-constraint")
router.register("runs", runs.Runs, "run")
router.register("users", api.Users, "user")
router.register(f"{USER}checkpoints", checkpoints.Checkpoints, "checkpoint")
router.register(f"{USER}constraints", constraints.Constraints, "constraint")
router.register(f"{USER}documents", documents.Documents, "document")
router.register(f"{USER}entries", redactions.Entries, "entry")
router.register("webhooks", webhooks.Webhooks, "webhook")
router.register("webhooks/<uuid:endpoint_id>/deliveries", webhooks.Deliveries, "delivery")

ENDPOINTS = [
    *(one for one in router.urls if isinstance(one, URLPattern)),
    path(
        f"{CONSTRAINT_VERSIONS}/<int:number>/backtests/",
        backtests.VersionBacktests.as_view(),
        name="backtest-version",
    ),
    path("constraint-precision/", paused.Precisions.as_view(), name="constraint-precision"),
    path("erasures/<uuid:erasure_id>/", erasures.OneErasure.as_view(), name="erasure"),
    path("events/", events.Events.as_view(), name="events"),
    path("openapi.json", reference.Document.as_view(), name="openapi"),
    path("schema/", schema.WorkspaceSchema.as_view(), name="schema"),
    path(
        f"{USER}documents/<uuid:document_id>/content/",
        documents.DocumentContent.as_view(),
        name="document-content",
    ),
    path(f"{USER}outcomes/reopen/", reopening.Reopen.as_view(), name="reopen-outcomes"),
    path(
        f"{USER}entries/<int:seq>/redaction/",
        redactions.RedactionPreview.as_view(),
        name="redaction-preview",
    ),
    path(f"{USER}redactions/<int:seq>/", redactions.OneRedaction.as_view(), name="redaction"),
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
    path(f"{USER}alerts/", alerts.UserAlerts.as_view({"get": "list"}), name="user-alerts"),
    path(f"{USER}events/", events.UserEvents.as_view(), name="user-events"),
    path(f"{USER}backtests/", backtests.UserBacktests.as_view(), name="user-backtests"),
    path(f"{USER}runs/", runs.UserRuns.as_view(), name="user-runs"),
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
