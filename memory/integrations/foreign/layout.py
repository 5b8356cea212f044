"""A foreign project's layout: which of its files hold state, and which are constraints."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.project.errors import EditError
from memory.project.files import is_old_constraint
from memory.project.names import MAX_LENGTH, check_lower_name


@dataclass(frozen=True)
class Layout:
    """The roles of a foreign project's files.

    `modules` maps each file that holds state to its target domain. `constraints` maps the names of
    constraints in our style, which can be kept, to their files. `left_out` lists the constraints in
    another style, which are not imported: they can be run against the exported project.
    """

    modules: Mapping[str, str]
    constraints: Mapping[str, str]
    left_out: Sequence[str]


def layout(files: Mapping[str, str]) -> Layout:
    """Determine the roles of a project's files, whatever its directories are called."""
    left_out = sorted(path for path, source in files.items() if is_old_constraint(source))
    modules, constraints = {}, {}
    for path in sorted(files):
        *folders, name = path.removesuffix(".py").split("/")
        if {"tests", "test"} & set(folders) or name.startswith("test_") or name in _NO_STATE:
            continue
        if folders[-1:] == ["constraints"]:
            if path not in left_out:
                constraints[name] = path
        elif path != "manifest.py":
            modules[path] = _domain_name(folders, name)
    return Layout(modules, constraints, left_out)


_NO_STATE = {"__init__", "conftest", "setup"}
# File names that only describe what kind of code a file contains; the domain is named after the
# file's directory instead.
_PARTS = {"state", "schema", "data", "models", "types"}


def _domain_name(folders: Sequence[str], name: str) -> str:
    if "domains" in folders[:-1]:
        slug = folders[folders.index("domains") + 1]
    else:
        slug = folders[-1] if folders and name in _PARTS else name
    slug = re.sub(r"\W+", "_", slug.lower()).strip("_") or "imported"
    slug = slug[: MAX_LENGTH - 10]
    for candidate in (slug, f"{slug}_", f"imported_{slug}"):
        if is_lower(candidate):
            return candidate
    return "imported"


def is_lower(name: str) -> bool:
    """Return whether a name is valid for a domain, a collection or a singleton."""
    try:
        check_lower_name(name, "name")
    except EditError:
        return False
    return True
