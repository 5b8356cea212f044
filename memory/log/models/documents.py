"""Uploaded documents: their conversion to text, and the entries that hold the text."""

import uuid
from typing import ClassVar

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import index_if_set
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser


class Documents(models.Manager["Document"]):
    """Documents, read without their files."""

    def get_queryset(self) -> models.QuerySet["Document"]:
        """Leave out the files, which are large."""
        return super().get_queryset().defer("file")


class Document(LeasedWork):
    """A document: pending work until it is converted, then where its text is in the log.

    See `memory.log.documents`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="documents")
    name = models.CharField(max_length=255)
    media_type = models.CharField(
        max_length=100, blank=True, default="", help_text="The type that the content has."
    )
    size = models.PositiveIntegerField(help_text="The size of the file in bytes.")
    sha256 = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="The SHA-256 of the file; empty once the file is removed by a redaction.",
    )
    file = models.BinaryField(
        null=True, help_text="The original; empty if it is not, or no longer, stored."
    )
    by = models.CharField(max_length=200)
    occurred_at = models.DateTimeField(
        null=True, help_text="When the content was said or was true, if the upload said so."
    )
    created_at = models.DateTimeField()

    due_at = models.DateTimeField(
        null=True, help_text="When the conversion is due; empty once it has ended."
    )
    finished_at = models.DateTimeField(null=True)
    pages = models.PositiveIntegerField(
        null=True, help_text="How many pages, slides, sheets or messages it has, if it has any."
    )
    characters = models.PositiveIntegerField(default=0, help_text="The length of its text.")
    first_seq = models.BigIntegerField(
        null=True, help_text="The first of the entries that hold its text."
    )
    last_seq = models.BigIntegerField(
        null=True, help_text="The last of the entries that hold its text."
    )
    error = models.CharField(
        max_length=40, blank=True, default="", help_text="Why nothing of it is in the log."
    )
    detail = models.TextField(blank=True, default="", help_text="The same in words.")

    objects = Documents()
    LARGE: ClassVar = ("file",)

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("name", "sha256", "file", "detail")
        plain = ("media_type", "by", "error")
        export = privacy.Export(
            "documents",
            "the uploaded documents; those that are stored are in `documents/`",
            order=("created_at", "pk"),
            without={"file": "the documents themselves are files in `documents/`"},
        )
        section = privacy.Section.PEOPLE

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "sha256"], name="document_once", condition=~models.Q(sha256="")
            ),
            # An erasure ends the work on a document that is not converted.
            models.CheckConstraint(
                condition=models.Q(due_at=None) | models.Q(finished_at=None),
                name="document_finished",
            ),
        ]
        indexes = [
            index_if_set("due_at", "document_due"),
            models.Index(fields=["user", "-created_at", "-id"], name="document_newest"),
        ]

    @property
    def state(self) -> str:
        """Whether the document is `waiting` to be converted, `failed` or `done`."""
        return "waiting" if self.due_at is not None else "failed" if self.error else "done"

    def __str__(self) -> str:
        return f"document {str(self.id)[:8]}"
