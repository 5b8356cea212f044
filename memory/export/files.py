"""An exported version's files: the project's own files, and the files needed to run the project."""

import functools
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from memory.versions import checkpoints
from memory.versions.checkpoints import AnyState

LIBRARY = "uac/"
_TEMPLATES = Path(__file__).parent / "project"
# Maps each template file to its path in a project; these files are the same in every version.
_PLACES = {
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "pyproject.toml": "pyproject.toml",
    "test_project.py": f"{LIBRARY}test_project.py",
}
# The library module that implements the protocol between the server and its sandboxes, which
# exported projects don't need.
_NOT_FOR_PROJECTS = "protocol.py"


@functools.cache
def surroundings() -> Mapping[str, bytes]:
    """Return path → content for the files that make a project runnable: library and settings."""
    library = Path(settings.BASE_DIR) / "sandbox_image" / "uac"
    files = {
        f"{LIBRARY}{path.name}": path.read_bytes()
        for path in library.iterdir()
        if path.suffix in (".py", ".typed") and path.name != _NOT_FOR_PROJECTS
    }
    return files | {target: (_TEMPLATES / name).read_bytes() for name, target in _PLACES.items()}


def files_of(checkpoint: AnyState | None) -> dict[str, bytes]:
    """Return path → content for a version, or for an empty project if None, sorted by path."""
    sources = checkpoints.read_files(checkpoint) if checkpoint else {}
    files = {path: source.encode() for path, source in sources.items()}
    return dict(sorted({**files, **surroundings()}.items()))
