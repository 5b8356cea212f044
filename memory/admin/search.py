"""Admin screens for the search indexes of users' logs."""

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.safestring import SafeString

from memory.admin.base import ReadOnlyAdmin
from memory.admin.display import counted, preformatted
from memory.admin.links import link
from memory.models import SearchBlock, SearchIndex, SearchSegment


@admin.register(SearchIndex)
class SearchIndexAdmin(ReadOnlyAdmin[SearchIndex]):
    """The indexing work for each user's log."""

    list_display = ["user_link", "covers", "due_at", "run_after", "attempts"]
    list_display_links = ["due_at"]
    list_filter = ["user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    search_help_text = "Search by user id."
    ordering = ["-due_at", "id"]
    when_empty = "No log is long enough to be indexed yet."
    fields = ["user_link", "covers", "due_at", "attempts", "run_after", "error"]

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, index: SearchIndex) -> str:
        """Link to the user."""
        return link(index.user)

    @admin.display(description="log")
    def covers(self, index: SearchIndex) -> str:
        """Show the length of the log."""
        return counted(index.user.last_seq, "entry")

    @admin.display(description="last error")
    def error(self, index: SearchIndex) -> SafeString | str:
        """Show the error from the last attempt."""
        return preformatted(index.last_error)


@admin.register(SearchSegment)
class SearchSegmentAdmin(ReadOnlyAdmin[SearchSegment]):
    """Index segments, with the entries each covers."""

    list_display = ["entries", "user_link", "postings", "blocks", "version", "created_at"]
    list_filter = ["user__workspace", "version"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    search_help_text = "Search by user id."
    ordering = ["-created_at", "-id"]
    when_empty = "Nothing has been indexed yet."
    fields = ["user_link", "entries", "postings", "blocks", "version", "created_at"]

    @admin.display(description="entries", ordering="first_seq")
    def entries(self, segment: SearchSegment) -> str:
        """Show the range of entries that the segment covers."""
        return f"{segment.first_seq} to {segment.last_seq}"

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, segment: SearchSegment) -> str:
        """Link to the user."""
        return link(segment.user)


@admin.register(SearchBlock)
class SearchBlockAdmin(ReadOnlyAdmin[SearchBlock]):
    """The blocks that segments are stored in."""

    list_display = ["number", "segment_link", "size"]
    list_filter = ["segment__user__workspace"]
    list_select_related = ["segment__user"]
    search_fields = ["segment__user__user_id"]
    search_help_text = "Search by user id."
    ordering = ["-segment", "number"]
    when_empty = "Nothing has been indexed yet."
    fields = ["segment_link", "number", "size"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[SearchBlock]:
        """Defer the data, which is not human-readable."""
        return super().get_queryset(request).defer("data").annotate(bytes=Length("data"))

    @admin.display(description="segment", ordering="segment")
    def segment_link(self, block: SearchBlock) -> str:
        """Link to the segment."""
        return link(block.segment)

    @admin.display(description="size")
    def size(self, block: SearchBlock) -> str:
        """Show the size of the block."""
        return filesizeformat(getattr(block, "bytes", 0))
