"""Execute a foreign project unmodified, and read the objects in its modules.

This module's text runs in a sandbox, as a query on an empty project; the server never imports it.
The files are not on disk: an importer finds the modules as if they were in `ROOT`. Foreign code may
ask for the time and for random identifiers; it always gets the time of the import and the same
sequence of identifiers.
"""

import ast
import dataclasses
import datetime
import decimal
import enum
import importlib
import inspect
import math
import os
import random
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from importlib.abc import PathEntryFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_loader
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

from sandbox_image.determinism import replace_attribute
from sandbox_image.errors import describe
from sandbox_image.loader import remember_source
from sandbox_image.uac import PartialDate, Record, Ref, protocol
from sandbox_image.values import NotAValueError, ResultLimitError

ROOT = "/project"
MAX_DEPTH = 40
MAX_VALUES = 250_000
MAX_BITS = 10_000  # of an integer

# Names of all the foreign project's modules that have been executed here.
_foreign: set[str] = set()


def read(files: Mapping[str, str], entries: Sequence[str], now: datetime.datetime) -> Any:
    """Execute the modules at the paths in `entries`, in order, and return their objects.

    An error in the code is returned with its path and line in the files.
    """
    sys.path_hooks.insert(0, lambda folder: _Finder(folder, files))
    sys.path_importer_cache.clear()
    sys.path.insert(0, ROOT)
    for path, text in files.items():
        remember_source(f"{ROOT}/{path}", text)
    _stop_clocks(now)
    setattr(os, "urandom", random.Random(0).randbytes)  # noqa: B010, S311  # nosec B311
    try:
        return {"graph": _Reader().read(files, entries)}
    except (MemoryError, ResultLimitError, NotAValueError, SystemExit):
        raise
    except BaseException as error:
        described = describe(error, {f"{ROOT}/{path}" for path in files})
        if described["path"] is not None:
            described["path"] = described["path"].removeprefix(f"{ROOT}/")
        traceback = described["traceback"].replace(f"{ROOT}/", "")
        return {"error": {**described, "traceback": traceback}}


class _Finder(PathEntryFinder):
    """Finds the modules in one of the project's folders."""

    def __init__(self, folder: str, files: Mapping[str, str]) -> None:
        if folder != ROOT and not folder.startswith(f"{ROOT}/"):
            raise ImportError(folder)  # a folder on disk, for Python's own finder
        self.folder, self.files = os.path.normpath(folder), files

    def find_spec(self, fullname: str, target: object = None) -> ModuleSpec | None:
        path_stem = f"{self.folder}/{fullname.rpartition('.')[2]}"
        for path in (f"{path_stem}/__init__.py", f"{path_stem}.py"):
            if path.removeprefix(f"{ROOT}/") in self.files:
                return spec_from_loader(fullname, _Loader(path, self.files))
        if not any(f"{ROOT}/{path}".startswith(f"{path_stem}/") for path in self.files):
            return None
        package = ModuleSpec(fullname, None, is_package=True)
        package.submodule_search_locations = [path_stem]
        return package


class _Loader(SourceLoader):
    """Loads one module from its text."""

    def __init__(self, path: str, files: Mapping[str, str]) -> None:
        self.path, self.files = path, files

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        return self.files[str(path).removeprefix(f"{ROOT}/")].encode()


def _execute(path: str, files: Mapping[str, str]) -> ModuleType:
    """Execute a file as a module, with its own directory first on `sys.path`."""
    name = path.removesuffix(".py").replace("/", ".")
    folder = str(PurePosixPath(ROOT, path).parent)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        if all(part.isidentifier() for part in name.split(".")):
            module = importlib.import_module(name)
            if getattr(module, "__file__", None) == f"{ROOT}/{path}":
                return module
            name = f"foreign.{name}"  # a library module already has that name
        spec = spec_from_loader(name, _Loader(f"{ROOT}/{path}", files))
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(folder)
        for new in set(sys.modules) - before:
            file = getattr(sys.modules[new], "__file__", None) or ""
            if file.startswith(f"{ROOT}/"):
                _foreign.add(new)
                # Forget the module, since the same name, such as `schema`, is a different module in
                # the next directory.
                if folder != ROOT and "." not in new and file.startswith(f"{folder}/"):
                    del sys.modules[new]


