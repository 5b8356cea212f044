"""The gate: what a candidate project must pass to become a checkpoint.

Its work follows the change: files that a change leaves alone were accepted before, byte for byte,
and are neither parsed nor compiled nor checked again. They are executed, since the new version is
one program.
"""

import datetime
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import PurePosixPath

from django.utils import timezone

from memory.canonical import canonical_json, sha256
from memory.models import Checkpoint, MemoryUser, Run
from memory.models.runs import RunKind, RunOutcome, RunTrigger
from memory.project import Change, Edit
from memory.project.legacy import is_legacy
from memory.project.typed import encode
from workers.checkpointing.apart import ReadingFailed
from workers.checkpointing.citations import unfounded
from workers.checkpointing.execution import (
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
from workers.checkpointing.findings import Check, Finding, Verdict
from workers.checkpointing.holds import Candidate, held
from workers.checkpointing.mutants import BLOCKING_ONCE, surviving_mutants
from workers.checkpointing.no_loss import domain_of, lost_records
from workers.checkpointing.policy import check_policy
from workers.checkpointing.type_check import type_errors, wants_type_check
from workers.checkpointing.wording import PARAPHRASE
from workers.execution.outlook import alerts_of, day_of, foresee
from workers.execution.projects import allowance_of, bytecode_of, load, loaded
from workers.sandbox import runner
from workers.sandbox.interface import (
    DUMPED_BYTES,
    Allowance,
    ConstraintRun,
    Dump,
    Limits,
    Sandbox,
    SandboxError,
    parts_of,
)

# Of a user, the newest: what a model was told longer ago, it may be told again.
MAX_REJECTIONS_READ = 100


# What the gate notes of a constraint that failed already, and was sent as it stands.
STILL_FAILS = "still_fails"
NOT_MENDED = "it stays as it is, and raises no new alert until you mend it"


class GateUnavailable(Exception):
    """The sandbox could not be had or broke: there is no verdict, and it is worth another try."""


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
    """Judge a change of the project at `parent`; raises GateUnavailable.

    `checks` are those that it has passed already. With `judge_code`, its records must be grounded
    and those that it retires named (unless no text says them: `judge_grounding`), and types, tests
    and constraints must be in order too. A change made of typed entries goes without: its records
    say what the entries say, and a fact is not refused because a constraint cannot cope with it.
    The constraint's run after the checkpoint fails visibly instead. `of_model` are the edits where
    a language model made them: what they would silence is held (`holds`). `written` are the names
    of the constraints that were sent: one that fails already and was sent as it stands is checked
    as if it was new, and whoever sent it is told that it fails.

    Constraints run as of `at`, by default now. Alerts that no test reaches and boundaries that none
    notices are reported; those of a model's constraint refuse it once, and are reported from then
    on, since some mutants cannot be told from it. A model is also told on what days alerts change,
    of what is not committed.

    The checks run from the cheap to the dear and stop at the first that fails, because those after
    it would speak of its consequences; but what is held and what no test notices are told together.
    """
    verdict = Verdict(checks=[*checks])
    # What is kept of another project as it came is no part of this one's program.
    sources = {
        path: text
        for path, text in change.files.items()
        if text is not None and not is_legacy(path)
    }
    verdict.counts = {
        "files_changed": len(change.files),
        "files_parsed": change.files_parsed,
        "files_rendered": change.files_rendered,
        "files_checked": len(sources),
        "records_added": len(change.added),
        "records_updated": len(change.updated),
        "records_retired": len(change.retired),
    }
    verdict.checks.append(Check("policy", list(_policy(sources))))
    if verdict.accepted:
        verdict.checks.append(Check("no loss", list(lost_records(change, sources))))
    if judge_code and judge_grounding and verdict.accepted:
        try:
            found = list(unfounded(user, parent, change, is_of_model=bool(of_model)))
        except ReadingFailed as error:
            raise GateUnavailable(f"reading the entries that are cited: {error}") from error
        verdict.checks.append(Check("grounding", found))
        verdict.counts["paraphrases"] = sum(one.code == PARAPHRASE for one in found)
    if not verdict.accepted:
        return verdict
    try:
        if judge_code and wants_type_check(parent, change):
            started = time.monotonic()
            verdict.checks.append(Check("types", list(type_errors(parent, change))))
            verdict.timings["types"] = time.monotonic() - started
        if verdict.accepted:
            _execute(
                user,
                parent,
                change,
                sources,
                verdict,
                judge_code=judge_code,
                of_model=of_model,
                dry_run=dry_run,
                at=at or timezone.now(),
                written=written,
            )
        if verdict.accepted and (failing := _still_failing(verdict)):
            anew = type_errors(parent, change, anew=failing)
            verdict.checks.append(Check("types", list(anew)))
    except SandboxError as error:
        # Without anybody's code to judge, slowness is the machine's, and whoever kills.
        if error.infrastructure or (error.outcome in ("timeout", "killed") and not judge_code):
            raise GateUnavailable(str(error)) from error
        verdict.checks.append(Check("execution", [of_request(error)]))
    return verdict


def _still_failing(verdict: Verdict) -> list[str]:
    """Return the files of the constraints that were sent and fail as before, with their tests."""
    names = [
        PurePosixPath(finding.path).stem
        for check in verdict.checks
        for finding in check.findings
        if finding.code == STILL_FAILS and finding.path
    ]
    return [path for name in names for path in (f"constraints/{name}.py", f"tests/test_{name}.py")]


def _blocking_once(user: MemoryUser, found: Iterable[Finding]) -> Iterator[Finding]:
    """Let what no test notices block, but of constraints that it has refused before."""
    refused: set[str] | None = None
    for finding in found:
        if finding.code in BLOCKING_ONCE:
            refused = _refused_for_tests(user) if refused is None else refused
            finding = replace(finding, blocking=finding.path not in refused)
        yield finding


def _refused_for_tests(user: MemoryUser) -> set[str]:
    """Return the constraints of which a model was told what no test of them notices."""
    rejected = Run.objects.filter(
        user=user,
        kind=RunKind.PROPOSAL,
        trigger=RunTrigger.MODEL,
        outcome=RunOutcome.REJECTED,
    ).order_by("-queued_at")
    # A run whose user has had something redacted has been emptied.
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


def _execute(
    user: MemoryUser,
    parent: Checkpoint | None,
    change: Change,
    sources: Mapping[str, str],
    verdict: Verdict,
    *,
    judge_code: bool,
    of_model: Sequence[Edit],
    dry_run: bool,
    at: datetime.datetime,
    written: Collection[str],
) -> None:
    """Compile what changed, load the new version and see that it holds what it should.

    What passes stays resident for a while: its constraints run next.
    """
    started = time.monotonic()
    allowance = allowance_of(user.workspace)
    with runner.lease(user.pk, allowance, fresh=True) as lease, ExitStack() as stack:
        # It has executed nothing of anybody's yet, so its bytecode can be trusted.
        sandbox = lease.sandbox
        verdict.runner = sandbox.runner_name
        verdict.image_digest = sandbox.image_digest
        verdict.bytecode = sandbox.compile(sources)
        verdict.counts["files_compiled"] = len(verdict.bytecode)
        compiled = time.monotonic()
        verdict.timings["compile"] = compiled - started

        before = bytecode_of(
            parent, sandbox.image_digest, allowance.shape, without=change.files.keys()
        )
        bytecode = {**before, **verdict.bytecode}
        sandboxes = [sandbox]
        if judge_code:
            other = runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=allowance.shape)
            sandboxes.append(stack.enter_context(other))
        for one in sandboxes:
            load(one, parent, bytecode)
        verdict.timings["load"] = time.monotonic() - compiled
        verdict.checks.append(Check("execution", list(_state(sandbox, change))))
        if judge_code and verdict.accepted:
            verdict.checks.append(Check("tests", list(_tests(sandbox, change, allowance.limits))))
        if judge_code and verdict.accepted:
            found = _constraints(sandboxes, user, parent, change, allowance, verdict, at, written)
            verdict.checks.append(Check("constraints", list(found)))
        # What is held says nothing of the tests: both are told at once.
        is_sound = verdict.accepted
        if of_model and parent is not None and is_sound:
            # In the one that nobody uses afterwards.
            candidate = Candidate(
                user=user,
                parent=parent,
                change=change,
                edits=of_model,
                sandbox=sandboxes[-1],
                allowance=allowance,
                now=timezone.now(),
            )
            verdict.checks.append(Check("holds", list(held(candidate))))
        if judge_code and is_sound:
            constraints = _changed_constraints(sources)
            survivors = surviving_mutants(sandboxes[-1], constraints, sources, allowance.limits)
            if of_model:
                survivors = _blocking_once(user, survivors)
            verdict.checks.append(Check("mutants", list(survivors)))
        if of_model and verdict.day and (dry_run or not verdict.accepted):
            paths = [f"constraints/{name}.py" for name in change.outline.constraints]
            verdict.coming = foresee(sandbox, user, at, paths, allowance.limits)
        if verdict.accepted:
            tree = parent.tree if parent else {}
            kept = {path: tree[path] for path in tree.keys() - change.files.keys()}
            changed = {path: text for path, text in change.files.items() if text is not None}
            lease.tree = {**kept, **{path: sha256(text) for path, text in changed.items()}}
    verdict.timings["total"] = time.monotonic() - started


