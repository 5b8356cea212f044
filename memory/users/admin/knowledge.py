"""What is known about a user: the records of a version or state, as tables by domain."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.kernel.admin.display import NOTHING, inline
from memory.kernel.admin.links import link, list_url
from memory.kernel.admin.rows import may_see
from memory.kernel.admin.values import describe_value, in_zone
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff.access import sees_content
from memory.log.admin.links import entry_pages
from memory.log.models.entries import LogEntry
from memory.project import RecordId
from memory.project.errors import ProjectError
from memory.project.names import spaced
from memory.versions import checkpoints
from memory.versions.checkpoints import AnyState
from memory.versions.differences import records_in
from memory.versions.models.checkpoints import RecordLocation

# Domains with more records than this are only counted, since all of their files would be read.
MAX_READ = 500
MAX_DOMAINS = 8
# Maximum number of records shown of a collection (the newest), of their columns and their sources;
# the fields without a column are folded.
MAX_SHOWN = 4
MAX_FIELDS = 8
MAX_SOURCES = 3
# A table with more columns takes the whole width of the page.
MAX_NARROW = 3
# Maximum length of a value that is not broken, such as a date.
MAX_WHOLE = 13
_EMPTY: Collection[Any] = (None, "", [], {})

Records = Mapping[RecordId, Any]


def known_domains(
    request: HttpRequest, user: MemoryUser, state: AnyState | None
) -> Sequence[Mapping[str, Any]]:
    """Return a card for each domain, if the staff member may see records and their content."""
    if state is None or not (may_see(request, RecordLocation) and sees_content(request.user)):
        return []
    domains = list(checkpoints.outline(state).domains.values())[:MAX_DOMAINS]
    sizes = {
        domain.name: sum(one.count for one in domain.collections.values()) for domain in domains
    }
    small = [domain for domain in domains if sizes[domain.name] <= MAX_READ]
    try:
        located = records_in(state, [path for domain in small for path in domain.state_paths()])
    except (checkpoints.Redacted, ProjectError):
        return []
    records = {record: value for record, (_, value) in located.items()}
    shown = {(one.name, name): rows for one in small for name, rows in _newest(one, records)}
    links = _Links(request, user, [record for rows in shown.values() for record in rows], records)

    def url(**chosen: str) -> str:
        """Return the list of records of the newest version; no list has those of another state."""
        if state is not user.head:
            return ""
        return list_url(RecordLocation, user__id__exact=user.pk, **chosen, retired="no")

    return [
        {
            "name": domain.name,
            "tables": [
                {
                    **_table(links, records, name, shown.get((domain.name, name), []), one.count),
                    "url": url(domain__exact=domain.name, collection__exact=name),
                }
                for name, one in domain.collections.items()
                if one.count
            ],
            "url": url(domain__exact=domain.name),
        }
        for domain in domains
        if sizes[domain.name]
    ]


def _newest(domain: Any, records: Records) -> Iterator[tuple[str, Sequence[RecordId]]]:
    """Yield each collection of a domain with its newest records."""
    for name in domain.collections:
        own = [one for one in records if (one.domain, one.collection) == (domain.name, name)]
        own.sort(key=lambda one: max(records[one]["sources"], default=0), reverse=True)
        yield name, own[:MAX_SHOWN]


class _Links:
    """The pages of the records that are shown, and of the entries behind them."""

    def __init__(
        self, request: HttpRequest, user: MemoryUser, shown: Sequence[RecordId], records: Records
    ) -> None:
        self.user = user
        rows = RecordLocation.objects.filter(user=user, key__in={one.key for one in shown})
        self._records = {RecordId(row.domain, row.collection, row.key): row for row in rows}
        seqs = [seq for one in shown for seq in records[one]["sources"][-MAX_SOURCES:]]
        self._entries = entry_pages(user, seqs) if may_see(request, LogEntry) else {}

    def record(self, record: RecordId) -> SafeString | str:
        return link(self._records.get(record), record.key)

    def sources(self, seqs: Sequence[int]) -> SafeString | str:
        pairs = ((self._entries[seq], seq) for seq in seqs[-MAX_SOURCES:] if seq in self._entries)
        return format_html_join(" ", '<a href="{}">#{}</a>', pairs) or NOTHING


def _table(
    links: _Links, records: Records, name: str, shown: Sequence[RecordId], count: int
) -> Mapping[str, Any]:
    fields = [records[one]["fields"] for one in shown]
    pairs = (pair for one in fields for pair in one.items())
    columns = list(dict.fromkeys(key for key, value in pairs if value not in _EMPTY))
    zone = ZoneInfo(links.user.time_zone)
    columns, folded = columns[:MAX_FIELDS], columns[MAX_FIELDS:]
    return {
        "name": name,
        "columns": list(map(spaced, columns)),
        "is_wide": len(columns) > MAX_NARROW,
        "folded": [
            (links.record(one), [(spaced(name), _cell(values.get(name), zone)) for name in folded])
            for one, values in zip(shown, fields, strict=True)
            if folded
        ],
        "rows": [
            (
                links.record(one),
                [(spaced(column), _cell(values.get(column), zone)) for column in columns],
                links.sources(records[one]["sources"]),
            )
            for one, values in zip(shown, fields, strict=True)
        ],
        "more": count - len(shown),
    }


def _cell(value: Any, zone: ZoneInfo) -> SafeString | str:
    if value in _EMPTY:
        return NOTHING
    text = describe_value(in_zone(value, zone), 80)
    shown = inline(text)
    return format_html('<span class="whole">{}</span>', shown) if len(text) <= MAX_WHOLE else shown
