"""Language model calls and their cost."""

import datetime
from decimal import Decimal
from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.kernel import encryption
from memory.kernel.admin import paging
from memory.kernel.admin.actions import staff_of
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import content_column, plain_column, row_column
from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    lines,
    pretty,
    visible,
)
from memory.kernel.admin.links import link, link_to_list
from memory.kernel.admin.rows import rows_for
from memory.kernel.admin.tables import TableAdmin
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.access import PROMPTS
from memory.llm import llm_calls, reopening, track_records
from memory.llm.models import LlmCall, LlmSpending
from memory.llm.reopening import NothingToReopen, Selection, TooManyToReopen
from memory.llm.track_records import TrackRecord
from memory.log.models.entries import EntryOutcome
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.past_states import BeingRedacted

# Maximum number of calls shown for a version, and of the work ids by which these calls are found.
MAX_ATTEMPTS = 100
MAX_WORKS = 20

# The model filter offers the models that were called within the last CHOSEN_DAYS days.
CHOSEN_DAYS = 90


# The filter by instructions offers the versions that so many of the newest calls were sent.
MAX_VERSIONS_READ = 1000


class ModelFilter(admin.SimpleListFilter):
    """A filter by model; its choices come from the spending ledger, which is small."""

    title = "model"
    parameter_name = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        since = timezone.now().date() - datetime.timedelta(days=CHOSEN_DAYS)
        used = rows_for(request, LlmSpending).filter(day__gte=since).order_by("model")
        return [(name, visible(name)) for name in used.values_list("model", flat=True).distinct()]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[LlmCall]
    ) -> QuerySet[LlmCall] | None:
        return queryset.filter(model=self.value()) if self.value() else None


class InstructionsFilter(admin.SimpleListFilter):
    """A filter by version of the instructions; its choices are those of the newest calls."""

    title = "instructions"
    parameter_name = "instructions"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        newest = rows_for(request, LlmCall).order_by("-started_at")
        versions = dict.fromkeys(newest.values_list("instructions", flat=True)[:MAX_VERSIONS_READ])
        return [(version, version) for version in versions if version]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[LlmCall]
    ) -> QuerySet[LlmCall] | None:
        return queryset.filter(instructions=self.value()) if self.value() else None


def show_attempts(checkpoint: Checkpoint) -> SafeString | str:
    """Show all calls, including failed ones, made for the work that produced a version."""
    works = set(checkpoint.llm_calls.order_by().values_list("work", flat=True)[:MAX_WORKS])
    if not works:
        return "No language model was involved."
    work_calls = defer_large(LlmCall.objects.filter(work__in=works)).order_by("started_at")
    calls = list(work_calls[:MAX_ATTEMPTS])
    rows = format_html_join(
        "",
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        (
            (
                link(call, f"request {call.turn}, attempt {call.attempt}"),
                inline(call.model),
                badge(call.standing, call.standing.label),
                _number(call.input_tokens),
                _number(call.output_tokens),
                NOTHING if call.cost is None else f"{call.cost:.4f}",
                NOTHING if call.seconds is None else f"{call.seconds:.1f} s",
            )
            for call in calls
        ),
    )
    sums = work_calls.order_by().aggregate(
        calls=Count("pk"), sent=Sum("input_tokens"), received=Sum("output_tokens"), cost=Sum("cost")
    )
    summary = (
        f"{counted(sums['calls'], 'call')}: {sums['sent'] or 0:,} tokens sent,"
        f" {sums['received'] or 0:,} received, cost {sums['cost'] or 0:.4f}"
    )
    return format_html(
        '<div class="scrolled" tabindex="0"><table class="calls"><caption>{}</caption><thead><tr>'
        '<th scope="col">call</th><th scope="col">model</th><th scope="col">outcome</th>'
        '<th scope="col">tokens sent</th><th scope="col">received</th><th scope="col">cost</th>'
        '<th scope="col">took</th></tr></thead><tbody>{}</tbody></table></div>',
        summary
        if sums["calls"] <= MAX_ATTEMPTS
        else f"{summary}; only the first {MAX_ATTEMPTS} are shown",
        rows,
    )


