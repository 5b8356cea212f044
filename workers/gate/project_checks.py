"""The gate's checks of a change to a project, each as a function of the case."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from django.utils import timezone

from memory.kernel.canonical import canonical_json
from memory.kernel.models.users import MemoryUser
from memory.project import ProjectError, Record, RecordId
from memory.project.literals import Uses, record_literal
from memory.project.parse import parse_state
from memory.project.paths import (
    constraint_files,
    constraint_path,
    constraint_tests_path,
    domain_name,
)
from memory.project.typed import encode
from memory.versions.models.runs import Run
from workers.execution.loading import load, loaded, plan_run
from workers.execution.outlook import alerts_of, day_of
from workers.findings import Finding, Verdict
from workers.gate.cases import Profile, ProjectCase, WorkspaceCase
from workers.gate.cited_entries import unfounded
from workers.gate.constraint_mutants import BLOCKING_ONCE, surviving_mutants
from workers.gate.execution_findings import (
    OTHER_HASH_SEED,
    SAME_EVIDENCE,
    failed_tests,
    faults,
    not_deterministic,
    of_error,
    same_evidence,
    same_evidence_in_tests,
)
from workers.gate.silenced_alerts import ModelChange, held
from workers.gate.type_errors import type_errors
from workers.grounding.wording_in_entries import PARAPHRASE, TRANSLATION
from workers.policy.checks import check_policy
from workers.sandbox import runner
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import DUMPED_BYTES, parts_of
from workers.sandbox.results import ConstraintRun

# Finding code for a constraint that already failed and was sent unchanged.
STILL_FAILS = "still_fails"
NOT_MENDED = "the constraint stays unchanged and raises no new alerts until you fix it"


def check_files(case: ProjectCase | WorkspaceCase) -> Iterator[Finding]:
    """Yield a finding for each violation of the policy in a changed file."""
    for path, source in case.sources.items():
        yield from check_policy(path, source, case.file_kinds)


def check_no_loss(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each record in the changed files that doesn't match the edits.

    The rendered files are read back and compared, so that rendering errors are caught as well.
    """
    change = case.change
    before: dict[RecordId, Record] = {}
    after: list[tuple[RecordId, Record]] = []
    for path in change.expected:
        domain = domain_name(path)
        try:
            state = parse_state(path, case.sources[path], change.outline.domains[domain])
        except ProjectError as error:
            yield Finding(
                code="unreadable_file", path=path, line=error.line or None, message=str(error)
            )
            return
        for collection, by_key in state.records.items():
            after += [(RecordId(domain, collection, key), one) for key, one in by_key.items()]
        for collection, records in change.previous_records_in(path).items():
            before |= {RecordId(domain, collection, record.key): record for record in records}
    kept = before.keys() - set(change.retired)
    expected = {record_id: before[record_id] for record_id in kept}
    expected |= {record_id: placed.record for record_id, placed in change.records.items()}
    yield from losses(expected, after)
    for record_id in change.added:
        if record_id in before:
            yield _record_finding("record_repeated", record_id, "would be added a second time")


def losses(
    expected: Mapping[RecordId, Record], after: Sequence[tuple[RecordId, Record]]
) -> Iterator[Finding]:
    """Compare the expected records with the actual ones: no record may be lost or changed.

    Values must also have the same type to be equal, although in Python 1 == 1.0 == True.
    """
    records: dict[RecordId, list[Record]] = {}
    for record_id, record in after:
        records.setdefault(record_id, []).append(record)
    for record_id in sorted(expected.keys() | records.keys()):
        if record_id not in records:
            yield _record_finding("record_lost", record_id, "would be lost")
            continue
        if len(records[record_id]) > 1:
            what = f"would exist {len(records[record_id])} times"
            yield _record_finding("record_doubled", record_id, what)
        if record_id not in expected:
            yield _record_finding(
                "record_unexpected", record_id, "would appear although no edit adds it"
            )
            continue
        wanted = expected[record_id]
        for one in records[record_id]:
            if one != wanted or record_literal(one, Uses()) != record_literal(wanted, Uses()):
                changed = _differing_field(wanted, one)
                what = f"would change in the field {changed}" if changed else "would change"
                yield _record_finding("record_changed", record_id, what, changed)
                break


