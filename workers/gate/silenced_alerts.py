"""Holds: a model's edits may not silence alerts and rules unless a cited entry mentions them.

A critical alert stays open until an entry mentions a record in the alert's evidence; a constraint
may be weakened or deleted only if an entry names the constraint. Findings before and after the
edits are computed as of the same time, so that the edits aren't blamed for an alert that merely
expires. An edit that no cited entry supports is rejected with a finding that names the alert, so
that the model can fix its edits. Typed entries, staff and the product's own proposals may silence
anything.
"""

import ast
import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath

from memory.alerts.findings import HELD, RESOLVES, ConstraintFinding, most_severe
from memory.alerts.models.alerts import Alert, Severity, severity_rank
from memory.constraints import applicability
from memory.kernel.texts import parse_python
from memory.project import (
    Add,
    Change,
    DeleteConstraint,
    Edit,
    Outline,
    Record,
    RecordId,
    RenameField,
    Retire,
    Update,
    WriteConstraint,
)
from memory.project.paths import constraint_files, constraint_path, constraint_tests_path
from memory.versions import checkpoints
from workers.execution.loading import LoadPlan, bytecode_of, load
from workers.execution.results import findings_of
from workers.findings import Finding
from workers.gate.cited_entries import TooMuchCited, read_sources, rest_on
from workers.grounding.changed_values import names_record
from workers.grounding.content_words import names_one_of
from workers.grounding.values_in_entries import Source
from workers.sandbox import runner
from workers.sandbox.client import Sandbox
from workers.sandbox.results import Bindings

# Maximum number of records per collection that are compared with the entries cited for a rename. An
# entry that uses a class's or collection's name is treated as naming all of the records in it.
MAX_COMPARED = 200
# Types of edits that can end an alert.
_ENDING = (Add, Update, Retire, RenameField, WriteConstraint, DeleteConstraint)

FindingsByFingerprint = Mapping[str, ConstraintFinding]


@dataclass(frozen=True, kw_only=True)
class ModelChange:
    """A model's edits, the resulting change, and a sandbox that holds the resulting version.

    `plan` loads the previous version along with the workspace's constraints. The findings for both
    versions are computed as of `now`.
    """

    plan: LoadPlan
    change: Change
    edits: Sequence[Edit]
    sandbox: Sandbox
    now: datetime.datetime


def held(candidate: ModelChange) -> Iterator[Finding]:
    """Yield a finding for each alert or rule that the edits silence, and each unexplained rename.

    If a cited entry mentions the critical alert or the rule, the finding is only reported;
    otherwise it blocks. On return, the sandbox again holds the candidate, along with the
    workspace's constraints. Raises SandboxError if a sandbox fails.
    """
    plan = candidate.plan
    renames = [edit for edit in candidate.edits if isinstance(edit, RenameField)]
    if not (plan.outline.constraints or plan.applying or renames):
        return
    try:
        sources = read_sources(plan.user, {seq for edit in candidate.edits for seq in edit.sources})
    except TooMuchCited as error:
        yield error.finding
        return
    yield from _unexplained_renames(candidate, renames, sources)
    if not (plan.outline.constraints or plan.applying):
        return
    with runner.open_sandbox(shape=plan.allowance.shape) as previous:
        load([previous], plan, plan.tree({}).keys())
        before = _find(candidate, previous, plan.bindings)
        after = _find_after(candidate, previous)
    yield from _held_alerts(candidate, before, after, sources)
    yield from _weaker_rules(candidate, before, after, sources)


