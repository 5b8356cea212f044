"""The users that workspaces remember, and the lanes of pending work for each user."""

import re
import unicodedata
import uuid

from django.core.exceptions import ValidationError
from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import index_if_set, validate_time_zone
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.workspaces import Workspace

MAX_USER_ID = 256
# Any text without control characters (of lines, or of the direction of writing).
USER_ID_PATTERN = re.compile(
    rf"[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff]{{1,{MAX_USER_ID}}}"
)
USER_ID_RULE = (
    f"Use 1 to {MAX_USER_ID} characters of any script, without control characters or surrounding"
    " spaces, in Unicode's form NFC"
)
# Our own endpoints below a user's URL. Web servers decode %2F before they pass on a path, so an id
# with one of these names after a slash could not be told from another user's endpoint.
USER_ENDPOINTS = (
    *("alerts", "ask", "backtests", "checkpoints", "constraints", "context", "diff", "documents"),
    *("entries", "events", "export", "forecast", "git", "import", "manifest", "mcp", "merge"),
    *("outcomes", "query", "redactions", "runs", "search", "state", "subject-access"),
)
# Matches a user's id in a decoded path, in which it may have slashes.
USER_ID_IN_PATH = (
    r"(?!\.{1,2}/)(?:[^/]+|(?=/.))"
    rf"(?:/(?!(?:\.{{1,2}}|{'|'.join(USER_ENDPOINTS)})(?:/|$))[^/]*)*"
)
# Begins the name of an erased user, which nobody else may have.
ERASED = "(erased)"


def is_user_id(text: str) -> bool:
    """Return whether a user may have this id."""
    return not user_id_fault(text)


def user_id_fault(text: str) -> str:
    """Return why no user may have this id; "" if a user may."""
    if not USER_ID_PATTERN.fullmatch(text) or text != text.strip():
        return f"{USER_ID_RULE}."
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "Half of a surrogate pair is no character."
    if not unicodedata.is_normalized("NFC", text):
        return (
            "Send the id in Unicode's form NFC, in which answers and events name the user: what"
            " looks the same is then the same id."
        )
    first, *rest = text.split("/")
    if {".", ".."} & {first, *rest}:
        return "HTTP libraries resolve . and .. in a path: use other names between slashes."
    if named := sorted({*rest} & {*USER_ENDPOINTS}):
        return f"{named[0]!r} after a slash is one of this server's own endpoints: use another id."
    if text.startswith(ERASED):
        return f"{ERASED!r} marks an erased user: use another id."
    return ""


def validate_user_id(text: str) -> None:
    """Raise ValidationError for an id that no user may have."""
    if fault := user_id_fault(text):
        raise ValidationError(fault)


class RememberedUsers(models.Manager["MemoryUser"]):
    """The default manager, which leaves out users who have been erased or are being erased."""

    def get_queryset(self) -> models.QuerySet["MemoryUser"]:
        """Leave out users who have been erased or are being erased."""
        return super().get_queryset().filter(erased_at=None)

    def locked(self, pk: int) -> "MemoryUser":
        """Lock a user's row until the end of the transaction, and return it.

        It is the first row that a transaction locks; rows that refer to it can still be inserted.
        """
        return self.get_queryset().select_for_update(no_key=True).get(pk=pk)


