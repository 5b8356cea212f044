"""The erasure registry: every column that may contain data about a person, and how to erase it.

It lists every model whose foreign keys lead to a user, and classifies each field as either content
or kept. A test fails if a field is missing, so nobody can add a column that an erasure would miss.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from graphlib import TopologicalSorter
from typing import Any

from django.db import models

from memory.alerts.models.alerts import Alert, AlertEvent, AlertFeedback, PausedConstraint
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt
from memory.constraints.models.backtests import Backtest, BacktestUser
from memory.constraints.models.forecasts import Forecast
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, MemoryUser
from memory.llm.models import LlmCall
from memory.log.entry_log import PAYLOAD_FIELDS
from memory.log.models.entries import EntryOutcome, LogEntry
from memory.log.models.merges import CopiedEntries, Merge
from memory.log.models.redactions import Redaction
from memory.privacy.models import UserErasure
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, RecordLocation
from memory.versions.models.runs import Run


class Method(StrEnum):
    """The ways to erase a model's rows."""

    REDACT = "redact"  # keep the row but clear its content: hashes and totals must still match
    DELETE = "delete"  # delete the row
    PSEUDONYMISE = "pseudonymise"  # keep the row as a tombstone without a name


@dataclass(frozen=True)
class Erasure:
    """Erasure of a model's rows: `content` columns may be about the person, `kept` ones can't."""

    method: Method
    content: tuple[str, ...]
    kept: tuple[str, ...]


_LEASE = ("run_after", "hinted_at", "lease_owner", "lease_expires_at", "token", "attempts")

