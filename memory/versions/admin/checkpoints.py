"""Admin screens for project versions, their files and their bytecode."""

from collections.abc import Collection

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Func, IntegerField, QuerySet
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Length
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from memory.kernel.admin.actions import ask, note_of, staff_of
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import column, content_column, plain_column, row_column
from memory.kernel.admin.display import (
    NOTHING,
    counted,
    first_lines,
    inline,
    lines,
    sandbox,
    sandbox_badge,
    source,
)
from memory.kernel.admin.links import link, link_to_list
from memory.kernel.admin.masking import content
from memory.kernel.admin.tables import TableAdmin
from memory.kernel.hooks import later
from memory.kernel.models.large import defer_large
from memory.kernel.staff import access
from memory.kernel.texts import REDACTED
from memory.log.admin.links import links_to_entries
from memory.log.models.entries import EntryOutcome
from memory.project.values import RecordId
from memory.versions import past_states, rollback
from memory.versions.admin.diffs import show_files, show_records
from memory.versions.admin.edits import edit_title, show_edits
from memory.versions.admin.project import project_url, show_project
from memory.versions.admin.verdicts import durations, gate
from memory.versions.checkpoints import Redacted
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint
from memory.versions.models.runs import Run

# Maximum number of items shown in each list on a rollback's confirmation page; the rest are only
# counted.
MAX_LEFT_OUT = 20

_link_to_alert = later("memory.alerts.admin.links:link_to_alert")

REDACTING = "A redaction of this user's memory is in progress. Try again in a moment."


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnlyAdmin[Checkpoint]):
    """Accepted project versions, with their changes, sources and checks."""

    list_display = [
        "version_name",
        "user",
        "came_from",
        "changes",
        "seen",
        "kind_of_sandbox",
        "created_at",
    ]
    list_filter = ["origin", "created_at"]
    large = ["verdict"]
    ordering = ["-created_at", "-id"]
    actions = ["restore"]
    asking = ["restore"]
    when_empty = "No version has been accepted yet."
    fieldsets = [
        section(
            None,
            *("user", "version_name", "parent_link", "children_links", "came_from", "changes"),
            "created_at",
        ),
        section("Gate", "checks", "counts", "checked_in"),
        section("Changes", "record_changes", "all_edits", "file_changes"),
        section("Language model calls", "attempts"),
        section("Related", "cited", "settled", "seen", "runs"),
        section("The project", "files"),
    ]

    checks = column("verdict", gate, "checks")
    all_edits = column("edits", show_edits, "edits")
    attempts = row_column(later("memory.llm.admin:show_attempts"), "calls", plain=True)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Checkpoint]:
        return (
            super()
            .get_queryset(request)
            .annotate(
                first_edit=KeyTransform(0, "edits"),
                edit_count=Func("edits", function="json_array_length", output_field=IntegerField()),
            )
        )

    def actions_for(self, row: Checkpoint) -> Collection[str]:
        return [] if row.pk == row.user.head_id else super().actions_for(row)

    @admin.action(description="Roll back to this version…", permissions=["operate"])
    def restore(
        self, request: HttpRequest, queryset: QuerySet[Checkpoint]
    ) -> TemplateResponse | None:
        """Ask for confirmation, then save the old content as a new version; leave the log as is."""
        if queryset.count() != 1:
            messages.error(request, "Nothing was done: select only one version.")
            return None
        checkpoint = queryset.select_related("user__workspace").get()
        try:
            if not self.is_confirmed(request, "restore", queryset):
                return _ask_to_restore(request, checkpoint)
            restored = rollback.restore(
                checkpoint.user,
                checkpoint.version,
                reopen="dismiss" not in request.POST,
                by=staff_of(request),
                reason=note_of(request, "restored by staff"),
            )
        except (rollback.NothingToRestore, Redacted, past_states.BeingRedacted) as error:
            messages.error(request, f"Nothing was done: {error}")
            return None
        message = f"Version {restored.version} has the content of version {checkpoint.version}."
        messages.success(request, message)
        return None

    @plain_column("version", "version")
    def version_name(self, checkpoint: Checkpoint) -> str:
        return f"v{checkpoint.version}"

    @plain_column("origin", "origin")
    def came_from(self, checkpoint: Checkpoint) -> str:
        return checkpoint.get_origin_display()

    @plain_column("entries considered", "seen_seq")
    def seen(self, checkpoint: Checkpoint) -> str:
        return f"up to #{checkpoint.seen_seq}"

    @plain_column("built on")
    def parent_link(self, checkpoint: Checkpoint) -> str:
        return link(checkpoint.parent)

    @plain_column("next")
    def children_links(self, checkpoint: Checkpoint) -> str:
        children = defer_large(checkpoint.children.order_by("version"))
        return lines(link(child) for child in children)

    @content_column("changes")
    def changes(self, checkpoint: Checkpoint) -> str:
        counts = checkpoint.verdict.get("counts", {})
        changed = ", ".join(
            f"{counts[f'records_{verb}']} {verb}"
            for verb in ("added", "updated", "retired")
            if counts.get(f"records_{verb}")
        )
        if changed:
            return f"records: {changed}"
        number, first = (
            getattr(checkpoint, "edit_count", 0),
            getattr(checkpoint, "first_edit", None),
        )
        if first is None:
            return NOTHING
        more = f" and {counted(number - 1, 'more edit')}" if number > 1 else ""
        return format_html("{}{}", edit_title(first), more)

    @plain_column("work")
    def counts(self, checkpoint: Checkpoint) -> str:
        counts = checkpoint.verdict.get("counts", {})
        files = ", ".join(
            f"{counts[f'files_{verb}']} {verb}"
            for verb in ("changed", "parsed", "rendered", "compiled", "checked")
            if f"files_{verb}" in counts
        )
        return f"files: {files or NOTHING}; {durations(checkpoint.verdict.get('timings', {}))}"

    @plain_column("executed in")
    def kind_of_sandbox(self, checkpoint: Checkpoint) -> str:
        return sandbox_badge(checkpoint.verdict.get("runner", ""))

    @plain_column("executed in")
    def checked_in(self, checkpoint: Checkpoint) -> str:
        return sandbox(checkpoint.verdict.get("runner", ""))

    @content_column("entries cited")
    def cited(self, checkpoint: Checkpoint) -> str:
        seqs = {seq for edit in checkpoint.edits for seq in edit.get("sources", [])}
        return links_to_entries(checkpoint.user, seqs)

    @plain_column("entries settled")
    def settled(self, checkpoint: Checkpoint) -> str:
        number = checkpoint.outcomes.count()
        return link_to_list(
            EntryOutcome, counted(number, "outcome"), checkpoint__id__exact=checkpoint.pk
        )

    @plain_column("runs")
    def runs(self, checkpoint: Checkpoint) -> str:
        number = checkpoint.runs.count()
        return link_to_list(Run, counted(number, "run"), checkpoint__id__exact=checkpoint.pk)

    @content_column("records")
    def record_changes(self, checkpoint: Checkpoint) -> SafeString | str:
        if checkpoint.user.redacting_since is not None:
            return REDACTING
        return show_records(checkpoint.parent, checkpoint)

    @content_column("files, side by side")
    def file_changes(self, checkpoint: Checkpoint) -> SafeString | str:
        if checkpoint.user.redacting_since is not None:
            return REDACTING
        return show_files(checkpoint.parent, checkpoint)

    @content_column("files")
    def files(self, checkpoint: Checkpoint) -> SafeString | str:
        number = counted(len(checkpoint.tree), "file")
        return format_html('<a href="{}">Browse {}</a>', project_url(checkpoint.pk), number)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_GET(self.project_view))
        return [
            path("<int:pk>/project/", view, name="memory_checkpoint_project"),
            *super().get_urls(),
        ]

    def project_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        checkpoint = self.get_object(request, str(pk))
        if checkpoint is None or checkpoint.user.erased_at is not None:
            raise Http404("There is no such version.")
        if not self.has_view_permission(request, checkpoint):
            raise PermissionDenied
        if not access.sees_content(request.user):
            raise PermissionDenied
        self._note_view(request, checkpoint, "project")
        return show_project(request, checkpoint, self.admin_site.each_context(request))


