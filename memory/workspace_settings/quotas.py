"""The names of a workspace's rates and quotas: limits per minute, in total, and on waiting work.

`memory.admission.rates` and `memory.admission.usage` enforce them.
"""

READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"
# No quota can be higher.
MAX_VALUE = 2**31 - 1
