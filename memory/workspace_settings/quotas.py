"""The names of a workspace's limits on its requests, and the highest quota.

`memory.admission` enforces these limits.
"""

READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"
PROCESSOR = "processor_percent"
# The highest value that a quota can have.
MAX_VALUE = 2**31 - 1
