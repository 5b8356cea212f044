"""URLs of mem0's API, as its public client uses them."""

from django.urls import path, re_path

from memory.integrations.mem0 import views

MEMORY = "v1/memories/<path:memory_id>/"

urlpatterns = [
    path("v1/ping/", views.Ping.as_view()),
    path("v3/memories/add/", views.Add.as_view()),
    path("v3/memories/search/", views.Search.as_view()),
    path("v3/memories/", views.Memories.as_view()),
    path("v1/memories/", views.AllMemories.as_view()),
    path(f"{MEMORY}history/", views.History.as_view()),
    path(MEMORY, views.OneMemory.as_view()),
    path("v1/entities/", views.Entities.as_view()),
    re_path("", views.Unknown.as_view()),
]
