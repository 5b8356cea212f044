"""The user's project as modules: loaded from memory, kept resident, reloaded after changes."""

import base64
import gc
import importlib
import linecache
import marshal
import re
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

_PATH = re.compile(r"(?:\w+/)*\w+\.py")
_SHARD = re.compile(r"(.+)_[0-9]{4,}")
# Files that a workspace adds to its users' projects: `workspace/constraints/`, `workspace/tests/`.
WORKSPACE = "workspace/"


class BadRequestError(Exception):
    """The host's request is not valid."""


@dataclass(frozen=True)
class File:
    """A file of the project: its code, or the error that compiling it raised."""

    path: str
    code: CodeType | None
    error: Exception | None

    @property
    def module(self) -> str:
        """The name under which the file is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_package(self) -> bool:
        """True if the file is a folder's __init__.py."""
        return self.path.endswith("__init__.py")


class Project(InspectLoader, MetaPathFinder):
    """All files of a project, an importer for them, and the loaded modules.

    Modules of domains and constraints are loaded by `update` and stay loaded. Tests are imported
    when they run, in the process that runs them.
    """

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self._modules: dict[str, File | None] = {}  # None: a folder without an __init__.py
        sys.meta_path.insert(0, self)

    def update(
        self,
        sources: Mapping[str, str],
        bytecode: Mapping[str, str],
        removed: Sequence[str],
        *,
        collect: bool = True,
    ) -> int:
        """Add and remove files, and load the affected modules again.

        Returns the number of modules executed; unloaded modules are freed only if `collect` is set.
        If a module raises, the exception propagates and the project is as it was before.
        """
        before = self.files
        changed = {path: self._from_source(path, text) for path, text in sources.items()}
        changed |= {path: _from_bytecode(path, text) for path, text in bytecode.items()}
        for path in changed:
            if not _PATH.fullmatch(path):
                raise BadRequestError(f"{path[:200]!r} is not the path of a Python file")
        after = {path: file for path, file in before.items() if path not in removed} | changed
        touched = {file.module for file in (*changed.values(), *map(before.get, removed)) if file}
        stale = self._importers_of(touched, after) if before else set()
        known = self._modules.keys()
        self._set_files(after)
        stale |= known - self._modules.keys()
        unloaded = {name: sys.modules.pop(name) for name in stale if name in sys.modules}
        # Building many objects is slow with the garbage collector on, and forks copy what it
        # touches.
        gc.unfreeze()
        gc.disable()
        kept = set(sys.modules)
        try:
            for file in self.in_domains():
                importlib.import_module(file.module)
            executed = len((sys.modules.keys() - kept) & self._modules.keys())
            self._import_constraints()
            return executed
        except BaseException:
            for name in (sys.modules.keys() - kept) & self._modules.keys():
                del sys.modules[name]
            self._set_files(before)
            sys.modules.update(unloaded)
            raise
        finally:
            self._bind_to_packages(unloaded)
            if unloaded and collect:
                gc.collect()
            gc.freeze()
            gc.enable()

    def _import_constraints(self) -> None:
        """Import all constraints; those that fail report their error when they are run."""
        found = selected(self.files, "constraints", None)
        for path in [*found, *selected(self.files, f"{WORKSPACE}constraints", None)]:
            try:
                self.module(path)
            except BaseException:
                sys.modules.pop(self.files[path].module, None)

    def in_domains(self) -> Iterator[File]:
        """Return the files of all domains, by path."""
        return (self.files[path] for path in sorted(self.files) if path.startswith("domains/"))

    def module(self, path: str) -> ModuleType:
        """Return the module of a file, importing it if needed; errors in the import propagate."""
        return importlib.import_module(self.files[path].module)

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Find a module of the project (the import system calls this)."""
        if fullname not in self._modules:
            return None
        file = self._modules[fullname]
        spec = ModuleSpec(fullname, self, is_package=file is None or file.is_package)
        if file is not None:
            spec.origin = file.path
        return spec

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module (the import system calls this)."""
        file = self._modules[fullname]
        if file is None:
            return compile("", "", "exec")
        if file.error is not None:
            raise file.error.with_traceback(None)
        return file.code

    def get_source(self, fullname: str) -> None:
        """Return no source: linecache already has it (the import system calls this)."""

    def _from_source(self, path: str, text: str) -> File:
        remember_source(path, text)
        try:
            return File(path, compile_source(path, text), None)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            return File(path, None, error)

    def _set_files(self, files: dict[str, File]) -> None:
        self.files = files
        self._modules = {file.module: file for file in files.values()}
        for file in files.values():
            parent = file.module.rpartition(".")[0]
            while parent and parent not in self._modules:
                self._modules[parent] = None
                parent = parent.rpartition(".")[0]

    def _importers_of(self, names: set[str], files: Mapping[str, File]) -> set[str]:
        """Return these modules and those that import them, directly or indirectly."""
        importers: dict[str, list[str]] = {}
        modules = {file.module for file in files.values()} | names
        for file in files.values():
            if file.code is not None and not file.path.startswith(("tests/", f"{WORKSPACE}tests/")):
                for imported in _imports(file, modules):
                    importers.setdefault(imported, []).append(file.module)
        stale: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in stale:
                stale.add(name)
                pending.extend(importers.get(name, ()))
        return stale

    def _bind_to_packages(self, unloaded: Iterable[str]) -> None:
        """Make every loaded module an attribute of its package, and remove the unloaded ones."""
        for name in unloaded:
            parent, _, child = name.rpartition(".")
            if parent in sys.modules and name not in sys.modules:
                vars(sys.modules[parent]).pop(child, None)
        for name in self._modules.keys() & sys.modules.keys():
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], child, sys.modules[name])


