"""The names of a workspace's request limits, and the highest possible quota.

The limits are enforced by `memory.kernel.admission`.
"""

READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"
PROCESSOR = "processor_percent"
# The highest value a quota can have.
MAX_VALUE = 2**31 - 1