def _find_after(candidate: ModelChange, previous: Sandbox) -> FindingsByFingerprint:
    """Load the workspace's constraints as well, and return the findings for the candidate.

    Unless the schema changes, constraints that the edits leave alone run on the new records in the
    sandbox of the previous version, because code that the model has just written could forge their
    findings in the candidate's.
    """
    user, sandbox, files = candidate.plan.user, candidate.sandbox, candidate.change.files
    applicabilities = applicability.applicabilities(user, candidate.change.outline)
    plan = replace(candidate.plan, applicabilities=applicabilities)
    theirs = bytecode_of(plan, sandbox.image_digest, plan.bindings.keys()) if plan.applying else {}
    if theirs:
        sandbox.load(plan.generated, bytecode=theirs)
    if any(path.endswith("/schema.py") for path in files):
        return _find(candidate, sandbox, plan.bindings)
    records = {path: text for path, text in files.items() if path.startswith("domains/")}
    previous.load(
        {path: text for path, text in records.items() if text is not None} | plan.generated,
        bytecode=theirs,
        removed=[path for path, text in records.items() if text is None],
    )
    own = [constraint_path(name) for name in candidate.change.outline.constraints]
    changed = [path for path in own if path in files]
    if changed:  # and those that may import them
        texts = checkpoints.read_files(plan.checkpoint, [path for path in own if path not in files])
        changed += [path for path, text in texts.items() if "constraints" in text]
    kept = [path for path in own if path not in changed]
    findings = _find(candidate, previous, plan.bindings, [*kept, *plan.bindings])
    return {**findings, **(_find(candidate, sandbox, paths=changed) if changed else {})}


def _find(
    candidate: ModelChange,
    sandbox: Sandbox,
    bindings: Bindings | None = None,
    paths: Sequence[str] | None = None,
) -> FindingsByFingerprint:
    """Run constraints in a sandbox, and return their findings by fingerprint.

    A constraint that raises an error has no findings.
    """
    ran = sandbox.run_constraints(
        paths,
        now=candidate.now,
        time_zone=candidate.plan.user.time_zone,
        bindings=bindings,
        limits=candidate.plan.allowance.limits,
    )
    return most_severe(
        [
            finding
            for result in ran.results
            if result.error is None
            for finding in findings_of(result)
        ]
    )


def _is_silenced(
    finding: ConstraintFinding, fingerprint: str, after: FindingsByFingerprint
) -> bool:
    """Return whether the finding is gone, or is still there but less severe."""
    now = after.get(fingerprint)
    return now is None or severity_rank(now.severity) < severity_rank(finding.severity)


# Critical alerts that edits silence


def _held_alerts(
    candidate: ModelChange,
    before: FindingsByFingerprint,
    after: FindingsByFingerprint,
    sources: Mapping[int, Source],
) -> Iterator[Finding]:
    silenced = {
        fingerprint: finding
        for fingerprint, finding in before.items()
        if finding.severity == Severity.CRITICAL
        and _is_silenced(finding, fingerprint, after)
        and not _goes_on(finding, before, after)
    }
    if not silenced:
        return
    user = candidate.plan.user
    resolved = Alert.objects.filter(user=user, holds_back=True, fingerprint__in=silenced)
    by_hand = set(resolved.values_list("fingerprint", flat=True))
    cited = {seq for edit in candidate.edits if isinstance(edit, _ENDING) for seq in edit.sources}
    for fingerprint, finding in silenced.items():
        if fingerprint in by_hand:
            continue
        records = _evidence(candidate, finding)
        evidence = {seq for seqs in rest_on(user, records).values() for seq in seqs}
        speaking = [
            seq
            for seq in sorted(cited - evidence - {*finding.entries})
            if seq in sources and _speaks_of(sources[seq], finding, records, candidate.plan.outline)
        ]
        names = ", ".join(".".join(record_id) for record_id in records)
        about = f"a record in its evidence ({names})" if names else "it"
        record = next(iter(records), None)
        subject = f"the critical alert of {finding.constraint}, {finding.message[:300]!r},"
        if speaking:
            yield Finding(
                code=RESOLVES,
                path=finding.constraint,
                record=record,
                entry=speaking[-1],
                message=f"{subject} resolves: entry {speaking[-1]} mentions {about}",
                fingerprint=fingerprint,
                blocking=False,
            )
        else:
            yield Finding(
                code=HELD,
                path=finding.constraint,
                record=record,
                message=f"{subject} would no longer be critical, and no entry that the edits cite"
                f" mentions {about}, apart from the entries that the alert is based on",
                fix="cite the entry that says what has changed, or drop the edits that silence the"
                " alert",
                fingerprint=fingerprint,
            )


