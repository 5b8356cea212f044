"""What `benchmarks.ingest` compares with: the server, with one view more that only inserts."""
