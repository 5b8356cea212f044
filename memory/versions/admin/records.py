"""Records: their fields and entries, the files that contain them, and the alerts based on them."""

from collections import defaultdict
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.fields.json import KT
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join

from memory.kernel.admin import masking
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import content_column, plain_column, row_column
from memory.kernel.admin.display import NOTHING, badge, inline, lines
from memory.kernel.admin.filters import presence_filter
from memory.kernel.admin.links import link_to_key
from memory.kernel.admin.rows import cached_on_row
from memory.kernel.admin.values import describe_value, in_zone
from memory.kernel.hooks import later
from memory.kernel.staff import access
from memory.kernel.texts import REDACTED
from memory.log.admin.links import entry_pages, show_entries
from memory.log.models.entries import EntryKind, LogEntry
from memory.project.outline import SET_ASIDE
from memory.versions.checkpoints import Redacted
from memory.versions.models.checkpoints import Checkpoint, RecordLocation
from memory.versions.provenance import RecordOrigin, keys_behind, trace_record

# Maximum number of entries whose records a search finds by their text.
MAX_MATCHES = 200


@admin.register(RecordLocation)
class RecordLocationAdmin(ReadOnlyAdmin[RecordLocation]):
    """Active and retired records, with the entries behind them and their files."""

    labels = {"key": "record", "path": "file"}

    list_display = ["key", "collection_name", "user", "path", "added_in", "retired_in"]
    list_filter = [presence_filter("retired", "retired_version", filled="retired", empty="active")]
    search_fields = ["key", "collection", "user__user_id"]
    search_help_text = "Search by text, key, collection or user id."
    ordering = ["-id"]
    when_empty = "No project has a record yet."
    fieldsets = [
        section(None, ("standing", "user"), facts=True),
        section("Content", "content"),
        section("Evidence", "entries"),
        section("Derived from the record", "alerts"),
        section("Location", "path", "added_in", "retired_in"),
    ]

    alerts = row_column(
        later("memory.alerts.admin.links:alerts_on_record"), "alerts based on this record"
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[RecordLocation]:
        versions = Checkpoint.objects.filter(user=OuterRef("user"))
        added = versions.filter(version=OuterRef("added_version"))
        retired = versions.filter(version=OuterRef("retired_version"))
        return (
            super()
            .get_queryset(request)
            .annotate(
                added_id=Subquery(added.values("pk")[:1]),
                retired_id=Subquery(retired.values("pk")[:1]),
            )
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[RecordLocation], search_term: str
    ) -> tuple[QuerySet[RecordLocation], bool]:
        """Also find records by the text of the entries behind them: typed ones, and facts."""
        rows, repeats = super().get_search_results(request, queryset, search_term)
        if not search_term.strip() or not access.sees_content(request.user):
            return rows, repeats
        entries = LogEntry.objects.filter(
            Q(kind=EntryKind.RECORD, data__icontains=search_term)
            | Q(kind__in=(EntryKind.FACT, EntryKind.CORRECTION), content__icontains=search_term)
        )
        found = access.seen_by(request.user, entries).order_by("-pk")
        named, facts = Q(pk=None), defaultdict[int, set[int]](set)
        for user, seq, key in found.values_list("user", "seq", KT("data__key"))[:MAX_MATCHES]:
            if key is None:
                facts[user].add(seq)
            else:
                named |= Q(user=user, key=key)
        for user, key in keys_behind(facts):
            named |= Q(user=user, key=key)
        return rows | queryset.filter(named), repeats

    def subtitle_of(self, location: RecordLocation) -> str:
        if masking.is_hidden():
            return super().subtitle_of(location)
        return f"{location.key} in {location.domain}.{location.collection}"

    @plain_column("state", "retired_version")
    def standing(self, location: RecordLocation) -> str:
        is_retired = location.retired_version is not None
        return badge("resolved", "retired") if is_retired else badge("covered", "active")

    @content_column("fields")
    def content(self, location: RecordLocation) -> str:
        origin = _origin_of(location)
        if isinstance(origin, str):
            return origin
        pages = entry_pages(location.user, origin.entries)
        zone = ZoneInfo(location.user.time_zone)
        rows = format_html_join(
            "",
            '<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>',
            (
                (
                    inline("set aside" if field.name == SET_ASIDE else field.name),
                    NOTHING
                    if field.value is None
                    else inline(describe_value(in_zone(field.value, zone))),
                    format_html_join(
                        ", ",
                        '<a href="{}">#{}</a>',
                        ((pages[seq], seq) for seq in field.entries if seq in pages),
                    ),
                )
                for field in origin.fields
            ),
        )
        return format_html(
            '<div class="scrolled"><table class="fields"><thead><tr><th scope="col">{}</th>'
            '<th scope="col">value</th><th scope="col">from</th></tr></thead>'
            "<tbody>{}</tbody></table></div>",
            inline(origin.class_name),
            rows,
        )

    @content_column("entries")
    def entries(self, location: RecordLocation) -> str:
        origin = _origin_of(location)
        if isinstance(origin, str):
            return NOTHING
        return lines(show_entries(location.user, origin.entries).values())

    @content_column("collection", "collection")
    def collection_name(self, location: RecordLocation) -> str:
        return inline(f"{location.domain}.{location.collection}")

    @plain_column("added in", "added_version")
    def added_in(self, location: RecordLocation) -> str:
        key = getattr(location, "added_id", None)
        return link_to_key(Checkpoint, key, f"v{location.added_version}")

    @plain_column("retired in", "retired_version")
    def retired_in(self, location: RecordLocation) -> str:
        if location.retired_version is None:
            return NOTHING
        key = getattr(location, "retired_id", None)
        return link_to_key(Checkpoint, key, f"v{location.retired_version}")


@cached_on_row
def _origin_of(location: RecordLocation) -> RecordOrigin | str:
    """Return the record with the entries behind it, or the reason there is nothing to show."""
    try:
        return trace_record(location) or "no stored version contains the record"
    except Redacted:
        return REDACTED
