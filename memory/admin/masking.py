"""Masking of admin screens for staff who may not see content.

These staff members see only the fields listed here, with "(hidden)" in place of all other fields,
so a new field stays hidden until it is listed. States, counts, timestamps and links are shown. What
people said is hidden, along with everything computed from it, record and constraint names, which
may reveal it, and errors, which may quote it.

Views look at the request to decide whether to hide content. Functions that render parts of a page
have no access to the request, so they call `is_hidden`. The value that it returns is set at the
start of every admin request; until then, content is hidden.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.utils import flatten_fieldsets, label_for_field
from django.db.models import Model
from django.utils.safestring import SafeString

from memory import models
from memory.kernel.models.privacy import masked_columns

HIDDEN = "(hidden)"

_hidden: ContextVar[bool] = ContextVar("hidden", default=True)


@dataclass(frozen=True)
class AllBut:
    """All fields except those in `hidden`, for rows that contain nothing about people."""

    hidden: tuple[str, ...] = ()

    def __contains__(self, name: object) -> bool:
        return name not in self.hidden


def _names(*names: str) -> frozenset[str]:
    return frozenset(" ".join(names).split())


_LEASE = "attempts run_after lease_owner lease_expires_at"

OPEN: dict[type[Model], AllBut | frozenset[str]] = {
    # Rows that belong to a workspace or the whole server rather than to a user: settings, counts,
    # and texts written by the people who run the product.
    **dict.fromkeys(
        [
            *(models.Alarm, models.ApiKey, models.EventCounter, models.Heartbeat),
            *(models.LlmSpending, models.MailCursor, models.SandboxHost, models.StaffAccess),
            *(models.StaffAudit, models.StaffSubscription, models.WebhookEndpoint),
            models.WorkspaceUse,
        ],
        AllBut(),
    ),
    # A workspace constraint belongs to no user, but its text may be derived from what people said,
    # and the list of users it applies to reveals the structure of their projects.
    models.WorkspaceConstraint: AllBut(("source", "tests", "found", "versions", "fits")),
    models.WorkspaceConstraintVersion: _names(
        "name workspace constraint_link standing ran_in durations attempts",
        "created_at judged_at approved_by approved_at",
    ),
    # `precision` is listed per constraint, and the names of users' own constraints reveal what they
    # are about.
    models.Workspace: AllBut(("precision",)),
    models.MemoryUser: _names(
        "user_id workspace time_zone public_id created_at constraints_due_at merges paused",
        "alerts past_alerts entries covered pending dismissed rejected",
        "calls version checkpoints locations runs lanes",
    ),
    models.LogEntry: _names(
        "id number user_link kind kind_name decided occurred_at recorded_at redacted_at chain"
    ),
    models.EntryOutcome: _names("result entry user_link version decided_at"),
    models.Alert: _names(
        "id level standing user_link opened_here verdicts run_link ran_in",
        "opened_at open_since changed_at resolved_at snoozed_until escalate_at escalated_at",
    ),
    models.AlertEvent: _names("at seq step user_link by_run"),
    models.AlertFeedback: _names("at verdict_badge judge"),
    models.Pause: _names("of_link standing paused_at resumed_at"),
    models.PausedConstraint: _names("id standing user_link paused_at resumed_at"),
    models.Checkpoint: _names(
        "version_name user_link parent_link children_links came_from seen created_at",
        "kind_of_sandbox checked_in counts settled runs attempts",
    ),
    models.Blob: _names("user_link size"),
    models.Bytecode: _names("user_link image_digest size"),
    models.RecordLocation: _names("user_link standing added_in retired_in"),
    models.Run: _names(
        "id name user_link kind came_to checkpoint_link why instant ran_in ran_on kind_of_sandbox",
        "found took durations memory queued_at started_at finished_at who_asked limit_hit",
        _LEASE,
    ),
    models.Lane: _names(
        "user_link work standing due_at waiting waiting_since done_to token hinted_at", _LEASE
    ),
    models.Forecast: _names(
        "computed_at user_link version start horizon_days known_until next_change wakes_at runs",
        "took due_at",
        _LEASE,
    ),
    models.LlmCall: _names(
        "id work name workspace user_link model purpose question beside ended",
        "tokens tokens_in tokens_out price reserved took started_at expires_at finished_at",
        "checkpoint_link run_link lane_link",
    ),
    models.Backtest: _names(
        "workspace how_far progress on period created_at started_at finished_at",
        "fired severities months still_open most",
        _LEASE,
    ),
    models.Delivery: _names(
        "name message_id standing waits_for endpoint_link seq created_at settled_at", _LEASE
    ),
    models.DeliveryAttempt: _names("at outcome delivery_link url address took status"),
    models.IdempotencyKey: _names("user_link workspace created_at"),
    models.Merge: _names(
        "created_at merged_link user_link how_far progress by finished_at", _LEASE
    ),
    models.CopiedEntries: _names("merge_link from_seq seq number"),
    models.Redaction: _names(
        "created_at number user_link how_far whole by version_link finished_at",
        "records constraints reopened",
        _LEASE,
    ),
    models.UserErasure: _names("created_at user_name workspace how_far finished_at log", _LEASE),
    models.SearchIndex: _names("user_link covers due_at", _LEASE),
    models.SearchSegment: _names("user_link entries postings blocks version created_at"),
    models.SearchBlock: _names("number segment_link size"),
}


@contextmanager
def hiding(is_hidden: bool) -> Iterator[None]:
    """Hide or show content within the `with` block."""
    token = _hidden.set(is_hidden)
    try:
        yield
    finally:
        _hidden.reset(token)


def is_hidden() -> bool:
    """Return whether content is hidden in the current request."""
    return _hidden.get()


def content(shown: SafeString | str) -> SafeString | str:
    """Return `shown`, which reveals content, or a placeholder if content is hidden."""
    return HIDDEN if is_hidden() else shown


def content_fields(model: type[Model]) -> Collection[str]:
    """Return a model's fields that contain content; a user's identity doesn't count as content."""
    return () if model is models.MemoryUser else masked_columns(model)


