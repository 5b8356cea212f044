"""Checks and tools for making a release; see docs/releasing.md."""
