"""Compare edits with the entries they cite, to check whether the entries support them."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from django.db.models import Sum, TextField
from django.db.models.functions import Cast, Coalesce, Length

from memory.constraints import applicability
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import parse_python
from memory.log.models.entries import LogEntry
from memory.project import Change, Outline, Record, RecordId
from memory.project.paths import constraint_path, domain_name
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint
from workers.findings import Finding
from workers.grounding import separate_process
from workers.grounding.changed_values import RecordUpdate
from workers.grounding.retired_records import Retirement, successor
from workers.grounding.values_in_entries import Source, claims_of

# Maximum total length of the entries read to check one change.
MAX_CITED_CHARACTERS = 5_000_000


class TooMuchCited(Exception):
    """The cited entries exceed MAX_CITED_CHARACTERS in total; `finding` explains the limit."""

    def __init__(self, characters: int) -> None:
        super().__init__(
            f"the entries that the edits cite have {characters:,} characters:"
            f" at most {MAX_CITED_CHARACTERS:,} are allowed"
        )

    @property
    def finding(self) -> Finding:
        """The finding with which the edits are rejected."""
        return Finding(code=separate_process.TOO_MUCH, message=str(self), fix=separate_process.FIX)


def unfounded(
    user: MemoryUser, parent: Checkpoint | None, change: Change, *, is_of_model: bool
) -> Iterator[Finding]:
    """Yield a finding for each claim or change to a record that no cited entry supports.

    If a language model made the change, the wording of new texts has to be supported, too; people
    and products may choose their own words. Raises `separate_process.ReadingFailed` if the check
    itself fails.
    """
    before = {
        RecordId(domain_name(path), collection, record.key): record
        for path in change.previous
        for collection, records in change.previous_records_in(path).items()
        for record in records
    }
    touched = {one: before[one] for one in (*change.updated, *change.retired)}
    rested_on = rest_on(user, touched)
    claims = [
        claims_of(
            record_id,
            placed.record,
            before.get(record_id),
            change.derived.get(record_id, {}),
            _fields_of(change, record_id, placed.record),
        )
        for record_id, placed in change.records.items()
    ]
    retirements = [
        Retirement(record_id, before[record_id], cited, rested_on[record_id])
        for record_id, cited in change.retired_by.items()
    ]
    added = [change.records[record_id].record for record_id in change.added]
    updates = [
        *(
            _update(change, one, change.as_named.get(one, before[one]), rested_on[one])
            for one in change.updated
        ),
        *_restated(change, retirements, added),
    ]
    seqs = {seq for seqs in rested_on.values() for seq in separate_process.newest(seqs)}
    seqs |= {seq for claim in claims for seq in claim.sources}
    seqs |= {seq for one in retirements for seq in one.sources}
    seqs |= {seq for one in updates for cited in one.cited.values() for seq in cited}
    try:
        sources = read_sources(user, seqs)
    except TooMuchCited as error:
        yield error.finding
        return
    cited = separate_process.Cited(
        claims=claims,
        updates=updates,
        retirements=retirements,
        added=added,
        sources=sources,
        read=_fields_read(user, parent) if updates and parent is not None else frozenset(),
        time_zone=user.time_zone,
        is_of_model=is_of_model,
    )
    yield from separate_process.unfounded(cited)


def read_sources(user: MemoryUser, seqs: Collection[int]) -> dict[int, Source]:
    """Return the user's entries with these log numbers, in the form that the checks expect.

    Raises TooMuchCited, without reading any entries, if they are too long in total.
    """
    entries = LogEntry.objects.filter(user=user, seq__in=seqs)
    length = Coalesce(Length("content"), 0) + Coalesce(Length(Cast("data", TextField())), 0)
    characters = int(entries.aggregate(all=Sum(length, default=0))["all"])
    if characters > MAX_CITED_CHARACTERS:
        raise TooMuchCited(characters)
    return {
        seq: Source(seq, content or "", occurred_at, data, speaker or "")
        for seq, content, occurred_at, data, speaker in entries.values_list(
            "seq", "content", "occurred_at", "data", "speaker"
        )
    }


def rest_on(user: MemoryUser, records: Mapping[RecordId, Record]) -> dict[RecordId, set[int]]:
    """Return, for each record, the entries it relies on and the entries these were derived from."""
    seqs = {seq for record in records.values() for seq in record.sources}
    entries = LogEntry.objects.filter(user=user, seq__in=seqs)
    origins = dict(entries.values_list("seq", "derived_from"))
    return {
        record_id: {
            *record.sources,
            *(origin for seq in record.sources for origin in origins.get(seq, ())),
        }
        for record_id, record in records.items()
    }


def _update(
    change: Change, record_id: RecordId, before: Record, rested_on: set[int]
) -> RecordUpdate:
    after = change.records[record_id].record
    return RecordUpdate(
        record_id,
        before,
        after,
        cited=change.set_by.get(record_id, {}),
        fields=_fields_of(change, record_id, after),
        rested_on=rested_on,
        derived=change.derived.get(record_id, {}),
    )


def _restated(
    change: Change, retirements: Sequence[Retirement], added: Sequence[Record]
) -> Iterator[RecordUpdate]:
    """For each retired record that is replaced by a new record, yield how the values change."""
    for one in retirements:
        if (new := successor(one.record, added)) is None:
            continue
        fields = _fields_of(change, one.record_id, new)
        new_id = one.record_id._replace(key=new.key)
        yield RecordUpdate(
            one.record_id,
            one.record,
            new,
            cited=dict.fromkeys([*one.record.fields, *fields], (*one.sources, *new.sources)),
            fields=fields,
            rested_on=one.rested_on,
            derived=change.derived.get(new_id, {}),
        )


def _fields_of(change: Change, record_id: RecordId, record: Record) -> list[str]:
    class_ = change.outline.domains[record_id.domain].classes[record.class_name]
    return [field.name for field in class_.fields]


def _fields_read(user: MemoryUser, parent: Checkpoint) -> frozenset[str]:
    """Return the names of the fields that constraints read, including workspace constraints."""
    outline = Outline.from_json(parent.outline)
    paths = [constraint_path(name) for name in outline.constraints]
    applicabilities = applicability.applicabilities(user, outline)
    applying = [one.constraint for one in applicabilities if one.applies]
    live = applicability.read_live(applying).values()
    sources = [*checkpoints.read_files(parent, paths).values(), *(one.source for one in live)]
    return frozenset().union(*map(_attributes, sources))


@lru_cache(maxsize=1024)
def _attributes(source: str) -> frozenset[str]:
    names = set()
    for node in ast.walk(parse_python(source)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.MatchClass):
            names.update(node.kwd_attrs)
    return frozenset(names)