# Laid out as a table, with as many columns per line as fit.
# fmt: off
REGISTRY: dict[type[models.Model], Erasure] = {
    MemoryUser: Erasure(
        Method.PSEUDONYMISE,
        content=("user_id", "metadata", "time_zone"),
        kept=("id", "public_id", "workspace", "created_at", "erased_at", "last_seq", "last_hash",
              "last_given_time", "log_bytes", "head", "redacting_since", "merged_into",
              "alerts_version", "alerts_instant", "constraints_due_at", "constraints_changed_at"),
    ),
    LogEntry: Erasure(
        Method.REDACT,
        content=(*PAYLOAD_FIELDS, "salt"),
        kept=("id", "user", "seq", "kind", "occurred_at", "recorded_at", "derived_from",
              "payload_hash", "hash", "redacted_at"),
    ),
    EntryOutcome: Erasure(
        Method.DELETE,
        content=("reason", "set_aside"),
        kept=("id", "user", "seq", "outcome", "superseded_by", "checkpoint", "decided_at"),
    ),
    Lane: Erasure(
        Method.DELETE,
        content=("last_error",),
        kept=("id", "user", "name", "due_at", "waiting", "waiting_since", "cursor_seq", *_LEASE),
    ),
    Blob: Erasure(Method.DELETE, content=("content", "hash", "git_id"), kept=("id", "user")),
    Bytecode: Erasure(
        Method.DELETE,
        content=("path", "source_hash", "code"),
        kept=("id", "user", "image_digest"),
    ),
    Checkpoint: Erasure(
        Method.DELETE,
        content=("tree", "outline", "edits", "verdict"),
        kept=("id", "user", "version", "parent", "seen_seq", "origin", "created_at"),
    ),
    RecordLocation: Erasure(
        Method.DELETE,
        content=("domain", "collection", "key", "path"),
        kept=("id", "user", "added_version", "retired_version", "ended_by"),
    ),
    Redaction: Erasure(
        Method.DELETE,
        content=("reason", "problem", "last_error"),
        kept=("id", "user", "seq", "asked", "entries", "by", "created_at", "due_at", "finished_at",
              "version", "records", "constraints", "reopened", *_LEASE),
    ),
    Merge: Erasure(
        Method.DELETE,
        # Constraint names may reveal their subject, and a guessed key can be checked against a
        # fingerprint.
        content=("left_behind", "alerts", "last_error"),
        kept=("id", "user", "merged", "by", "created_at", "last_seq", "cursor_seq", "copied",
              "due_at", "finished_at", *_LEASE),
    ),
    CopiedEntries: Erasure(
        Method.DELETE, content=(), kept=("id", "merge", "from_seq", "seq", "number")
    ),
    Run: Erasure(
        Method.DELETE,
        content=("input", "output", "error", "stdout", "last_error", "test_gaps"),
        kept=("id", "user", "kind", "trigger", "asked_by", "checkpoint", "instant", "answer_key",
              "status", "outcome", "runner", "host", "timings", "memory_bytes", "queued_at",
              "started_at", "finished_at", *_LEASE, "dead_since"),
    ),
    Forecast: Erasure(
        Method.DELETE,
        content=("results", "timeline", "basis", "last_error"),
        kept=("id", "user", "due_at", "checkpoint", "computed_at", "start", "horizon_days",
              "known_until", "needs_daily", "next_change", "wakes_at", "timings", *_LEASE,
              "dead_since"),
    ),
    SearchIndex: Erasure(
        Method.DELETE,
        content=("last_error",),
        kept=("id", "user", "due_at", *_LEASE),
    ),
    SearchSegment: Erasure(
        Method.DELETE,
        content=(),
        kept=("id", "user", "first_seq", "last_seq", "version", "blocks", "postings", "created_at"),
    ),
    SearchBlock: Erasure(
        Method.DELETE,
        # Words are stored only as hashes, but a guessed word can be checked against its hash.
        content=("data",),
        kept=("id", "segment", "number"),
    ),
    # A backtest of a workspace constraint belongs to no user and isn't about a particular person.
    Backtest: Erasure(
        Method.DELETE,
        content=("constraint", "source_hash", "reason", "last_error"),
        kept=("id", "workspace", "version", "user", "days", "by", "most_users", "until", "state",
              "cursor", "picked", "looked_at", "created_at", "created_by", "started_at",
              "finished_at", *_LEASE, "dead_since"),
    ),
    BacktestUser: Erasure(
        Method.DELETE,
        content=("problems", "error", "findings"),
        kept=("id", "backtest", "user", "state", "since", "known_until", "versions", "looks",
              "problem_count", "alert_count", "counts", "kept_count"),
    ),
    # The cleared row is kept because the feed reports that the alert was erased, so that everyone
    # who has a copy can delete it.
    Alert: Erasure(
        Method.REDACT,
        content=("constraint", "message", "evidence", "fingerprint"),
        kept=("id", "user", "kind", "severity", "entries", "state", "opened_at", "changed_at",
              "resolved_at", "snoozed_until", "holds_back", "open_since", "escalate_at",
              "escalated_at", "last_run", "duplicate_of", "was_duplicate_of"),
    ),
    AlertFeedback: Erasure(
        Method.DELETE,
        content=("note", "actor"),
        kept=("id", "alert", "judge", "verdict", "at"),
    ),
    Pause: Erasure(
        Method.DELETE,
        content=("reason",),
        kept=("id", "user", "workspace", "paused_at", "paused_by", "resumed_at", "resumed_by"),
    ),
    PausedConstraint: Erasure(
        Method.DELETE,
        content=("constraint", "source_hash", "reason", "resumed_because"),
        kept=("id", "user", "paused_at", "paused_by", "resumed_at", "resumed_by"),
    ),
    AlertEvent: Erasure(
        Method.REDACT,
        # The row is kept for its number, since the event feed must not have gaps.
        content=("detail", "actor", "entries"),
        kept=("id", "workspace", "seq", "alert", "user", "kind", "at", "run"),
    ),
    Delivery: Erasure(
        Method.DELETE,
        content=("payload", "last_error"),
        kept=("id", "endpoint", "event", "alert", "seq", "type", "state", "created_at",
              "settled_at", *_LEASE, "dead_since"),
    ),
    DeliveryAttempt: Erasure(
        Method.DELETE,
        # An endpoint's response may repeat what was sent to it.
        content=("error", "answer"),
        kept=("id", "delivery", "at", "seconds", "address", "status"),
    ),
    LlmCall: Erasure(
        Method.REDACT,
        # A short prompt can be guessed from its unkeyed hash, and errors may quote the request.
        content=("prompt", "answer", "prompt_hash", "error"),
        kept=("id", "workspace", "user", "purpose", "work", "turn", "attempt", "lane", "run",
              "checkpoint", "accepted", "refusals", "model", "answered_by", "outcome",
              "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost",
              "reserved_tokens", "reserved_cost", "started_at", "expires_at", "finished_at",
              "seconds"),
    ),
    # This is the tombstone: who requested the erasure, and why, stays on record.
    UserErasure: Erasure(
        Method.REDACT,
        content=("last_error",),
        kept=("id", "user", "by", "reason", "created_at", "due_at", "finished_at", "counts",
              "hosts", *_LEASE),
    ),
    IdempotencyKey: Erasure(
        Method.DELETE,
        # A short request body can be guessed from its unkeyed hash.
        content=("key", "fingerprint", "reference"),
        kept=("id", "workspace", "user", "created_at"),
    ),
}
# fmt: on


