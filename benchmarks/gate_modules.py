"""Import every recorded module and compare each resulting project with the executed module."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gate_execution import State, compared, executed
from benchmarks.gate_recordings import Recorded, import_module
from benchmarks.harness import Client, Measured, Row


def modules(client: Client, recorded: Recorded) -> Measured:
    """Import every module; return a row for each module, the figures and the problems."""
    rows: list[Row] = []
    problems: list[str] = []
    count: Counter[str] = Counter()
    for index, case in enumerate(recorded.modules):
        true = recorded.analytical.get(case["id"])
        row, wrong = check_module(client, f"module-{index}", case, true, count)
        rows.append(row)
        problems += wrong
    names = (
        *("modules", "imported", "repaired", "rejected"),
        *("false_rejections", "silent_changes", "crashes"),
    )
    figures: dict[str, Any] = {name: count[name] for name in names}
    faulty, planted = count["faulty"], count["planted"]
    every, found = faulty + planted, count["found"]
    figures["wrong_values_found_share"] = found / every if every else None
    figures |= {"wrong_values_of_the_model": faulty, "wrong_values_planted": planted}
    return rows, figures, problems


def check_module(
    client: Client,
    user_id: str,
    case: Mapping[str, Any],
    true: Mapping[str, Any] | None,
    count: Counter[str],
) -> tuple[Row, list[str]]:
    """Import one module and add its outcome to `count`; return its row and the problems."""
    status, body = import_module(client, user_id, case["code"])
    runs, _ = executed(case["code"])
    repairs = [
        name for one in (body.get("report") or {}).get("repairs", []) for name in one["repairs"]
    ]
    row: Row = {
        "module": case["id"][:40],
        "executes": runs is not None,
        "status": status,
        "repairs": ", ".join(repairs),
    }
    count["modules"] += 1
    if status == 422:
        count["rejected"] += 1
        row["reason"] = body["verdict"]["reason"][:90]
        if runs is None:
            return row, []
        count["false_rejections"] += 1
        return row, [f"{user_id}: executes, but was refused: {row['reason']}"]
    if status != 200:
        count["crashes"] += 1
        return row, [f"{user_id}: {status} {body!r:.200}"]
    count["imported"] += 1
    count["repaired"] += bool(repairs)
    state = State(client, user_id)
    changed = find_changes(state, case["code"])
    count["silent_changes"] += bool(changed)
    problems = [f"{user_id}: {one}" for one in changed[:3]]
    row["records"] = sum(map(len, state.holders.values()))
    if true is not None:
        row["faults"], excess = check_faults(state, true, count)
        if excess:
            problems.append(f"{user_id}: the gate reports a fault that is none: {excess!r:.200}")
    return row, problems


def find_changes(state: State, source: str) -> list[str]:
    """Return where the project differs from the result of executing the module."""
    from workers.repairs.repair import repair

    expected, why = executed(repair(source).source)
    return [f"does not execute: {why}"] if expected is None else compared(state, expected)


def check_faults(
    state: State, true: Mapping[str, Any], count: Counter[str]
) -> tuple[str, set[Any]]:
    """Count the module's own faults and the planted faults, and how many of both the gate finds.

    Returns how many of the module's own faults the gate finds, as "found/all", and the faults that
    the gate reports in the planted data although nobody planted them.
    """
    records = {one["id"]: one for one in true["records"]}
    there = rows_of(state)
    here, gate = faults(there, records), faults_that_the_gate_finds(there, records)
    found = f"{len(here & gate)}/{len(here)}"
    count["faulty"] += len(here)
    count["found"] += len(here & gate)
    wrong = damaged(list(records.values()))
    here, gate = faults(wrong, records), faults_that_the_gate_finds(wrong, records)
    count["planted"] += len(here)
    count["found"] += len(here & gate)
    return found, gate - here


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
    from workers.gate.project_checks import losses

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