def _show_record(record: RecordId) -> SafeString:
    return format_html(
        "{} in {}", inline(record.key), inline(f"{record.domain}.{record.collection}")
    )


def _ask_to_restore(request: HttpRequest, checkpoint: Checkpoint) -> TemplateResponse:
    """Return the confirmation page, which shows what rolling back to this version would do.

    Raises NothingToRestore if the newest version is identical to this one, Redacted if content
    needed for the comparison was redacted, and BeingRedacted during a redaction.
    """
    left_out = rollback.excluded_by_restoring(checkpoint.user, checkpoint.version)
    return ask(
        request,
        "restore",
        [checkpoint],
        Checkpoint,
        title=f"Roll back to version {checkpoint.version}?",
        verb="Roll back to this version",
        person=link(checkpoint.user),
        newest=checkpoint.user.head,
        records=first_lines([content(_show_record(one)) for one in left_out.records], MAX_LEFT_OUT),
        alerts=first_lines(list(map(_link_to_alert, left_out.alerts)), MAX_LEFT_OUT),
        may_resolve=first_lines(list(map(_link_to_alert, left_out.may_resolve)), MAX_LEFT_OUT),
        entries=links_to_entries(checkpoint.user, left_out.entries),
    )


@admin.register(Blob)
class BlobAdmin(ReadOnlyAdmin[Blob]):
    """Project files, identified by their hashes."""

    list_display = ["short_hash", "user", "size"]
    search_fields = ["=hash", "user__user_id"]
    search_help_text = "Search by full hash or user id."
    ordering = ["-id"]
    when_empty = "No project has a file yet."
    fields = ["user", "used_as", "hash", "size", "shown"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Blob]:
        return super().get_queryset(request).annotate(characters=Length("content"))

    @content_column("hash", "hash")
    def short_hash(self, blob: Blob) -> str:
        return blob.hash[:12]

    @content_column("paths in the newest version")
    def used_as(self, blob: Blob) -> str:
        head = blob.user.head
        tree = head.tree if head else {}
        return lines(inline(name) for name in sorted(tree) if tree[name] == blob.hash)

    @plain_column("characters")
    def size(self, blob: Blob) -> str:
        characters = getattr(blob, "characters", 0)
        return REDACTED if characters is None else f"{characters:,}"

    @content_column("content")
    def shown(self, blob: Blob) -> str:
        return REDACTED if blob.content is None else source(blob.content)


@admin.register(Bytecode)
class BytecodeAdmin(TableAdmin[Bytecode]):
    """Compiled project files."""

    search_fields = ["path", "user__user_id"]
    search_help_text = "Search by path or user id."
