"""The baseline of `benchmarks.ingest`: the server with one more view, which only inserts."""