def _goes_on(
    finding: ConstraintFinding, before: FindingsByFingerprint, after: FindingsByFingerprint
) -> bool:
    """Return whether a new critical finding of the same constraint shares a record with this one.

    For example, the new finding may also be about a record that replaces another.
    """
    mine = _ids(finding)
    return any(
        fingerprint not in before
        and other.constraint == finding.constraint
        and other.severity == Severity.CRITICAL
        and bool(mine & _ids(other))
        for fingerprint, other in after.items()
    )


def _ids(finding: ConstraintFinding) -> set[RecordId]:
    return {RecordId(item["domain"], item["collection"], item["key"]) for item in finding.evidence}


def _evidence(candidate: ModelChange, finding: ConstraintFinding) -> dict[RecordId, Record]:
    """Return the records in an alert's evidence, as they were before the edits."""
    project = checkpoints.open_project(candidate.plan.checkpoint, candidate.plan.user)
    records = {record_id: project.record(record_id) for record_id in sorted(_ids(finding))}
    return {record_id: record for record_id, record in records.items() if record is not None}


def _speaks_of(
    source: Source, finding: ConstraintFinding, records: Mapping[RecordId, Record], outline: Outline
) -> bool:
    """Return whether an entry names a record in an alert's evidence.

    If the alert has no evidence, the entry has to name the constraint.
    """
    if records:
        return any(names_record(source, *one) for one in records.items())
    return names_one_of(source.text_and_data, _about(finding.constraint, outline))


def _about(path: str, outline: Outline) -> list[str]:
    """Return the texts whose words can identify a constraint: its name and description."""
    name = PurePosixPath(path).stem
    return [name.replace("_", " "), outline.constraints.get(name, "")]


# Fields that edits rename


def _unexplained_renames(
    candidate: ModelChange, renames: Sequence[RenameField], sources: Mapping[int, Source]
) -> Iterator[Finding]:
    """Yield a finding for each rename that no cited entry explains.

    An entry explains a rename if it uses the new name or names a record in the domain. A field that
    the same edits define may have any name.
    """
    if not renames:
        return
    project = checkpoints.open_project(candidate.plan.checkpoint, candidate.plan.user)
    explained = {
        (domain, class_.name, field.name)
        for domain, schema in project.outline.domains.items()
        for class_ in schema.classes.values()
        for field in class_.fields
    }
    for edit in renames:
        if (edit.domain, edit.class_name, edit.name) not in explained:
            continue
        explained.add((edit.domain, edit.class_name, edit.new_name))
        cited = [sources[seq] for seq in edit.sources if seq in sources]
        domain = project.outline.domains.get(edit.domain)
        places = [*domain.collections, *domain.singletons] if domain else []
        records = [
            record
            for name in places
            for record in islice(project.records(edit.domain, name), MAX_COMPARED)
        ]
        if any(
            names_one_of(source.text_and_data, [edit.new_name.replace("_", " ")])
            or any(names_record(source, *one) for one in records)
            for source in cited
        ):
            continue
        yield Finding(
            code="unexplained_rename",
            message=f"{edit.domain}, {edit.class_name}: no entry that the edit cites uses the name"
            f" {edit.new_name} or mentions a record in the class's domain",
            fix="keep the name, or cite the entry that gives a reason for the new one",
            field=edit.name,
            entry=max(edit.sources, default=None),
        )


# Rules (constraints and their tests) that the edits weaken


def _weaker_rules(
    candidate: ModelChange,
    before: FindingsByFingerprint,
    after: FindingsByFingerprint,
    sources: Mapping[int, Source],
) -> Iterator[Finding]:
    files, outline = candidate.change.files, candidate.plan.outline
    changed = [
        name for name in outline.constraints if not files.keys().isdisjoint(constraint_files(name))
    ]
    if not changed:
        return
    paths = [path for name in changed for path in constraint_files(name)]
    old = checkpoints.read_files(candidate.plan.checkpoint, paths)
    kept = [name for name in changed if files.get(constraint_path(name), "") is not None]
    lost = _lost_cases(candidate, kept, old)
    silent = _silent_alerts(candidate, kept, old, before, after)
    for name in changed:
        if name not in kept:
            what = "would be deleted"
        elif name in silent:
            what = f"would no longer raise an alert that it raises now: {silent[name][:300]!r}"
        elif name in lost:
            what = lost[name]
        else:
            continue
        cited = sorted(
            {
                seq
                for edit in candidate.edits
                if isinstance(edit, WriteConstraint | DeleteConstraint) and edit.name == name
                for seq in edit.sources
            }
        )
        about = _about(constraint_path(name), outline)
        asking = [
            seq
            for seq in cited
            if seq in sources and names_one_of(sources[seq].text_and_data, about)
        ]
        named = ", ".join(map(str, cited)) or "none"
        yield Finding(
            code="weaker_rule",
            path=constraint_path(name),
            entry=asking[-1] if asking else None,
            message=f"the constraint {name} {what}; "
            + (
                f"entry {asking[-1]} mentions it"
                if asking
                else f"no cited entry ({named}) mentions the constraint or its subject"
            ),
            fix=""
            if asking
            else "cite the entry that asks for the change, or keep the rule as strict as it"
            " is, along with all of its tests; the alert on a replaced record may have a"
            " different message",
            blocking=not asking,
        )


