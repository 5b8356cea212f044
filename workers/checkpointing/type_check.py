"""Types: what the type checker is shown of a project, and which of its errors count."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from memory import checkpoints
from memory.models import Checkpoint
from memory.project import Change, Outline
from memory.project.render import render_state_stub
from workers.checkpointing.findings import Finding
from workers.sandbox.interface import SandboxError
from workers.typecheck.checker import TypeFault, check_types


def wants_type_check(parent: Checkpoint | None, change: Change) -> bool:
    """Tell whether a change could bring about an error of types: one of records alone cannot."""
    if any(_is_code(path) for path in change.files):
        return True
    before = Outline.from_json(parent.outline) if parent else Outline()
    return _stubs(before) != _stubs(change.outline)


def type_errors(parent: Checkpoint | None, change: Change) -> Iterator[Finding]:
    """Yield a finding for each error of types that the change brings about.

    An error in a file that the change leaves alone counts if it was not there before. Raises
    SandboxError where the type checker could not be had.
    """
    code = {path: text for path, text in change.files.items() if text is not None}
    yield from _findings(lambda: _new_faults(parent, change, code))


def type_errors_of_files(files: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each error of types in these files, which need no others.

    Raises SandboxError where the type checker could not be had.
    """
    folders = {parent for path in files for parent in PurePosixPath(path).parents}
    packages = {f"{folder}/__init__.py": "" for folder in folders if folder.name}
    yield from _findings(lambda: check_types({**packages, **files}))


def _new_faults(
    parent: Checkpoint | None, change: Change, code: Mapping[str, str]
) -> list[TypeFault]:
    found = check_types(_shown(change.outline, parent, code))
    if parent and any(fault.path not in change.files for fault in found):
        known = set(check_types(_shown(Outline.from_json(parent.outline), parent, {})))
        found = [fault for fault in found if fault.path in change.files or fault not in known]
    return found


def _findings(check: Callable[[], list[TypeFault]]) -> Iterator[Finding]:
    try:
        found = check()
    except SandboxError as error:
        if error.infrastructure:
            raise
        yield Finding(code=error.outcome, message=error.message)
        return
    for fault in found:
        yield Finding(code=fault.code, path=fault.path, line=fault.line, message=fault.message)


def _shown(
    outline: Outline, parent: Checkpoint | None, changed: Mapping[str, str]
) -> dict[str, str]:
    """The files of a version that a type checker needs: all code, and no record."""
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
    return schema or path.startswith(("constraints/", "tests/"))