def _is_foreign_class(kind: type) -> bool:
    """Return whether a class belongs to the foreign project rather than to a library."""
    return kind.__module__ in _foreign or issubclass(kind, Record)


def _stop_clocks(now: datetime.datetime) -> None:
    """Make the usual clocks return the time of the import."""

    def current(tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return now.replace(tzinfo=None) if tz is None else now.astimezone(tz)

    utc = now.astimezone(datetime.UTC).replace(tzinfo=None)
    replace_attribute(datetime.date, "today", staticmethod(now.date))
    replace_attribute(datetime.datetime, "today", staticmethod(current))
    replace_attribute(datetime.datetime, "now", staticmethod(current))
    replace_attribute(datetime.datetime, "utcnow", staticmethod(lambda: utc))
    clocks: Any = sys.modules["time"]
    clocks.time = now.timestamp
    clocks.time_ns = lambda: int(now.timestamp() * 10**9)


class _Reader:
    """Collects the objects in a project's modules as a graph in which each object has an index."""

    def __init__(self) -> None:
        self.objects: list[list[Any] | None] = []
        self.classes: list[dict[str, Any]] = []
        self.enums: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._class_numbers: dict[type, int] = {}
        self._enum_numbers: dict[type, int] = {}
        self._pending: list[tuple[int, Any]] = []
        self._values = 0

    def read(self, files: Mapping[str, str], entries: Sequence[str]) -> dict[str, Any]:
        """Execute the modules at the paths in `entries`, in order, and return their objects."""
        modules = []
        for path in entries:
            module = _execute(path, files)
            imported = _imported_names(files[path], vars(module))
            annotations = vars(module).get("__annotations__", {})
            names = [
                [name, self.value(value, 0), _annotation(annotations.get(name))]
                for name, value in list(vars(module).items())
                if not (_is_system_name(name) or name in imported or _is_code(value))
            ]
            modules.append({"path": path, "names": names})
        for number, value in self._pending:  # the list grows during the loop
            self.objects[number] = self._contents(value)
        return {
            "modules": modules,
            "classes": self.classes,
            "enums": self.enums,
            "objects": self.objects,
        }

    def value(self, value: Any, depth: int) -> Any:
        """Return a simple JSON value unchanged, and any other value as a list [kind, content]."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise ResultLimitError(f"the project contains more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise ResultLimitError(f"a value is nested more than {MAX_DEPTH} levels deep")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if isinstance(value, enum.Enum):
            return self._member(value)
        if isinstance(value, str):
            return _text(str.__str__(value))
        if isinstance(value, int):
            if value.bit_length() > MAX_BITS:
                return ["unsupported", "very large integer"]
            small = abs(value) <= protocol.MAX_SAFE_INTEGER
            return int(value) if small else ["int", str(int(value))]
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        if isinstance(value, dict):
            return [
                "dict",
                [
                    [self.value(key, depth + 1), self.value(item, depth + 1)]
                    for key, item in value.items()
                ],
            ]
        if isinstance(value, list):
            return ["list", [self.value(item, depth + 1) for item in value]]
        if isinstance(value, (tuple, set, frozenset, range)):
            return ["unsupported", _text(kind.__name__)]
        return self._scalar(value) or self._object(value)

    def _scalar(self, value: Any) -> list[Any] | None:
        match value:
            case datetime.datetime(tzinfo=ZoneInfo()) | datetime.time(tzinfo=ZoneInfo()):
                return ["unsupported", f"{type(value).__name__} in a named zone"]
            case datetime.datetime():
                return ["datetime", value.isoformat()]
            case datetime.date():
                return ["date", value.isoformat()]
            case datetime.time():
                return ["time", value.isoformat()]
            case decimal.Decimal() if value.is_finite():
                return ["decimal", str(value)]
            case PartialDate():
                return ["partial_date", str(value)]
            case Ref():
                return ["ref", [_text(value.class_name), _text(value.key)]]
            case datetime.timedelta() | bytes() | bytearray() | decimal.Decimal() | float():
                return ["unsupported", _text(type(value).__name__)]
        return None

    def _member(self, value: enum.Enum) -> list[Any]:
        kind = type(value)
        if value.name is None or isinstance(value, enum.Flag):
            return ["other", _text(kind.__name__)]
        if kind not in self._enum_numbers:
            self._enum_numbers[kind] = len(self.enums)
            members = [[name, self.value(one.value, 1)] for name, one in kind.__members__.items()]
            self.enums.append({"name": kind.__name__, "members": members})
        return ["enum", [self._enum_numbers[kind], _text(value.name)]]

    def _object(self, value: Any) -> list[Any]:
        has_fields = dataclasses.is_dataclass(value) or hasattr(value, "__dict__")
        if not (has_fields and _is_foreign_class(type(value))):
            return ["other", _text(type(value).__name__)]
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.objects)
            self._pending.append((len(self.objects), value))
            self.objects.append(None)
        return ["object", self._numbers[id(value)]]

    def _contents(self, value: Any) -> list[Any]:
        """Return an object's class number, its fields in order, and, for a record, its key."""
        kind = type(value)
        names = [name for name, _, _ in self._fields(kind)]
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
            description: dict[str, Any] = {"name": _text(kind.__name__), "is_record": is_record}
            self.classes.append(description)
            description["doc"] = _documentation(kind)
            description["fields"] = [
                [_text(name), _annotation(annotation), self._default(default)]
                for name, annotation, default in self._fields(kind)
                if not (is_record and name in ("key", "sources"))
            ]
        return self._class_numbers[kind]

    def _fields(self, kind: type) -> list[tuple[str, Any, Any]]:
        """Return the name, annotation and default of each field that a class declares."""
        if not dataclasses.is_dataclass(kind):
            return []
        return [(field.name, field.type, _default_of(field)) for field in dataclasses.fields(kind)]

    def _default(self, default: object) -> list[Any]:
        """Return a list of just the default if that is a plain value, or else an empty list."""
        if default is None or type(default) in (bool, int, float, str):
            return [self.value(default, 1)]
        if isinstance(default, (enum.Enum, datetime.date, datetime.time, decimal.Decimal)):
            return [self.value(default, 1)]
        return [["list", []]] if default == [] and type(default) is list else []


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    return [] if field.default_factory is list else field.default


def _imported_names(source: str, held: Mapping[str, Any]) -> set[str]:
    """Return the names that a module imports and doesn't also assign."""
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
    """Return which of the names in `held` came from `from module import *`."""
    names = set()
    for name, one in list(sys.modules.items()):
        if name == module or name.endswith(f".{module}"):
            there = vars(one)
            names |= {key for key, value in held.items() if key in there and there[key] is value}
    return names


def _is_system_name(name: str) -> bool:
    return name.startswith("__") or not name.isidentifier()


def _is_code(value: object) -> bool:
    """Return whether a value is part of the program rather than data."""
    if isinstance(value, (type, ModuleType, types.GenericAlias, types.UnionType)):
        return True
    if isinstance(value, (typing.TypeVar, re.Pattern)) or type(value).__module__ == "typing":
        return True
    return callable(value) and not dataclasses.is_dataclass(value)


def _documentation(kind: type) -> str:
    text = inspect.cleandoc(kind.__doc__) if isinstance(kind.__doc__, str) else ""
    generated = text.startswith(f"{kind.__name__}(")
    return "" if generated else protocol.storable(text.partition("\n\n")[0])[:500]


def _annotation(annotation: object) -> str:
    """Return an annotation in a form that `memory.project.types` reads, or "" if it has none."""
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
            "a text with a null character or half a surrogate pair cannot be stored: remove these"
            " characters"
        )
    return text
