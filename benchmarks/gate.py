"""Test the gate with code that a real language model wrote.

The recorded code is read from UAC_DATA_DIR:
- `llm_modules.jsonl`: each module is imported over HTTP for a user of its own. The resulting
  project is compared, value by value, with the result of executing the module in a sandbox, which
  is read by code that is independent of the import.
- `analytical.jsonl`: the true records behind some of these modules. The faults of such a module,
  found here by comparing rows, must also be found by the gate's check that nothing is lost.
- `active_service.jsonl`: the recorded programs are imported and run on the days of each step; the
  recorded rules, in another format, are written as edits and run on the same days.
"""

from typing import Any

from benchmarks.gate_modules import modules
from benchmarks.gate_programs import programs
from benchmarks.gate_recordings import Recorded
from benchmarks.gate_rules import rules
from benchmarks.harness import Row, new_client, parser, report, settings_of
from deploy.embedded.system import running_system


def main() -> None:
    """Run all parts and report the results."""
    asked = parser(__doc__, limit=(None, 1)).parse_args()
    recorded = Recorded.read(asked.limit)
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    problems: list[str] = []
    with running_system() as system:
        settings_of(system)
        client = new_client(system, "benchmark")
        for part in (modules, programs, rules):
            its_rows, its_figures, its_problems = part(client, recorded)
            rows += its_rows
            figures |= its_figures
            problems += its_problems
        figures["early_alerts"] = figures["v2_early_alerts"] + figures["v3_early_alerts"]
        from workers.sandbox.runner import close_pool, runner_name

        settings = {"runner": runner_name()}
        close_pool()
    columns = ("module", "executes", "status", "repairs", "records", "faults", "alerts", "reason")
    rows = [{name: row.get(name, "") for name in columns} for row in rows]
    report(
        "gate", settings=settings, rows=rows, figures=figures, path=asked.json, problems=problems
    )


if __name__ == "__main__":
    main()
