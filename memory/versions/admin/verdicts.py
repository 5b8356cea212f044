"""The checks of the gate, as they are shown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.kernel.admin.display import NOTHING, badge, inline, lines, source_line

# The question that each check answers, for readers who don't know the gate's code.
QUESTIONS = {
    "policy": "Is the code valid Python without side effects?",
    "no loss": "Does the project still contain every record that was not retired?",
    "grounding": "Do the entries support what the records state?",
    "holds": "If a model's edit would silence alerts, does an entry support the edit?",
    "types": "Is the code correctly typed?",
    "execution": "Does the code run in the sandbox?",
    "tests": "Do the tests pass?",
    "constraints": "Do the constraints run without unexpected alerts?",
    "mutants": "Would the tests fail if the constraint never fired?",
    "coverage": "Is every entry settled?",
    "edits": "Can the edits be applied?",
    "files": "Can the files be parsed?",
    "import": "Can the project be imported?",
    "shape": "Does the constraint declare the records that it requires?",
}


def gate(verdict: Mapping[str, Any] | None) -> SafeString | str:
    """Show the gate's checks, each with its findings below it."""
    checks: Sequence[Mapping[str, Any]] = (verdict or {}).get("checks", [])
    return lines(
        format_html(
            '{} <b>{}</b> <span class="quiet">{}</span>{}',
            badge("passed" if check["passed"] else "failed"),
            check["name"],
            QUESTIONS.get(check["name"], ""),
            lines(_finding(finding) for finding in check["findings"]) if check["findings"] else "",
        )
        for check in checks
    )


def _finding(finding: Mapping[str, Any]) -> SafeString:
    where = source_line(finding)
    return format_html(
        "{}{}{}{}",
        "" if finding.get("blocking", True) else badge("info", "reported"),
        f"{where}: " if where else "",
        inline(finding["message"]),
        format_html(": {}", inline(finding["fix"])) if finding.get("fix") else "",
    )


def refused_lines(verdict: Mapping[str, Any] | None, path: str) -> Iterator[tuple[int, str]]:
    """Yield each line of a file that the gate refused, with the reason."""
    for check in (verdict or {}).get("checks", []):
        for finding in check["findings"]:
            if finding.get("path") == path and finding.get("line"):
                yield finding["line"], finding["message"]


def durations(timings: Mapping[str, float]) -> str:
    """Return each stage's duration in seconds, on one line."""
    return ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in timings.items()) or NOTHING
