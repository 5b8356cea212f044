"""The kinds of Python files that a user's or a workspace's project may contain, in one table."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag, auto


class Holds(Flag):
    """The statements that a file may contain besides imports."""

    CLASSES = auto()
    FUNCTIONS = auto()
    ASSIGNMENTS = auto()
    NOTHING = 0


CODE = Holds.FUNCTIONS | Holds.ASSIGNMENTS

SCHEMA_MODULE = re.compile(r"domains\.\w+\.schema")
DOMAIN_MODULE = re.compile(r"domains\.\w+\.\w+")
_STATE_OR_SCHEMA = re.compile(r"domains\.\w+\.(?:schema|state)")
_CONSTRAINT_MODULE = re.compile(r"constraints\.\w+")
_WORKSPACE_CONSTRAINT_MODULE = re.compile(r"workspace\.constraints\.\w+")


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """The rules of one kind of file.

    `path` matches the whole path; a query has none. `imports` match the project's own modules in
    `from … import name`, and `modules` those in `import …`; `package` is the package whose modules
    may be imported by `from package import module`. `library` names those modules of the library
    that only some kinds may import.
    """

    path: re.Pattern[str] | None
    # What the file may contain, for the checks and in words.
    holds: Holds = Holds.NOTHING
    contents: str = "imports, constants and functions"
    imports: Sequence[re.Pattern[str]] = ()
    modules: Sequence[re.Pattern[str]] = ()
    package: str | None = None
    library: Sequence[str] = ()
    # How a message describes the project's own modules that may be imported.
    own: str = "domains.<domain>.…"
    # The parameters of the function `check`, for a message; None if the file has no such function.
    check: str | None = None
    has_tests: bool = False
    # Only a user's own constraint takes exactly one parameter, `today` or `now`.
    takes_instant: bool = False
    # Whether `if TYPE_CHECKING:` may enclose imports for quoted annotations.
    has_type_checking: bool = False


# A manifest is generated and never executed, and an __init__.py must be empty.
MANIFEST = FileKind(path=re.compile(r"manifest\.py"))
PACKAGE = FileKind(path=re.compile(r"(?:(?:domains/(?:\w+/)?)|constraints/|tests/)__init__\.py"))
SCHEMA = FileKind(
    path=re.compile(r"domains/\w+/schema\.py"),
    holds=Holds.CLASSES,
    contents="imports and classes",
    imports=[SCHEMA_MODULE],
    modules=[SCHEMA_MODULE],
    # Aliases for annotations in classes where a field shadows a type's name.
    library=["builtins"],
    has_type_checking=True,
)
STATE = FileKind(
    path=re.compile(r"domains/\w+/\w+\.py"),
    holds=Holds.ASSIGNMENTS,
    contents="imports, and collections or records assigned to names",
    imports=[DOMAIN_MODULE],
    modules=[DOMAIN_MODULE],
    library=["builtins"],
)
CONSTRAINT = FileKind(
    path=re.compile(r"constraints/\w+\.py"),
    holds=CODE,
    imports=[_STATE_OR_SCHEMA],
    check="today: datetime.date",
    takes_instant=True,
)
TEST = FileKind(
    path=re.compile(r"tests/test_\w+\.py"),
    holds=CODE,
    imports=[_STATE_OR_SCHEMA, _CONSTRAINT_MODULE],
    modules=[_CONSTRAINT_MODULE],
    package="constraints",
    library=["uac.testing"],
    has_tests=True,
)
QUERY = FileKind(path=None, imports=[DOMAIN_MODULE], modules=[DOMAIN_MODULE])
# A workspace's files don't belong to any project, and import nothing from one: a constraint
# declares classes for the records that it needs (`memory.project.shapes` verifies them).
WORKSPACE_CONSTRAINT = FileKind(
    path=re.compile(r"workspace/constraints/\w+\.py"),
    holds=CODE | Holds.CLASSES,
    contents="imports, constants, classes and functions",
    library=["builtins"],
    own="",
    check="today: datetime.date, records: Sequence[Shape]",
)
WORKSPACE_TEST = FileKind(
    path=re.compile(r"workspace/tests/test_\w+\.py"),
    holds=CODE,
    imports=[_WORKSPACE_CONSTRAINT_MODULE],
    modules=[_WORKSPACE_CONSTRAINT_MODULE],
    package="workspace.constraints",
    library=["uac.testing"],
    own="workspace.constraints",
    has_tests=True,
)

# The first kind whose path matches counts.
PROJECT = (PACKAGE, MANIFEST, SCHEMA, STATE, CONSTRAINT, TEST)
WORKSPACE = (WORKSPACE_CONSTRAINT, WORKSPACE_TEST)


def kind_of(path: str, kinds: Sequence[FileKind]) -> FileKind | None:
    """Return the kind of the file at this path; None if there can be no such file."""
    return next((kind for kind in kinds if kind.path and kind.path.fullmatch(path)), None)
