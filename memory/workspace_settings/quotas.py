"""The names of a workspace's rates and quotas: how much it may ask in a minute, have in all, and
have waiting. `memory.admission.rates` and `memory.admission.usage` hold it to them.
"""

READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"
# More than any quota can be.
MAX_VALUE = 2**31 - 1
