"""Links to entries, and quotes of them."""

from collections.abc import Iterable, Mapping

from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.kernel.admin.display import badge, facts, inline, lines, local_time, shortened
from memory.kernel.admin.links import MAX_LINKS, page_url, url_of_key
from memory.kernel.admin.masking import content
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import REDACTED
from memory.log.documents import place_of
from memory.log.models.entries import EntryKind, LogEntry, Trust

_MAX_PAGES = 1000
_MAX_QUOTE = 500


def summary(entry: LogEntry) -> str:
    """Return the beginning of an entry's content."""
    if entry.redacted_at is not None:
        return REDACTED
    record = entry.data if entry.kind == EntryKind.RECORD else None
    if record is None:
        return shortened(" ".join((entry.content or "").split()), 160)
    data = record.get("data")
    name = f"{record.get('type') or ''} {record.get('key') or ''}".strip()
    text = "retired" if record.get("retired") else facts(data if isinstance(data, dict) else {})
    return shortened(f"{name}: {text}" if name else text, 160)


def link_to_entry(entry: LogEntry) -> SafeString:
    """Return a link to the entry, followed by the beginning of its content."""
    return format_html(
        '<a href="{}">#{}</a> {}{}: {}',
        page_url(entry),
        entry.seq,
        badge(entry.kind, entry.get_kind_display()),
        _origin(entry),
        content(inline(summary(entry))),
    )


def links_to_entries(user: MemoryUser, seqs: Iterable[int]) -> SafeString | str:
    """Return links to these entries in the user's log, each with the beginning of its content."""
    wanted = sorted(set(seqs))
    entries = LogEntry.objects.filter(user=user, seq__in=wanted[:MAX_LINKS]).order_by("seq")
    rows: list[SafeString | str] = [link_to_entry(entry) for entry in entries]
    if len(wanted) > MAX_LINKS:
        rows.append(f"… and {len(wanted) - MAX_LINKS} more, up to #{wanted[-1]}")
    return lines(rows)


def entry_pages(user: MemoryUser, seqs: Iterable[int]) -> dict[int, str]:
    """Return the page URLs of these entries, keyed by number; at most a thousand are looked up."""
    wanted = sorted(set(seqs))[:_MAX_PAGES]
    entries = LogEntry.objects.filter(user=user, seq__in=wanted).order_by()
    pairs = entries.values_list("seq", "pk")
    return {seq: url_of_key(LogEntry, pk) for seq, pk in pairs}


def show_entries(
    user: MemoryUser, seqs: Iterable[int], *, shows_records: bool = False
) -> Mapping[int, SafeString]:
    """Return these entries from the user's log as markup, keyed by entry number.

    Facts follow the messages that they were derived from; a message is quoted once. Of a typed
    record, only the time is shown if the page `shows_records`.
    """
    entries: dict[int, LogEntry] = {}
    wanted = chosen = set(seqs)
    while wanted:  # entries derive only from earlier ones, so this loop ends
        rows = LogEntry.objects.filter(user=user, seq__in=wanted)
        entries |= {entry.seq: entry for entry in rows}
        wanted = {seq for entry in rows for seq in entry.derived_from} - entries.keys()
    shown: dict[int, SafeString] = {}
    quoted = set(chosen)
    for seq, entry in sorted(entries.items()):
        if entry.kind == EntryKind.MESSAGE:
            text = _quote(entry, user)
        elif entry.kind == EntryKind.RECORD and shows_records and entry.redacted_at is None:
            text = _name(entry, user)
        else:
            text = link_to_entry(entry)
        behind = [
            format_html('<a href="{}">#{}</a>, as quoted', page_url(entries[one]), one)
            if one in quoted
            else shown[one]
            for one in entry.derived_from
            if one in shown
        ]
        quoted.update(entry.derived_from)
        shown[seq] = format_html("{}{}", lines(behind), text) if behind else text
    return {seq: text for seq, text in shown.items() if seq in chosen}


def _origin(entry: LogEntry) -> SafeString | str:
    """Return from whom or what an entry comes, unless it is the person."""
    if entry.trust == Trust.USER:
        return ""
    origin = f" from {entry.get_trust_display()}"
    if place := place_of(entry):
        return format_html("{}, {}", origin, content(inline(place)))
    return origin


def _name(entry: LogEntry, user: MemoryUser) -> SafeString:
    return format_html(
        '<a href="{}">#{}</a> {}{}, {}',
        page_url(entry),
        entry.seq,
        entry.get_kind_display(),
        _origin(entry),
        local_time(entry.occurred_at, user),
    )


def _quote(message: LogEntry, user: MemoryUser) -> SafeString:
    """Quote a message: its speaker, the time in the user's time zone, and the text."""
    who = message.speaker or message.role or "somebody"
    words = (
        REDACTED
        if message.redacted_at is not None
        else shortened(" ".join((message.content or "").split()), _MAX_QUOTE)
    )
    return format_html(
        '<a href="{}">#{}</a> {}{} by {}, {}: <q class="said">{}</q>',
        page_url(message),
        message.seq,
        badge(message.kind, message.get_kind_display()),
        _origin(message),
        content(inline(who)),
        local_time(message.occurred_at, user),
        content(inline(words)),
    )
