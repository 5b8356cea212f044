"""The gate: the checks that a candidate project must pass to become a checkpoint.

The gate's work is proportional to the change: files that a change leaves alone were already
accepted, byte for byte, so they aren't parsed, compiled or checked again. They are executed,
though, since the new version runs as one program.
"""

import datetime
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

from django.utils import timezone

from memory.canonical import canonical_json, sha256
from memory.models import Checkpoint, MemoryUser, Run
from memory.models.runs import RunKind, RunOutcome, RunTrigger
from memory.project import Change, Edit
from memory.project.legacy import is_legacy
from memory.project.typed import encode
from workers.execution.loading import LoadPlan, bytecode_of, load, loaded, plan_load, plan_run
from workers.execution.outlook import alerts_of, day_of, foresee
from workers.findings import Check, Finding, Verdict
from workers.gate.cited_entries import unfounded
from workers.gate.constraint_mutants import BLOCKING_ONCE, surviving_mutants
from workers.gate.execution_findings import (
    OTHER_HASH_SEED,
    SAME_EVIDENCE,
    failed_tests,
    faults,
    not_deterministic,
    of_error,
    of_request,
    policy_findings,
    same_evidence,
    same_evidence_in_tests,
)
from workers.gate.lost_records import domain_of, lost_records
from workers.gate.silenced_alerts import ModelChange, held
from workers.gate.type_errors import type_errors, wants_type_check
from workers.grounding.separate_process import ReadingFailed
from workers.grounding.wording_in_entries import PARAPHRASE
from workers.policy.checks import check_policy
from workers.sandbox import runner
from workers.sandbox.interface import Sandbox, SandboxError
from workers.sandbox.limits import DUMPED_BYTES, Limits, parts_of
from workers.sandbox.results import ConstraintRun

# How many of a user's newest rejected proposals to search for gaps in tests. A gap that was
# reported only for an older proposal may block a model's constraint once more.
MAX_REJECTIONS_READ = 100

# Finding code for a constraint that already failed and was sent unchanged.
STILL_FAILS = "still_fails"
NOT_MENDED = "the constraint stays unchanged and raises no new alerts until you fix it"


class GateUnavailable(Exception):
    """The sandbox was unavailable or failed: there is no verdict, and a retry may succeed."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """The change being judged, and the verdict so far; `plan` loads the previous version."""

    plan: LoadPlan
    parent: Checkpoint | None
    change: Change
    verdict: Verdict
    judge_code: bool
    of_model: Sequence[Edit]
    dry_run: bool
    at: datetime.datetime
    written: Collection[str]

    @cached_property
    def sources(self) -> dict[str, str]:
        """The program's changed files, without deleted files."""
        # Legacy files, which stay as they were imported, are not part of this project's program.
        texts = self.change.files.items()
        return {path: text for path, text in texts if text is not None and not is_legacy(path)}

    @cached_property
    def kept(self) -> dict[str, str]:
        """Maps the path of each file that the change leaves alone to the file's hash."""
        tree, changed = self.plan.checkpoint.tree, self.change.files
        return {path: hash_ for path, hash_ in tree.items() if path not in changed}


