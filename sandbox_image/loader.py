"""Load the user's project from memory as modules, keep it loaded, and reload what changes."""

import base64
import gc
import importlib
import linecache
import marshal
import re
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    # Importing the abstract class takes as long as importing forty other modules.
    Loader = object

_PATH = re.compile(r"(?:\w+/)*\w+\.py")
_SHARD = re.compile(r"(.+)_[0-9]{4,}")
# The directory for the files that a workspace adds to its users' projects; it contains
# `constraints/` and `tests/`.
WORKSPACE = "workspace/"


class BadRequestError(Exception):
    """The host's request is not valid."""


class File(NamedTuple):
    """A project file, with its compiled code or the error raised when compiling it."""

    path: str
    code: CodeType | None
    error: Exception | None

    @property
    def module(self) -> str:
        """The name of the module that this file is imported as."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_package(self) -> bool:
        """True if the file is a directory's __init__.py."""
        return self.path.endswith("__init__.py")


class Project(Loader):
    """A project's files, an importer for them, and the modules loaded from them.

    `update` loads the modules for domains and constraints, which stay loaded. Tests are imported
    when they run, in the process that runs them.
    """

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self._modules: dict[str, File | None] = {}  # None means a directory without __init__.py
        sys.meta_path.insert(0, self)

    def update(
        self,
        sources: Mapping[str, str],
        bytecode: Mapping[str, str],
        removed: Sequence[str],
        *,
        collect: bool = True,
    ) -> int:
        """Add and remove files, and reload the affected modules.

        Returns the number of domain modules executed. Memory used by unloaded modules is freed only
        if `collect` is set. If a domain module raises an exception, it propagates, and the project
        is left as it was before.
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
        old_modules = self._modules.keys()
        self._set_files(after)
        stale |= old_modules - self._modules.keys()
        unloaded = {name: sys.modules.pop(name) for name in stale if name in sys.modules}
        # Creating many objects is slow while the garbage collector is on, and children have to copy
        # every memory page that the collector touches.
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
        """Import all constraints; one that can't be imported reports its error when it runs."""
        paths = selected(self.files, "constraints", None)
        for path in [*paths, *selected(self.files, f"{WORKSPACE}constraints", None)]:
            try:
                self.module(path)
            except BaseException:
                sys.modules.pop(self.files[path].module, None)

    def in_domains(self) -> Iterator[File]:
        """Return all domains' files, sorted by path."""
        return (self.files[path] for path in sorted(self.files) if path.startswith("domains/"))

    def module(self, path: str) -> ModuleType:
        """Return a file's module, importing it if necessary; import errors propagate."""
        return importlib.import_module(self.files[path].module)

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Find one of the project's modules (called by the import system)."""
        if fullname not in self._modules:
            return None
        file = self._modules[fullname]
        spec = ModuleSpec(fullname, self, is_package=file is None or file.is_package)
        if file is not None:
            spec.origin = file.path
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation of the module to the import system (called by it)."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute a module's code (called by the import system)."""
        file = self._modules[module.__name__]
        if file is None:
            return
        if file.error is not None:
            raise file.error.with_traceback(None)
        assert file.code is not None
        exec(file.code, vars(module))  # nosec B102

    def get_source(self, fullname: str) -> None:
        """Return no source, since linecache already has it (called by the import system)."""

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
        """Return the named modules and all modules that import them, directly or indirectly."""
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
        """Make every loaded module an attribute of its package; remove the unloaded modules."""
        for name in unloaded:
            parent, _, child = name.rpartition(".")
            if parent in sys.modules and name not in sys.modules:
                vars(sys.modules[parent]).pop(child, None)
        for name in self._modules.keys() & sys.modules.keys():
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], child, sys.modules[name])


def selected(files: Collection[str], folder: str, paths: Sequence[str] | None) -> list[str]:
    """Return which files in a directory to run: those at `paths`, or all files if `paths` is None.

    A workspace's files are returned only if they are listed in `paths`. Raises BadRequestError if a
    path is not in the directory.
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
    """Compile a project file, keeping its asserts even if this interpreter runs with -O."""
    return compile(text, path, "exec", dont_inherit=True, optimize=0)


def to_bytecode(code: CodeType) -> str:
    """Return code as text that `update` accepts, compressed to make sending it faster."""
    return base64.b64encode(zlib.compress(marshal.dumps(code))).decode()


def remember_source(path: str, text: str) -> None:
    """Store a file's source so that tracebacks can show its lines although it isn't on disk."""
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def collections_of(module: ModuleType) -> dict[str, list[object]]:
    """Return the collections that a state or shard module defines, keyed by name.

    A list imported from one of the domain's shards is not one of the module's collections.
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
        # Unmarshalling user code adds no risk: the sandbox executes that code anyway.
        code = marshal.loads(zlib.decompress(packed))  # noqa: S302  # nosec B302
    except (ValueError, EOFError, TypeError, zlib.error) as error:
        raise BadRequestError(f"the bytecode of {path[:200]} is damaged: {error}") from None
    if not isinstance(code, CodeType):
        raise BadRequestError(f"the bytecode of {path[:200]} is not a code object")
    return File(path, code, None)


def _imports(file: File, modules: Iterable[str]) -> list[str]:
    """Return the modules that a file may import, judging by the names in its code.

    `import a.b` mentions "a.b"; `from a import b` mentions "a" and "b". A false match only causes
    an unnecessary reload.
    """
    assert file.code is not None
    mentioned = set(names_in(file.code))
    package = file.module if file.is_package else file.module.rpartition(".")[0]
    imports = []
    for module in modules:
        parent, _, leaf = module.rpartition(".")
        if module in mentioned or (
            leaf in mentioned and (parent in mentioned or parent == package)
        ):
            imports.append(module)
    return imports


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that code uses, including those of attributes; some more than once."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
