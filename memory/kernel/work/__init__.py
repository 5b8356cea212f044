"""The queue of work: rows, leases, hints, and the kinds of work."""
