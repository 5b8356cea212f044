"""Prometheus metrics for the gate: what it finds, and which repairs proposals need."""

from prometheus_client import Counter

FINDINGS = Counter(
    "uac_gate_findings",
    "Findings about proposals, by kind of problem and whether it was the reason for a refusal.",
    ["code", "blocking"],
)
REPAIRS = Counter("uac_gate_repairs", "Repairs to proposed code that could not run.", ["name"])
