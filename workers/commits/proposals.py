"""Proposals: changes to a project submitted by a product's agent, an engineer or a model."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.db import transaction
from prometheus_client import Counter

from memory.alerts import transitions
from memory.alerts.findings import HELD
from memory.kernel.models.users import MemoryUser
from memory.llm import track_records
from memory.log import entry_log
from memory.log.models.entries import EntryKind, LogEntry, Outcome
from memory.project import (
    AddField,
    Change,
    DefineClass,
    Dismiss,
    Edit,
    EditError,
    ProjectError,
    RenameField,
    WidenField,
    WriteConstraint,
    apply,
    proposal_from_json,
)
from memory.project.edits import MAX_SOURCE
from memory.project.errors import RunError
from memory.project.files import edits_of_files
from memory.versions import checkpoints, redactions, runs
from memory.versions.checkpoints import Decision
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.models.runs import Run, RunOutcome, RunTrigger
from memory.versions.prescribed_classes import adopt_prescribed
from workers.commits.on_head import Draft, commit_on_head
from workers.findings import Check, Finding, Verdict
from workers.gate import checks as gate
from workers.gate.cases import Profile, ProjectCase
from workers.gate.constraint_mutants import gaps_in_tests
from workers.gate.entry_coverage import uncovered
from workers.repairs.repair import put_right, repair_constraint

FINDINGS = Counter(
    "uac_gate_findings",
    "Findings about proposals, by kind of problem and whether it was the reason for a refusal.",
    ["code", "blocking"],
)
REPAIRS = Counter("uac_gate_repairs", "Repairs to proposed code that could not run.", ["name"])

# Maximum number of characters that one proposal may add to a file with records.
MAX_GROWTH = 128 * 1024
# Types of edits that change only the schema, and so don't store any of an entry's content.
SCHEMA_EDITS = (DefineClass, AddField, WidenField, RenameField)
NOTHING_KEPT = "cited for the schema only: no record, note or constraint is based on this entry"


def execute(run: Run) -> None:
    """Build the proposal on top of the head, judge it, and commit it or record why it was rejected.

    If the run's input has `dry_run`, the proposal is judged but not committed. A model's proposal
    is rejected if an entry that the model considered has since been settled: another attempt at the
    same entries was faster.
    """
    try:
        edits, repairs = _read(run)
    except (EditError, ProjectError) as error:
        _refuse(run, Verdict([Check("files", [_of_file(error)])]))
        return
    try:
        commit_on_head(run, run.user_id, functools.partial(_build, run, edits, repairs))
    except _SettledMeanwhile as error:
        error.verdict.checks = [Check("coverage", error.findings)]
        _refuse(run, error.verdict)


class _SettledMeanwhile(Exception):
    """Entries that a model considered were settled while the gate judged its proposal."""

    def __init__(self, findings: list[Finding], verdict: Verdict) -> None:
        super().__init__()
        self.findings, self.verdict = findings, verdict


@dataclass(frozen=True, kw_only=True)
class _ProposalDraft(Draft):
    """A proposal that the gate has accepted."""

    run: Run

    def decide(self, user: MemoryUser) -> Sequence[Decision]:
        """Return the outcomes of the pending entries; raise _SettledMeanwhile if some are not."""
        # Lock the user before deciding which entries are still pending.
        MemoryUser.objects.locked(user.pk)
        considered = self.run.input.get("considered", [])
        if settled := list(_already_settled(self.run, user, considered)):
            raise _SettledMeanwhile(settled, self.verdict)
        return _decisions(self.run, user, self.edits, considered)

    def finish(self, user: MemoryUser, made: Checkpoint | None) -> None:
        """Finish the run, and the model's session."""
        if session := self.run.input.get("session"):
            track_records.note_accepted(session["work"], session["refusals"], made)
        newest = made or user.head
        finish(self.run, self.verdict, newest.version if newest else None)


