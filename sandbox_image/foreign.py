"""Foreign projects: executed as they are, to read out their typed objects.

Everything here runs in a forked child that is gone afterwards. The files are on no disk: below
`ROOT`, only this process sees them, however it looks for them. Such code may ask for the time and
for random numbers: it gets the moment of the run, and the same numbers every time.
"""

import _io
import ast
import base64
import dataclasses
import datetime
import decimal
import enum
import importlib
import inspect
import io
import json
import os
import posix
import random
import re
import stat
import sys
import time as real_time
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib import machinery, util
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

from . import determinism
from .errors import describe
from .loader import BadRequestError, remember_source
from .uac import PartialDate, Record, Ref, protocol
from .values import NotAValueError, ResultLimitError

ROOT = "/project"
MAX_DEPTH = 40
MAX_VALUES = 500_000
# Modules that such projects may import late; a confined process cannot find library files any more.
NEEDED = (importlib, io, machinery, util, uuid)


def perform(work: dict[str, Any]) -> dict[str, Any]:
    """Read the typed objects of the files, or run one old constraint.

    An error of the code is returned with the path and line in these files.
    """
    files: dict[str, str] = work["files"]
    now = datetime.datetime.fromisoformat(work["now"]).astimezone(ZoneInfo(work["time_zone"]))
    _settle(files, now)
    names = {f"{ROOT}/{path}" for path in files}
    try:
        match work["task"]:
            case "read":
                return {"graph": _Reader().read(files, work["entries"])}
            case "check":
                return {"alerts": _check(work["entries"][0], now)}
        raise BadRequestError("unknown task")
    except (MemoryError, ResultLimitError, NotAValueError, BadRequestError, SystemExit):
        raise
    except BaseException as error:
        told = describe(error, names)
        if told["path"] is not None:
            told["path"] = told["path"].removeprefix(f"{ROOT}/")
        return {"error": {**told, "traceback": told["traceback"].replace(f"{ROOT}/", "")}}


# -- The surroundings ---------------------------------------------------------------------------


def _settle(files: Mapping[str, str], now: datetime.datetime) -> None:
    """Show this process the files and nothing of the user's own project; stop its clocks."""
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
    """Files that the interpreter finds in memory; all other files are where they were."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents
        self.folders: dict[str, set[str]] = {ROOT: set()}
        for path in contents:
            while path != ROOT:
                parent, _, name = path.rpartition("/")
                self.folders.setdefault(parent, set()).add(name)
                path = parent

    def install(self) -> None:
        """Replace the system's functions by these."""
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
        """Return the normalized path if it is one of ours."""
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
    """An entry of a folder, as os.scandir yields it."""

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
    """An iterator as os.scandir returns it."""

    def __init__(self, entries: Iterator[_Entry]) -> None:
        self._entries = entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close nothing: no folder is open."""


def _stop_clocks(now: datetime.datetime) -> None:
    """Stop all clocks at the moment of the run."""

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
    """Make random numbers the same every time, instead of refusing them."""
    chance = random.Random(0)  # noqa: S311  # nosec B311 # the same each time, by intention

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        determinism._real_seed(self, 0 if a is None else a, version)

    setattr(random.Random, "seed", seed)  # noqa: B010
    for module, name in ((os, "urandom"), (random, "_urandom")):
        setattr(module, name, chance.randbytes)


# -- Old constraints ----------------------------------------------------------------------------


def _check(path: str, now: datetime.datetime) -> list[dict[str, Any]]:
    """Call `check_constraints(current_time)` or `check(project_path)` of a module."""
    module = _execute(path)
    for name in ("check_constraints", "check"):
        function = getattr(module, name, None)
        if callable(function):
            break
    else:
        raise NotAValueError(f"{path} has no check(project_path) or check_constraints(time)")
    given = [
        _argument(parameter, now)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    found = function(*given)
    if found is None:
        return []
    if isinstance(found, (str, bytes, dict)) or not hasattr(found, "__iter__"):
        found = [found]
    return [_alert(alert) for alert in found]


def _argument(parameter: inspect.Parameter, now: datetime.datetime) -> object:
    name = parameter.name
    if any(word in name for word in ("path", "project", "root", "dir")):
        return Path(ROOT) if "Path" in str(parameter.annotation) else ROOT
    wanted = str(parameter.annotation)
    if "datetime.datetime" in wanted or wanted.endswith("datetime'>") or wanted == "datetime":
        return now
    if wanted in ("date", "datetime.date") or "datetime.date'" in wanted:
        return now.date()
    return now.date().isoformat()


def _alert(value: object) -> dict[str, Any]:
    """Return an alert as an object of texts, whatever its author calls them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, (tuple, list)):
        value = dict(zip(("severity", "message"), value, strict=False))
    if not isinstance(value, Mapping):
        value = {"message": value}
    return {
        protocol.storable(str(name))[:100]: protocol.storable(
            part if isinstance(part, str) else str(part)
        )[:10_000]
        for name, part in list(value.items())[:50]
    }


