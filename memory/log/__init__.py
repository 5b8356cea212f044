"""The append-only log of entries."""
