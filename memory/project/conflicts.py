"""Conflicts: the class and constraint that represent contradictory statements in a project.

The statements stay as they are. A `Conflict` record describes what the statements disagree on and
lists the records that contain them. A constraint, written when the first conflict is marked, fires
for each `Conflict` record until that record is retired.
"""

from memory.project.edits import DefineClass, FieldSpec, WriteConstraint
from memory.project.errors import EditError
from memory.project.model import Project
from memory.project.outline import REQUIRED, Domain
from memory.project.paths import constraint_path
from memory.project.types import format_type

DOMAIN = COLLECTION = CONSTRAINT = "conflicts"
CLASS = "Conflict"
FIELDS = {"about": "str", "records": "list[str]"}

_DEFINE = DefineClass(
    DOMAIN,
    CLASS,
    tuple(FieldSpec(name, type_) for name, type_ in FIELDS.items()),
    doc="Statements that contradict each other, until it is known which of them is true.",
)

_SOURCE = '''\
"""Statements that contradict each other."""

import datetime
from collections.abc import Iterator

from domains.conflicts.state import conflicts
from uac import Alert, warning


def check(today: datetime.date) -> Iterator[Alert]:
    """Report statements that contradict each other until somebody says which one is true."""
    for conflict in conflicts:
        yield warning(f"Conflicting statements: {conflict.about}", evidence=[conflict])
'''

_TESTS_SOURCE = """\
import datetime

from constraints import conflicts
from domains.conflicts.schema import Conflict
from uac.testing import run_check

TODAY = datetime.date(2026, 1, 1)


def test_fires() -> None:
    conflict = Conflict(
        key="conflict-2", about="moving day", records=["home.moves.move-1", "home.moves.move-2"]
    )
    (alert,) = run_check(conflicts, today=TODAY, conflicts=[conflict])
    assert (alert.severity, alert.evidence) == ("warning", (conflict,))
    assert alert.message == "Conflicting statements: moving day"


def test_does_not_fire() -> None:
    assert run_check(conflicts, today=TODAY, conflicts=[]) == []
"""

_WRITE = WriteConstraint(CONSTRAINT, _SOURCE, _TESTS_SOURCE)


def missing_parts(project: Project) -> list[DefineClass | WriteConstraint]:
    """Return any edits that a project needs before it can hold a `Conflict` record.

    Raises EditError if the project uses the required names for something else.
    """
    missing: list[DefineClass | WriteConstraint] = []
    domain = project.outline.domains.get(DOMAIN) or Domain(DOMAIN)
    class_ = domain.classes.get(CLASS)
    if class_ is not None:
        types = {field.name: format_type(field.type) for field in class_.fields}
        needed = {field.name for field in class_.fields if field.default is REQUIRED}
        if not class_.is_record or not FIELDS.items() <= types.items() or needed - FIELDS.keys():
            fields = ", ".join(f"{name}: {type_}" for name, type_ in FIELDS.items())
            raise _taken(f"{DOMAIN}.{CLASS} is not a record class with the fields {fields}")
    elif CLASS in domain.names():
        raise _taken(f"{DOMAIN}.{CLASS} is an enum")
    else:
        missing.append(_DEFINE)
    held = domain.collections.get(COLLECTION)
    if COLLECTION in domain.names() and (held is None or held.class_name != CLASS):
        raise _taken(f"{DOMAIN}.{COLLECTION} does not contain {CLASS} records")
    if CONSTRAINT not in project.outline.constraints:
        missing.append(_WRITE)
    elif f"domains.{DOMAIN}" not in project.source(constraint_path(CONSTRAINT)):
        raise _taken(f"{constraint_path(CONSTRAINT)} does not check {DOMAIN}.{CLASS}")
    return missing


def _taken(what: str) -> EditError:
    return EditError(
        "name_taken",
        f"conflict: {what}, so conflicts cannot be marked in this project: write a note instead",
    )