def _build(
    run: Run, edits: Sequence[Edit], repairs: Sequence[Finding], user: MemoryUser
) -> _ProposalDraft | None:
    """Have the gate judge the proposal; finish the run if it is refused or a dry run."""
    considered = run.input.get("considered", [])
    coverage = [
        *uncovered(
            dict(enumerate(edits)),
            considered,
            last_seq=user.last_seq,
            redacted=redactions.redacted_among(user, [*_sources(edits)]),
        ),
        *_already_settled(run, user, considered),
        *_changed_meanwhile(run, user),
    ]
    checks, change = _apply(user, edits, Check("coverage", coverage), repairs)
    if change is None:
        _refuse(run, Verdict(checks))
        return None
    is_dry = bool(run.input.get("dry_run"))
    verdict = gate.judge(
        ProjectCase(
            profile=Profile.MODEL if run.trigger == RunTrigger.MODEL else Profile.PROPOSAL,
            user=user,
            parent=user.head,
            change=change,
            checks=checks,
            edits=edits,
            written=[edit.name for edit in edits if isinstance(edit, WriteConstraint)],
            dry_run=is_dry,
            at=run.instant,
        )
    )
    if not verdict.accepted:
        _refuse(run, verdict)
        return None
    if is_dry:
        finish(run, verdict)
        return None
    return _ProposalDraft(
        change=change,
        verdict=verdict,
        origin=Origin.LLM if run.trigger == RunTrigger.MODEL else Origin.PROPOSED,
        seen_seq=max(_sources(edits), default=0),
        edits=edits,
        run=run,
    )


def _changed_meanwhile(run: Run, user: MemoryUser) -> Iterator[Finding]:
    """Yield a finding for each file that has changed since the author opened it.

    `expects` in the run's input contains the hash of each file as the author opened it, or "" if
    the file did not exist.
    """
    tree = user.head.tree if user.head is not None else {}
    for path, seen in run.input.get("expects", {}).items():
        if tree.get(path, "") != seen:
            message = "has changed since you opened it: reopen it and redo your change"
            yield Finding(code="changed_meanwhile", path=path, message=message)


def _read(run: Run) -> tuple[list[Edit], list[Finding]]:
    """Return the proposed edits, including those derived from whole files, and the repairs.

    To derive edits from a whole file, the file is compared with the version it was written for,
    after the other edits are applied. Raises ProjectError or EditError for a file from which no
    edits can be derived.
    """
    edits, repairs = _repaired([proposal_from_json(edit) for edit in run.input["edits"]])
    if not (files := dict(run.input.get("files", {}))):
        return edits, repairs
    _refuse_large(run, files)
    for path, source in files.items():
        if source is not None:
            repaired = put_right(path, source)
            files[path] = repaired.source
            repairs += [_repair(path, name) for name in repaired.repairs]
    user = MemoryUser.objects.get(pk=run.user_id)
    project = checkpoints.open_project(run.checkpoint, user)
    for edit in edits:
        apply(project, edit)
    return [*edits, *edits_of_files(project, files)], repairs


def _refuse_large(run: Run, files: Mapping[str, str | None]) -> None:
    """Raise ProjectError for a file that is too large: parsing it would block all other threads.

    Constraint and test files are limited in size. For files with records, only the growth is
    limited, since a single record may be large.
    """
    large = {path: len(text) for path, text in files.items() if text and len(text) > MAX_SOURCE}
    if not large:
        return
    before = checkpoints.read_files(run.checkpoint, large.keys()) if run.checkpoint else {}
    for path, size in large.items():
        is_state = path.startswith("domains/")
        most = len(before.get(path, "")) + MAX_GROWTH if is_state else MAX_SOURCE
        if size > most:
            raise ProjectError(path, f"has {size:,} characters: at most {most:,} are allowed")


def _of_file(error: EditError | ProjectError) -> Finding:
    if isinstance(error, EditError):
        return Finding(code=error.code, message=error.message)
    return Finding(code="unreadable_file", path=error.path, line=error.line, message=error.message)


def _repair(path: str, name: str, edit: int | None = None) -> Finding:
    REPAIRS.labels(name).inc()
    message = f"could not run as it was sent, and was repaired: {name}"
    return Finding(code="repaired", path=path, edit=edit, message=message, blocking=False)


def _repaired(edits: Sequence[Edit]) -> tuple[list[Edit], list[Finding]]:
    """Repair code that cannot run and can mean only one thing; leave other code as it is.

    Code that no repair makes valid is left alone, so that errors refer to the lines that the author
    sent.
    """
    result: list[Edit] = []
    findings: list[Finding] = []
    for number, edit in enumerate(edits):
        if isinstance(edit, WriteConstraint):
            edit, repairs = repair_constraint(edit)
            findings += [_repair(path, name, number) for path, name in repairs]
        result.append(edit)
    return result, findings


