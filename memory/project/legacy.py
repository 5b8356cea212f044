"""Legacy files of foreign projects, kept unchanged because old-style constraints need them.

An old-style constraint is a module with `check(project_path)` or `check_constraints(current_time)`,
which returns a list of dictionaries. It runs unchanged, only in the sandbox, and is exempt from the
policy. Which files it sees in its project's directory depends on where the constraint is stored:

- `legacy/live/`: the user's current state in place of the imported state;
- `legacy/frozen/`: all files exactly as imported. An import chooses this if the constraints would
  raise different alerts on the translated state; the constraints then see nothing that is learned
  after the import.
"""

import ast
from collections.abc import Mapping

from memory.kernel.texts import parse_python

LIVE = "legacy/live/"
FROZEN = "legacy/frozen/"


def is_legacy(path: str) -> bool:
    """Return whether a path in the tree belongs to a legacy file."""
    return path.startswith((LIVE, FROZEN))


def is_old_constraint(source: str) -> bool:
    """Return whether the source is an old-style constraint; current constraints import `uac`."""
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
    """Return the path a file had in the foreign project."""
    return path.removeprefix(LIVE).removeprefix(FROZEN)


def surroundings(constraint: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files an old-style constraint sees in its directory, keyed by original path.

    `files` has all files in the tree.
    """
    profile = LIVE if constraint.startswith(LIVE) else FROZEN
    found = {
        original_path(path): source for path, source in files.items() if path.startswith(profile)
    }
    if profile == LIVE:
        found |= {path: source for path, source in files.items() if path.startswith("domains/")}
    return found
