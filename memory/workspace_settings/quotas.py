"""The names of a workspace's limits on requests and entries per minute, and the highest quota.

`memory.admission.rates` and `memory.admission.usage` enforce these limits.
"""

READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"
# The highest value that a quota can have.
MAX_VALUE = 2**31 - 1
