"""Versions of a user's project, and the files they share."""

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import ExactJSONField
from memory.kernel.models.users import MemoryUser


class Blob(models.Model):
    """A file's content, addressed by its hash and shared only by versions of one user's project."""

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="blobs")
    hash = models.CharField(max_length=64, help_text="SHA-256 of the content in UTF-8.")
    content = models.TextField(  # noqa: DJ001 - an empty file differs from a redacted file
        null=True,
        help_text="The file's content; empty if an entry it is based on was redacted.",
    )
    git_id = models.CharField(max_length=40, help_text="The content's object id in git.")

    LARGE = ("content",)

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("content", "hash", "git_id")
        export = privacy.Export(
            "files",
            "the content of every file of every version, by its hash; empty if it was redacted",
            chunk=50,
        )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "hash"], name="blob_of_user")]

    def __str__(self) -> str:
        return self.hash[:12]


class Bytecode(models.Model):
    """A file's bytecode, compiled in a sandbox and never unmarshalled outside one.

    The server treats the bytecode as opaque. It is valid only for its path, which is part of the
    code object's file name, and for the image that compiled it.
    """

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="bytecode")
    path = models.CharField(max_length=300)
    source_hash = models.CharField(max_length=64)
    image_digest = models.CharField(max_length=80)
    code = models.BinaryField()

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("path", "source_hash", "code")
        plain = ("image_digest",)
        export = "the project's files in compiled form: their source is in files.jsonl"

    class Meta:
        verbose_name_plural = "bytecode"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "path", "source_hash", "image_digest"], name="bytecode_of_file"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.path} ({self.source_hash[:12]})"


class Origin(models.TextChoices):
    """The source from which a checkpoint was created."""

    RECORDS = "records", "typed records"
    LLM = "llm", "language model"
    PROPOSED = "proposed", "proposed edits"
    IMPORTED = "imported", "imported"
    RESTORED = "restored", "restored"
    REDACTION = "redaction", "redaction"


class Checkpoint(models.Model):
    """An immutable version of a user's project that has passed the gate.

    The only exception to immutability is a redaction, which clears the content based on the
    redacted entries: see migration 0002.
    """

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="checkpoints")
    version = models.IntegerField()
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="children")
    tree = models.JSONField(help_text="Maps the path of each file to the hash of its blob.")
    outline = models.JSONField(
        help_text="An outline of the project, without its records: see memory.project.Outline."
    )
    seen_seq = models.BigIntegerField(
        help_text="The number of the newest entry reflected in this version."
    )
    origin = models.CharField(max_length=16, choices=Origin.choices)
    edits = ExactJSONField(
        help_text="The edits that produced this version, each with the entries it is based on."
    )
    verdict = models.JSONField(help_text="The gate's checks, each with its findings.")
    created_at = models.DateTimeField(auto_now_add=True)

    LARGE = ("tree", "outline", "edits", "verdict")

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("tree", "outline", "edits", "verdict")
        export = privacy.Export(
            "versions",
            "every version of the project: its files (path and hash), and its changes with the"
            " entries that caused them",
            order=("version",),
            chunk=20,
        )
        section = privacy.Section.PEOPLE
        named_by = "version"

    class Meta:
        verbose_name = "version"
        ordering = ["user", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["user", "version"], name="checkpoint_version"),
            models.CheckConstraint(
                condition=models.Q(verdict__contains={"accepted": True})
                & ~models.Q(verdict__contains={"checks": [{"passed": False}]}),
                name="checkpoint_accepted",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="checkpoint_newest"),
            models.Index(
                fields=["user", "version"],
                name="checkpoint_restored",
                condition=models.Q(origin="restored"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.short_name}"

    @property
    def short_name(self) -> str:
        """The version's name among those of its user."""
        return f"v{self.version}"


class RecordLocation(models.Model):
    """The file that contains a record, so that only this file is read when the record changes.

    The row is kept after the record is retired, so that an entry that arrives late but occurred
    before the retirement doesn't bring the record back. If a newer entry does, the row describes
    the record's new life, except for `added_version`, which is when the key was first used.
    """

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="locations")
    domain = models.CharField(max_length=100)
    collection = models.CharField(max_length=100)
    key = models.CharField(max_length=200)
    path = models.CharField(max_length=300)
    added_version = models.IntegerField()
    retired_version = models.IntegerField(null=True)
    ended_by = models.BigIntegerField(
        null=True,
        help_text="The entry with the key's last retirement, by the time at which entries occurred;"
        " entries before it are not part of the record.",
    )

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("domain", "collection", "key", "path")
        export = privacy.Export(
            "records", "every current and former record: its name, and the file that contains it"
        )
        section = privacy.Section.PEOPLE

    class Meta:
        verbose_name = "record"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "domain", "collection", "key"], name="location_of_record"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.domain}.{self.collection}[{self.key!r}]"
