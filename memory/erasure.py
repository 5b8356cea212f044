"""Where the content of a person is, and how it is erased.

Every model that reaches a user is listed, every field of it on one side or the other; a test fails
for what is missing, so that nobody adds a column that an erasure forgets.
"""

from dataclasses import dataclass
from enum import StrEnum

from django.db import models

from memory.log import PAYLOAD_FIELDS
from memory.models import (
    Alert,
    AlertEvent,
    AlertFeedback,
    Backtest,
    BacktestFinding,
    BacktestUser,
    Blob,
    Bytecode,
    Checkpoint,
    Delivery,
    DeliveryAttempt,
    EntryOutcome,
    Forecast,
    IdempotencyKey,
    Lane,
    LlmCall,
    LogEntry,
    MemoryUser,
    PausedConstraint,
    RecordLocation,
    Run,
    SearchBlock,
    SearchIndex,
    SearchSegment,
)


class Method(StrEnum):
    """How a row's content goes."""

    REDACT = "redact"  # empty the content, keep the row: hashes and accounts must still add up
    DELETE = "delete"  # the row goes with the person
    PSEUDONYMISE = "pseudonymise"  # the row stays as a tombstone without a name


@dataclass(frozen=True)
class Erasure:
    """How a model's rows are erased: `content` may tell of the person, `kept` cannot."""

    method: Method
    content: tuple[str, ...]
    kept: tuple[str, ...]


_LEASE = (
    "run_after",
    "hinted_at",
    "lease_owner",
    "lease_expires_at",
    "token",
    "attempts",
)

