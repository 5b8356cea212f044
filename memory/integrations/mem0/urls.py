"""URLs of mem0's API, as its public client uses them."""

from django.urls import URLPattern, path, re_path

from memory.integrations.mem0 import views

MEMORY = "v1/memories/<path:memory_id>/"

# mem0 URLs that this server doesn't have, or has elsewhere: pattern → what to use instead.
NOT_HERE = {
    "v1/feedback/": "Give feedback on alerts instead: POST /v1/alerts/{id}/feedback/, outside of"
    " /mem0/.",
    "v1/exports/": "Read the log with GET /v1/users/{user_id}/entries/, and the user's project"
    " with GET /v1/users/{user_id}/checkpoints/, both outside of /mem0/.",
    "v1/summary/": "Use POST /v1/users/{user_id}/context/, outside of /mem0/, which returns what"
    " is relevant within a token budget.",
    "v2/profiles/": views.PROFILE,
    "api/v1/webhooks/": "Webhooks report alerts: use POST /v1/webhooks/, outside of /mem0/.",
    "api/v1/orgs/": "A workspace is both organization and project; its settings and keys are"
    " managed in the admin.",
}


def _not_here(beginning: str, reason: str) -> URLPattern:
    return re_path(f"^{beginning}", views.Elsewhere.as_view(reason=reason))


urlpatterns = [
    path("v1/ping/", views.Ping.as_view()),
    path("v3/memories/add/", views.Add.as_view()),
    path("v3/memories/search/", views.Search.as_view()),
    path("v3/memories/", views.Memories.as_view()),
    path("v1/memories/", views.AllMemories.as_view()),
    path(f"{MEMORY}history/", views.History.as_view()),
    path(MEMORY, views.OneMemory.as_view()),
    path("v1/batch/", views.Batch.as_view()),
    path("v1/entities/", views.Entities.as_view()),
    path("v2/entities/<str:kind>/<path:name>/", views.Entity.as_view()),
    path("v1/event/<path:event_id>/", views.Event.as_view()),
    path("v1/events/<path:event_id>/", views.Event.as_view()),
    path("v1/events/", views.Events.as_view()),
    *(_not_here(beginning, reason) for beginning, reason in NOT_HERE.items()),
    re_path("", views.Unknown.as_view()),
]
