"""Redactions: what was redacted, by whom and why, and whether all derived data is gone."""

from collections.abc import Iterator, Sequence

from django.contrib import admin, messages
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.alerts.admin.links import links_to_alerts
from memory.alerts.models.alerts import Alert
from memory.kernel.admin.actions import ask, confirmed_reason, staff_of
from memory.kernel.admin.base import section
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    first_lines,
    inline,
    lines,
    preformatted,
    record_name,
)
from memory.kernel.admin.filters import PresenceFilter
from memory.kernel.admin.links import link, link_to_key
from memory.kernel.admin.masking import content
from memory.kernel.admin.tables import UnderWayFilter, WorkAdmin
from memory.kernel.models.users import MemoryUser
from memory.log.admin.links import link_to_entry, links_to_entries
from memory.log.models.entries import LogEntry
from memory.log.models.redactions import Redaction
from memory.privacy import forgetting, redaction
from memory.privacy.previews import Preview, preview
from memory.versions.models.checkpoints import Checkpoint

# Maximum number of entries that can be redacted at once; the confirmation page lists everything
# that will be removed.
MAX_CHOSEN = 200
_LISTED = 50
_FILE_REMOVED = "loses its file, which has the same text; its other entries stay"


def redact_chosen(
    request: HttpRequest, chosen: QuerySet[LogEntry], action: str
) -> TemplateResponse | None:
    """Show what the redaction will remove and ask for a reason; once confirmed, redact."""
    entries = list(
        chosen.select_related("user__workspace").order_by("user_id", "seq")[: MAX_CHOSEN + 1]
    )
    if len(entries) > MAX_CHOSEN:
        messages.error(request, f"Nothing was done: select at most {MAX_CHOSEN} entries.")
        return None
    if not (reason := confirmed_reason(request)):
        try:
            return _question(request, entries, action)
        except redaction.RedactionRefused as error:
            messages.error(request, f"Nothing was done. {error}")
            return None
    for user, seqs in _by_user(entries):
        try:
            entry = redaction.redact(user, seqs, by=staff_of(request), reason=reason)
        except redaction.RedactionRefused as error:
            messages.error(request, f"Nothing was done for {user}. {error}")
            continue
        row = Redaction.objects.get(user=user, seq=entry.seq)
        what = counted(len(row.entries), "entry")
        messages.success(
            request, format_html("Redacted {} in the log of {}. {}", what, user, link(row))
        )
    return None


def _by_user(entries: list[LogEntry]) -> Iterator[tuple[MemoryUser, list[int]]]:
    users = {entry.user_id: entry.user for entry in entries}
    for pk, user in users.items():
        yield user, [entry.seq for entry in entries if entry.user_id == pk]


def _question(request: HttpRequest, entries: list[LogEntry], action: str) -> TemplateResponse:
    return ask(
        request,
        action,
        entries,
        LogEntry,
        title="Redact",
        verb="Redact",
        for_good=True,
        people=[one for user, seqs in _by_user(entries) for one in what_goes(user, seqs)],
    )


def what_goes(user: MemoryUser, seqs: list[int]) -> Iterator[dict[str, object]]:
    """Yield what the redaction removes from the memories of a user and of merged users."""
    first, *others = preview(user, seqs)
    yield _what_goes_of(first, seqs)
    for other in others:
        yield _what_goes_of(other, other.entries)


def _what_goes_of(preview: Preview, seqs: Sequence[int]) -> dict[str, object]:
    user, entries, traces = preview.user, preview.entries, preview.traces
    sources = LogEntry.objects.filter(user=user, seq__in=preview.sources).order_by("seq")
    effects = {"restored": "is restored to its earlier value", "removed": "is removed"}
    records = [
        format_html(
            "{} {}", record_name(f"{one.domain}.{one.collection}", one.key), effects[effect]
        )
        for one, effect in preview.records.items()
    ]
    return {
        "user": link(user),
        "entries": links_to_entries(user, seqs),
        "derived": links_to_entries(user, set(entries) - set(seqs)),
        "sources": [(entry.pk, link_to_entry(entry)) for entry in sources[:MAX_CHOSEN]],
        "records": content(first_lines(records, _LISTED)),
        "constraints": content(lines(map(inline, preview.constraints))),
        "documents": lines(
            format_html("{} {}", link(one), "is removed" if is_whole else _FILE_REMOVED)
            for one, is_whole in preview.documents.items()
        ),
        "versions": len(traces.versions),
        "queries": forgetting.count_queries(user, entries, traces),
        "alerts": _alerts_citing(user, entries),
    }


