"""Imports: a foreign project is repaired, executed in a sandbox, translated, and judged.

A project exported by this server is not executed: its files already contain the data, and the
project is judged as is.

An import is all or nothing: if it fails, nothing remains but the run, which records the reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from memory.integrations.foreign import (
    ForeignError,
    Layout,
    graph_in,
    layout,
    read,
    reading_code,
    translate,
)
from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.models.entries import EntryKind, Outcome, Trust
from memory.project import (
    Change,
    Edit,
    EditError,
    ProjectError,
    WriteConstraint,
    apply,
)
from memory.project.files import Whole, read_whole, take_over
from memory.project.paths import constraint_tests_path
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision, HeadMoved
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.models.runs import Run
from workers.commits.on_head import Draft, commit_on_head
from workers.commits.proposals import finish
from workers.execution.loading import allowance_of
from workers.findings import Check, Finding, Verdict
from workers.gate import checks as gate
from workers.gate.cases import Profile, ProjectCase
from workers.repairs.repair import repair
from workers.sandbox import runner
from workers.sandbox.limits import Shape, foreign_limits
from workers.sandbox.results import SandboxError

MAX_NAMED = 20
LEFT_OUT = (
    "a constraint that does not import uac is not imported: run it against the exported project, or"
    " write it as a constraint of this project"
)


class ImportFailed(Exception):
    """The project cannot be imported; `finding` gives the reason."""

    def __init__(
        self, code: str, message: str, path: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.finding = Finding(code=code, message=message, path=path, line=line)


@dataclass
class Report:
    """A report on an import: what was repaired, converted, counted and left out."""

    modules: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    repairs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Imported:
    """The edits that import a whole project, and the resulting change, which is not judged yet."""

    edits: Sequence[Edit]
    change: Change


@dataclass(frozen=True, kw_only=True)
class _ImportDraft(Draft):
    """An import that the gate has accepted."""

    run: Run
    files: Mapping[str, str]
    report: Report

    def decide(self, user: MemoryUser) -> Sequence[Decision]:
        """Append the log entry that the records cite.

        Raises HeadMoved if its number is now used by another entry.
        """
        MemoryUser.objects.locked(user.pk)
        (entry,) = entry_log.append(user, [_entry(self.files, self.report)], source="import")
        if entry.seq != self.seen_seq:
            raise HeadMoved(f"{user}: entries were appended while a project was imported")
        return [Decision(entry.seq, Outcome.COVERED)]

    def finish(self, user: MemoryUser, made: Checkpoint | None) -> None:
        """Finish the run."""
        version = made.version if made else None
        finish(self.run, self.verdict, version, {"import": asdict(self.report)})


def execute(run: Run) -> None:
    """Import the run's files as the user's next version, or record why that is not possible."""
    report = Report()
    try:
        files = run.input["files"]
        if (whole := _in_our_form(files)) is not None:
            _import(run, files, report, partial(_take_over, whole, report))
            return
        files = _repaired(files, report)
        project_layout = layout(files)
        report.modules = dict(project_layout.modules)
        data = _read(allowance_of(run.user.workspace).shape, run, files, project_layout)
        _import(run, files, report, partial(_build, files, project_layout, data, report))
    except ImportFailed as refused:
        verdict = Verdict(checks=[Check("import", [refused.finding])])
        _refuse(run, verdict, report)


def _import(
    run: Run, files: Mapping[str, str], report: Report, build: Callable[[MemoryUser], Imported]
) -> None:
    """Build the change on top of the head, judge it, and commit it.

    Raises ImportFailed if the change cannot be built, and HeadMoved if the head keeps moving.
    """

    def judged(user: MemoryUser) -> _ImportDraft | None:
        imported = build(user)
        # Without constraints, there is no code to judge.
        profile = Profile.IMPORT if imported.change.outline.constraints else Profile.TYPED
        verdict = gate.judge(
            ProjectCase(profile=profile, user=user, parent=user.head, change=imported.change)
        )
        if not verdict.accepted:
            _refuse(run, verdict, report)
            return None
        return _ImportDraft(
            change=imported.change,
            verdict=verdict,
            origin=Origin.IMPORTED,
            seen_seq=user.last_seq + 1,
            edits=imported.edits,
            run=run,
            files=files,
            report=report,
        )

    commit_on_head(run, run.user_id, judged)


def _in_our_form(files: Mapping[str, str]) -> Whole | None:
    """Read a project in our export format; return None if it isn't one and has to be executed."""
    try:
        return read_whole(files)
    except (ProjectError, RecursionError):
        return None


