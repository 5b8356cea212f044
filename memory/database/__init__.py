"""PostgreSQL: timeouts, prepared statements, snapshots, partitions, and its clock."""
