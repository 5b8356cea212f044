"""Files of foreign projects that are kept as they came, for the sake of their old constraints.

An old constraint is a module with `check(project_path)` or `check_constraints(current_time)` that
returns a list of dictionaries. It runs unchanged, in the sandbox alone, and no policy applies to
it. What it finds in the folder of its project depends on where the files are kept:

- `legacy/live/`: the project's state as it is now, in the place of the state that came with it;
- `legacy/frozen/`: all files just as they came. An import chooses this where the constraints would
  not find the same on the translated state; what is learned later, they do not see.
"""

import ast
from collections.abc import Mapping

from memory.texts import parse_python

LIVE = "legacy/live/"
FROZEN = "legacy/frozen/"


def is_legacy(path: str) -> bool:
    """Tell whether a path of the tree is that of a file kept as it came."""
    return path.startswith((LIVE, FROZEN))


def is_old_constraint(source: str) -> bool:
    """Tell whether a source is that of an old constraint; those of today import `uac`."""
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return bool(functions & {"check", "check_constraints"}) and not imports_uac(tree)


def imports_uac(tree: ast.Module) -> bool:
    """Tell whether a module uses the library of today's projects."""
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
    """Return the path that a file had in its own project."""
    return path.removeprefix(LIVE).removeprefix(FROZEN)


def surroundings(constraint: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files that an old constraint finds in its folder, by their original paths.

    `files` are those of the whole tree.
    """
    profile = LIVE if constraint.startswith(LIVE) else FROZEN
    found = {
        original_path(path): source for path, source in files.items() if path.startswith(profile)
    }
    if profile == LIVE:
        found |= {path: source for path, source in files.items() if path.startswith("domains/")}
    return found
