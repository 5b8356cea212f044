"""The search index, which consists of segments and can be rebuilt from the log at any time."""

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import index_if_set
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser


class SearchIndex(LeasedWork):
    """Pending work on one user's search index: when the work is due and which worker does it.

    See `memory.recall.search.index_maintenance`.

    A redaction revokes the lease (migration 0002), so that nothing read before the redaction gets
    written after it.
    """

    user = models.OneToOneField(MemoryUser, on_delete=models.CASCADE, related_name="search_index")
    due_at = models.DateTimeField(
        null=True, help_text="When indexing is due; empty if there is nothing to index."
    )
    is_multilingual = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether texts or questions in other languages than English were found, so that"
        " the multilingual model makes the log's vectors.",
    )

    class Privacy:
        erase = privacy.Erase.DELETE
        export = privacy.WORK

    class Meta:
        verbose_name_plural = "search indexes"
        indexes = [index_if_set("due_at", "search_due")]

    def __str__(self) -> str:
        return f"search index of {self.user}"


class SearchSegment(models.Model):
    """An immutable index of the consecutive entries from `first_seq` to `last_seq`."""

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="segments")
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    version = models.PositiveSmallIntegerField(help_text="The version of the segment's format.")
    blocks = models.PositiveIntegerField(
        help_text="The number of blocks that contain the segment's postings."
    )
    postings = models.PositiveIntegerField(help_text="The number of postings in the segment.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Privacy:
        erase = privacy.Erase.DELETE
        export = "part of the search index, derived from log.jsonl: the entries that it covers"

    class Meta:
        ordering = ["user", "first_seq"]
        constraints = [
            models.UniqueConstraint(fields=["user", "first_seq"], name="segment_of_user"),
            models.CheckConstraint(
                condition=models.Q(first_seq__gte=1, last_seq__gte=models.F("first_seq")),
                name="segment_covers_entries",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} #{self.first_seq}–{self.last_seq}"


class SearchBlock(models.Model):
    """A block of a segment: block 0 describes the entries, and the others contain postings."""

    segment = models.ForeignKey(SearchSegment, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Privacy:
        erase = privacy.Erase.DELETE
        # Words are stored only as hashes, but a guessed word can be checked against its hash.
        content = ("data",)
        export = "part of the search index, derived from log.jsonl: hashes of its words"

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["segment", "number"], name="block_of_segment"),
        ]

    def __str__(self) -> str:
        return f"{self.segment} / {self.number}"
