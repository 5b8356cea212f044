"""Imports of foreign projects: what may come in, and the run that does it."""

import re
from collections.abc import Mapping
from pathlib import Path

from memory import runs
from memory.models import MemoryUser, Run
from memory.models.runs import RunKind, RunTrigger

MAX_FILES = 500
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_BYTES = 6 * 1024 * 1024
MAX_FOLDERS = 10
MAX_PATH = 200

_PART = re.compile(r"[\w][\w.-]*")
# What is in the folder of a project and is no part of it.
_PASSED_OVER = {"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache"}


class ImportRefused(ValueError):
    """The files are no project that could be imported; the message names the file and the fix."""


def check_files(files: Mapping[str, str]) -> None:
    """Raise ImportRefused for files that are too many, too large, or not within a folder."""
    if not files:
        raise ImportRefused("there is no Python file: name at least one module")
    if len(files) > MAX_FILES:
        raise ImportRefused(f"{len(files)} files are too many: {MAX_FILES} at most")
    total = 0
    for path, source in files.items():
        _check_path(path)
        size = len(source.encode(errors="surrogatepass"))
        total += size
        if size > MAX_FILE_BYTES:
            raise ImportRefused(f"{path} has {size} bytes: {MAX_FILE_BYTES} at most")
    if total > MAX_BYTES:
        raise ImportRefused(f"the project has {total} bytes: {MAX_BYTES} at most")


def _check_path(path: str) -> None:
    shown = repr(path[:100])
    parts = path.split("/")
    if not all(_PART.fullmatch(part) and ".." not in part for part in parts):
        raise ImportRefused(
            f"{shown} is no path within a project: write it like 'domains/health/state.py',"
            " with letters, digits, dots and hyphens, and without '..'"
        )
    if not path.endswith(".py") or path.endswith("/.py"):
        raise ImportRefused(f"{shown} is no Python file: send files that end in .py alone")
    if len(path) > MAX_PATH or len(parts) > MAX_FOLDERS:
        raise ImportRefused(f"{shown} is too deep or too long: {MAX_FOLDERS} folders at most")


def read_folder(folder: Path) -> dict[str, str]:
    """Return the Python files of a folder, or one file, by their paths in it; ImportRefused.

    No link is followed: it could lead anywhere on this machine.
    """
    if folder.is_symlink():
        raise ImportRefused(f"{folder} is a symbolic link: name the folder itself")
    if folder.is_file():
        return {folder.name: _text(folder, folder.name)}
    if not folder.is_dir():
        raise ImportRefused(f"{folder} is no folder and no file")
    files: dict[str, str] = {}
    total = 0
    pending = [folder]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                raise ImportRefused(f"{name} is a symbolic link: put the file in its place")
            if path.is_dir():
                if path.name not in _PASSED_OVER and not path.name.startswith("."):
                    pending.append(path)
            elif path.suffix == ".py" and path.is_file():
                total += path.stat().st_size
                if len(files) >= MAX_FILES or total > MAX_BYTES:
                    raise ImportRefused(
                        f"{folder} is too large: {MAX_FILES} files and {MAX_BYTES} bytes at most"
                    )
                files[name] = _text(path, name)
    return files


def _text(path: Path, name: str) -> str:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ImportRefused(f"{name} is too large: {MAX_FILE_BYTES} bytes at most")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ImportRefused(f"{name} is not UTF-8: save it in that encoding") from None
    # A database cannot hold it, and no source may.
    return text.replace("\0", "")


def queue(user: MemoryUser, files: Mapping[str, str], trigger: RunTrigger) -> Run:
    """Queue the import of these files into the user's project; ImportRefused."""
    check_files(files)
    return runs.queue(
        user, RunKind.IMPORT, trigger, checkpoint=user.head, input={"files": dict(files)}
    )