def _silent_alerts(
    candidate: ModelChange,
    names: Sequence[str],
    old: Mapping[str, str],
    before: FindingsByFingerprint,
    after: FindingsByFingerprint,
) -> dict[str, str]:
    """Map each silenced constraint to the message of an alert that its old source still raises.

    The new source doesn't raise that alert, or raises it at a lower severity.
    """
    paths = map(constraint_path, names)
    rules = {path: old[path] for path in paths if path in candidate.change.files}
    if not rules:
        return {}
    candidate.sandbox.load(rules)
    try:
        going_on = _find(candidate, candidate.sandbox, paths=sorted(rules))
    finally:
        _load_new(candidate, rules)
    return {
        PurePosixPath(finding.constraint).stem: finding.message
        for fingerprint, finding in going_on.items()
        if fingerprint in before
        and _is_silenced(finding, fingerprint, after)
        and not _rests_on_more(finding, after)
    }


def _rests_on_more(finding: ConstraintFinding, after: FindingsByFingerprint) -> bool:
    """Return whether a new finding, at least as severe, covers all of this finding's records.

    In that case, the constraint was extended rather than weakened, although the alert has changed.
    """
    mine = _ids(finding)
    return bool(mine) and any(
        other.constraint == finding.constraint
        and severity_rank(other.severity) >= severity_rank(finding.severity)
        and mine <= _ids(other)
        for other in after.values()
    )


def _lost_cases(
    candidate: ModelChange, names: Sequence[str], old: Mapping[str, str]
) -> dict[str, str]:
    """Map each weakened constraint to a description of a test that is gone or no longer passes.

    An old test that can't run against the new schema is ignored.
    """
    tests = {constraint_tests_path(name): old[constraint_tests_path(name)] for name in names}
    candidate.sandbox.load(tests)
    try:
        ran = candidate.sandbox.run_tests(sorted(tests), limits=candidate.plan.allowance.limits)
    finally:
        _load_new(candidate, tests)
    lost = {}
    for result in ran.results:
        if result.error is not None and result.error.type == "AssertionError":
            path, _, test = result.name.partition("::")
            name = PurePosixPath(path).stem.removeprefix("test_")
            lost[name] = f"would no longer pass {test} as it stands now"
    for path, text in tests.items():
        new = candidate.change.files.get(path)
        gone = _gone(text, text if new is None else new)
        if gone:
            name = PurePosixPath(path).stem.removeprefix("test_")
            lost.setdefault(name, f"would lose the test {gone[0]}")
    return lost


def _gone(old: str, new: str) -> list[str]:
    """Return the names of the tests that no new test matches in either name or content."""
    were, are = _functions(old), _functions(new)
    return [name for name, does in were.items() if name not in are and does not in are.values()]


def _functions(source: str) -> dict[str, str]:
    return {
        node.name: "".join(map(ast.dump, node.body))
        for node in parse_python(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def _load_new(candidate: ModelChange, paths: Collection[str]) -> None:
    """Reload the candidate's versions of these files into the sandbox."""
    files = candidate.change.files
    own = {path: text for path in paths if (text := files.get(path)) is not None}
    kept = [path for path in paths if path not in files]
    own |= checkpoints.read_files(candidate.plan.checkpoint, kept) if kept else {}
    candidate.sandbox.load(own)
