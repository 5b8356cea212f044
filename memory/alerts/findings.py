"""Findings: what constraints yield, what identifies a finding, and when a finding has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.alerts.models.alerts import Alert, AlertKind, Severity, severity_rank
from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.texts import REDACTED
from memory.project.errors import RunError

# The gate's codes for a critical alert that the language model's edits resolve (RESOLVES), or would
# have resolved if the edits had not been held back (HELD).
RESOLVES = "critical_alert_resolves"
HELD = "critical_alert_held"
# Maximum number of characters shown of an error in a user's code. UNWATCHED states the consequence,
# which is the same for every such error.
MAX_ERROR = 1500
UNWATCHED = "Until it runs successfully again, it raises no new alerts."


@dataclass(frozen=True, kw_only=True)
class ConstraintFinding:
    """One alert that a constraint yielded.

    `evidence` describes records, each by its domain, collection, key, class and sources (the
    numbers of the entries the record is based on).
    """

    constraint: str
    severity: Severity
    message: str
    key: str | None = None
    evidence: Sequence[Mapping[str, Any]] = ()
    kind: AlertKind = AlertKind.FINDING

    @property
    def fingerprint(self) -> str:
        """A hash of the finding's constraint, kind, and key or records, but not of its wording."""
        identity: list[Any] = [self.constraint, self.kind]
        if self.key is not None:
            identity += ["key", self.key]
        else:
            records = {
                f"{item['domain']}.{item['collection']}:{item['key']}" for item in self.evidence
            }
            identity += ["evidence", sorted(records)]
        return sha256(canonical_json(identity))

    @property
    def records(self) -> list[str]:
        """The records in the evidence, sorted, so that their order makes no difference."""
        return sorted(canonical_json(dict(item)) for item in self.evidence)

    @property
    def entries(self) -> list[int]:
        """The numbers of the log entries behind the evidence, in ascending order."""
        return sorted({seq for item in self.evidence for seq in item["sources"]})


def failure(
    constraint: str, error: RunError, *, critical: bool = False, advice: str = ""
) -> ConstraintFinding:
    """Return the finding that alerts staff to a failed constraint.

    `critical` is set if the constraint may itself raise critical alerts. `advice` describes what to
    fix.
    """
    where = f" at line {error.line}" if error.line else ""
    text = f"{constraint} failed{where}: {error.type}: {error.explanation}"[:MAX_ERROR]
    return ConstraintFinding(
        constraint=constraint,
        kind=AlertKind.CONSTRAINT_ERROR,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        message=" ".join(filter(None, [text.rstrip(".") + ".", advice, UNWATCHED])),
        key="failed",
    )


def most_severe(findings: Sequence[ConstraintFinding]) -> dict[str, ConstraintFinding]:
    """Return the most severe finding for each fingerprint."""
    by_fingerprint: dict[str, ConstraintFinding] = {}
    for finding in findings:
        earlier = by_fingerprint.get(finding.fingerprint)
        if earlier is None or severity_rank(finding.severity) > severity_rank(earlier.severity):
            by_fingerprint[finding.fingerprint] = finding
    return by_fingerprint


def differences(before: ConstraintFinding, finding: ConstraintFinding) -> list[str]:
    """Return which aspects of a finding differ from those of an earlier finding.

    The aspects are the severity, and the records with their entries. The message is compared only
    if the finding has no records, since a message may contain a countdown.
    """
    changed = []
    if before.severity != finding.severity:
        changed.append("severity")
    if before.records != finding.records:
        changed.append("evidence")
    if not finding.evidence and before.message not in (finding.message, REDACTED):
        changed.append("message")
    return changed


def make_finding(alert: Alert) -> ConstraintFinding:
    """Return the finding that an alert was last updated with."""
    return ConstraintFinding(
        constraint=alert.constraint,
        severity=Severity(alert.severity),
        message=alert.message,
        evidence=alert.evidence,
    )