def judge(
    user: MemoryUser,
    parent: Checkpoint | None,
    change: Change,
    *,
    judge_code: bool = False,
    judge_grounding: bool = True,
    dry_run: bool = False,
    at: datetime.datetime | None = None,
    checks: Sequence[Check] = (),
    of_model: Sequence[Edit] = (),
    written: Collection[str] = (),
) -> Verdict:
    """Judge a change to the project at `parent`; raise GateUnavailable if there is no verdict.

    `checks` are the checks that the change has already passed. If `judge_code` is set, types, tests
    and constraints must pass, and the cited entries must support the change's records and name the
    records that the change retires; `judge_grounding` is False if there is no text to support the
    records. A change made up of typed entries skips all of these checks: its records come straight
    from the entries, and we don't reject a fact because a constraint can't handle it. Instead, the
    constraint fails visibly when it runs after the checkpoint. `of_model` contains the edits if a
    language model made them; edits that would silence alerts are held (see `silenced_alerts`).
    `written` contains the names of the constraints that were sent. If a constraint already failed
    and was sent unchanged, it is type-checked as if it were new, and the sender is told that it
    still fails.

    Constraints run as of `at`, by default now. Alerts that no test reaches and boundaries that no
    test covers are reported. In a model's constraint, such gaps block the first time and are only
    reported after that, since some mutants are equivalent to the original. If a model's edits
    aren't committed, the model is also told on which days alerts will change.

    The checks run from cheap to expensive and stop at the first failure, because later checks would
    only report its consequences. Held edits and gaps in tests, however, are reported together.
    """
    verdict = Verdict(checks=[*checks])
    case = _Case(
        plan=plan_load(user, parent),
        parent=parent,
        change=change,
        verdict=verdict,
        judge_code=judge_code,
        of_model=of_model,
        dry_run=dry_run,
        at=at or timezone.now(),
        written=written,
    )
    verdict.counts = _count_changes(case)
    _check_files(case)
    if judge_code and judge_grounding and verdict.accepted:
        _check_grounding(case)
    if not verdict.accepted:
        return verdict
    try:
        if judge_code and wants_type_check(parent, change):
            _check_types(case)
        if verdict.accepted:
            _execute(case)
        _check_failing_again(case)
    except SandboxError as error:
        verdict.checks.append(_check_of_error(error, judge_code=judge_code))
    return verdict


def _check_files(case: _Case) -> None:
    """Check the text of the changed files without executing them."""
    verdict = case.verdict
    verdict.checks.append(Check("policy", list(_policy(case.sources))))
    if verdict.accepted:
        verdict.checks.append(Check("no loss", list(lost_records(case.change, case.sources))))


def _check_types(case: _Case) -> None:
    started = time.monotonic()
    case.verdict.checks.append(Check("types", list(type_errors(case.parent, case.change))))
    case.verdict.timings["types"] = time.monotonic() - started


def _count_changes(case: _Case) -> dict[str, int]:
    change = case.change
    return {
        "files_changed": len(change.files),
        "files_parsed": change.files_parsed,
        "files_rendered": change.files_rendered,
        "files_checked": len(case.sources),
        "records_added": len(change.added),
        "records_updated": len(change.updated),
        "records_retired": len(change.retired),
    }


def _check_grounding(case: _Case) -> None:
    """Check that the cited entries support the records.

    Raises GateUnavailable if the entries can't be compared with the records.
    """
    user, is_of_model = case.plan.user, bool(case.of_model)
    try:
        found = list(unfounded(user, case.parent, case.change, is_of_model=is_of_model))
    except ReadingFailed as error:
        raise GateUnavailable(f"reading the cited entries: {error}") from error
    case.verdict.checks.append(Check("grounding", found))
    case.verdict.counts["paraphrases"] = sum(one.code == PARAPHRASE for one in found)


def _check_failing_again(case: _Case) -> None:
    """Type-check constraints that were sent unchanged and still fail, as if they were new."""
    if case.verdict.accepted and (failing := _still_failing(case.verdict)):
        anew = type_errors(case.parent, case.change, anew=failing)
        case.verdict.checks.append(Check("types", list(anew)))


def _check_of_error(error: SandboxError, *, judge_code: bool) -> Check:
    """Return the failed check for a sandbox error caused by the user's code.

    Raises GateUnavailable if the infrastructure is or might be to blame.
    """
    # If the change contains no code to judge, blame a timeout or a killed process on the machine.
    if error.infrastructure or (error.outcome in ("timeout", "killed") and not judge_code):
        raise GateUnavailable(str(error)) from error
    return Check("execution", [of_request(error)])


