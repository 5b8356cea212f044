"""Project imports: reading a project's files, checking limits, and queuing the import."""

import io
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from memory.export.files import LIBRARY
from memory.kernel.models.users import MemoryUser
from memory.log import content_policy
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunTrigger

MAX_FILES = 500
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_BYTES = 6 * 1024 * 1024
MAX_FOLDERS = 10
MAX_PATH = 200
# Maximum number of entries in a zip, including directories and files other than Python files.
MAX_ENTRIES = 20_000

_PART = re.compile(r"[\w][\w.-]*")
# Directories that may be inside a project's directory but are not imported.
_PASSED_OVER = {"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache"}


class ImportRefused(ValueError):
    """The files cannot be imported as a project; the message says why, and how to fix it."""


def check_files(files: Mapping[str, str]) -> None:
    """Raise ImportRefused if there are no files, too many files, or invalid paths or sizes."""
    if not files:
        raise ImportRefused("There are no Python files. Include at least one module.")
    if len(files) > MAX_FILES:
        raise ImportRefused(f"The project has {len(files)} files: at most {MAX_FILES} are allowed.")
    total = 0
    for path, source in files.items():
        _check_path(path)
        size = len(source.encode(errors="surrogatepass"))
        total += size
        if size > MAX_FILE_BYTES:
            raise ImportRefused(f"{path} has {size} bytes: at most {MAX_FILE_BYTES} are allowed.")
    if total > MAX_BYTES:
        raise ImportRefused(f"The project has {total} bytes: at most {MAX_BYTES} are allowed.")


def _check_path(path: str) -> None:
    shown = repr(path[:100])
    parts = path.split("/")
    if not all(_PART.fullmatch(part) and ".." not in part for part in parts):
        raise ImportRefused(
            f"{shown} is not a valid path within a project. Write it like"
            " 'domains/health/state.py', with letters, digits, dots and hyphens, and without '..'."
        )
    if not path.endswith(".py") or path.endswith("/.py"):
        raise ImportRefused(f"{shown} is not a Python file. Send only files that end in .py.")
    if len(path) > MAX_PATH or len(parts) > MAX_FOLDERS:
        raise ImportRefused(
            f"{shown} is too long: a path may have at most {MAX_PATH} characters and {MAX_FOLDERS}"
            " levels."
        )


def read_folder(folder: Path) -> dict[str, str]:
    """Return path → source for the Python files in a directory or zip, or for a single file.

    Raises ImportRefused if a file cannot be read or a limit is exceeded, and for symbolic links,
    since they could point anywhere on this machine.
    """
    if folder.is_symlink():
        raise ImportRefused(f"{folder} is a symbolic link. Give the path of the folder itself.")
    if folder.is_file() and folder.suffix == ".zip":
        if folder.stat().st_size > MAX_BYTES:
            raise ImportRefused(f"{folder} is too large: at most {MAX_BYTES} bytes are allowed.")
        return read_zip(folder.read_bytes())
    if folder.is_file():
        return {folder.name: _text(folder, folder.name)}
    if not folder.is_dir():
        raise ImportRefused(f"{folder} is neither a folder nor a file.")
    files: dict[str, str] = {}
    total = 0
    pending = [folder]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                raise ImportRefused(f"{name} is a symbolic link. Replace it with the file itself.")
            if path.is_dir():
                if path.name not in _PASSED_OVER and not _is_hidden(path.name):
                    pending.append(path)
            elif path.suffix == ".py" and path.is_file():
                total += path.stat().st_size
                if len(files) >= MAX_FILES or total > MAX_BYTES:
                    raise ImportRefused(
                        f"{folder} is too large: at most {MAX_FILES} Python files and {MAX_BYTES}"
                        " bytes are allowed."
                    )
                files[name] = _text(path, name)
    return files


def read_zip(content: bytes) -> dict[str, str]:
    """Return path → source for the Python files in a zip.

    If the whole project is in one directory, as in a zipped git clone, the paths are relative to
    that directory. Raises ImportRefused if the zip cannot be read or exceeds a limit.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = _unpacked(archive)
    except ImportRefused:
        raise
    # The standard library raises these errors for a zip that is damaged, encrypted or in an unknown
    # format.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ImportRefused(f"The zip cannot be read: {error}.") from None
    except (RuntimeError, ValueError) as error:
        raise ImportRefused(f"The zip has an unsupported format: {error}.") from None
    return _below_one_folder(files)


def _unpacked(archive: zipfile.ZipFile) -> dict[str, str]:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise ImportRefused(
            f"The zip has {len(entries)} entries: at most {MAX_ENTRIES} are allowed."
        )
    files: dict[str, str] = {}
    left = MAX_BYTES
    for entry in entries:
        name = entry.filename
        *folders, _ = name.split("/")
        if any(part in _PASSED_OVER or _is_hidden(part) for part in folders):
            continue
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise ImportRefused(f"{name} is a symbolic link. Replace it with the file itself.")
        if not name.endswith(".py"):
            continue
        if name in files:
            raise ImportRefused(f"The zip contains {name} twice.")
        with archive.open(entry) as stream:
            # Limit the read, since the size declared in the zip may be wrong.
            source = stream.read(MAX_FILE_BYTES + 1)
        left -= len(source)
        if len(source) > MAX_FILE_BYTES:
            raise ImportRefused(f"{name} is too large: at most {MAX_FILE_BYTES} bytes are allowed.")
        if left < 0 or len(files) >= MAX_FILES:
            raise ImportRefused(
                f"The zip is too large: at most {MAX_FILES} Python files and {MAX_BYTES} bytes are"
                " allowed."
            )
        files[name] = _decoded(source, name)
    return files


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part not in (".", "..")


def _below_one_folder(files: Mapping[str, str]) -> dict[str, str]:
    outermost = {path.partition("/")[0] for path in files}
    if len(outermost) != 1 or not any(path.split("/")[1:2] == ["domains"] for path in files):
        return dict(files)
    return {path.partition("/")[2]: source for path, source in files.items()}


def without_library(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files without those of the library, which is part of every exported project."""
    if not all(f"{LIBRARY}{name}.py" in files for name in ("alerts", "records", "testing")):
        return dict(files)
    return {path: source for path, source in files.items() if not path.startswith(LIBRARY)}


def _text(path: Path, name: str) -> str:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ImportRefused(f"{name} is too large: at most {MAX_FILE_BYTES} bytes are allowed.")
    return _decoded(path.read_bytes(), name)


def _decoded(source: bytes, name: str) -> str:
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ImportRefused(f"{name} is not encoded in UTF-8. Save it in that encoding.") from None
    # Normalise line endings as Python does. Neither Python source nor text in the database may
    # contain null characters.
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def queue(user: MemoryUser, files: Mapping[str, str], trigger: RunTrigger) -> Run:
    """Queue the import of these files into the user's project.

    Raises ImportRefused as `check_files` does, and ContentRefused if the workspace's content policy
    does not simply store what is in the files.
    """
    check_files(files)
    files = without_library(files)
    content_policy.refuse_sensitive(user.workspace.content_policy, {"files": files})
    return runs.queue(
        user, RunKind.IMPORT, trigger, checkpoint=user.head, input={"files": dict(files)}
    )
