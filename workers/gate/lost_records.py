"""Verify that no record is lost: before + added - retired = after, matching keys and values."""

from collections.abc import Iterator, Mapping, Sequence

from memory.project import ProjectError, Record, RecordId
from memory.project.literals import Uses, record_literal
from memory.project.parse import parse_state
from memory.project.paths import domain_name
from workers.findings import Finding
from workers.gate.cases import ProjectCase


def check_no_loss(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each record in the changed files that doesn't match the edits.

    The rendered files are read back and compared, so that rendering errors are caught as well.
    """
    change = case.change
    before: dict[RecordId, Record] = {}
    after: list[tuple[RecordId, Record]] = []
    for path in change.expected:
        domain = domain_name(path)
        try:
            state = parse_state(path, case.sources[path], change.outline.domains[domain])
        except ProjectError as error:
            yield Finding(
                code="unreadable_file", path=path, line=error.line or None, message=str(error)
            )
            return
        for collection, by_key in state.records.items():
            after += [(RecordId(domain, collection, key), one) for key, one in by_key.items()]
        for collection, records in change.previous_records_in(path).items():
            before |= {RecordId(domain, collection, record.key): record for record in records}
    kept = before.keys() - set(change.retired)
    expected = {record_id: before[record_id] for record_id in kept}
    expected |= {record_id: placed.record for record_id, placed in change.records.items()}
    yield from losses(expected, after)
    for record_id in change.added:
        if record_id in before:
            yield _finding("record_repeated", record_id, "would be added a second time")


def losses(
    expected: Mapping[RecordId, Record], after: Sequence[tuple[RecordId, Record]]
) -> Iterator[Finding]:
    """Compare the expected records with the actual ones: no record may be lost or changed.

    Values must also have the same type to be equal, although in Python 1 == 1.0 == True.
    """
    found: dict[RecordId, list[Record]] = {}
    for record_id, record in after:
        found.setdefault(record_id, []).append(record)
    for record_id in sorted(expected.keys() | found.keys()):
        if record_id not in found:
            yield _finding("record_lost", record_id, "would be lost")
            continue
        if len(found[record_id]) > 1:
            what = f"would exist {len(found[record_id])} times"
            yield _finding("record_doubled", record_id, what)
        if record_id not in expected:
            yield _finding("record_unexpected", record_id, "would appear although no edit adds it")
            continue
        wanted = expected[record_id]
        for one in found[record_id]:
            if one != wanted or record_literal(one, Uses()) != record_literal(wanted, Uses()):
                changed = _differing_field(wanted, one)
                what = f"would change in the field {changed}" if changed else "would change"
                yield _finding("record_changed", record_id, what, changed)
                break


def _finding(code: str, record_id: RecordId, what: str, field: str | None = None) -> Finding:
    message = f"the record {'.'.join(record_id)} {what}"
    return Finding(code=code, record=record_id, field=field, message=message)


def _differing_field(expected: Record, found: Record) -> str | None:
    names = [*expected.fields, *found.fields]
    nothing = object()
    return next(
        (n for n in names if expected.fields.get(n, nothing) != found.fields.get(n, nothing)), None
    )
