"""Display of evidence: records with their fields, and the entries and messages behind them."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.admin.display import badge, inline, lines, shortened
from memory.admin.links import link_to_entry, page_url
from memory.admin.masking import content
from memory.admin.values import in_words
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind, LogEntry
from memory.privacy.redaction import TOLD

_MAX_QUOTE = 500


def local_time(at: datetime.datetime, user: MemoryUser) -> str:
    """Return a time in the user's time zone, with the zone's name."""
    return f"{at.astimezone(ZoneInfo(user.time_zone)):%Y-%m-%d %H:%M} ({user.time_zone})"


def show_fields(fields: Mapping[str, Any]) -> SafeString | str:
    """Show a record's fields on one line, leaving out empty fields."""
    told = format_html_join(
        ", ",
        "{} <b>{}</b>",
        (
            (inline(name), inline(in_words(value)))
            for name, value in fields.items()
            if value not in (None, "", [])
        ),
    )
    return format_html('<div class="fields">{}</div>', told) if told else ""


def show_entries(user: MemoryUser, seqs: Iterable[int]) -> Mapping[int, SafeString]:
    """Return these entries from the user's log as markup, keyed by entry number.

    Facts are followed by the messages they were derived from; messages are quoted.
    """
    known: dict[int, LogEntry] = {}
    wanted = chosen = set(seqs)
    while wanted:  # entries derive only from earlier ones, so this loop ends
        found = LogEntry.objects.filter(user=user, seq__in=wanted)
        known |= {entry.seq: entry for entry in found}
        wanted = {seq for entry in found for seq in entry.derived_from} - known.keys()
    return {seq: _show(known[seq], user, known) for seq in sorted(chosen & known.keys())}


def _show(entry: LogEntry, user: MemoryUser, known: Mapping[int, LogEntry]) -> SafeString:
    told = _quote(entry, user) if entry.kind == EntryKind.MESSAGE else link_to_entry(entry)
    behind = [_show(known[seq], user, known) for seq in entry.derived_from if seq in known]
    return format_html("{}{}", told, lines(behind) if behind else "")


def _quote(message: LogEntry, user: MemoryUser) -> SafeString:
    """Quote a message: its speaker, the time in the user's time zone, and the text."""
    who = message.speaker or message.role or "somebody"
    words = (
        TOLD
        if message.redacted_at is not None
        else shortened(" ".join((message.content or "").split()), _MAX_QUOTE)
    )
    return format_html(
        '<a href="{}">#{}</a> {} {}, {}: <q class="said">{}</q>',
        page_url(message),
        message.seq,
        badge(message.kind, message.get_kind_display()),
        content(inline(who)),
        local_time(message.occurred_at, user),
        content(inline(words)),
    )
