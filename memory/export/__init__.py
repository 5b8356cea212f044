"""Exports: a user's project as files, as a zip or as a git repository, and subject access."""
