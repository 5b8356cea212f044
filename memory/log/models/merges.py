"""Merges of users who turned out to be the same person, and where their entries were copied."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import index_if_set
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser


class Merge(LeasedWork):
    """A merge of one user into another, whose log receives the merged user's entries in batches.

    See `memory.integrations.merging`.
    """

    user = models.ForeignKey(
        MemoryUser,
        on_delete=models.CASCADE,
        related_name="merges",
        help_text="The user who remains after the merge.",
    )
    merged = models.OneToOneField(
        MemoryUser,
        on_delete=models.CASCADE,
        related_name="merge",
        help_text="The user who is merged and closed: writes and queries for this user are"
        " rejected.",
    )
    by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    last_seq = models.BigIntegerField(
        help_text="The number of the last entry in the merged user's log when the merge was"
        " requested."
    )
    cursor_seq = models.BigIntegerField(
        default=0, help_text="The number of the last entry that has been processed."
    )
    copied = models.BigIntegerField(default=0, help_text="How many entries have been copied.")
    skipped = ArrayField(
        models.BigIntegerField(),
        default=list,
        help_text="The numbers of the entries that were not copied because an entry with the same"
        " idempotency key, or one that they were derived from, was redacted in the other log.",
    )
    left_behind = ArrayField(
        models.CharField(max_length=300),
        default=list,
        help_text="The merged user's own constraints, which were not copied because they are not in"
        " the log.",
    )
    # Maps a fingerprint to the merged user's alert and its state, until the same finding is
    # reported for the remaining user.
    alerts = models.JSONField(default=dict)
    due_at = models.DateTimeField(
        null=True, help_text="When work on the merge is due; empty once it is complete."
    )
    finished_at = models.DateTimeField(null=True)

    class Privacy:
        erase = privacy.Erase.DELETE
        # Constraint names may reveal their subject, and a guessed key can be checked against a
        # fingerprint.
        content = ("left_behind", "alerts")
        plain = ("by",)
        export = privacy.Export("merges", "the users who were merged into this person, and when")
        section = privacy.Section.PEOPLE
        named_by = "merged__user_id"

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            # An erasure ends the work on a merge that is not finished.
            models.CheckConstraint(
                condition=models.Q(due_at=None) | models.Q(finished_at=None), name="merge_finished"
            ),
            models.CheckConstraint(
                condition=models.Q(finished_at=None)
                | models.Q(cursor_seq__gte=models.F("last_seq")),
                name="merge_complete",
            ),
        ]
        indexes = [index_if_set("due_at", "merge_due")]

    def __str__(self) -> str:
        return f"{self.merged} into {self.user}"


class CopiedEntries(models.Model):
    """A range of consecutive entries from a merged user, and the range of their copies."""

    merge = models.ForeignKey(Merge, on_delete=models.CASCADE, related_name="ranges")
    from_seq = models.BigIntegerField(
        help_text="The number of the range's first entry in the merged user's log."
    )
    seq = models.BigIntegerField(
        help_text="The number of the first entry's copy in the other user's log."
    )
    number = models.BigIntegerField(help_text="How many consecutive entries were copied.")

    class Privacy:
        erase = privacy.Erase.DELETE
        export = privacy.Export(
            "copied-entries",
            "the numbers of the entries copied from merged users, and of their copies",
        )

    class Meta:
        verbose_name_plural = "copied entries"
        constraints = [
            models.UniqueConstraint(fields=["merge", "from_seq"], name="copied_once"),
        ]
        indexes = [models.Index(fields=["merge", "seq"], name="copied_as")]

    def __str__(self) -> str:
        return f"{self.merge}: #{self.from_seq} is #{self.seq}"