def _take_over(whole: Whole, report: Report, user: MemoryUser) -> Imported:
    """Add an exported project, unchanged, to the user's project; raise ImportFailed on failure."""
    project = checkpoints.open_project(user.head, user)
    outline = whole.outline
    try:
        edits = take_over(project, whole, (user.last_seq + 1,))
        imported = Imported(edits, project.change())
    except EditError as error:
        raise ImportFailed(error.code, str(error)) from None
    except ProjectError as error:
        raise ImportFailed("unreadable", str(error), error.path, error.line) from None
    records = len(imported.change.added)
    classes = sum(len(domain.classes) for domain in outline.domains.values())
    report.modules = {domain.state_path: domain.name for domain in outline.domains.values()}
    report.counts = {"objects": records, "records": records, "classes": classes}
    cited = "citations of entries in another log were replaced with this import's entry"
    report.notes = [{"kind": "converted", "place": "sources", "message": cited, "count": records}]
    return imported


def _repaired(files: Mapping[str, str], report: Report) -> dict[str, str]:
    """Return the files, repaired if needed; raise ImportFailed if any still isn't valid Python."""
    repaired_sources = {}
    for path, source in files.items():
        repaired = repair(source)
        if repaired.repairs:
            report.repairs.append({"path": path, "repairs": list(repaired.repairs)})
        if repaired.error:
            raise ImportFailed("syntax", repaired.error, path, repaired.line)
        repaired_sources[path] = repaired.source
    return repaired_sources


def _read(
    shape: Shape, run: Run, files: Mapping[str, str], project_layout: Layout
) -> Mapping[str, Any]:
    """Execute the project in a sandbox; raise ImportFailed if it fails."""
    if not project_layout.modules:
        raise ImportFailed(
            "no_modules",
            "no file has state: send modules that assign dataclass instances to names",
        )
    code = reading_code(files, list(project_layout.modules))
    try:
        with runner.open_sandbox(shape=shape) as sandbox:
            answer = sandbox.evaluate(
                code,
                now=run.instant,
                time_zone=run.user.time_zone,
                limits=foreign_limits(shape),
            )
        return graph_in(answer.value)
    except ForeignError as error:
        raise ImportFailed(error.code, str(error), error.path, error.line) from None
    except SandboxError as error:
        if error.infrastructure:
            raise
        if error.error is not None:
            message = f"{error.error.type}: {error.error.message}"
            raise ImportFailed("execution", message) from None
        raise ImportFailed(error.outcome, f"executing the project: {error.message}") from None


def _build(
    files: Mapping[str, str],
    project_layout: Layout,
    data: Mapping[str, Any],
    report: Report,
    user: MemoryUser,
) -> Imported:
    """Translate the objects that were read into a change to the user's current project.

    Raises ImportFailed if the objects cannot be translated.
    """
    project = checkpoints.open_project(user.head, user)
    try:
        graph = read(data)
        sources = (user.last_seq + 1,)
        plan = translate(graph, project_layout.modules, sources, taken=project.outline.domains)
        edits = plan.carry_out(project)
        for name, path in project_layout.constraints.items():
            tests = files.get(constraint_tests_path(name), "")
            edit = WriteConstraint(name, files[path], tests, sources)
            apply(project, edit)
            edits.append(edit)
        for path in project_layout.left_out:
            graph.notes.add("left_out", path, LEFT_OUT)
        report.notes = graph.notes.to_json()
        report.counts = plan.counts
        return Imported(edits, project.change())
    except ForeignError as error:
        raise ImportFailed(error.code, str(error), error.path, error.line) from None
    except EditError as error:
        raise ImportFailed(error.code, str(error)) from None
    except ProjectError as error:
        raise ImportFailed("unreadable", str(error), error.path, error.line) from None
    except RecursionError:
        raise ImportFailed("too_deep", "the objects are nested too deeply: flatten them") from None


def _refuse(run: Run, verdict: Verdict, report: Report) -> None:
    finish(run, verdict, None, {"import": asdict(report)}, runner=runner.runner_name())


def _entry(files: Mapping[str, str], report: Report) -> entry_log.Draft:
    named = ", ".join(sorted(files)[:MAX_NAMED])
    more = f" and {len(files) - MAX_NAMED} more" if len(files) > MAX_NAMED else ""
    content = f"Imported a project with {report.counts['records']} records from {named}{more}."
    return entry_log.Draft(kind=EntryKind.FACT, content=content, trust=Trust.DOCUMENT)
