"""The library that a user's project imports: records, references, date arithmetic and alerts."""

from .alerts import Alert, Severity, critical, info, warning
from .dates import PartialDate
from .reckoning import add_months, birthday, full_months, hours_between, user_zone
from .records import Record, Ref, has_lapsed, original_data, trust_of

__all__ = [
    "Alert",
    "PartialDate",
    "Record",
    "Ref",
    "Severity",
    "add_months",
    "birthday",
    "critical",
    "full_months",
    "has_lapsed",
    "hours_between",
    "info",
    "original_data",
    "trust_of",
    "user_zone",
    "warning",
]