def _apply(
    user: MemoryUser, edits: Sequence[Edit], coverage: Check, repairs: Sequence[Finding]
) -> tuple[list[Check], Change | None]:
    """Apply the edits; return the checks, plus the change unless `coverage` or an edit fails."""
    if not coverage.passed:
        return [coverage], None
    project = checkpoints.open_project(user.head, user)
    adopt_prescribed(project, user)
    applied = 0
    try:
        for edit in edits:
            apply(project, edit)
            applied += 1
        change = project.change()
    except EditError as error:
        number = applied if applied < len(edits) else None  # None: no single edit is to blame
        finding = Finding(code=error.code, edit=number, message=str(error))
        return [coverage, Check("edits", [finding, *repairs])], None
    return [coverage, Check("edits", repairs)], change


def _already_settled(run: Run, user: MemoryUser, considered: Sequence[int]) -> Iterator[Finding]:
    """Yield a finding for each entry that a model considered and that already has an outcome."""
    if run.trigger != RunTrigger.MODEL:
        return
    for seq, outcome in sorted(entry_log.outcomes(user, considered).items()):
        yield Finding(
            code="already_settled",
            entry=seq,
            message=f"entry {seq} was considered, but is already {outcome.outcome}",
            fix="leave out the entry and everything that comes from it",
        )


def finish(
    run: Run,
    verdict: Verdict,
    version: int | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
    *,
    runner: str = "",
) -> None:
    """Finish a run with a verdict; `version` is the version that was committed, if any.

    `more` is added to the run's output; `runner` is stored if the verdict required no sandbox.
    """
    assert version is None or verdict.accepted
    for check in verdict.checks:
        for finding in check.findings:
            FINDINGS.labels(finding.code, str(finding.blocking).lower()).inc()
    rejected = RunError(type="rejected", message=verdict.reason)
    runs.finish(
        run,
        runs.Result(
            outcome=RunOutcome.OK if verdict.accepted else RunOutcome.REJECTED,
            output={"version": version, "verdict": verdict.to_json(), **more},
            error=None if verdict.accepted else rejected,
            runner=verdict.runner or runner,
            timings=verdict.timings,
            test_gaps=gaps_in_tests(verdict),
        ),
    )


def _refuse(run: Run, verdict: Verdict) -> None:
    held = {
        finding.fingerprint: finding.message
        for check in verdict.checks
        for finding in check.findings
        if finding.code == HELD and finding.fingerprint is not None
    }
    with transaction.atomic():
        if held and not run.input.get("dry_run"):
            transitions.record_held_events(run.user, held, run)
        finish(run, verdict)


def _decisions(
    run: Run, user: MemoryUser, edits: Sequence[Edit], considered: Sequence[int]
) -> list[Decision]:
    """Return the outcomes of the pending entries that the edits cite, other than typed entries.

    Typed entries are settled in their own lane. An entry is covered if a record, a note, a
    constraint or a retirement relies on it; an entry that is cited only for the schema is
    dismissed. A model settles only the entries it was asked about, since it may know nothing about
    other entries except their numbers.
    """
    dismissed = {
        seq: edit.reason for edit in edits if isinstance(edit, Dismiss) for seq in edit.sources
    }
    cited = set(_sources(edits))
    used = set(_sources([edit for edit in edits if not isinstance(edit, SCHEMA_EDITS)]))
    if run.trigger == RunTrigger.MODEL:
        cited &= set(considered)
    pending = (
        set(
            LogEntry.objects.filter(user=user, seq__in=cited)
            .exclude(kind=EntryKind.RECORD)
            .values_list("seq", flat=True)
        )
        - entry_log.outcomes(user, cited).keys()
    )
    return [
        Decision(seq, Outcome.DISMISSED, dismissed[seq])
        if seq in dismissed
        else Decision(seq, Outcome.COVERED)
        if seq in used
        else Decision(seq, Outcome.DISMISSED, NOTHING_KEPT)
        for seq in sorted(pending)
    ]


def _sources(edits: Sequence[Edit]) -> Iterator[int]:
    for edit in edits:
        yield from edit.sources