def in_order() -> list[type[models.Model]]:
    """Return the registry's models, each before the models that its foreign keys refer to."""
    pointing = TopologicalSorter[type[models.Model]]()
    for model in REGISTRY:
        pointing.add(model)
        for field in _foreign_keys(model):
            if field.related_model is not model:
                pointing.add(field.related_model, model)
    return list(pointing.static_order())


# Events, and the messages about them, concern either an alert about the user or entries in the
# user's log.
_PATHS: dict[type[models.Model], tuple[str, str]] = {
    AlertEvent: ("alert__user", "user"),
    Delivery: ("alert__user", "event__user"),
    DeliveryAttempt: ("delivery__alert__user", "delivery__event__user"),
}


def rows_of(model: type[models.Model], user: MemoryUser) -> models.QuerySet[Any]:
    """Select this user's rows of a model in the registry."""
    rows = model._base_manager
    if model not in _PATHS:
        return rows.filter(**{_path_to_user(model): user.pk})
    # Use a union, since no single index covers both paths.
    keys = [rows.filter(**{path: user.pk}).order_by().values("pk") for path in _PATHS[model]]
    return rows.filter(pk__in=keys[0].union(*keys[1:]))


def blanks(model: type[models.Model]) -> dict[str, Any]:
    """Map each of a model's content fields to its empty value."""
    found = {}
    for name in REGISTRY[model].content:
        field: Any = model._meta.get_field(name)
        found[name] = None if field.null else field.get_default()
    return found


def telling(model: type[models.Model]) -> models.Q:
    """Match the rows that still have content, for models whose rows are kept."""
    told = models.Q()
    for name, blank in blanks(model).items():
        told |= (
            models.Q(**{f"{name}__isnull": False}) if blank is None else ~models.Q(**{name: blank})
        )
    return told


@cache
def _path_to_user(model: type[models.Model]) -> str:
    """Return the shortest path of foreign keys from a model to the user."""
    if model is MemoryUser:
        return "pk"
    ways: list[tuple[str, Any]] = [
        (field.name, field.related_model) for field in _foreign_keys(model)
    ]
    while ways:
        path, reached = ways.pop(0)
        if reached is MemoryUser:
            return path
        ways += [(f"{path}__{field.name}", field.related_model) for field in _foreign_keys(reached)]
    raise LookupError(f"{model.__name__} does not lead to a user")


def _foreign_keys(model: type[models.Model]) -> Iterator[Any]:
    """Yield a model's foreign keys to models in the registry, except those of the user model."""
    if model is MemoryUser:
        return
    for field in model._meta.concrete_fields:
        if isinstance(field, models.ForeignKey) and field.related_model in REGISTRY:
            yield field
