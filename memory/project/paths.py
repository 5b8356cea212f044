"""Determining what kind of project file a path refers to."""

from __future__ import annotations


def holds_records(path: str) -> bool:
    """Return whether the file holds a domain's records."""
    return path.startswith("domains/") and path.rpartition("/")[2] not in (
        "schema.py",
        "__init__.py",
    )


def is_code(path: str) -> bool:
    """Return whether the file is code that somebody wrote: a schema, a constraint or a test.

    The manifest and the files that hold records are generated from data and contain no logic.
    """
    return not holds_records(path) and path != "manifest.py"


# The directory where workspace constraints appear, next to the files of a user's project.
FOLDER = "workspace/"