def _changed_constraints(sources: Mapping[str, str]) -> dict[str, str]:
    """The constraints that are written, by name; each has its tests written with it."""
    return {
        path.removeprefix("constraints/").removesuffix(".py"): source
        for path, source in sources.items()
        if path.startswith("constraints/") and not path.endswith("/__init__.py")
    }


def _state(sandbox: Sandbox, change: Change) -> Iterator[Finding]:
    """The interpreter sees the records that the edits describe, and as many as there should be."""
    sizes = {path: len(change.files[path] or "") for path in change.expected}
    dumps = [sandbox.dump(part) for part in parts_of(sizes, DUMPED_BYTES)]
    dump = Dump(
        counts=dumps[0].counts,
        records={path: found for one in dumps for path, found in one.records.items()},
        usage=dumps[0].usage,
    )
    for domain in change.outline.domains.values():
        counts = {name: collection.count for name, collection in domain.collections.items()}
        counts |= dict.fromkeys(domain.singletons, 1)
        for name, count in counts.items():
            seen = dump.counts.get(domain.name, {}).get(name, 0)
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
        seen_records = {name: rows for name, rows in dump.records.get(path, {}).items() if rows}
        if canonical_json(seen_records) != canonical_json(expected):
            yield Finding(
                code="value_differs",
                path=path,
                message="its records read otherwise when it is executed",
            )


