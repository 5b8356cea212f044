"""The paths of a project's files: what kind of file each is, and which belongs to a constraint."""

from __future__ import annotations

from sandbox_image.uac.records import ENTRY_CLASSES

# In sandboxes alone: where the user's entries come from, for `uac.trust_of`.
CLASSES_PATH = f"{ENTRY_CLASSES}.py"


def holds_records(path: str) -> bool:
    """Return whether the file holds a domain's records."""
    return path.startswith("domains/") and path.rpartition("/")[2] not in (
        "schema.py",
        "__init__.py",
    )


def domain_name(path: str) -> str:
    """Return the domain that a schema or a file with records belongs to."""
    return path.split("/")[1]


def is_code(path: str) -> bool:
    """Return whether the file is code that somebody wrote: a schema, a constraint or a test.

    The manifest and the files that hold records or the classes of entries are generated from data
    and contain no logic.
    """
    return not holds_records(path) and path not in ("manifest.py", CLASSES_PATH)


# The directory where workspace constraints appear, next to the files of a user's project.
FOLDER = "workspace/"
# The directories of constraints, and of the tests that belong to each.
CONSTRAINTS, TESTS = "constraints/", "tests/"


def constraint_path(name: str, folder: str = "") -> str:
    """Return the path of a constraint; `folder` is FOLDER for a workspace's."""
    return f"{folder}{CONSTRAINTS}{name}.py"


def constraint_tests_path(name: str, folder: str = "") -> str:
    """Return the path of the tests of a constraint; `folder` is FOLDER for a workspace's."""
    return f"{folder}{TESTS}test_{name}.py"


def constraint_files(name: str) -> tuple[str, str]:
    """Return the paths of a user's own constraint and of its tests."""
    return constraint_path(name), constraint_tests_path(name)


def constraint_name(path: str) -> str:
    """Return the name of the constraint with this path."""
    return path.rpartition("/")[2].removesuffix(".py")


def is_own_constraint(path: str) -> bool:
    """Return whether the path is of a constraint of the user's own, not of a workspace's."""
    return path.startswith(CONSTRAINTS)
