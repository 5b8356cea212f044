"""Benchmarks: each module prints its results as a table and can write them as JSON."""
