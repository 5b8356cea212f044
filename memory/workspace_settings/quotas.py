"""The rates and quotas of a workspace.

They bound what it may send in a minute, what it may store, and what it may have waiting.
`memory.admission.rates` and `memory.admission.usage` enforce them.
"""

from memory.workspace_settings.overrides import Number

READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"

MOST = 2**31 - 1
RATES = tuple(Number(name, 1, MOST) for name in (READS, WRITES, COSTLY, ENTRIES))
# Usage that does not shrink by itself: more is refused until the quota is raised.
STORED = (
    Number("max_users", 1, MOST),
    Number("max_entries", 1, MOST),
    Number("max_entries_per_user", 1, MOST),
    Number("max_log_mib", 1, MOST),
)
# Usage that shrinks by itself: more is refused for a moment.
WAITING = (
    Number("max_pending_entries", 1, MOST),
    Number("max_waiting_runs", 1, MOST),
    Number("max_backtests", 1, MOST),
)
NUMBERS = (*RATES, *STORED, *WAITING)
