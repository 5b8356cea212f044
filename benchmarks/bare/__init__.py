"""The baseline for `benchmarks.ingest`: the server plus a view that only inserts a row."""
