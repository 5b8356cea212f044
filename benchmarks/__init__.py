"""Measurements: each module prints a table and can write JSON."""
