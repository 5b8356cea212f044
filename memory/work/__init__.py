"""The work queue in PostgreSQL: lanes, runs, leases, wake-up hints, and stuck work."""
