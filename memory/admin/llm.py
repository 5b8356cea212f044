"""Calls of language models and what they have spent."""

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest

from memory import encryption, llm_calls
from memory.admin.base import ReadOnlyAdmin, heavy, link, link_to_list
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    preformatted,
    pretty,
    shortened,
)
from memory.models import LlmCall, LlmSpending
from memory.models.llm import LlmOutcome

CONTENT_PERMISSION = "memory.view_llmcall_content"

# What must not be loaded for a list, and not at all for those who may not read it.
CONTENT = ("prompt", "answer")

# Of more calls than these the totals of a list are not computed: the ledger has them.
MAX_ADDED_UP = 100_000


@admin.register(LlmCall)
class LlmCallAdmin(ReadOnlyAdmin[LlmCall]):
    """Every attempt of a call: of whom, for what, what it took and how it ended."""

    list_display = [
        "name",
        "workspace",
        "user_link",
        "model",
        "ended",
        "trouble",
        "tokens",
        "price",
        "took",
        "started_at",
    ]
    list_filter = [
        "workspace",
        "purpose",
        "outcome",
        ("model", admin.AllValuesFieldListFilter),
        ("started_at", admin.DateFieldListFilter),
    ]
    list_select_related = ["workspace", "user"]
    search_fields = ["=id", "=work", "=prompt_hash", "user__user_id"]
    search_help_text = "By user id, call, piece of work or prompt hash."
    ordering = ["-started_at"]
    when_empty = "No language model has been called yet."

    def get_fieldsets(self, request: HttpRequest, obj: LlmCall | None = None) -> Any:
        """Show prompt and answer to those who may read them."""
        fieldsets: list[tuple[str | None, dict[str, Any]]] = [
            (
                None,
                {
                    "fields": [
                        *("workspace", "user_link", "purpose", "ended", "failure"),
                        *("model", "answered_by", "question", "beside"),
                    ]
                },
            ),
            ("What it took", {"fields": ["tokens_in", "tokens_out", "price", "reserved", "took"]}),
            ("Made for", {"fields": ["checkpoint_link", "run_link", "lane_link"]}),
        ]
        if request.user.has_perm(CONTENT_PERMISSION):
            fieldsets.append(("Content", {"fields": ["sent", "said"]}))
        fieldsets.append(
            (
                "More",
                {
                    "classes": ["collapse"],
                    "fields": [
                        *("id", "work", "prompt_hash", "started_at", "expires_at", "finished_at"),
                    ],
                },
            )
        )
        return fieldsets

    def get_queryset(self, request: HttpRequest) -> QuerySet[LlmCall]:
        """Leave in the database what lists do not show."""
        return super().get_queryset(request).defer(*CONTENT, *heavy("checkpoint"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, and below it what all that match it come to."""
        response = super().changelist_view(request, extra_context)
        found = getattr(response, "context_data", {}).get("cl")
        if found is not None:
            response.context_data["totals"] = _totals(found.queryset, found.result_count)
        return response

    @admin.display(description="call", ordering="purpose")
    def name(self, call: LlmCall) -> str:
        """Name the call by its purpose and the beginning of its id."""
        return str(call)

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, call: LlmCall) -> str:
        """Lead to the user."""
        return link(call.user)

    @admin.display(description="outcome", ordering="outcome")
    def ended(self, call: LlmCall) -> str:
        """Show how it ended, or how far it got."""
        return badge(call.standing, call.standing.label)

    @admin.display(description="error")
    def trouble(self, call: LlmCall) -> str:
        """Show the beginning of the error."""
        return inline(shortened(call.error)) if call.error else NOTHING

    @admin.display(description="error")
    def failure(self, call: LlmCall) -> str:
        """Show the error."""
        return preformatted(call.error)

    @admin.display(description="tokens in + out", ordering="input_tokens")
    def tokens(self, call: LlmCall) -> str:
        """Show the tokens, where the provider has told them."""
        if call.input_tokens is None or call.output_tokens is None:
            return NOTHING
        return f"{call.input_tokens:,} + {call.output_tokens:,}"

    @admin.display(description="tokens in")
    def tokens_in(self, call: LlmCall) -> str:
        """Show the tokens of the prompt, and how many of them came from a cache."""
        if call.input_tokens is None:
            return "unknown"
        read, written = call.cache_read_tokens or 0, call.cache_write_tokens or 0
        cached = f" ({read:,} read from a cache, {written:,} written)" if read or written else ""
        return f"{call.input_tokens:,}{cached}"

    @admin.display(description="tokens out")
    def tokens_out(self, call: LlmCall) -> str:
        """Show the tokens of the answer."""
        return "unknown" if call.output_tokens is None else f"{call.output_tokens:,}"

    @admin.display(description="cost", ordering="cost")
    def price(self, call: LlmCall) -> str:
        """Show the cost, where it is known."""
        return NOTHING if call.cost is None else money(call.cost)

    @admin.display(description="at most")
    def reserved(self, call: LlmCall) -> str:
        """Show what was held against the budget while it was under way."""
        cost = "" if call.reserved_cost is None else f", {money(call.reserved_cost)}"
        return f"{counted(call.reserved_tokens, 'token')}{cost}"

    @admin.display(description="took", ordering="seconds")
    def took(self, call: LlmCall) -> str:
        """Say how long it took."""
        return NOTHING if call.seconds is None else f"{call.seconds:.2f} s"

    @admin.display(description="question")
    def question(self, call: LlmCall) -> str:
        """Say which question of the work it was, and which attempt at it."""
        return f"number {call.turn}, attempt {call.attempt}"

    @admin.display(description="same work")
    def beside(self, call: LlmCall) -> str:
        """Lead to the other calls of the same piece of work."""
        number = LlmCall.objects.filter(work=call.work).count()
        return link_to_list(LlmCall, counted(number, "call"), q=str(call.work))

    @admin.display(description="version")
    def checkpoint_link(self, call: LlmCall) -> str:
        """Lead to the version that came of it."""
        version = call.checkpoint
        return link(version, f"v{version.version}" if version else None)

    @admin.display(description="run")
    def run_link(self, call: LlmCall) -> str:
        """Lead to the run."""
        return link(call.run)

    @admin.display(description="lane")
    def lane_link(self, call: LlmCall) -> str:
        """Lead to the lane."""
        return link(call.lane)

    @admin.display(description="prompt")
    def sent(self, call: LlmCall) -> str:
        """Show what was sent, where it is kept."""
        return _content(call, 0)

    @admin.display(description="answer")
    def said(self, call: LlmCall) -> str:
        """Show what was answered, where it is kept."""
        return _content(call, 1)


def _content(call: LlmCall, which: int) -> str:
    try:
        found = llm_calls.content(call)[which]
    except encryption.EncryptionError as error:
        return str(error)
    return "not kept" if found is None else pretty(found)


def money(amount: Decimal) -> str:
    """Return an amount in the currency of the price list."""
    return f"{amount:,.6f}"


def _totals(calls: QuerySet[LlmCall], number: int) -> list[tuple[str, str]]:
    """Return what the calls of a list come to, by name, as long as they are soon added up."""
    if not number:
        return []
    if number > MAX_ADDED_UP:
        return [("Totals", f"of up to {MAX_ADDED_UP:,} calls; see model spending for more")]
    found = calls.order_by().aggregate(
        sent=Sum("input_tokens", default=0),
        received=Sum("output_tokens", default=0),
        paid=Sum("cost", default=Decimal(0)),
        told=Count("input_tokens"),
        priced=Count("cost"),
    )
    return [
        ("Calls", f"{number:,}"),
        ("Tokens in", f"{found['sent']:,}"),
        ("Tokens out", f"{found['received']:,}"),
        ("Cost", money(found["paid"])),
        ("Without tokens told", f"{number - found['told']:,}"),
        ("Without a price", f"{found['told'] - found['priced']:,}"),
    ]


@admin.register(LlmSpending)
class LlmSpendingAdmin(ReadOnlyAdmin[LlmSpending]):
    """What calls have spent by day, model, purpose and outcome: what budgets are held against."""

    list_display = [
        "cell",
        "workspace",
        "model",
        "purpose",
        "ended",
        "calls",
        "input_tokens",
        "output_tokens",
        "cost",
        "presumed_tokens",
    ]
    list_display_links = ["cell"]
    list_filter = [
        "workspace",
        "purpose",
        "outcome",
        ("model", admin.AllValuesFieldListFilter),
        ("day", admin.DateFieldListFilter),
    ]
    list_select_related = ["workspace"]
    search_fields = ["model", "workspace__name"]
    search_help_text = "By model or workspace."
    ordering = ["-day", "workspace", "model"]
    when_empty = "No language model has been called yet."

    @admin.display(description="day", ordering="day")
    def cell(self, spending: LlmSpending) -> str:
        """Name the day."""
        return spending.day.isoformat()

    @admin.display(description="outcome", ordering="outcome")
    def ended(self, spending: LlmSpending) -> str:
        """Show how the calls ended."""
        return badge(spending.outcome, LlmOutcome(spending.outcome).label)
