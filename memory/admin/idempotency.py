"""Idempotency keys, which ensure that a repeated request is not carried out twice."""

from django.contrib import admin

from memory.admin.base import ReadOnlyAdmin
from memory.admin.display import NOTHING, inline, pretty
from memory.admin.links import link
from memory.models import IdempotencyKey


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

    @admin.display(description="key", ordering="key")
    def name(self, key: IdempotencyKey) -> str:
        """Show the key that the client sent with the request."""
        return inline(key.key)

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, key: IdempotencyKey) -> str:
        """Link to the user."""
        return link(key.user) if key.user else NOTHING

    @admin.display(description="result")
    def came_to(self, key: IdempotencyKey) -> str:
        """Show the result of the write."""
        return pretty(key.reference)