REGISTRY: dict[type[models.Model], Erasure] = {
    MemoryUser: Erasure(
        Method.PSEUDONYMISE,
        content=("user_id", "metadata", "time_zone"),
        kept=(
            "id",
            "public_id",
            "workspace",
            "created_at",
            "last_seq",
            "last_hash",
            "head",
            "alerts_version",
            "alerts_instant",
            "constraints_due_at",
            "constraints_changed_at",
        ),
    ),
    LogEntry: Erasure(
        Method.REDACT,
        content=(*PAYLOAD_FIELDS, "salt"),
        kept=(
            "id",
            "user",
            "seq",
            "kind",
            "occurred_at",
            "recorded_at",
            "derived_from",
            "payload_hash",
            "hash",
            "redacted_at",
        ),
    ),
    EntryOutcome: Erasure(
        Method.DELETE,
        content=("reason",),
        kept=("id", "user", "seq", "outcome", "checkpoint", "decided_at"),
    ),
    Lane: Erasure(
        Method.DELETE,
        content=("last_error",),
        kept=("id", "user", "name", "due_at", "waiting", "waiting_since", "cursor_seq", *_LEASE),
    ),
    Blob: Erasure(Method.DELETE, content=("content", "hash"), kept=("id", "user")),
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
        kept=("id", "user", "added_version", "retired_version"),
    ),
    Run: Erasure(
        Method.DELETE,
        content=("input", "output", "error", "stdout", "last_error"),
        kept=(
            "id",
            "user",
            "kind",
            "trigger",
            "checkpoint",
            "instant",
            "answer_key",
            "status",
            "outcome",
            "runner",
            "host",
            "timings",
            "memory_bytes",
            "queued_at",
            "started_at",
            "finished_at",
            *_LEASE,
        ),
    ),
    Forecast: Erasure(
        Method.DELETE,
        content=("results", "timeline", "basis", "last_error"),
        kept=(
            "id",
            "user",
            "due_at",
            "checkpoint",
            "computed_at",
            "start",
            "horizon_days",
            "known_until",
            "needs_daily",
            "next_change",
            "wakes_at",
            "timings",
            *_LEASE,
        ),
    ),
    SearchIndex: Erasure(
        Method.DELETE,
        content=("last_error",),
        kept=("id", "user", "due_at", *_LEASE),
    ),
    SearchSegment: Erasure(
        Method.DELETE,
        content=(),
        kept=(
            "id",
            "user",
            "first_seq",
            "last_seq",
            "version",
            "blocks",
            "postings",
            "created_at",
        ),
    ),
    SearchBlock: Erasure(
        Method.DELETE,
        # Of words there are hashes alone, which can be guessed.
        content=("data",),
        kept=("id", "segment", "number"),
    ),
    # Of a workspace's constraint it has no user, and tells of nobody.
    Backtest: Erasure(
        Method.DELETE,
        content=("constraint", "source_hash", "reason", "last_error"),
        kept=(
            "id",
            "workspace",
            "version",
            "user",
            "days",
            "most_users",
            "until",
            "state",
            "cursor",
            "picked",
            "looked_at",
            "created_at",
            "created_by",
            "started_at",
            "finished_at",
            *_LEASE,
        ),
    ),
    BacktestUser: Erasure(
        Method.DELETE,
        content=("problems", "error"),
        kept=(
            "id",
            "backtest",
            "user",
            "state",
            "since",
            "known_until",
            "versions",
            "looks",
            "problem_count",
            "left_out",
        ),
    ),
    BacktestFinding: Erasure(
        Method.DELETE,
        content=("fingerprint", "message", "evidence", "changes"),
        kept=(
            "id",
            "result",
            "severity",
            "entries",
            "opened_at",
            "day",
            "version",
            "resolved_at",
            "resolved_version",
        ),
    ),
    Alert: Erasure(
        Method.DELETE,
        content=("constraint", "message", "evidence", "fingerprint"),
        kept=(
            "id",
            "user",
            "kind",
            "severity",
            "entries",
            "state",
            "opened_at",
            "changed_at",
            "resolved_at",
            "snoozed_until",
            "holds_back",
            "open_since",
            "escalate_at",
            "escalated_at",
            "last_run",
        ),
    ),
    AlertFeedback: Erasure(
        Method.DELETE,
        content=("note", "actor"),
        kept=("id", "alert", "judge", "verdict", "at"),
    ),
    PausedConstraint: Erasure(
        Method.DELETE,
        content=("constraint", "source_hash", "reason", "resumed_because"),
        kept=("id", "user", "paused_at", "paused_by", "resumed_at", "resumed_by"),
    ),
    AlertEvent: Erasure(
        Method.DELETE,
        content=("detail", "actor"),
        kept=("id", "workspace", "seq", "alert", "kind", "at", "run"),
    ),
    Delivery: Erasure(
        Method.DELETE,
        content=("payload", "last_error"),
        kept=(
            "id",
            "endpoint",
            "event",
            "alert",
            "seq",
            "type",
            "state",
            "created_at",
            "settled_at",
            *_LEASE,
        ),
    ),
    DeliveryAttempt: Erasure(
        Method.DELETE,
        # An endpoint may answer with what it was sent.
        content=("error", "answer"),
        kept=("id", "delivery", "at", "seconds", "address", "status"),
    ),
    LlmCall: Erasure(
        Method.REDACT,
        # Of a short prompt a plain hash can be guessed; errors quote what was sent.
        content=("prompt", "answer", "prompt_hash", "error"),
        kept=(
            "id",
            "workspace",
            "user",
            "purpose",
            "work",
            "turn",
            "attempt",
            "lane",
            "run",
            "checkpoint",
            "model",
            "answered_by",
            "outcome",
            "input_tokens",
            "output_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "cost",
            "reserved_tokens",
            "reserved_cost",
            "started_at",
            "expires_at",
            "finished_at",
            "seconds",
        ),
    ),
    IdempotencyKey: Erasure(
        Method.DELETE,
        # Of a short body a plain hash can be guessed.
        content=("key", "fingerprint", "reference"),
        kept=("id", "workspace", "user", "created_at"),
    ),
}
