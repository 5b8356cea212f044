"""Execute a foreign project's files as modules."""

import importlib
import sys
from importlib import util
from pathlib import PurePosixPath
from types import ModuleType

from .foreign_surroundings import ROOT
from .uac import Record


def execute_file(path: str) -> ModuleType:
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
                # Forget the module, since the same name, such as `schema`, is a different module in
                # the next directory.
                if folder != ROOT and "." not in new and file.startswith(f"{folder}/"):
                    del sys.modules[new]


# Names of all the foreign project's modules that have been executed here.
_foreign: set[str] = set()


def is_foreign_class(kind: type) -> bool:
    """Return whether a class belongs to the foreign project rather than to a library."""
    return kind.__module__ in _foreign or issubclass(kind, Record)
