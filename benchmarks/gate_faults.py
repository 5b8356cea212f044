"""Find faults in rows by comparing them with the true records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gate_execution import State


def faults(rows: Sequence[Mapping[str, Any]], true: Mapping[Any, Mapping[str, Any]]) -> set[Any]:
    """Return the kind and record id of every fault in these rows.

    A fault is a record that is missing, unexpected, doubled or changed.
    """
    by_id: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_id.setdefault(row.get("id"), []).append(row)
    found = {("record_lost", number) for number in true.keys() - by_id.keys()}
    found |= {("record_unexpected", number) for number in by_id.keys() - true.keys()}
    for number, same in by_id.items():
        if len(same) > 1:
            found.add(("record_doubled", number))
        if number in true and any(row != true[number] for row in same):
            found.add(("record_changed", number))
    return found


def faults_that_the_gate_finds(
    rows: Sequence[Mapping[str, Any]], true: Mapping[Any, Mapping[str, Any]]
) -> set[Any]:
    """Return the same as `faults`, but as found by the gate's check that nothing is lost."""
    from memory.project import EditError, Project, RecordEntry, apply, compile_record
    from workers.gate.lost_records import losses

    def records(those: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, Any]]:
        for row in those:  # each row gets its own project, since a key may occur twice
            project = Project.empty()
            entry = RecordEntry(1, "data", "Row", str(row.get("id")), "rows", row)
            try:
                for edit in compile_record(project, entry):
                    apply(project, edit)
            except EditError:
                continue
            yield from project.records("data", "rows")

    findings = losses(dict(records(list(true.values()))), list(records(rows)))
    ids = {str(key): key for key in (*true, *(row.get("id") for row in rows))}
    return {(finding.code, ids[finding.record.key]) for finding in findings if finding.record}


def damaged(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a copy of the true rows with one fault of each kind planted in it."""
    planted = [dict(row) for row in rows]
    changed = planted[0]
    name = next(name for name in changed if name != "id")
    value = changed[name]
    changed[name] = f"{value}x" if isinstance(value, str) else value + 1
    del planted[1]
    planted.append(dict(planted[2]))
    planted.append({**planted[3], "id": -1})
    return planted


def rows_of(state: State) -> list[dict[str, Any]]:
    """Return all records as plain rows, with dates as ISO texts."""
    return [
        {name: _row_value(value) for name, value in row["fields"].items()}
        for rows in state.holders.values()
        for row in rows
    ]


def _row_value(value: Any) -> Any:
    return value.get("$date", value) if isinstance(value, dict) else value
