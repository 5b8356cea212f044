"""Working with PostgreSQL: timeouts, prebuilt statements, snapshots, partitions, and the clock."""