def _still_failing(verdict: Verdict) -> list[str]:
    """Return the files, including tests, of the constraints that were sent but still fail."""
    names = [
        PurePosixPath(finding.path).stem
        for check in verdict.checks
        for finding in check.findings
        if finding.code == STILL_FAILS and finding.path
    ]
    return [path for name in names for path in (f"constraints/{name}.py", f"tests/test_{name}.py")]


def _blocking_once(user: MemoryUser, found: Iterable[Finding]) -> Iterator[Finding]:
    """Make gaps in tests block, except for constraints that such gaps have blocked before."""
    refused: set[str] | None = None
    for finding in found:
        if finding.code in BLOCKING_ONCE:
            refused = _refused_for_tests(user) if refused is None else refused
            finding = replace(finding, blocking=finding.path not in refused)
        yield finding


def _refused_for_tests(user: MemoryUser) -> set[str]:
    """Return the paths of constraints that were once rejected because of gaps in their tests."""
    rejected = Run.objects.filter(
        user=user,
        kind=RunKind.PROPOSAL,
        trigger=RunTrigger.MODEL,
        outcome=RunOutcome.REJECTED,
    ).order_by("-queued_at")
    # A redaction clears the contents of the user's earlier runs, so a run may have no verdict.
    told = rejected.filter(output__verdict__checks__isnull=False)
    return {
        finding["path"]
        for output in told.values_list("output", flat=True)[:MAX_REJECTIONS_READ]
        for check in (output or {})["verdict"]["checks"]
        for finding in check["findings"]
        if finding["code"] in BLOCKING_ONCE and finding["blocking"]
    }


def _policy(sources: Mapping[str, str]) -> Iterator[Finding]:
    for path, source in sources.items():
        yield from policy_findings(check_policy(path, source))


def _execute(case: _Case) -> None:
    """Compile the changed files, load the new version into a sandbox, and verify its contents.

    A version that passes the checks stays resident in the sandbox for a while, because its
    constraints will run next.
    """
    started = time.monotonic()
    plan, verdict = case.plan, case.verdict
    with runner.lease(plan.user.pk, plan.allowance, fresh=True) as lease, ExitStack() as stack:
        # The sandbox hasn't executed any user code yet, so the bytecode it returns can be trusted.
        sandbox = lease.sandbox
        verdict.runner = sandbox.runner_name
        verdict.image_digest = sandbox.image_digest
        verdict.bytecode = sandbox.compile(case.sources)
        verdict.counts["files_compiled"] = len(verdict.bytecode)
        compiled = time.monotonic()
        verdict.timings["compile"] = compiled - started

        before = bytecode_of(plan, sandbox.image_digest, case.kept.keys())
        sandboxes = [sandbox]
        if case.judge_code:
            other = runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=plan.allowance.shape)
            sandboxes.append(stack.enter_context(other))
        for one in sandboxes:
            load(one, plan, {**before, **verdict.bytecode})
        verdict.timings["load"] = time.monotonic() - compiled
        _check_loaded(case, sandboxes)
        if verdict.accepted:
            changed = {path: text for path, text in case.change.files.items() if text is not None}
            lease.tree = {**case.kept, **{path: sha256(text) for path, text in changed.items()}}
    verdict.timings["total"] = time.monotonic() - started


def _check_loaded(case: _Case, sandboxes: Sequence[Sandbox]) -> None:
    """Check the new version by executing it in the sandboxes that hold it."""
    verdict, change, limits = case.verdict, case.change, case.plan.allowance.limits
    sandbox, last = sandboxes[0], sandboxes[-1]
    verdict.checks.append(Check("execution", list(_state(sandbox, change))))
    if case.judge_code and verdict.accepted:
        verdict.checks.append(Check("tests", list(_tests(sandbox, change, limits))))
    if case.judge_code and verdict.accepted:
        verdict.checks.append(Check("constraints", list(_constraints(case, sandboxes))))
    # Whether edits are held doesn't depend on gaps in tests, so both are reported together.
    is_sound = verdict.accepted
    if case.of_model and case.parent is not None and is_sound:
        candidate = ModelChange(
            plan=plan_run(case.plan.user, case.parent),
            change=change,
            edits=case.of_model,
            sandbox=last,  # not the sandbox that stays resident
            now=timezone.now(),
        )
        verdict.checks.append(Check("holds", list(held(candidate))))
    if case.judge_code and is_sound:
        constraints = _changed_constraints(case.sources)
        survivors = surviving_mutants(last, constraints, case.sources, limits)
        if case.of_model:
            survivors = _blocking_once(case.plan.user, survivors)
        verdict.checks.append(Check("mutants", list(survivors)))
    if case.of_model and verdict.day and (case.dry_run or not verdict.accepted):
        paths = [f"constraints/{name}.py" for name in change.outline.constraints]
        verdict.coming = foresee(sandbox, case.plan, case.at, paths)


