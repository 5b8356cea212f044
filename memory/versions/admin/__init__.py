"""The staff's screens of versions, records and runs."""
