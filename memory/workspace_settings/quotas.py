"""The rates and quotas of a workspace: how much it may ask and tell in a minute, have in
all, and have waiting. `memory.admission.rates` and `memory.admission.usage` hold it to them.
"""

from memory.workspace_settings.overrides import Number

READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"

MOST = 2**31 - 1
RATES = tuple(Number(name, 1, MOST) for name in (READS, WRITES, COSTLY, ENTRIES))
# What does not come free by itself: more is refused until the quota is raised.
STORED = (
    Number("max_users", 1, MOST),
    Number("max_entries", 1, MOST),
    Number("max_entries_per_user", 1, MOST),
    Number("max_log_mib", 1, MOST),
)
# What does: more is refused for a moment.
WAITING = (
    Number("max_pending_entries", 1, MOST),
    Number("max_waiting_runs", 1, MOST),
    Number("max_backtests", 1, MOST),
)
NUMBERS = (*RATES, *STORED, *WAITING)
