"""The log; the database ensures that it is append-only: see migration 0002."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from memory.kernel.models import privacy
from memory.kernel.models.fields import ExactJSONField
from memory.kernel.models.users import MemoryUser


class By(models.TextChoices):
    """The time that determines a past state: when entries were recorded, or when they occurred."""

    RECORDED = "recorded", "what was known then"
    OCCURRED = "occurred", "what was true then, according to the entries' own times"


class EntryKind(models.TextChoices):
    """The kinds of log entries."""

    MESSAGE = "message", "message"
    FACT = "fact", "fact"
    RECORD = "record", "typed record"
    CORRECTION = "correction", "correction"
    REDACTION = "redaction", "redaction"


class Trust(models.TextChoices):
    """Where an entry comes from, from the most to the least trustworthy."""

    USER = "user", "the person"
    TOOL = "tool", "a tool"
    DOCUMENT = "document", "a document"
    MODEL = "model", "a model"


# Kinds of entries whose content is a complete statement.
STATEMENTS = (EntryKind.FACT, EntryKind.CORRECTION)
# The columns that an entry's hash covers and that a redaction clears, together with the salt.
PAYLOAD_FIELDS = (
    *("content", "data", "metadata", "session_id", "role", "speaker", "agent_id", "source"),
    "idempotency_key",
)


class LogEntry(models.Model):
    """One immutable entry in a user's log.

    Only `memory.log.entry_log.append` writes rows. No foreign keys point to this table: an entry is
    referenced by (user, seq). The table is partitioned by user: in the database, the primary key is
    (id, user).
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    # Indexed by `entry_seq`.
    user = models.ForeignKey(
        MemoryUser, on_delete=models.PROTECT, related_name="entries", db_index=False
    )
    seq = models.BigIntegerField(
        help_text="The entry's number in the user's log: 1, 2, 3 and so on, without gaps."
    )
    kind = models.CharField(max_length=16, choices=EntryKind.choices)
    occurred_at = models.DateTimeField(help_text="When the content was true, or when it was said.")
    recorded_at = models.DateTimeField(help_text="When the entry was recorded in the log.")
    derived_from = ArrayField(models.BigIntegerField(), default=list, blank=True)
    trust = models.CharField(
        max_length=8,
        choices=Trust.choices,
        default=Trust.USER,
        db_default=Trust.USER,
        help_text="Where the entry comes from; a fact made of messages has the class of these.",
    )

    content = models.TextField(null=True)
    data = ExactJSONField(null=True)
    metadata = ExactJSONField(null=True)
    session_id = models.CharField(max_length=200, null=True)
    role = models.CharField(max_length=32, null=True)
    speaker = models.CharField(max_length=200, null=True)
    agent_id = models.CharField(max_length=200, null=True)
    source = models.CharField(
        max_length=200, null=True, help_text="The component that wrote the entry."
    )
    idempotency_key = models.CharField(max_length=255, null=True)
    key_hash = models.BinaryField(
        max_length=32,
        null=True,
        help_text="A keyed hash of the idempotency key, which outlives the content: an entry that"
        " was cleared is not logged again under its key.",
    )
    salt = models.BinaryField(max_length=16, null=True)

    payload_hash = models.BinaryField(max_length=32)
    hash = models.BinaryField(max_length=32)
    redacted_at = models.DateTimeField(null=True)

    # Not a column: the entry's outcome, set once `memory.log.entry_log.outcomes` has fetched it.
    outcome: "EntryOutcome | None"

    class Privacy:
        erase = privacy.Erase.REDACT
        content = (*PAYLOAD_FIELDS, "key_hash", "salt")
        plain = ("payload_hash", "hash")
        export = privacy.Export(
            "log",
            "all messages and other entries, in order; a redacted entry has no content",
            order=("seq",),
        )
        section = privacy.Section.PEOPLE

    class Meta:
        ordering = ["user", "seq"]
        verbose_name_plural = "log entries"
        constraints = [
            models.UniqueConstraint(fields=["user", "seq"], name="entry_seq"),
            models.UniqueConstraint(
                fields=["user", "idempotency_key"], name="entry_idempotency_key"
            ),
            models.UniqueConstraint(
                fields=["user", "key_hash"],
                name="entry_cleared_key",
                condition=models.Q(redacted_at__isnull=False),
            ),
        ]
        indexes = [
            # For the admin's lists: all users' newest entries, and one user's entries by time.
            models.Index(fields=["-recorded_at", "-seq"], name="entry_newest"),
            models.Index(fields=["user", "-recorded_at", "-seq"], name="entry_times"),
            models.Index(
                fields=["user", "seq"],
                name="entry_redacted",
                condition=models.Q(redacted_at__isnull=False),
            ),
            # Used by `memory.privacy.retention` to find old messages.
            models.Index(
                fields=["recorded_at"],
                name="entry_messages",
                condition=models.Q(kind="message", redacted_at=None),
            ),
            # Used by `memory.integrations.mem0` to count and list memories.
            models.Index(
                fields=["user", "seq"],
                name="entry_statements",
                condition=models.Q(kind__in=STATEMENTS, redacted_at=None),
            ),
            # Used to find an entry's corrections.
            models.Index(
                "user",
                models.F("derived_from__0"),
                name="entry_corrections",
                condition=models.Q(kind="correction"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} #{self.seq}"


class Outcome(models.TextChoices):
    """The possible outcomes of an entry. An entry without an outcome is pending."""

    COVERED = "covered", "covered"
    DISMISSED = "dismissed", "dismissed"
    REJECTED = "rejected", "rejected"


class EntryOutcome(models.Model):
    """One entry's outcome, stored with a checkpoint or when the gate rejects the entry."""

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="outcomes")
    seq = models.BigIntegerField()
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    checkpoint = models.ForeignKey(
        "Checkpoint", null=True, on_delete=models.PROTECT, related_name="outcomes"
    )
    reason = models.TextField(blank=True, default="")
    superseded_by = ArrayField(
        models.BigIntegerField(),
        null=True,
        help_text="The newer entries because of which the entry changed nothing, or less than it"
        " says.",
    )
    set_aside = ArrayField(
        models.TextField(),
        default=list,
        help_text="The fields of the record whose values in this entry did not fit: they are kept"
        " in the record, set aside.",
    )
    decided_at = models.DateTimeField(
        default=timezone.now,
        editable=False,
        help_text="When the version that settled the entry was made; later if the outcome was only"
        " decided after that version already existed.",
    )

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("reason", "set_aside")
        export = privacy.Export("outcomes", "the outcome of each entry", order=("seq",))
        section = privacy.Section.PEOPLE

    class Meta:
        ordering = ["user", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["user", "seq"], name="outcome_of_entry"),
            models.CheckConstraint(condition=models.Q(seq__gte=1), name="outcome_numbered"),
        ]
        indexes = [
            models.Index(fields=["-decided_at", "-seq"], name="outcome_newest"),
            # Used to count recent entry_events.
            models.Index(
                fields=["decided_at"],
                name="outcome_rejected",
                condition=models.Q(outcome="rejected"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} #{self.seq}: {self.outcome}"
