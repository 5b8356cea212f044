"""The gate's findings, which a model has to fix and staff can read."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from memory.project import RecordId
from memory.project.errors import RunError

# Maximum number of findings stored per check, and of alerts stored per verdict.
MAX_FINDINGS = 20
MAX_ALERTS = 20


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem: `code` is the kind of problem, `message` describes it, and `fix` says what to do.

    The other fields, where applicable, locate the problem: on a line in a file, in a record's
    field, or in an entry (by seq), an edit (by index), a test (by name) or an alert (by
    fingerprint). For an error in the user's code, `type` is the exception type, and `traceback`
    contains the frames in the user's own code. A finding that is not `blocking` is only reported:
    it does not fail the check.
    """

    code: str
    message: str
    fix: str = ""
    path: str | None = None
    line: int | None = None
    record: RecordId | None = None
    field: str | None = None
    entry: int | None = None
    edit: int | None = None
    test: str | None = None
    type: str | None = None
    traceback: str | None = None
    fingerprint: str | None = None
    blocking: bool = True

    @classmethod
    def of_error(cls, code: str, error: RunError, message: str, **where: Any) -> "Finding":
        """Return the finding for an error raised by the user's code."""
        where = {"path": error.path, "line": error.line, **where}
        return cls(
            code=code,
            message=f"{error.type}: {message}" if message else error.type,
            type=error.type,
            traceback=error.traceback or None,
            **where,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields that have a value, as JSON."""
        data = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        if self.record is not None:
            data["record"] = self.record._asdict()
        return data


@dataclass(frozen=True)
class Check:
    """A check and its findings; the check passes if no finding is blocking."""

    name: str
    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        """True if the candidate passed this check."""
        return not any(finding.blocking for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the check as it is stored: blocking findings first, and long lists cut short."""
        ordered = sorted(self.findings, key=lambda finding: not finding.blocking)
        return {
            "name": self.name,
            "passed": self.passed,
            "findings": [finding.to_json() for finding in ordered[:MAX_FINDINGS]],
        }


@dataclass
class Verdict:
    """The gate's decision on a candidate, check by check."""

    checks: list[Check] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    bytecode: dict[str, str] = field(default_factory=dict)
    image_digest: str = ""
    runner: str = ""
    # The alerts that constraints raise on `day` (path, severity, message), and how they will change
    # later.
    day: str = ""
    alerts: list[dict[str, str]] = field(default_factory=list)
    coming: list[dict[str, Any]] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """True if every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def reason(self) -> str:
        """Describe the first failure in one line; "" if there is none."""
        for check in self.checks:
            for finding in check.findings:
                if finding.blocking:
                    location = f"{finding.path}:{finding.line or 1}: " if finding.path else ""
                    fix = f": {finding.fix}" if finding.fix else ""
                    return f"{check.name}: {location}{finding.message}{fix}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the verdict in the form stored with a checkpoint or a rejected proposal."""
        return {
            "accepted": self.accepted,
            "reason": self.reason,
            "checks": [check.to_json() for check in self.checks],
            "counts": self.counts,
            "timings": self.timings,
            "runner": self.runner,
            "day": self.day,
            "alerts": self.alerts[:MAX_ALERTS],
            "coming": self.coming[:MAX_ALERTS],
        }
