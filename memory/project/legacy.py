"""Legacy files of foreign projects, kept unchanged because old-style constraints need them.

An old-style constraint is a module with `check(project_path)` or `check_constraints(current_time)`
that returns a list of dictionaries. It runs unchanged, in the sandbox only, and is exempt from the
policy. The files that it sees in its project's folder depend on where the constraint is kept:

- `legacy/live/`: the user's current state, in place of the state that was imported;
- `legacy/frozen/`: all files as they were imported. An import chooses this if the constraints would
  raise different alerts on the translated state; then they see nothing that is learned later.
"""

import ast
from collections.abc import Mapping

from memory.texts import parse_python

LIVE = "legacy/live/"
FROZEN = "legacy/frozen/"


def is_legacy(path: str) -> bool:
    """Return whether a path in the tree is that of a legacy file."""
    return path.startswith((LIVE, FROZEN))


def is_old_constraint(source: str) -> bool:
    """Return whether this source is an old-style constraint; current constraints import `uac`."""
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return bool(functions & {"check", "check_constraints"}) and not imports_uac(tree)


def imports_uac(tree: ast.Module) -> bool:
    """Return whether a module imports `uac`, the library that current projects use."""
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    return "uac" in modules


def original_path(path: str) -> str:
    """Return the path that a file had in the foreign project."""
    return path.removeprefix(LIVE).removeprefix(FROZEN)


def surroundings(constraint: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files that an old-style constraint sees in its folder, keyed by original path.

    `files` are the files of the whole tree.
    """
    profile = LIVE if constraint.startswith(LIVE) else FROZEN
    found = {
        original_path(path): source for path, source in files.items() if path.startswith(profile)
    }
    if profile == LIVE:
        found |= {path: source for path, source in files.items() if path.startswith("domains/")}
    return found
