"""The kinds of a project's files, by their paths."""


def holds_records(path: str) -> bool:
    """Return whether the file holds the records of a domain."""
    return path.startswith("domains/") and path.rpartition("/")[2] not in (
        "schema.py",
        "__init__.py",
    )


def is_code(path: str) -> bool:
    """Return whether the file contains behaviour that somebody wrote: a schema, constraint or test.

    Records and the manifest are generated from data, and do nothing.
    """
    return not holds_records(path) and path != "manifest.py"