def alerts_on(user: MemoryUser, seqs: Sequence[int]) -> SafeString | str:
    """Link to the live and past alerts that cite these entries or entries derived from them."""
    return _alerts_citing(user, sorted(redaction.closure(user.pk, seqs)))


def _alerts_citing(user: MemoryUser, seqs: Sequence[int]) -> SafeString | str:
    return links_to_alerts(Alert.objects.listed().filter(user=user, entries__overlap=seqs))


class ProblemFilter(PresenceFilter):
    """A list filter that separates redactions to which the gate objected from the rest."""

    title = "gate"
    parameter_name = "problem"
    filled, empty = "objected", "did not object"

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Redaction]
    ) -> QuerySet[Redaction] | None:
        match self.value():
            case "yes":
                return queryset.exclude(problem="")
            case "no":
                return queryset.filter(problem="")
        return None


@admin.register(Redaction)
class RedactionAdmin(WorkAdmin[Redaction]):
    """Redactions, and whether everything based on the redacted entries is gone."""

    list_display = ["created_at", "number", "user", "state", "whole", "by"]
    list_filter = [UnderWayFilter, ProblemFilter, "created_at"]
    search_fields = ["user__user_id", "by", "reason"]
    search_help_text = "Search by user id, requester or reason."
    when_empty = "Nothing has been redacted yet."
    fieldsets = [
        section(None, "user", "number", "state", "by", "reason", ("created_at", "finished_at")),
        section("What was redacted", "chosen", "derived", "records", "constraints", "reopened"),
        section("The project after the redaction", "version_link", "had_against"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Redaction]:
        """Annotate rows with their log entries' keys: no table has a foreign key to the log."""
        entry = LogEntry.objects.filter(user=OuterRef("user"), seq=OuterRef("seq"))
        return super().get_queryset(request).annotate(entry_id=Subquery(entry.values("pk")[:1]))

    @plain_column("entry", "seq")
    def number(self, row: Redaction) -> str:
        return link_to_key(LogEntry, getattr(row, "entry_id", None), f"#{row.seq}")

    @plain_column("state", "due_at")
    def state(self, row: Redaction) -> str:
        if row.due_at is None and row.problem:
            return badge("redacted", "done, despite the gate's objections")
        if row.due_at is not None and row.last_error:
            return badge("failing", "failing: the project is unavailable until it is done")
        return super().state(row)

    @plain_column("entries")
    def whole(self, row: Redaction) -> str:
        return f"{len(row.entries)}"

    @content_column("selected")
    def chosen(self, row: Redaction) -> str:
        return links_to_entries(row.user, row.asked)

    @content_column("derived from them")
    def derived(self, row: Redaction) -> str:
        return links_to_entries(row.user, set(row.entries) - set(row.asked))

    @plain_column("version")
    def version_link(self, row: Redaction) -> str:
        """Link to the version that the redaction created, which excludes the redacted entries."""
        if row.version is None:
            return NOTHING if row.due_at else "none: the project did not contain these entries"
        made = Checkpoint.objects.filter(user=row.user, version=row.version)
        return link_to_key(Checkpoint, made.values_list("pk", flat=True).first(), f"v{row.version}")

    @content_column("gate's objections")
    def had_against(self, row: Redaction) -> str:
        """Show the gate's objections, which did not stop the redaction."""
        return preformatted(row.problem) if row.problem else "none"
