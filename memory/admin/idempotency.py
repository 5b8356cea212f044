"""Idempotency keys, which ensure that a repeated request is not carried out twice."""

from django.contrib import admin

from memory.admin.base import ReadOnlyAdmin
from memory.admin.columns import column
from memory.admin.display import inline, pretty
from memory.admin.links import link
from memory.kernel.models.idempotency import IdempotencyKey


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnlyAdmin[IdempotencyKey]):
    """The idempotency keys of writes made in the last few days."""

    list_display = ["name", "user_link", "workspace", "created_at"]
    list_filter = ["workspace"]
    list_select_related = ["user", "workspace"]
    search_fields = ["=key", "user__user_id"]
    search_help_text = "Search by full key or user id."
    ordering = ["-created_at"]
    when_empty = "No request has had an Idempotency-Key in the last few days."
    fields = ["name", "user_link", "workspace", "created_at", "fingerprint", "came_to"]

    name = column("key", inline, "key", "key")
    user_link = column("user", link, "user", "user__user_id")
    came_to = column("reference", pretty, "result")