def _changed_constraints(sources: Mapping[str, str]) -> dict[str, str]:
    """Map the name of each changed constraint to its source."""
    return {
        path.removeprefix("constraints/").removesuffix(".py"): source
        for path, source in sources.items()
        if path.startswith("constraints/") and not path.endswith("/__init__.py")
    }


def _state(sandbox: Sandbox, change: Change) -> Iterator[Finding]:
    """Yield a finding wherever the interpreter sees different records than the edits describe."""
    sizes = {path: len(change.files[path] or "") for path in change.expected}
    dumps = [sandbox.dump(part) for part in parts_of(sizes, DUMPED_BYTES)]
    dumped = {path: found for one in dumps for path, found in one.records.items()}
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
        of_domain = change.outline.domains[domain_of(path)]
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


def _tests(sandbox: Sandbox, change: Change, limits: Limits) -> Iterator[Finding]:
    """Yield a finding for each failed test and each changed constraint without a test."""
    tests = change.outline.tests
    results = sandbox.run_tests(tests, limits=limits).results if tests else ()
    # If a test file stopped with an error, its constraint counts as tested: the error is reported
    # below.
    tested = {result.name.partition("::")[0] for result in results}
    written = {path: text for path, text in change.files.items() if text is not None}
    own = {f"tests/test_{name}.py" for name in _changed_constraints(written)}
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


def _constraints(case: _Case, sandboxes: Sequence[Sandbox]) -> Iterator[Finding]:
    """Yield a finding for each constraint that newly fails or newly depends on set order.

    The alerts that the constraints raise are stored in the verdict. For constraints that were sent
    but still fail, or that raise two alerts that are treated as one, the findings don't block.
    """
    change, verdict = case.change, case.verdict
    if not change.outline.constraints:
        return
    ran = _run(case, sandboxes)
    verdict.day = day_of(case.plan.user, case.at).isoformat()
    verdict.alerts = alerts_of(ran[0].results)
    failed, differing = faults(ran)
    old = {path for path in (*failed, *differing) if path not in change.files}
    before = _faulty_before(case, old) if old else set()
    sent = {f"constraints/{name}.py" for name in case.written}
    for path, error in failed.items():
        if path not in before:
            yield of_error("constraint_failed", error, change.files, path=path)
        elif path in sent:
            told = of_error(STILL_FAILS, error, path=path)
            yield replace(told, code=STILL_FAILS, fix=NOT_MENDED, blocking=False)
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


def _faulty_before(case: _Case, paths: Collection[str]) -> set[str]:
    """Return those of these constraints that were already faulty in the previous version."""
    plan, tree = case.plan, case.plan.checkpoint.tree
    with (
        loaded(plan) as sandbox,
        runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=plan.allowance.shape) as other,
    ):
        load(other, plan, bytecode_of(plan, other.image_digest, tree.keys()))
        known = sorted(path for path in paths if path in tree)
        failed, differing = faults(_run(case, [sandbox, other], known))
    return {*failed, *differing}


def _run(
    case: _Case, sandboxes: Sequence[Sandbox], paths: Sequence[str] | None = None
) -> list[ConstraintRun]:
    return [case.plan.run_constraints(sandbox, case.at, paths) for sandbox in sandboxes]