def _record_finding(code: str, record_id: RecordId, what: str, field: str | None = None) -> Finding:
    message = f"the record {'.'.join(record_id)} {what}"
    return Finding(code=code, record=record_id, field=field, message=message)


def _differing_field(expected: Record, actual: Record) -> str | None:
    names = [*expected.fields, *actual.fields]
    nothing = object()
    return next(
        (n for n in names if expected.fields.get(n, nothing) != actual.fields.get(n, nothing)), None
    )


def check_grounding(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each claim that the cited entries do not support.

    Raises ReadingFailed if the entries can't be compared with the records.
    """
    is_of_model = case.profile == Profile.MODEL
    findings = list(unfounded(case.user, case.parent, case.change, is_of_model=is_of_model))
    for name, code in (("paraphrases", PARAPHRASE), ("translations", TRANSLATION)):
        case.verdict.counts[name] = sum(one.code == code for one in findings)
    yield from findings


def check_types(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each type error that the change causes."""
    started = time.monotonic()
    yield from type_errors(case.parent, case.change)
    case.verdict.timings["types"] = time.monotonic() - started


def has_failing_constraints(case: ProjectCase) -> bool:
    """Return whether constraints were sent that still fail, in a change that is otherwise sound."""
    return case.verdict.accepted and bool(_still_failing(case.verdict))


def check_types_of_failing(case: ProjectCase) -> Iterator[Finding]:
    """Type-check constraints that were sent unchanged and still fail, as if they were new."""
    yield from type_errors(case.parent, case.change, anew=_still_failing(case.verdict))


def _still_failing(verdict: Verdict) -> list[str]:
    """Return the files, including tests, of the constraints that were sent but still fail."""
    names = [
        PurePosixPath(finding.path).stem
        for check in verdict.checks
        for finding in check.findings
        if finding.code == STILL_FAILS and finding.path
    ]
    return [path for name in names for path in constraint_files(name)]


def check_records(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding wherever the interpreter sees different records than the edits describe."""
    sandbox, change = case.sandboxes[0], case.change
    sizes = {path: len(change.files[path] or "") for path in change.expected}
    dumps = [sandbox.dump(part) for part in parts_of(sizes, DUMPED_BYTES)]
    dumped = {path: records for one in dumps for path, records in one.records.items()}
    for domain in change.outline.domains.values():
        counts = {name: collection.count for name, collection in domain.collections.items()}
        counts |= dict.fromkeys(domain.singletons, 1)
        for name, count in counts.items():
            seen = dumps[0].counts.get(domain.name, {}).get(name, 0)
            if seen != count:
                yield Finding(
                    code="count_differs",
                    path=domain.state_path,
                    message=f"{domain.name}.{name} has {seen} records, not {count}",
                )
    for path in change.expected:
        of_domain = change.outline.domains[domain_name(path)]
        expected = {
            collection: [encode(record, of_domain) for record in records]
            for collection, records in change.records_in(path).items()
            if records
        }
        seen_records = {name: rows for name, rows in dumped.get(path, {}).items() if rows}
        if canonical_json(seen_records) != canonical_json(expected):
            yield Finding(
                code="value_differs",
                path=path,
                message="the records have different values when the file is executed",
            )


def check_tests(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each failed test and each changed constraint without a test."""
    sandbox, change, limits = case.sandboxes[0], case.change, case.plan.allowance.limits
    tests = change.outline.tests
    results = sandbox.run_tests(tests, limits=limits).results if tests else ()
    # If a test file stopped with an error, its constraint counts as tested: the error is reported
    # below.
    tested = {result.name.partition("::")[0] for result in results}
    own = {constraint_tests_path(name) for name in case.constraints}
    for path in sorted(own):
        if path not in tested:
            yield Finding(
                code="no_test",
                path=path,
                message="has no test",
                fix="add functions named test_… that show the constraint firing and not firing",
            )
    yield from failed_tests(results, change.files)
    yield from same_evidence_in_tests(one for one in results if one.name.partition("::")[0] in own)


def check_constraints(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each constraint that newly fails or newly depends on set order.

    The alerts that the constraints raise are stored in the verdict. For constraints that were sent
    but still fail, or that raise two alerts that are treated as one, the findings don't block.
    """
    change, verdict = case.change, case.verdict
    if not change.outline.constraints:
        return
    ran = _run(case, case.sandboxes)
    verdict.day = day_of(case.user, case.at).isoformat()
    verdict.alerts = alerts_of(ran[0].results)
    failed, differing = faults(ran)
    old = {path for path in (*failed, *differing) if path not in change.files}
    before = _faulty_before(case, old) if old else set()
    sent = {constraint_path(name) for name in case.written}
    for path, error in failed.items():
        if path not in before:
            yield of_error("constraint_failed", error, change.files, path=path)
        elif path in sent:
            finding = of_error(STILL_FAILS, error, path=path)
            yield replace(finding, code=STILL_FAILS, fix=NOT_MENDED, blocking=False)
    noted = {
        finding.path
        for check in verdict.checks
        for finding in check.findings
        if finding.code == SAME_EVIDENCE
    }
    for result in ran[0].results:
        if result.path in sent - noted:
            yield from same_evidence(result)
    for path in differing:
        if path not in before:
            yield not_deterministic(path)


def _faulty_before(case: ProjectCase, paths: Collection[str]) -> set[str]:
    """Return those of these constraints that were already faulty in the previous version."""
    plan, tree = case.plan, case.plan.checkpoint.tree
    with (
        loaded(plan) as sandbox,
        runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=plan.allowance.shape) as other,
    ):
        load([other], plan, tree.keys())
        existing = sorted(path for path in paths if path in tree)
        failed, differing = faults(_run(case, [sandbox, other], existing))
    return {*failed, *differing}


def _run(
    case: ProjectCase, sandboxes: Sequence[Sandbox], paths: Sequence[str] | None = None
) -> list[ConstraintRun]:
    return [case.plan.run_constraints(sandbox, case.at, paths) for sandbox in sandboxes]


def check_silenced_alerts(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each alert or rule that a model's edits silence."""
    assert case.parent is not None
    candidate = ModelChange(
        plan=replace(plan_run(case.user, case.parent), code=case.plan.code),
        change=case.change,
        edits=case.edits,
        sandbox=case.sandboxes[-1],  # not the sandbox that stays resident
        now=timezone.now(),
    )
    return held(candidate)


def check_mutants(case: ProjectCase) -> Iterator[Finding]:
    """Yield a finding for each mutant of a changed constraint that its tests do not notice."""
    limits = case.plan.allowance.limits
    findings = surviving_mutants(case.sandboxes[-1], case.constraints, case.sources, limits)
    return _blocking_once(case.user, findings) if case.profile == Profile.MODEL else findings


def _blocking_once(user: MemoryUser, proposed: Iterable[Finding]) -> Iterator[Finding]:
    """Make gaps in tests block, except for constraints that such gaps have blocked before."""
    findings = list(proposed)
    paths = [one.path for one in findings if one.code in BLOCKING_ONCE and one.path]
    refused = (
        Run.objects.filter(user=user, test_gaps__overlap=paths) if paths else Run.objects.none()
    )
    before = {path for gaps in refused.values_list("test_gaps", flat=True) for path in gaps}
    for finding in findings:
        is_gap = finding.code in BLOCKING_ONCE
        yield replace(finding, blocking=finding.path not in before) if is_gap else finding