def selected(files: Collection[str], folder: str, paths: Sequence[str] | None) -> list[str]:
    """Return the paths of the files to run in a folder: those given, or all if `paths` is None.

    Files of the workspace run only if their paths are given.
    """
    if paths is None:
        return [
            path
            for path in sorted(files)
            if path.startswith(f"{folder}/") and not path.endswith("__init__.py")
        ]
    for path in paths:
        if path not in files or not path.removeprefix(WORKSPACE).startswith(f"{folder}/"):
            raise BadRequestError(f"{path[:200]!r} is not among the files in {folder}/")
    return list(paths)


def compile_source(path: str, text: str) -> CodeType:
    """Compile a file of the project, keeping its asserts whatever options this interpreter has."""
    return compile(text, path, "exec", dont_inherit=True, optimize=0)


def to_bytecode(code: CodeType) -> str:
    """Return code as the text that `update` accepts, compressed since that is faster to send."""
    return base64.b64encode(zlib.compress(marshal.dumps(code))).decode()


def remember_source(path: str, text: str) -> None:
    """Let tracebacks show the lines of a file that is not on disk."""
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def collections_of(module: ModuleType) -> dict[str, list[object]]:
    """Return the collections that a state or shard module defines, by name.

    A list imported from one of the domain's shards is not a collection of its own.
    """
    package = module.__name__.rpartition(".")[0]
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, list)
        and not name.startswith("__")
        and not (_SHARD.fullmatch(name) and f"{package}.{name}" in sys.modules)
    }


def _from_bytecode(path: str, text: str) -> File:
    linecache.cache.pop(path, None)
    try:
        packed = base64.b64decode(text, validate=True)
        # Loading this is no risk: the code is executed in the sandbox anyway.
        code = marshal.loads(zlib.decompress(packed))  # noqa: S302  # nosec B302
    except (ValueError, EOFError, TypeError, zlib.error) as error:
        raise BadRequestError(f"the bytecode of {path[:200]} is damaged: {error}") from None
    if not isinstance(code, CodeType):
        raise BadRequestError(f"the bytecode of {path[:200]} is not code")
    return File(path, code, None)


def _imports(file: File, modules: Iterable[str]) -> list[str]:
    """Return the modules that a file's code may import, judged by the names that it mentions.

    `import a.b` mentions "a.b", `from a import b` mentions "a" and "b". A false match only costs an
    unneeded reload.
    """
    assert file.code is not None
    mentioned = set(_names(file.code))
    package = file.module if file.is_package else file.module.rpartition(".")[0]
    found = []
    for module in modules:
        parent, _, leaf = module.rpartition(".")
        if module in mentioned or (
            leaf in mentioned and (parent in mentioned or parent == package)
        ):
            found.append(module)
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