def show_track_record(workspace: Workspace, record: TrackRecord) -> list[str]:
    """Describe a model's track record, line by line, and whether the model has been stopped."""
    rows: list[str] = [
        format_html("{} {}", badge("bad", "stopped"), inline(record.stopped))
        if record.stopped
        else badge("valid", "allowed to continue"),
        inline(record.in_words()),
    ]
    if again := track_records.resumption(workspace, record.model):
        rows.append(
            inline(
                f"The track record begins at {again['at'][:16]} UTC, when {again['by']} allowed the"
                " model to continue."
            )
        )
        rows.append(inline(f"Reason: {again['reason']}"))
    return rows


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


@admin.register(LlmCall)
class LlmCallAdmin(ReadOnlyAdmin[LlmCall]):
    """Attempted language model calls, with their user, purpose, usage and outcome."""

    labels = {"checkpoint": "version"}

    list_display = [
        "name",
        "workspace",
        "user",
        "model",
        "ended",
        "error",
        "tokens",
        "price",
        "took",
        "started_at",
    ]
    list_filter = [
        "workspace",
        "purpose",
        "outcome",
        ModelFilter,
        InstructionsFilter,
        "started_at",
    ]
    list_select_related = ["workspace", "user"]
    search_fields = ["=id", "=work", "=prompt_hash", "user__user_id"]
    search_help_text = "Search by user id, call id, work id or prompt hash."
    ordering = ["-started_at"]
    when_empty = "No language model has been called yet."

    name = row_column(str, "call", "purpose", plain=True)

    def get_fieldsets(self, request: HttpRequest, obj: LlmCall | None = None) -> Any:
        may_read = request.user.has_perm(PROMPTS)
        return [
            section(
                None,
                *("workspace", "user", "purpose", "ended", "error"),
                *("model", "answered_by", "instructions", "question", "beside", "track_record"),
            ),
            section("Usage", "tokens_in", "tokens_out", "price", "reserved", "took"),
            section("Purpose", "checkpoint", "run", "lane"),
            *([section("Content", "sent", "answer_text")] if may_read else []),
            section(
                "More",
                *("id", "work", "prompt_hash", "started_at", "expires_at", "finished_at"),
                collapsed=True,
            ),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        response = super().changelist_view(request, extra_context)
        changelist = getattr(response, "context_data", {}).get("cl")
        if changelist is not None:
            totals = _totals(changelist.queryset, changelist.paginator)
            chosen = rows_for(request, Workspace).filter(
                pk__in=_numbers(request.GET.get("workspace__id__exact", ""))
            )
            for workspace in chosen:
                if model := request.GET.get("model") or track_records.model_of(workspace):
                    record = track_records.read(workspace, model)
                    totals.append(("Track record", record.in_words()))
            response.context_data["totals"] = totals
        return response

    @plain_column("outcome", "outcome")
    def ended(self, call: LlmCall) -> str:
        return badge(call.standing, call.standing.label)

    @plain_column("tokens in + out", "input_tokens")
    def tokens(self, call: LlmCall) -> str:
        if call.input_tokens is None or call.output_tokens is None:
            return NOTHING
        return f"{call.input_tokens:,} + {call.output_tokens:,}"

    @plain_column("tokens in")
    def tokens_in(self, call: LlmCall) -> str:
        if call.input_tokens is None:
            return "unknown"
        read, written = call.cache_read_tokens or 0, call.cache_write_tokens or 0
        cached = f" ({read:,} read from a cache, {written:,} written)" if read or written else ""
        return f"{call.input_tokens:,}{cached}"

    @plain_column("tokens out")
    def tokens_out(self, call: LlmCall) -> str:
        return "unknown" if call.output_tokens is None else f"{call.output_tokens:,}"

    @plain_column("cost", "cost")
    def price(self, call: LlmCall) -> str:
        return NOTHING if call.cost is None else money(call.cost)

    @plain_column("reserved")
    def reserved(self, call: LlmCall) -> str:
        cost = "" if call.reserved_cost is None else f", {money(call.reserved_cost)}"
        return f"{counted(call.reserved_tokens, 'token')}{cost}"

    @plain_column("took", "seconds")
    def took(self, call: LlmCall) -> str:
        return NOTHING if call.seconds is None else f"{call.seconds:.2f} s"

    @plain_column("request")
    def question(self, call: LlmCall) -> str:
        return f"request {call.turn}, attempt {call.attempt}"

    @plain_column("calls for the same work")
    def beside(self, call: LlmCall) -> str:
        number = LlmCall.objects.filter(work=call.work).count()
        return link_to_list(LlmCall, counted(number, "call"), q=str(call.work))

    @content_column("track record")
    def track_record(self, call: LlmCall) -> str:
        record = track_records.read(call.workspace, call.model)
        return lines(show_track_record(call.workspace, record))

    @content_column("prompt")
    def sent(self, call: LlmCall) -> str:
        return _content(call, 0)

    @content_column("answer")
    def answer_text(self, call: LlmCall) -> str:
        return _content(call, 1)


def _numbers(text: str) -> list[int]:
    return [int(text)] if text.isascii() and text.isdigit() else []


def _content(call: LlmCall, which: int) -> str:
    try:
        text = llm_calls.content(call)[which]
    except encryption.EncryptionError as error:
        return str(error)
    return "not stored" if text is None else pretty(text)


def money(amount: Decimal) -> str:
    """Format an amount of money in the price list's currency."""
    return f"{amount:,.6f}"


def _totals(calls: QuerySet[LlmCall], pages: paging.BoundedPaginator) -> list[tuple[str, str]]:
    """Return (name, value) totals for a list of calls, or only a note if the list is too long."""
    number = pages.count
    if not number:
        return []
    if pages.is_cut:
        return [("Totals", f"shown for at most {paging.MAX_ROWS:,} calls; see model spending")]
    sums = calls.order_by().aggregate(
        sent=Sum("input_tokens", default=0),
        received=Sum("output_tokens", default=0),
        paid=Sum("cost", default=Decimal(0)),
        reported=Count("input_tokens"),
        priced=Count("cost"),
    )
    return [
        ("Calls", f"{number:,}"),
        ("Tokens in", f"{sums['sent']:,}"),
        ("Tokens out", f"{sums['received']:,}"),
        ("Cost", money(sums["paid"])),
        ("Calls without reported tokens", f"{number - sums['reported']:,}"),
        ("Calls without a price", f"{sums['reported'] - sums['priced']:,}"),
    ]


@admin.register(LlmSpending)
class LlmSpendingAdmin(TableAdmin[LlmSpending]):
    """The spending ledger, by day, model, purpose and outcome; budgets are checked against it."""

    list_filter = ["purpose", "outcome", ("model", admin.AllValuesFieldListFilter), "day"]
    search_fields = ["model", "workspace__name"]
    search_help_text = "Search by model or workspace."


def reopen_chosen(request: HttpRequest, chosen: QuerySet[EntryOutcome]) -> None:
    """Reopen the entries with these outcomes, so that they are processed again."""
    by_user: dict[MemoryUser, list[int]] = {}
    for outcome in chosen.select_related("user"):
        by_user.setdefault(outcome.user, []).append(outcome.seq)
    for user, seqs in by_user.items():
        _reopen(request, user, Selection(entries=seqs))


def _reopen(request: HttpRequest, user: MemoryUser, selection: Selection) -> None:
    by = staff_of(request)
    try:
        done = reopening.reopen(user, selection, by=by, reason="reopened by staff")
    except (NothingToReopen, TooManyToReopen, BeingRedacted) as error:
        messages.error(request, f"{user}: {error}")
        return
    undo = f", recorded in version {done.checkpoint.version}" if done.checkpoint else ""
    number = len(done.entries)
    pending = f"{counted(number, 'entry')} {'is' if number == 1 else 'are'} pending again"
    messages.success(request, f"{user}: {pending}{undo}.")