def name_of(row: Model) -> str:
    """Return a row's name, or its kind and key if the name may reveal hidden content."""
    if is_hidden() and content_fields(type(row)):
        return f"{row._meta.verbose_name} {str(row.pk)[:8]}"
    return str(row)


def is_open(model: type[Model], name: object) -> bool:
    """Return whether a field on the model's screen is shown to everyone who can see the screen."""
    return name in OPEN.get(model, ())


class Hidden:
    """Stands in for a hidden field on a screen; Django calls it with the row as its argument."""

    def __init__(self, name: str, label: str) -> None:
        self.__name__ = name
        self.short_description = label

    def __call__(self, row: Model) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return self.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)


def masked(model_admin: Any, names: Sequence[Any]) -> list[Any]:
    """Return a screen's fields, with placeholders for those that aren't open."""
    return [
        masked(model_admin, name)
        if isinstance(name, list | tuple)
        else name
        if name == "action_checkbox" or is_open(model_admin.model, name)
        else Hidden(name, str(label_for_field(name, model_admin.model, model_admin)))
        for name in names
    ]


def masked_sets(model_admin: Any, fieldsets: Any) -> tuple[Any, list[Hidden]]:
    """Replace fields that aren't open in a page's fieldsets; also return the replacements."""
    sets: list[tuple[Any, Any]] = [
        (title, {**options, "fields": masked(model_admin, options["fields"])})
        for title, options in fieldsets
    ]
    return sets, [name for name in flatten_fieldsets(sets) if isinstance(name, Hidden)]


def mask_page(model_admin: Any, context: Any) -> None:
    """Hide all fields on a page and in its inlines that aren't open to everyone."""
    page = context["adminform"]
    page.fieldsets, hidden = masked_sets(model_admin, page.fieldsets)
    page.readonly_fields = [*page.readonly_fields, *hidden]
    for rows in context["inline_admin_formsets"] or ():
        rows.fieldsets, hidden = masked_sets(rows.opts, rows.fieldsets)
        rows.readonly_fields = [*rows.readonly_fields, *hidden]
