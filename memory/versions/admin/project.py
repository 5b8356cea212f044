"""A version's files as a tree, with one file shown next to it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models.functions import Length
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.kernel.admin import masking
from memory.kernel.admin.display import badge, inline, visible
from memory.kernel.admin.links import page_url
from memory.kernel.admin.source import MAX_SOURCE, block, cited
from memory.kernel.texts import REDACTED
from memory.log.admin.links import entry_pages
from memory.versions.models.checkpoints import Blob, Checkpoint

# Maximum number of versions offered before and after the version shown.
_NEAR = 50
_MAX_FILES = 2000


def project_url(checkpoint_key: int, path: str = "") -> str:
    """Return the URL of the page that shows a version's files, or one of its files."""
    address = reverse("admin:memory_checkpoint_project", args=[checkpoint_key])
    return f"{address}?{urlencode({'path': path})}" if path else address


def show_project(
    request: HttpRequest, checkpoint: Checkpoint, context: Mapping[str, Any]
) -> HttpResponse:
    """Return the page with a version's files; the URL parameter `path` selects the file shown.

    The URL parameter `version` redirects to the same file in another version.
    """
    path = request.GET.get("path", "")[:500]
    if chosen := request.GET.get("version"):
        return _other(request, checkpoint, chosen, path)
    user = checkpoint.user
    name = visible(masking.name_of(user))
    page_context = {
        **context,
        "title": f"Project of {name}",
        "subtitle": f"v{checkpoint.version}",
        "checkpoint": checkpoint,
        "checkpoint_url": page_url(checkpoint),
        "user_url": page_url(user),
        "user_name": name,
        "path": visible(path),
    }
    if user.redacting_since is not None:
        page_context["problem"] = (
            "A redaction of this user's memory is in progress. Try again in a moment."
        )
        return TemplateResponse(request, "admin/memory/project.html", page_context)
    before = checkpoint.parent.tree if checkpoint.parent else {}
    sizes = dict(
        Blob.objects.filter(user=user, hash__in=set(checkpoint.tree.values()))
        .annotate(size=Length("content"))
        .values_list("hash", "size")
    )
    if not path and checkpoint.tree:
        path = "manifest.py" if "manifest.py" in checkpoint.tree else min(checkpoint.tree)
    page_context |= {
        "path": visible(path),
        "tree": _tree(checkpoint, before, sizes, path),
        **_versions(checkpoint, path),
        **_file(checkpoint, path, sizes),
    }
    return TemplateResponse(request, "admin/memory/project.html", page_context)


def _other(request: HttpRequest, checkpoint: Checkpoint, version: str, path: str) -> HttpResponse:
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
    key = Checkpoint.objects.filter(user_id=checkpoint.user_id, version=number).values_list("pk")
    row = key.first()
    if row is None:
        messages.error(request, f"This user has no version {visible(version[:20])}.")
    return redirect(project_url(row[0] if row else checkpoint.pk, path))


def _versions(checkpoint: Checkpoint, path: str) -> dict[str, Any]:
    """Return the versions to choose from (around the one shown) as template context."""
    versions = Checkpoint.objects.filter(user_id=checkpoint.user_id)
    rows = [
        *versions.filter(version__gt=checkpoint.version)
        .order_by("version")
        .values_list("version", "pk", "created_at")[:_NEAR][::-1],
        (checkpoint.version, checkpoint.pk, checkpoint.created_at),
        *versions.filter(version__lt=checkpoint.version)
        .order_by("-version")
        .values_list("version", "pk", "created_at")[:_NEAR],
    ]
    at = next(index for index, row in enumerate(rows) if row[0] == checkpoint.version)
    newer, older = rows[:at], rows[at + 1 :]
    return {
        "versions": rows,
        "next_version": newer[-1][0] if newer else None,
        "next_url": project_url(newer[-1][1], path) if newer else None,
        "previous_version": older[0][0] if older else None,
        "previous_url": project_url(older[0][1], path) if older else None,
    }


def _file(checkpoint: Checkpoint, path: str, sizes: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the template context for showing a file, or a note on why there is nothing to show."""
    if not checkpoint.tree:
        return {"note": "This version has no files."}
    if path not in checkpoint.tree:
        return {"note": f"Version {checkpoint.version} has no file {visible(path)}."}
    hash_ = checkpoint.tree[path]
    size = sizes.get(hash_)
    if size is None:
        return {"note": f"{REDACTED} This file is based on an entry that was redacted later."}
    if size == 0:
        return {"note": "This file is empty."}
    row = Blob.objects.filter(user_id=checkpoint.user_id, hash=hash_).values_list("pk", "content")
    key, content = row.get()
    if content is None:  # redacted after the size was read
        raise Http404(REDACTED)
    return {
        "size": filesizeformat(size),
        "blob_url": reverse("admin:memory_blob_change", args=[key]),
        "source": block(content, entries=entry_pages(checkpoint.user, cited(content))),
        "cut": size > MAX_SOURCE,
    }


def _tree(
    checkpoint: Checkpoint,
    before: Mapping[str, str],
    sizes: Mapping[str, int | None],
    shown: str,
) -> SafeString:
    """Return the files as nested lists; deleted files appear where they used to be."""
    folders: dict[str, Any] = {}
    gone = before.keys() - checkpoint.tree.keys()
    for path in sorted({*checkpoint.tree, *gone})[:_MAX_FILES]:
        if path in checkpoint.tree and sizes.get(checkpoint.tree[path]) == 0 and path != shown:
            continue  # a package's empty __init__.py
        *parents, name = path.split("/")
        folder = folders
        for parent in parents:
            folder = folder.setdefault(f"{parent}/", {})
        folder[name] = path

    def leaf(name: str, path: str) -> SafeString:
        if path not in checkpoint.tree:
            parent = checkpoint.parent_id
            link = format_html('<a href="{}">{}</a>', project_url(parent or 0, path), inline(name))
            return format_html("{} {}", link, badge("plain", "deleted"))
        size = sizes.get(checkpoint.tree[path])
        mark: SafeString | str = ""
        if before.get(path) != checkpoint.tree[path]:
            mark = badge("changed") if path in before else badge("new")
        return format_html(
            '<a href="{}"{}>{}</a> {} <span class="quiet">{}</span>',
            project_url(checkpoint.pk, path),
            SafeString(' aria-current="page"') if path == shown else "",
            inline(name),
            mark,
            REDACTED if size is None else filesizeformat(size),
        )

    def listed(folder: Mapping[str, Any]) -> SafeString:
        rows = (
            (
                format_html(
                    "<details open><summary>{}</summary>{}</details>", inline(name), listed(entry)
                )
                if isinstance(entry, dict)
                else leaf(name, entry),
            )
            for name, entry in folder.items()
        )
        return format_html('<ul class="files">{}</ul>', format_html_join("", "<li>{}</li>", rows))

    return listed(folders)