# -- Reading ------------------------------------------------------------------------------------


def _execute(path: str) -> ModuleType:
    """Execute a file as a module, with its own folder first on the path."""
    name = path.removesuffix(".py").replace("/", ".")
    folder = str(PurePosixPath(ROOT, path).parent)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        if all(part.isidentifier() for part in name.split(".")):
            module = importlib.import_module(name)
            if getattr(module, "__file__", None) == f"{ROOT}/{path}":
                return module
            name = f"foreign.{name}"  # the library has a module of that name
        spec = util.spec_from_file_location(name, f"{ROOT}/{path}")
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(folder)
        for new in set(sys.modules) - before:
            file = getattr(sys.modules[new], "__file__", None) or ""
            if file.startswith(f"{ROOT}/"):
                _foreign.add(new)
                # A `schema` found in this folder is a different one in the next.
                if folder != ROOT and "." not in new and file.startswith(f"{folder}/"):
                    del sys.modules[new]


# Names of all modules that were executed here.
_foreign: set[str] = set()


class _Reader:
    """The objects that modules hold, as a graph: each object once, named by its number."""

    def __init__(self) -> None:
        self.objects: list[list[Any] | None] = []
        self.classes: list[dict[str, Any]] = []
        self.enums: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._class_numbers: dict[type, int] = {}
        self._enum_numbers: dict[type, int] = {}
        self._pending: list[tuple[int, Any]] = []
        self._values = 0

    def read(self, files: Mapping[str, str], entries: list[str]) -> dict[str, Any]:
        """Execute the modules in order and return the objects that they hold."""
        modules, namespaces = [], []
        for path in entries:
            module = _execute(path)
            imported = _imported_names(files[path], vars(module))
            annotations = vars(module).get("__annotations__", {})
            own = [
                (name, value)
                for name, value in list(vars(module).items())
                if not _is_system_name(name) and name not in imported
            ]
            names = [
                [name, self.value(value, 0), _annotation(annotations.get(name))]
                for name, value in own
                if not _is_code(value)
            ]
            modules.append({"path": path, "names": names})
            namespaces += [(names, name, value) for name, value in own if _is_namespace(value)]
        self._read_pending()
        for names, name, kind in namespaces:
            if not any(issubclass(known, kind) for known in self._class_numbers):
                names.append([name, ["dict", self._pairs(_attributes_of(kind), 0)], ""])
        self._read_pending()
        return {
            "modules": modules,
            "classes": self.classes,
            "enums": self.enums,
            "objects": self.objects,
        }

    def _read_pending(self) -> None:
        for number, value in self._pending:  # grows meanwhile
            self.objects[number] = self._contents(value)
        self._pending.clear()

    def value(self, value: Any, depth: int) -> Any:
        """Return a scalar as it is, or a list of the kind of value and its parts."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise ResultLimitError(f"the project holds more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise ResultLimitError(f"a value is nested more than {MAX_DEPTH} deep")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if isinstance(value, enum.Enum):
            return self._member(value)
        if isinstance(value, str):
            return _text(str.__str__(value))
        if isinstance(value, int):
            small = abs(value) <= protocol.MAX_SAFE_INTEGER
            return int(value) if small else ["int", _digits(value)]
        if isinstance(value, float):
            number = float(value)
            finite = number == number and abs(number) != float("inf")
            return number if finite else ["float", repr(number)]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return self._object(value)
        if isinstance(value, dict):
            return ["dict", self._pairs(value, depth)]
        if isinstance(value, (list, tuple, range)):
            shape = next(k for k in (list, tuple, range) if isinstance(value, k)).__name__
            return [shape, [self.value(item, depth + 1) for item in value]]
        if isinstance(value, (set, frozenset)):
            items = [self.value(item, depth + 1) for item in value]
            return ["set", sorted(items, key=lambda item: json.dumps(item, sort_keys=True))]
        return self._scalar(value) or self._object(value)

    def _pairs(self, value: Mapping[Any, Any], depth: int) -> list[Any]:
        return [
            [self.value(key, depth + 1), self.value(item, depth + 1)] for key, item in value.items()
        ]

    def _scalar(self, value: Any) -> list[Any] | None:
        match value:
            case datetime.datetime(tzinfo=ZoneInfo(key=zone)):
                return ["zoned", [value.isoformat(), _text(str(zone))]]
            case datetime.datetime():
                return ["datetime", value.isoformat()]
            case datetime.date():
                return ["date", value.isoformat()]
            case datetime.time(tzinfo=ZoneInfo(key=zone)):
                return ["opaque", ["time", _text(f"{value.isoformat()} {zone}")]]
            case datetime.time():
                return ["time", value.isoformat()]
            case datetime.timedelta():
                return ["duration", [value.days, value.seconds, value.microseconds]]
            case decimal.Decimal():
                return ["decimal", str(value)]
            case PartialDate():
                return ["partial_date", str(value)]
            case Ref():
                return ["ref", [_text(value.class_name), _text(value.key)]]
            case bytes() | bytearray():
                return ["bytes", base64.b64encode(value).decode()]
        return None

    def _member(self, value: enum.Enum) -> list[Any]:
        kind = type(value)
        if value.name is None or isinstance(value, enum.Flag):
            return ["opaque", [kind.__name__, _text(str(value))]]
        if kind not in self._enum_numbers:
            self._enum_numbers[kind] = len(self.enums)
            members = [[name, self.value(one.value, 1)] for name, one in kind.__members__.items()]
            self.enums.append({"name": kind.__name__, "members": members})
        return ["enum", [self._enum_numbers[kind], _text(value.name)]]

    def _object(self, value: Any) -> list[Any]:
        if not _is_users(type(value)):
            return ["opaque", [type(value).__name__, _printed(value)]]
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.objects)
            self._pending.append((len(self.objects), value))
            self.objects.append(None)
        return ["object", self._numbers[id(value)]]

    def _contents(self, value: Any) -> list[Any]:
        """Return the class of an object, its fields in order, and the key of a record."""
        kind = type(value)
        names = [name for name, _, _ in self._fields(kind)]
        if not dataclasses.is_dataclass(kind) and not isinstance(value, tuple):
            names += _attributes_of(kind)
        held = list(vars(value)) if hasattr(value, "__dict__") else []
        names += [name for name in held if name not in names and not _is_system_name(name)]
        is_record = isinstance(value, Record)
        own = [name for name in names if not (is_record and name in ("key", "sources"))]
        fields = [
            [_text(name), self.value(getattr(value, name), 1)]
            for name in own
            if hasattr(value, name)
        ]
        return [self._class(kind), fields, _text(value.key) if is_record else None]

    def _class(self, kind: type) -> int:
        if kind not in self._class_numbers:
            self._class_numbers[kind] = len(self.classes)
            is_record = issubclass(kind, Record)
            told: dict[str, Any] = {"name": _text(kind.__name__), "is_record": is_record}
            self.classes.append(told)
            told["doc"] = _documentation(kind)
            told["fields"] = [
                [_text(name), _annotation(annotation), self._default(default)]
                for name, annotation, default in self._fields(kind)
                if not (is_record and name in ("key", "sources"))
            ]
        return self._class_numbers[kind]

    def _fields(self, kind: type) -> list[tuple[str, Any, Any]]:
        """Return the name, the annotation and the default of the fields that a class declares."""
        if dataclasses.is_dataclass(kind):
            return [
                (field.name, field.type, _default_of(field)) for field in dataclasses.fields(kind)
            ]
        if issubclass(kind, tuple):
            defaults = getattr(kind, "_field_defaults", {})
            declared = getattr(kind, "__annotations__", {})
            return [
                (name, declared.get(name), defaults.get(name, dataclasses.MISSING))
                for name in getattr(kind, "_fields", ())
            ]
        slots = getattr(kind, "__slots__", ())
        return [(name, None, dataclasses.MISSING) for name in slots if not name.startswith("__")]

    def _default(self, default: object) -> list[Any]:
        """Return a list of the default if it is a plain value, else an empty one."""
        if default is None or type(default) in (bool, int, float, str):
            return [self.value(default, 1)]
        if isinstance(default, (enum.Enum, datetime.date, datetime.time, decimal.Decimal)):
            return [self.value(default, 1)]
        return [["list", []]] if default == [] and type(default) is list else []


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    return [] if field.default_factory is list else field.default


def _imported_names(source: str, held: Mapping[str, Any]) -> set[str]:
    """Return the names that a module only imports, and binds to nothing else."""
    imported: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom) and "*" in names:
                names = _names_of_all(node.module or "", held)
            imported |= names
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return imported - bound


def _names_of_all(module: str, held: Mapping[str, Any]) -> set[str]:
    """Return the names that came with `from module import *`."""
    found = set()
    for name, one in list(sys.modules.items()):
        if name == module or name.endswith(f".{module}"):
            there = vars(one)
            found |= {key for key, value in held.items() if key in there and there[key] is value}
    return found


def _is_system_name(name: str) -> bool:
    return name.startswith("__") or not name.isidentifier()


def _is_code(value: object) -> bool:
    """Return whether a name holds a part of the program rather than data."""
    if isinstance(value, (type, ModuleType, types.GenericAlias, types.UnionType)):
        return True
    if isinstance(value, (typing.TypeVar, re.Pattern)) or type(value).__module__ == "typing":
        return True
    return callable(value) and not dataclasses.is_dataclass(value)


def _is_namespace(value: object) -> bool:
    """Return whether a class of the foreign project holds data itself instead of describing it."""
    return (
        isinstance(value, type)
        and _is_users(value)
        and not dataclasses.is_dataclass(value)
        and not issubclass(value, (enum.Enum, tuple, dict, BaseException, Record))
        and bool(_attributes_of(value))
    )


def _attributes_of(kind: type) -> dict[str, Any]:
    """Return the data of the foreign project's classes among a class's ancestors."""
    return {
        name: value
        for one in reversed(kind.__mro__)
        if _is_users(one)
        for name, value in vars(one).items()
        if not _is_system_name(name)
        and not name.startswith("_")
        and not callable(value)
        and not hasattr(value, "__get__")
    }


def _is_users(kind: type) -> bool:
    """Return whether a class belongs to the foreign project, and not to the library."""
    return kind.__module__ in _foreign or issubclass(kind, Record)


def _documentation(kind: type) -> str:
    text = inspect.cleandoc(kind.__doc__) if isinstance(kind.__doc__, str) else ""
    generated = text.startswith(f"{kind.__name__}(")
    return "" if generated else protocol.storable(text.partition("\n\n")[0])[:500]


def _annotation(annotation: object) -> str:
    """Return an annotation as `memory.project.types` reads it; "" if it knows no such type."""
    if isinstance(annotation, str):
        return protocol.storable(annotation)[:500]
    if annotation is None or annotation is type(None):
        return "None" if annotation is not None else ""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = [_annotation(argument) for argument in arguments]
        return " | ".join(parts) if all(parts) else ""
    if origin in (list, set, frozenset) and len(arguments) == 1:
        inner = _annotation(arguments[0])
        return f"list[{inner}]" if inner else ""
    if origin is None and isinstance(annotation, type):
        library = annotation.__module__ in ("datetime", "decimal")
        return f"{annotation.__module__}.{annotation.__name__}" if library else annotation.__name__
    name = getattr(annotation, "__forward_arg__", "")
    return name if isinstance(name, str) else ""


def _text(text: str) -> str:
    if not protocol.is_storable(text):
        raise NotAValueError(
            "a text with a null character or half a surrogate pair cannot be kept: remove these"
        )
    return text


def _digits(value: int) -> str:
    try:
        return str(int(value))
    except ValueError:
        raise ResultLimitError("an integer is too long to print") from None


def _printed(value: object) -> str:
    try:
        return protocol.storable(str(value))[:2000]
    except Exception:
        return ""