class MemoryUser(models.Model):
    """A person that a workspace remembers, identified by the workspace's own `user_id`.

    Once an erasure is requested, the row stays but loses its name: see
    `memory.privacy.user_erasure`.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="users")
    user_id = models.CharField(max_length=MAX_USER_ID, validators=[validate_user_id])
    time_zone = models.CharField(max_length=64, default="UTC", validators=[validate_time_zone])
    metadata = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    erased_at = models.DateTimeField(
        null=True, editable=False, help_text="When the erasure of this user was requested."
    )

    # The end of the user's log. It changes only while this row is locked, in the same transaction
    # that inserts the entries.
    last_seq = models.BigIntegerField(default=0, editable=False)
    last_hash = models.BinaryField(max_length=32, default=bytes(32), editable=False)
    last_given_time = models.DateTimeField(
        null=True,
        editable=False,
        help_text="The newest time that the server gave to an entry without a time of its own."
        " Such entries are in the order of the log, even if the clocks of servers differ.",
    )
    log_bytes = models.BigIntegerField(
        default=0,
        editable=False,
        help_text="The size of the user's entries in bytes, not counting redacted entries.",
    )

    head = models.ForeignKey(
        "Checkpoint",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="The newest accepted version of the project.",
    )
    redacting_since = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When the newest version was withheld because it may contain redacted content.",
    )
    merged_into = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="The user that this user was merged into; writes and queries for this user are"
        " rejected.",
    )
    # The version and evaluation time of the run that the open alerts reflect. Results from older
    # runs are not applied.
    alerts_version = models.IntegerField(default=0, editable=False)
    alerts_instant = models.DateTimeField(null=True, editable=False)
    constraints_due_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When the next scheduled run of the user's constraints is due.",
    )
    constraints_changed_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When the workspace's constraints changed; empty once they have run again for"
        " this user.",
    )

    objects = RememberedUsers()
    everybody: models.Manager["MemoryUser"] = models.Manager()

    LARGE = ("metadata",)

    class Privacy:
        erase = privacy.Erase.PSEUDONYMISE
        owners = ("pk",)
        content = ("metadata",)
        identity = ("user_id", "time_zone")
        plain = ("last_hash",)
        export = privacy.Export(
            "person",
            "the person: the product's id, the time zone, and the product's metadata",
            without={"alerts_version": privacy.WORK, "constraints_changed_at": privacy.WORK},
        )
        section = privacy.Section.PEOPLE
        named_by = "user_id"

    class Meta:
        ordering = ["workspace", "user_id"]
        verbose_name = "user"
        permissions = [
            ("erase_memoryuser", "Can erase users permanently (privacy)"),
            ("subject_access", "Can download all stored data about a person (privacy)"),
        ]
        constraints = [
            # The condition keeps the index from being a key that rows could refer to: otherwise, an
            # erasure, which changes the user_id, and a transaction that adds a row about the user
            # would wait for each other.
            models.UniqueConstraint(
                fields=["workspace", "user_id"],
                condition=models.Q(erased_at=None),
                name="user_id_of_remembered",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at"], name="user_newest"),
            index_if_set("constraints_due_at", "user_constraints_due"),
            models.Index(
                fields=["constraints_changed_at"],
                name="user_constraints_changed",
                condition=models.Q(constraints_changed_at__isnull=False, head__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.user_id


class LaneName(models.TextChoices):
    """The two kinds of work for a user, which can be done concurrently."""

    RECORDS = "records", "typed records"
    STRUCTURE = "structure", "language model"


class Lane(LeasedWork):
    """One kind of pending work for one user, and the lease of the worker doing it."""

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="lanes")
    name = models.CharField(max_length=16, choices=LaneName.choices)
    due_at = models.DateTimeField(
        null=True, help_text="When the work is due; empty when nothing is pending."
    )
    # The next two fields are only used for the language model's lane, in `memory.log.batching`.
    waiting = models.PositiveIntegerField(
        default=0,
        help_text="How many entries have arrived since the last time nothing was pending.",
    )
    waiting_since = models.DateTimeField(
        null=True, help_text="When the oldest of the waiting entries arrived."
    )
    # Every entry up to this number has an outcome if this lane processes entries of its kind.
    cursor_seq = models.BigIntegerField(default=0)

    class Privacy:
        erase = privacy.Erase.DELETE
        export = privacy.Export("work", "whether entries are waiting to be processed")
        section = privacy.Section.SERVER
        named_by = "name"

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="lane_of_user")]
        indexes = [
            models.Index(
                fields=["name", "due_at"],
                name="lane_due",
                condition=models.Q(due_at__isnull=False),
            ),
            # For the admin's list: the longest-waiting lanes first, those without pending work
            # last.
            models.Index(fields=["due_at", "id"], name="lane_longest"),
        ]

    def __str__(self) -> str:
        return f"{self.user} / {self.name}"
