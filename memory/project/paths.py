"""What a file of a project is, by its path."""


def holds_records(path: str) -> bool:
    """Return whether it is one of those that hold the records of a domain."""
    return path.startswith("domains/") and path.rpartition("/")[2] not in (
        "schema.py",
        "__init__.py",
    )


def is_code(path: str) -> bool:
    """Return whether somebody may have written what it does: a schema, a constraint, a test.

    Records and the manifest are written from data, and do nothing.
    """
    return not holds_records(path) and path != "manifest.py"
