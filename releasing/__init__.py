"""Checks and tools to make a release; see docs/releasing.md."""
