"""Measure the precision of the constraint library on recorded scenarios, retold as typed records.

The users' messages in `scenarios.jsonl` (in UAC_DATA_DIR) are retold as typed records in
benchmarks/library_scenarios.py. Each scenario is followed day by day, from its first session to the
trigger, the session after which an alert is expected: the records so far make up a project, the
shapes of all ten constraints are matched with its outline, and the constraints that apply run in a
sandbox as of noon UTC.

At most one constraint has the expected alert in its scope. An alert from this constraint is on time
if it opens on the day of the trigger, and early if it opens before and is still open on that day.
All other alerts are false. Scenarios that are not retold are left out and counted.
"""

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import NOON, Row, embedded_server, parser, report
from benchmarks.library_scenarios import RETELLINGS, Data, days_of, scenarios


@dataclass
class Found:
    """Counts of a constraint's alerts over all scenarios."""

    in_scope: int = 0
    on_the_day: int = 0
    early: int = 0
    missed: int = 0
    false: int = 0
    applies: int = 0
    days_early: list[int] = field(default_factory=list)

    def row(self, name: str) -> Row:
        """Return the constraint's row in the report; `strict` counts early alerts as false."""
        true = self.on_the_day + self.early
        return {
            "constraint": name,
            "applies to": self.applies,
            "in scope": self.in_scope,
            "on the day": self.on_the_day,
            "early": self.early,
            "days early": "/".join(map(str, self.days_early)),
            "missed": self.missed,
            "false": self.false,
            "precision": share(true, true + self.false),
            "strict": share(self.on_the_day, true + self.false),
            "recall": share(true, self.in_scope),
        }


def share(part: int, whole: int) -> float | None:
    """Return part / whole, rounded; None if `whole` is zero."""
    return round(part / whole, 3) if whole else None


def alerts_by_day(scenario: Data) -> Iterator[tuple[datetime.date, dict[str, set[str]]]]:
    """Yield each day, and its alerts by constraint, for all constraints that apply.

    An alert is given as its key, or as the keys of its evidence.
    """
    from memory.constraints import constraint_library
    from memory.project import Project, RecordEntry, apply, compile_record, render
    from memory.project.shapes import match, needs_of
    from workers.sandbox.runner import open_sandbox

    library = {
        f"workspace/constraints/{name}.py": constraint_library.read(name).source
        for name in constraint_library.names()
    }
    needs = {path: needs_of(source) for path, source in library.items()}
    project, seq = Project.empty(), 0
    bindings: dict[str, Any] = {}
    with open_sandbox() as sandbox:
        sandbox.load(library)
        for day, told in days_of(scenario):
            for type_, key, data in told:
                seq += 1
                entry = RecordEntry(seq=seq, domain="life", type=type_, key=key, data=data)
                for edit in compile_record(project, entry):
                    apply(project, edit)
            if told:
                sandbox.load(render(project))
                matches = {path: match(one, project.outline) for path, one in needs.items()}
                bindings = {path: one.bindings for path, one in matches.items() if one.applies}
            ran = sandbox.run_constraints(
                list(bindings),
                now=datetime.datetime.combine(day, NOON),
                time_zone="UTC",
                bindings=bindings,
            )
            found: dict[str, set[str]] = {}
            for result in ran.results:
                assert result.error is None, (scenario["id"], result)
                name = result.path.rpartition("/")[2].removesuffix(".py")
                found[name] = {
                    alert.key or " ".join(one.key for one in alert.evidence)
                    for alert in result.alerts
                }
            yield day, found


def follow(scenario: Data, totals: dict[str, Found]) -> Row:
    """Follow a scenario and add its alerts to the totals; return its row."""
    scope = RETELLINGS[scenario["id"]].scope
    opened: dict[str, dict[str, datetime.date]] = {}
    closed: Counter[str] = Counter()
    day = None
    for day, found in alerts_by_day(scenario):
        for name, alerts in found.items():
            open_ones = opened.setdefault(name, {})
            for gone in open_ones.keys() - alerts:
                del open_ones[gone]
                closed[name] += 1
            for alert in alerts:
                open_ones.setdefault(alert, day)
    assert day is not None
    for name in opened:
        totals[name].applies += 1
    for name, number in closed.items():
        totals[name].false += number  # these alerts closed before the day of the trigger
    outcome = ""
    for name, open_ones in opened.items():
        for since in sorted(open_ones.values()):
            if name != scope or outcome:
                totals[name].false += 1
            elif since == day:
                totals[name].on_the_day += 1
                outcome = "on the day"
            else:
                totals[name].early += 1
                totals[name].days_early.append((day - since).days)
                outcome = f"{(day - since).days} days early"
    if scope:
        totals[scope].in_scope += 1
        totals[scope].missed += not outcome
    false = sum(len(ones) for name, ones in opened.items() if name != scope)
    return {
        "scenario": scenario["id"],
        "eligible": scenario["eligible_v2_1"],
        "constraint": scope,
        "outcome": (outcome or "missed") if scope else "out of scope",
        "false": false + sum(closed.values()),
    }


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, limit=(None, 1)).parse_args()
    told, left_out = scenarios()
    told = told[: asked.limit]
    from memory.constraints import constraint_library

    totals = {name: Found() for name in constraint_library.names()}
    with embedded_server():
        each = [follow(scenario, totals) for scenario in told]
    whole = Found()
    for found in totals.values():
        for name in ("in_scope", "on_the_day", "early", "missed", "false"):
            setattr(whole, name, getattr(whole, name) + getattr(found, name))
    eligible = [row for row in each if row["eligible"]]
    covered = [row for row in eligible if row["outcome"] not in ("missed", "out of scope")]
    figures = {
        "scenarios": len(told),
        "left_out": left_out,
        "in_scope": whole.in_scope,
        "on_the_day": whole.on_the_day,
        "early": whole.early,
        "missed": whole.missed,
        "false": whole.false,
        **{name: whole.row("")[name] for name in ("precision", "strict", "recall")},
        "eligible": len(eligible),
        "eligible_found": len(covered),
    }
    for row in each:
        print(*(f"{value!s:<18}" for value in row.values()))
    rows = [found.row(name) for name, found in totals.items()]
    report("library", settings={"scenarios": each}, rows=rows, figures=figures, path=asked.json)


if __name__ == "__main__":
    main()
