"""Admin screens for users' logs and the outcomes of their entries."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.kernel.admin import masking
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import content_column, plain_column, row_column
from memory.kernel.admin.display import NOTHING, badge, inline, preformatted, pretty
from memory.kernel.admin.links import link, link_by_content, link_to_key
from memory.kernel.admin.rows import rows_for
from memory.kernel.admin.steady_lists import SteadyChangeList
from memory.kernel.hooks import later
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey
from memory.log import copies, entry_log
from memory.log.admin.links import link_to_entry, links_to_entries, summary
from memory.log.documents import places_of, select_behind
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome

PENDING = "pending"
# What later slices add to an entry's screen.
_statuses_of = later("memory.recall.search.statuses:Statuses")
_redact_chosen = later("memory.privacy.admin.redactions:redact_chosen")
_alerts_on = later("memory.privacy.admin.redactions:alerts_on")
_reopen_chosen = later("memory.llm.admin:reopen_chosen")
# The maximum number of users in a list whose entries' statuses are shown.
MAX_USERS = 5


class OutcomeFilter(admin.SimpleListFilter):
    """A filter by outcome; entries without an outcome are pending."""

    title = "outcome"
    parameter_name = "outcome"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[LogEntry]
    ) -> Iterable[tuple[str, str]]:
        return [(PENDING, PENDING), *((value, str(label)) for value, label in Outcome.choices)]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[LogEntry]
    ) -> QuerySet[LogEntry] | None:
        decided = EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq"))
        if self.value() == PENDING:
            return queryset.filter(~Exists(decided))
        if self.value() in Outcome.values:
            return queryset.filter(Exists(decided.filter(outcome=self.value())))
        return None


class SetAsideFilter(admin.SimpleListFilter):
    """A list filter that selects entries with values that did not fit their fields."""

    title = "set aside"
    parameter_name = "set_aside"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "with values set aside")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        return queryset.exclude(set_aside=[]) if self.value() == "yes" else None


class LogChangeList(SteadyChangeList):
    """A list of entries that, when it is searched, also shows whether they still hold."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        by_user = defaultdict[MemoryUser, list[LogEntry]](list)
        for entry in self.result_list if self.query else ():
            if entry.redacted_at is None:
                by_user[entry.user].append(entry)
        if len(by_user) <= MAX_USERS:
            for user, entries in by_user.items():
                statuses = _statuses_of(user).compute(entries)
                for entry in entries:
                    entry.__dict__["status"] = statuses.get(entry.seq)


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin[LogEntry]):
    """Log entries with their outcomes."""

    list_display = [
        "number",
        "says",
        "decided",
        "holds",
        "user",
        "kind",
        "occurred_at",
    ]
    list_display_links = ["number", "says"]
    list_filter = ["kind", OutcomeFilter, "recorded_at"]
    search_fields = ["user__user_id", "=id", "content", "data"]
    search_help_text = "Search by user id, entry id or text."
    ordering = ["-recorded_at", "-seq"]
    actions = ["redact"]
    asking = ["redact"]
    dangerous = ["redact"]
    when_empty = "Nothing has been logged yet."
    fieldsets = [
        section(None, "user", "number", "kind", "outcome", "still_holds", "content_and_data"),
        section(
            "Origin and time",
            ("written_by", "trust", "document"),
            ("role", "speaker"),
            ("session_id", "agent_id"),
            *("metadata", "occurred_at", "recorded_at", "redacted_at"),
        ),
        section("Related", "neighbours", "derived", "derivatives", "merged_from", "alerts"),
        section("Identity", "id", "idempotency_key", "chain", collapsed=True),
    ]

    alerts = row_column(
        lambda entry: _alerts_on(entry.user, [entry.seq]), "alerts based on this entry"
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[LogEntry]:
        decided = EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq")).order_by()
        return super().get_queryset(request).annotate(decided_as=decided.values("outcome")[:1])

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> LogEntry | None:
        """Return the entry, with the key that wrote it if the staff member may see keys."""
        entry = super().get_object(request, object_id, from_field)
        kind, _, prefix = (entry.source or "").partition(":") if entry else ("", "", "")
        if entry is not None and kind == "key":
            entry.__dict__["_key"] = rows_for(request, ApiKey).filter(prefix=prefix).first()
        return entry

    def actions_for(self, row: LogEntry) -> Collection[str]:
        gone = row.redacted_at is not None or row.kind == EntryKind.REDACTION
        return [] if gone else super().actions_for(row)

    @admin.action(description="Redact the selected entries…", permissions=["operate"])
    def redact(self, request: HttpRequest, queryset: QuerySet[LogEntry]) -> TemplateResponse | None:
        response: TemplateResponse | None = _redact_chosen(request, queryset, "redact")
        return response

    @content_column("merged from")
    def merged_from(self, entry: LogEntry) -> str:
        for merge, seq in copies.origins(entry.user, [entry.seq]).values():
            original = LogEntry.objects.get(user=merge.merged, seq=seq)
            return format_html("{} of {}", link_to_entry(original), link(merge.merged))
        return NOTHING

    @plain_column("entry", "seq")
    def number(self, entry: LogEntry) -> str:
        return f"#{entry.seq}"

    @content_column("content")
    def says(self, entry: LogEntry) -> str:
        return inline(summary(entry) or str(entry.get_kind_display()))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LogChangeList

    @content_column("status")
    def holds(self, entry: LogEntry) -> str:
        status = entry.__dict__.get("status")
        return badge(status.status) if status else NOTHING

    @content_column("status")
    def still_holds(self, entry: LogEntry) -> str:
        statuses = _statuses_of(entry.user).compute([entry]) if entry.redacted_at is None else {}
        status = statuses.get(entry.seq)
        if status is None:
            return NOTHING
        by = links_to_entries(entry.user, [status.by]) if status.by is not None else ""
        return format_html("{} {}{}", badge(status.status), "by " if by else "", by)

    @plain_column("outcome")
    def decided(self, entry: LogEntry) -> str:
        return badge(getattr(entry, "decided_as", None) or PENDING)

    @content_column("outcome")
    def outcome(self, entry: LogEntry) -> str:
        outcome = entry_log.outcomes(entry.user, [entry.seq]).get(entry.seq)
        if outcome is None:
            return format_html(
                "{} {}", badge(PENDING), "no version of the project contains the entry yet"
            )
        checkpoint = outcome.checkpoint
        relation = "at" if outcome.outcome == Outcome.REJECTED else "with"
        return format_html(
            "{} {}{} ({})",
            badge(outcome.outcome, outcome.get_outcome_display()),
            format_html("{} {} ", relation, link(checkpoint)) if checkpoint else "",
            inline(outcome.reason) if outcome.reason else _set_aside(outcome),
            link(outcome, "decision"),
        )

    @content_column("content")
    def content_and_data(self, entry: LogEntry) -> str:
        if entry.redacted_at is not None:
            return "(redacted)"
        return format_html(
            "{}{}",
            preformatted(entry.content) if entry.content else "",
            pretty(entry.data) if entry.data is not None else "",
        )

    @content_column("adjacent entries")
    def neighbours(self, entry: LogEntry) -> str:
        return links_to_entries(entry.user, [entry.seq - 1, entry.seq + 1])

    @content_column("derived from")
    def derived(self, entry: LogEntry) -> str:
        return links_to_entries(entry.user, entry.derived_from)

    @content_column("source of")
    def derivatives(self, entry: LogEntry) -> str:
        made = LogEntry.objects.filter(user=entry.user, derived_from__contains=[entry.seq])
        return links_to_entries(entry.user, made.values_list("seq", flat=True)[:100])

    @content_column("origin")
    def written_by(self, entry: LogEntry) -> SafeString | str:
        kind, _, name = (entry.source or "").partition(":")
        if kind == "key" and name:
            key: ApiKey | None = entry.__dict__.get("_key")
            return format_html(
                "through the API key {}", link(key) if key else inline(f"(uac_{name}_…)")
            )
        if kind == "staff" and name:
            return format_html("from {} (staff)", inline(name))
        if kind == "merge":
            return "from a merge with another user"
        return inline(entry.source or NOTHING)

    @content_column("document")
    def document(self, entry: LogEntry) -> str:
        """Show where the entry stands in which document."""
        place = places_of(entry.user_id, [entry]).get(entry.seq)
        if place is None:
            return NOTHING
        rows = select_behind(entry.user_id, [entry.seq])
        return link_by_content(rows[0], place) if rows else inline(place)

    @plain_column("hash")
    def chain(self, entry: LogEntry) -> str:
        """Show the entry's hash, which the next entry's hash includes."""
        return bytes(entry.hash).hex() if entry.hash else NOTHING


def _set_aside(outcome: EntryOutcome) -> str:
    if not outcome.set_aside:
        return ""
    return masking.content(inline(f"set aside: {', '.join(outcome.set_aside)}"))


@admin.register(EntryOutcome)
class EntryOutcomeAdmin(ReadOnlyAdmin[EntryOutcome]):
    """Entry outcomes; a rejected entry's outcome includes the reason."""

    list_display = ["outcome", "entry", "user", "version", "reason", "aside", "decided_at"]
    list_display_links = ["outcome"]
    list_filter = ["outcome", SetAsideFilter, "decided_at"]
    list_select_related = ["user", "checkpoint"]
    search_fields = ["user__user_id", "reason"]
    search_help_text = "Search by user id or reason."
    ordering = ["-decided_at", "-seq"]
    when_empty = "No entry has been settled yet."
    fields = ["outcome", "reason", "aside", "says", "user", "version", "decided_at"]
    actions = ["reopen", "reopen_all_of_its_version"]

    @admin.action(
        description="Reopen the selected entries to process them again", permissions=["operate"]
    )
    def reopen(self, request: HttpRequest, queryset: QuerySet[EntryOutcome]) -> None:
        _reopen_chosen(request, queryset)

    @admin.action(
        description="Reopen all entries settled by the same versions", permissions=["operate"]
    )
    def reopen_all_of_its_version(
        self, request: HttpRequest, queryset: QuerySet[EntryOutcome]
    ) -> None:
        rows = EntryOutcome.objects.filter(
            user__in=queryset.values("user"), checkpoint__in=queryset.values("checkpoint")
        )
        if not rows.exists():
            messages.error(request, "Nothing was done: no version settled these entries.")
            return
        _reopen_chosen(request, rows)

    def get_queryset(self, request: HttpRequest) -> QuerySet[EntryOutcome]:
        """Annotate outcomes with their entries' keys: no table has a foreign key to the log."""
        entry = LogEntry.objects.filter(user=OuterRef("user"), seq=OuterRef("seq")).order_by()
        return super().get_queryset(request).annotate(entry_id=Subquery(entry.values("pk")[:1]))

    @plain_column("entry", "seq")
    def entry(self, outcome: EntryOutcome) -> str:
        return link_to_key(LogEntry, getattr(outcome, "entry_id", None), f"#{outcome.seq}")

    @content_column("entry")
    def says(self, outcome: EntryOutcome) -> str:
        return links_to_entries(outcome.user, [outcome.seq])

    @content_column("set aside")
    def aside(self, outcome: EntryOutcome) -> str:
        return _set_aside(outcome) or NOTHING

    @plain_column("version", "checkpoint__version")
    def version(self, outcome: EntryOutcome) -> str:
        return link(outcome.checkpoint)
