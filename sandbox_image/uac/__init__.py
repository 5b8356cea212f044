"""The library that a user's project imports: records, references, partial dates and alerts."""

from .alerts import Alert, Severity, critical, info, warning
from .dates import PartialDate
from .records import Record, Ref

__all__ = [
    "Alert",
    "PartialDate",
    "Record",
    "Ref",
    "Severity",
    "critical",
    "info",
    "warning",
]
