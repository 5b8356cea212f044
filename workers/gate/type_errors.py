"""Type checks: which project files are sent to the type checker, and which of its errors count."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from memory.project import Change, EditError, Outline, WidenField
from memory.project.outline import REQUIRED, Class
from memory.project.paths import CONSTRAINTS, TESTS
from memory.project.render import render_state_stub
from memory.project.types import format_type, is_wider, members_of, parse_type, union
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint
from workers.findings import Finding
from workers.gate.type_error_fixes import fix_code
from workers.sandbox.results import SandboxError
from workers.typecheck.checker import TypeFault, check_types

# mypy's message when a test constructs a record with a value that doesn't fit the field.
_ARGUMENT = re.compile(
    r'Argument "(?P<field>\w+)" to "(?P<class>\w+)" has incompatible type "(?P<type>[^"]+)"'
)
# mypy's messages about code that was written for a different project.
_NO_MODULE = re.compile(r'module named "domains\.(\w+)')
_NO_NAME = re.compile(r'Module "domains\.(\w+)\.(state|schema)" has no attribute')
_NO_ARGUMENT = re.compile(r'Missing named arguments? .* for "(\w+)"')


def can_cause_type_errors(parent: Checkpoint | None, change: Change) -> bool:
    """Return whether a change can cause type errors: a change to records alone can't."""
    if any(_is_code(path) for path in change.files):
        return True
    before = Outline.from_json(parent.outline) if parent else Outline()
    return _stubs(before) != _stubs(change.outline)


def type_errors(
    parent: Checkpoint | None, change: Change, anew: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield a finding for each type error that the change causes.

    An error in an unchanged file counts only if the error is new, or if the file is in `anew`.
    Raises SandboxError if the type checker is unavailable.
    """
    code = {path: text for path, text in change.files.items() if text is not None}
    yield from _findings(lambda: _new_faults(parent, change, code, anew), code, change.outline)


def type_errors_of_files(files: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each type error in these files, which import no other files.

    Raises SandboxError if the type checker was not available.
    """
    folders = {parent for path in files for parent in PurePosixPath(path).parents}
    packages = {f"{folder}/__init__.py": "" for folder in folders if folder.name}
    yield from _findings(lambda: check_types({**packages, **files}), files, Outline())


def _new_faults(
    parent: Checkpoint | None, change: Change, code: Mapping[str, str], anew: Collection[str]
) -> list[TypeFault]:
    faults = check_types(_shown(change.outline, parent, code))
    counted = {*change.files, *anew}
    if parent and any(fault.path not in counted for fault in faults):
        existing = set(check_types(_shown(Outline.from_json(parent.outline), parent, {})))
        faults = [fault for fault in faults if fault.path in counted or fault not in existing]
    return faults


def _findings(
    check: Callable[[], list[TypeFault]], sources: Mapping[str, str], outline: Outline
) -> Iterator[Finding]:
    try:
        faults = check()
    except SandboxError as error:
        if error.infrastructure:
            raise
        yield Finding(code=error.outcome, message=error.message)
        return
    for fault in faults:
        yield Finding(
            code=fault.code,
            path=fault.path,
            line=fault.line,
            message=fault.message,
            fix=suggest_fix(fault, outline)
            or widening(fault.message, outline)
            or fix_code(fault, sources.get(fault.path, ""), outline),
        )


def widening(message: str, outline: Outline) -> str:
    """Return advice to widen a field's type so that it can hold a test's value, or "".

    The type inferred for a field covers only the values seen so far: whole numbers even though 14.6
    may follow, or dates even though one may be missing. The result is "" if mypy's message is about
    something else, or if two classes with the same name both have the field.
    """
    if not (match := _ARGUMENT.search(message)):
        return ""
    named = [
        (domain.name, class_)
        for domain in outline.domains.values()
        for class_ in domain.classes.values()
        if class_.name == match["class"] and class_.field(match["field"])
    ]
    if len(named) != 1:
        return ""
    domain_name, class_ = named[0]
    if (wider := _widened(class_, match["field"], match["type"])) is None:
        return ""
    edit = WidenField(domain_name, class_.name, match["field"], wider)
    return (
        f"if {class_.name}.{match['field']} can have such a value, widen it: {edit.call}; if not,"
        " use another value in the test"
    )


def _widened(class_: Class, name: str, given: str) -> str | None:
    """Return a field's type, widened to also hold the type `given`; None if that is impossible."""
    field = class_.field(name)
    assert field is not None
    try:
        new = parse_type(given)
    except EditError:
        return None
    old = [member for member in members_of(field.type) if not is_wider(new, member)]
    wider = union(*old, new)
    plain = {"int", "float", "None", "datetime.date", "datetime.datetime", "decimal.Decimal"}
    if wider == field.type or not {format_type(one) for one in members_of(new)} <= plain:
        return None
    return format_type(wider)


def suggest_fix(fault: TypeFault, outline: Outline) -> str:
    """Return how to fix code that was written for a different project; "" for other errors.

    mypy itself only reports that a module, a name or an argument is missing.
    """
    if (match := _NO_MODULE.search(fault.message)) and match[1] not in outline.domains:
        return (
            f"This project has no domain {match[1]!r}: log a record in that domain first. Its"
            f" domains: {_listed(outline.domains)}."
        )
    if (match := _NO_NAME.search(fault.message)) and match[1] in outline.domains:
        domain = outline.domains[match[1]]
        names = {"state": [*domain.collections, *domain.singletons], "schema": domain.classes}
        return f"domains.{match[1]}.{match[2]} has {_listed(names[match[2]])}."
    if match := _NO_ARGUMENT.match(fault.message):
        for domain in outline.domains.values():
            if (class_ := domain.classes.get(match[1])) is not None:
                needed = [one.name for one in class_.fields if one.default is REQUIRED]
                return f"Each {match[1]} here needs {_listed(['key', *needed])}."
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none yet"


def _shown(
    outline: Outline, parent: Checkpoint | None, changed: Mapping[str, str]
) -> dict[str, str]:
    """Return the files of a version that the type checker gets: all code, and record stubs."""
    stubs = _stubs(outline)
    wanted = [path for path in outline.paths() if _is_code(path) and path not in changed]
    stored = checkpoints.read_files(parent, wanted) if parent and wanted else {}
    code = {path: text for path, text in changed.items() if _is_code(path)}
    packages = {path: "" for path in outline.paths() if path.endswith("/__init__.py")}
    return {**packages, **stored, **code, **stubs}


def _stubs(outline: Outline) -> dict[str, str]:
    return {domain.state_path: render_state_stub(domain) for domain in outline.domains.values()}


def _is_code(path: str) -> bool:
    if path.endswith("/__init__.py"):
        return False
    schema = path.startswith("domains/") and path.endswith("/schema.py")
    return schema or path.startswith((CONSTRAINTS, TESTS))
