"""The library of ready-made constraints, which the server reads as text and never imports.

In the folder that the setting CONSTRAINT_LIBRARY names, each constraint is in `<name>.py`, and its
tests are in `test_<name>.py`.
"""

import ast
from dataclasses import dataclass

from django.conf import settings

from memory.kernel.texts import parse_python


@dataclass(frozen=True)
class LibraryConstraint:
    """A constraint and its tests, in the form that the gate expects."""

    name: str
    source: str
    tests: str

    @property
    def doc(self) -> str:
        """The constraint's docstring: what it alerts on, what it needs, and its limitations."""
        return ast.get_docstring(parse_python(self.source)) or ""

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.doc.partition("\n")[0]


def names() -> list[str]:
    """Return the names of all constraints in the library, sorted."""
    paths = settings.CONSTRAINT_LIBRARY.glob("test_*.py")
    return sorted(path.stem.removeprefix("test_") for path in paths)


def read(name: str) -> LibraryConstraint:
    """Return the constraint with this name. Raises KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    folder = settings.CONSTRAINT_LIBRARY
    source, tests = (
        (folder / file).read_text(encoding="utf-8") for file in (f"{name}.py", f"test_{name}.py")
    )
    return LibraryConstraint(name, source, tests)
