"""Versions of projects."""

from django.contrib import admin
from django.utils.html import format_html, format_html_join

from memory import checkpoints
from memory.admin.base import NOTHING, ReadOnlyAdmin, link, links_to_entries, preformatted, pretty
from memory.models import Blob, Bytecode, Checkpoint, RecordLocation


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnlyAdmin[Checkpoint]):
    """Accepted versions: what changed, from which entries, and what the gate checked."""

    list_display = ["version_name", "user_link", "origin", "changes", "seen_seq", "created_at"]
    list_filter = ["origin", "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    ordering = ["-created_at"]
    fields = [
        "user_link",
        "version",
        "parent_link",
        "origin",
        "created_at",
        "seen_seq",
        "gate",
        "counts",
        "cited",
        "all_edits",
        "files",
    ]

    @admin.display(description="version", ordering="version")
    def version_name(self, checkpoint: Checkpoint) -> str:
        """Name the version."""
        return f"v{checkpoint.version}"

    @admin.display(description="user")
    def user_link(self, checkpoint: Checkpoint) -> str:
        """Lead to the user."""
        return link(checkpoint.user)

    @admin.display(description="built on")
    def parent_link(self, checkpoint: Checkpoint) -> str:
        """Lead to the version before."""
        parent = checkpoint.parent
        return link(parent, f"v{parent.version}" if parent else None)

    @admin.display(description="changes")
    def changes(self, checkpoint: Checkpoint) -> str:
        """Count the records that changed."""
        counts = checkpoint.verdict.get("counts", {})
        return (
            ", ".join(
                f"{counts[f'records_{verb}']} {verb}"
                for verb in ("added", "updated", "retired")
                if counts.get(f"records_{verb}")
            )
            or f"{len(checkpoint.edits)} edits"
        )

    @admin.display(description="gate")
    def gate(self, checkpoint: Checkpoint) -> str:
        """Show each check with its result."""
        rows = [
            ("passed" if check["passed"] else "failed", check["name"])
            for check in checkpoint.verdict.get("checks", [])
        ]
        return format_html_join("", "<div>{}: {}</div>", rows) or NOTHING

    @admin.display(description="counts")
    def counts(self, checkpoint: Checkpoint) -> str:
        """Show what the gate counted."""
        return pretty(checkpoint.verdict.get("counts"))

    @admin.display(description="entries cited")
    def cited(self, checkpoint: Checkpoint) -> str:
        """Lead to the entries that the edits rest on."""
        seqs = {seq for edit in checkpoint.edits for seq in edit.get("sources", [])}
        return links_to_entries(checkpoint.user, sorted(seqs)[:100])

    @admin.display(description="edits")
    def all_edits(self, checkpoint: Checkpoint) -> str:
        """Show the edits."""
        return pretty(checkpoint.edits)

    @admin.display(description="project")
    def files(self, checkpoint: Checkpoint) -> str:
        """Show every file's source, folded."""
        sources = checkpoints.read_files(checkpoint)
        rows = [(path, preformatted(source)) for path, source in sorted(sources.items()) if source]
        return format_html(
            "<div>{}</div>",
            format_html_join("", "<details><summary>{}</summary>{}</details>", rows),
        )


@admin.register(Blob)
class BlobAdmin(ReadOnlyAdmin[Blob]):
    """Files of projects, by hash."""

    list_display = ["hash", "user"]
    list_select_related = ["user"]
    search_fields = ["=hash", "user__user_id"]
    fields = ["user", "hash", "source"]

    @admin.display(description="content")
    def source(self, blob: Blob) -> str:
        """Show the source."""
        return preformatted(blob.content)


@admin.register(Bytecode)
class BytecodeAdmin(ReadOnlyAdmin[Bytecode]):
    """Compiled files."""

    list_display = ["path", "user", "image_digest"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    fields = ["user", "path", "source_hash", "image_digest"]


@admin.register(RecordLocation)
class RecordLocationAdmin(ReadOnlyAdmin[RecordLocation]):
    """In which file each record is."""

    list_display = [
        "user",
        "domain",
        "collection",
        "key",
        "path",
        "added_version",
        "retired_version",
    ]
    list_select_related = ["user"]
    search_fields = ["=key", "user__user_id"]
