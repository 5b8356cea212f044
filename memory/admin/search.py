"""Admin screens for the search indexes of users' logs."""

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat

from memory.admin.base import ReadOnlyAdmin
from memory.admin.columns import column
from memory.admin.display import counted, preformatted
from memory.admin.links import link
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment


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

    user_link = column("user", link, "user", "user__user_id")
    error = column("last_error", preformatted, "last error")

    @admin.display(description="log")
    def covers(self, index: SearchIndex) -> str:
        return counted(index.user.last_seq, "entry")


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

    user_link = column("user", link, "user", "user__user_id")

    @admin.display(description="entries", ordering="first_seq")
    def entries(self, segment: SearchSegment) -> str:
        return f"{segment.first_seq} to {segment.last_seq}"


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

    segment_link = column("segment", link, "segment", "segment")

    def get_queryset(self, request: HttpRequest) -> QuerySet[SearchBlock]:
        return super().get_queryset(request).defer("data").annotate(bytes=Length("data"))

    @admin.display(description="size")
    def size(self, block: SearchBlock) -> str:
        return filesizeformat(getattr(block, "bytes", 0))
