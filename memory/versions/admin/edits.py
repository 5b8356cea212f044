"""Human-readable display of project edits."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.kernel.admin.display import folded, inline, lines, pretty, record_name, source

_MAX_EDITS = 200


def show_edits(edits: Sequence[Mapping[str, Any]]) -> SafeString | str:
    """Show each edit as one line that expands to the whole edit."""
    rows: list[SafeString | str] = [
        folded(edit_title(edit), _body(edit), unfold=len(edits) <= 2) for edit in edits[:_MAX_EDITS]
    ]
    if len(edits) > _MAX_EDITS:
        rows.append(f"… and {len(edits) - _MAX_EDITS} more")
    return lines(rows)


def edit_title(edit: Mapping[str, Any]) -> SafeString:
    """Describe the edit in one line."""
    words = str(edit.get("op", "edit")).replace("_", " ")
    if "key" in edit and edit["key"] is not None:
        subject = record_name(edit.get("class_name") or edit.get("collection") or "", edit["key"])
    elif "class_name" in edit:
        subject = inline(f"{edit['class_name']}.{edit.get('name', '')}".rstrip("."))
    else:
        candidates = (edit.get(name) for name in ("name", "text", "about", "reason"))
        subject = inline(str(next(filter(None, candidates), "")))
    domain = format_html(" in {}", inline(edit["domain"])) if edit.get("domain") else ""
    seqs = ", ".join(f"#{seq}" for seq in edit.get("sources") or ())
    return format_html("{} {}{}{}", words, subject, domain, f" (from {seqs})" if seqs else "")


def _body(edit: Mapping[str, Any]) -> SafeString | str:
    if edit.get("op") == "write_constraint":
        return format_html(
            "{}{}", source(edit.get("source", "")), source(edit.get("tests_source", ""))
        )
    return pretty({name: value for name, value in edit.items() if name not in ("op", "sources")})