def _tests(sandbox: Sandbox, change: Change, limits: Limits) -> Iterator[Finding]:
    """Every test passes, and every constraint that is written comes with one."""
    tests = change.outline.tests
    results = sandbox.run_tests(tests, limits=limits).results if tests else ()
    # A file that could not run to its end may well have tests: it has an error, which comes below.
    tested = {result.name.partition("::")[0] for result in results}
    written = {path: text for path, text in change.files.items() if text is not None}
    own = {f"tests/test_{name}.py" for name in _changed_constraints(written)}
    for path in sorted(own):
        if path not in tested:
            yield Finding(
                code="no_test",
                path=path,
                message="has no test",
                fix="add functions named test_… that show the constraint speak and be silent",
            )
    yield from failed_tests(results, change.files)
    yield from same_evidence_in_tests(one for one in results if one.name.partition("::")[0] in own)


def _constraints(
    sandboxes: Sequence[Sandbox],
    user: MemoryUser,
    parent: Checkpoint | None,
    change: Change,
    allowance: Allowance,
    verdict: Verdict,
    now: datetime.datetime,
    written: Collection[str],
) -> Iterator[Finding]:
    """No constraint fails, or depends on the order of hashing, that did not before.

    What they would say then is noted in the verdict; of those that were sent, that they fail still,
    and that alerts of theirs count as one.
    """
    if not change.outline.constraints:
        return
    ran = _run(sandboxes, None, user, now, allowance)
    verdict.day = day_of(user, now).isoformat()
    verdict.alerts = alerts_of(ran[0].results)
    failed, differing = faults(ran)
    old = {path for path in (*failed, *differing) if path not in change.files}
    before = _faulty_before(parent, old, user, now, allowance) if old and parent else set()
    sent = {f"constraints/{name}.py" for name in written}
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


def _faulty_before(
    parent: Checkpoint,
    paths: Collection[str],
    user: MemoryUser,
    now: datetime.datetime,
    allowance: Allowance,
) -> set[str]:
    """Of these constraints, those that were at fault in the version before, too."""
    with (
        loaded(parent, allowance) as sandbox,
        runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=allowance.shape) as other,
    ):
        load(other, parent, bytecode_of(parent, other.image_digest, allowance.shape))
        known = sorted(path for path in paths if path in parent.tree)
        failed, differing = faults(_run([sandbox, other], known, user, now, allowance))
    return {*failed, *differing}


def _run(
    sandboxes: Sequence[Sandbox],
    paths: Sequence[str] | None,
    user: MemoryUser,
    now: datetime.datetime,
    allowance: Allowance,
) -> list[ConstraintRun]:
    return [
        sandbox.run_constraints(paths, now=now, time_zone=user.time_zone, limits=allowance.limits)
        for sandbox in sandboxes
    ]
