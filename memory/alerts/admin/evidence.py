"""An alert's evidence: the records it cites and the constraint that raised it."""

import re
from collections.abc import Mapping
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.alerts.models.alerts import Alert, AlertKind
from memory.kernel.admin.display import folded, inline, lines, record_name, source
from memory.kernel.admin.links import link, page_url
from memory.kernel.admin.source import block, matching_statements
from memory.kernel.admin.values import describe_value
from memory.kernel.hooks import later
from memory.kernel.texts import REDACTED, docstring_of, parse_valid
from memory.log.admin.links import show_entries
from memory.project.values import RecordId
from memory.versions.checkpoints import Redacted, read_files
from memory.versions.models.checkpoints import RecordLocation
from memory.versions.provenance import read_records

# The version of the workspace constraint that raised an alert, if it was one.
_version_of = later("memory.constraints.applicability:version_of")
# Number of source lines shown before and after the lines that raised an alert.
AROUND = 4


def show_records(alert: Alert) -> SafeString | str:
    """List the cited records as a chain: messages, facts, and the record with its fields.

    The values that the alert's message repeats are highlighted.
    """
    if not alert.evidence:
        return "The constraint cited no records as evidence."
    locations, fields = _locations(alert), _fields(alert)
    entries = show_entries(alert.user, alert.entries, shows_records=bool(fields))
    return lines(
        format_html(
            '{}<div class="record">{} in {}{}</div>',
            lines(entries[seq] for seq in item["sources"] if seq in entries),
            _record_link(item, locations.get(_record_id(item))),
            inline(f"{item['domain']}.{item['collection']}"),
            _show_fields(fields.get(_record_id(item), {}), alert.message),
        )
        for item in alert.evidence
    )


def _record_link(item: Mapping[str, Any], location: RecordLocation | None) -> SafeString:
    name = record_name(item["class"], item["key"])
    if location is None:
        return name
    return format_html('<a href="{}">{}</a>', page_url(location), name)


def _record_id(item: Mapping[str, Any]) -> RecordId:
    return RecordId(item["domain"], item["collection"], item["key"])


def _locations(alert: Alert) -> Mapping[RecordId, RecordLocation]:
    """Return the record locations for the alert's evidence."""
    keys = {item["key"] for item in alert.evidence}
    rows = RecordLocation.objects.filter(user=alert.user, key__in=keys)
    return {RecordId(row.domain, row.collection, row.key): row for row in rows}


def _fields(alert: Alert) -> Mapping[RecordId, Mapping[str, Any]]:
    """Return the fields of the records cited by the alert, as of the run that last reported it."""
    checkpoint = alert.last_run.checkpoint if alert.last_run else None
    if checkpoint is None:
        return {}
    try:
        records = read_records(checkpoint, [_record_id(item) for item in alert.evidence])
    except Redacted:
        return {}
    return {record: value["fields"] for record, value in records.items()}


def show_constraint(alert: Alert) -> SafeString | str:
    """Show the constraint's source as of the run that last reported the alert."""
    checkpoint = alert.last_run.checkpoint if alert.last_run else None
    path = inline(alert.constraint)
    if (ours := _version_of(alert)) is not None:
        return format_html("<div>{} is {}</div>{}", path, link(ours), _rule(alert, ours.source))
    if checkpoint is None or alert.constraint not in checkpoint.tree:
        return format_html("{} (not in the project at that time)", path)
    try:
        text = read_files(checkpoint, [alert.constraint])[alert.constraint]
    except Redacted:
        return format_html("{} {}", path, REDACTED)
    version = link(checkpoint)
    return format_html("<div>{} in {}</div>{}", path, version, _rule(alert, text))


def _rule(alert: Alert, text: str) -> SafeString:
    """Show what the rule says, and its source, folded, with the lines that raised the alert."""
    module = parse_valid(text)
    demand = docstring_of(module) if module else ""
    return format_html("<p>{}</p>{}", inline(demand), _code(alert, text))


def _code(alert: Alert, text: str) -> SafeString:
    is_finding = alert.kind == AlertKind.FINDING
    places = (
        matching_statements(text, alert.severity, alert.message)
        if is_finding
        else _failed_at(alert)
    )
    if not places:
        return folded("Source", source(text))
    marked = {number for span in places for number in span}
    where = ", ".join(
        str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in places
    )
    noun = "line" if len(marked) == 1 else "lines"
    if len(places) > 1:
        noun = f"one of the {noun}"
    verb = "Raised" if is_finding else "Failed"
    title = f"{verb} on {noun} {where} (highlighted)."
    excerpt = block(text, marked=marked, around=AROUND)
    whole = folded("Full source", source(text, marked=marked))
    return folded(title, format_html("{}{}", excerpt, whole))


def _failed_at(alert: Alert) -> list[range]:
    """Return the line where the constraint failed in the run that last reported the alert."""
    output = alert.last_run.output if alert.last_run else None
    for result in output.get("constraints", ()) if isinstance(output, dict) else ():
        error = result["error"] if result["path"] == alert.constraint else None
        if error and error.get("path") == alert.constraint and error.get("line"):
            return [range(error["line"], error["line"] + 1)]
    return []


def _value(text: str, message: str) -> SafeString:
    is_repeated = re.search(rf"\b{re.escape(text)}\b", message, re.IGNORECASE)
    return format_html("<mark>{}</mark>" if is_repeated else "<b>{}</b>", inline(text))


def _show_fields(fields: Mapping[str, Any], message: str) -> SafeString | str:
    """Show a record's fields on one line, without empty ones; mark what the message repeats."""
    rows = format_html_join(
        ", ",
        "{} {}",
        (
            (inline(name.replace("_", " ")), _value(describe_value(value), message))
            for name, value in fields.items()
            if value not in (None, "", [])
        ),
    )
    return format_html('<div class="fields">{}</div>', rows) if rows else ""
