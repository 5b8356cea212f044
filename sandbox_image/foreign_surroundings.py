"""The environment of a foreign project: files in memory, frozen clocks, fixed random numbers."""

import _io
import dataclasses
import datetime
import io
import os
import posix
import random
import stat
import sys
import time as real_time
from collections.abc import Callable, Iterator, Mapping
from importlib import machinery
from pathlib import Path
from typing import Any

from . import determinism
from .loader import remember_source

ROOT = "/project"


def settle(files: Mapping[str, str], now: datetime.datetime) -> None:
    """Show the foreign files to this process, hide the user's project, and freeze the clocks."""
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "loader", None)
        if type(origin).__module__ == f"{__package__}.loader":
            del sys.modules[name]
    sys.meta_path[:] = [machinery.BuiltinImporter, machinery.FrozenImporter, machinery.PathFinder]
    sys.path.insert(0, ROOT)
    sys.path_importer_cache.clear()
    for path, text in files.items():
        remember_source(f"{ROOT}/{path}", text)
    _Files({f"{ROOT}/{path}": text.encode() for path, text in files.items()}).install()
    _stop_clocks(now)
    _foresee_chance()


class _Files:
    """In-memory files that the interpreter finds as if on disk; other files are unaffected."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents
        self.folders: dict[str, set[str]] = {ROOT: set()}
        for path in contents:
            while path != ROOT:
                parent, _, name = path.rpartition("/")
                self.folders.setdefault(parent, set()).add(name)
                path = parent

    def install(self) -> None:
        """Replace Python's file functions with the methods below."""
        for module, name, function in (
            *((module, "stat", self.stat) for module in (os, posix)),
            *((module, "lstat", self.stat) for module in (os, posix)),
            *((module, "listdir", self.listdir) for module in (os, posix)),
            *((module, "scandir", self.scandir) for module in (os, posix)),
            *((module, "access", self.access) for module in (os, posix)),
            *((module, "getcwd", self.getcwd) for module in (os, posix)),
            *((module, "open_code", self.open_code) for module in (io, _io)),
            (io, "open", self.open),
            (sys.modules["builtins"], "open", self.open),
        ):
            setattr(module, name, _in_place_of(getattr(module, name), function))

    def _known(self, path: object) -> str | None:
        """Return the normalized path if it is under ROOT, or else None."""
        try:
            text = os.fspath(path)  # type: ignore[call-overload]
        except TypeError:
            return None
        if not isinstance(text, str):
            return None
        full = os.path.normpath(text if text.startswith("/") else f"{ROOT}/{text}")
        return full if full == ROOT or full.startswith(f"{ROOT}/") else None

    def stat(self, real: Callable[..., Any], path: Any, *args: Any, **options: Any) -> Any:
        known = self._known(path)
        if known is None:
            return real(path, *args, **options)
        if known in self.folders:
            return os.stat_result((stat.S_IFDIR | 0o555, 1, 1, 2, 0, 0, 0, 0, 0, 0))
        if known in self.contents:
            size = len(self.contents[known])
            return os.stat_result((stat.S_IFREG | 0o444, 1, 1, 1, 0, 0, size, 0, 0, 0))
        raise FileNotFoundError(2, "No such file or directory", str(path))

    def listdir(self, real: Callable[..., Any], path: Any = ".") -> Any:
        known = self._known(path)
        if known is None:
            return real(path)
        if known not in self.folders:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return sorted(self.folders[known])

    def scandir(self, real: Callable[..., Any], path: Any = ".") -> Any:
        known = self._known(path)
        if known is None:
            return real(path)
        return _Entries(
            _Entry(name, f"{os.fspath(path)}/{name}", f"{known}/{name}" in self.folders)
            for name in self.listdir(real, path)
        )

    def access(self, real: Callable[..., Any], path: Any, mode: int, **options: Any) -> bool:
        known = self._known(path)
        if known is None:
            return bool(real(path, mode, **options))
        return (known in self.contents or known in self.folders) and not mode & os.W_OK

    def getcwd(self, real: Callable[..., Any]) -> str:
        return ROOT

    def open_code(self, real: Callable[..., Any], path: str) -> Any:
        known = self._known(path)
        return real(path) if known is None else io.BytesIO(self._content(known))

    def open(
        self, real: Callable[..., Any], path: Any, mode: str = "r", *args: Any, **options: Any
    ) -> Any:
        known = None if isinstance(path, int) else self._known(path)
        if known is None:
            return real(path, mode, *args, **options)
        if set(mode) & set("wax+"):
            raise OSError(30, "Read-only file system", str(path))
        stream = io.BytesIO(self._content(known))
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding="utf-8")

    def _content(self, path: str) -> bytes:
        if path not in self.contents:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.contents[path]


def _in_place_of(real: Any, function: Any) -> Callable[..., Any]:
    return lambda *args, **options: function(real, *args, **options)


@dataclasses.dataclass
class _Entry:
    """A directory entry like those that os.scandir yields."""

    name: str
    path: str
    _is_dir: bool

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is_dir

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self._is_dir

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return Path(self.path).stat()

    def __fspath__(self) -> str:
        return self.path


class _Entries(Iterator[_Entry]):
    """An iterator like the one that os.scandir returns."""

    def __init__(self, entries: Iterator[_Entry]) -> None:
        self._entries = entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: no directory is open."""


def _stop_clocks(now: datetime.datetime) -> None:
    """Make all clocks return the time of the run."""

    def current(zone: datetime.tzinfo | None = None) -> datetime.datetime:
        return now.replace(tzinfo=None) if zone is None else now.astimezone(zone)

    utc = now.astimezone(datetime.UTC)
    replace = determinism._replace
    replace(datetime.date, "today", staticmethod(lambda: now.date()))
    replace(datetime.datetime, "today", staticmethod(current))
    replace(datetime.datetime, "now", staticmethod(lambda tz=None: current(tz)))
    replace(datetime.datetime, "utcnow", staticmethod(lambda: utc.replace(tzinfo=None)))
    clocks = sys.modules["time"]
    for name in determinism.CLOCKS:
        at_start = not name.startswith(("time", "clock_gettime")) or "thread" in name
        seconds = 0.0 if at_start else now.timestamp()
        value: float = int(seconds * 10**9) if name.endswith("_ns") else seconds
        setattr(clocks, name, lambda *_, value=value: value)
    for name, needed in determinism.WITH_A_MOMENT.items():
        setattr(clocks, name, _at(now, getattr(real_time, name), name, needed))


def _at(
    now: datetime.datetime, real: Callable[..., Any], name: str, needed: int
) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if len(arguments) >= needed and arguments[needed - 1] is not None:
            return real(*arguments)
        given = arguments[: needed - 1]
        moment = now.timetuple() if name in {"asctime", "strftime"} else now.timestamp()
        return real(*given, moment)

    return call


def _foresee_chance() -> None:
    """Make random numbers the same in every run, instead of raising an error."""
    chance = random.Random(0)  # noqa: S311  # nosec B311 # deliberately the same in every run

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        determinism._real_seed(self, 0 if a is None else a, version)

    setattr(random.Random, "seed", seed)  # noqa: B010
    for module, name in ((os, "urandom"), (random, "_urandom")):
        setattr(module, name, chance.randbytes)
