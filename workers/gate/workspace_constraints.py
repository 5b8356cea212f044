"""Judge a version of a workspace constraint before anybody may approve it.

The version is judged in isolation, in sandboxes that hold no user data and serve no other purpose.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

import structlog
from django.db import transaction
from django.utils import timezone

from memory.constraints import workspace_constraints
from memory.models import WorkspaceConstraint, WorkspaceConstraintVersion
from memory.models.workspace_constraints import FOLDER, VersionState
from memory.project.shapes import Needs, ShapeError, needs_of
from memory.temporal import backtests
from memory.work import leases
from workers.execution.loading import allowance_of
from workers.findings import Check, Finding, Verdict
from workers.gate.constraint_mutants import surviving_mutants
from workers.gate.execution_findings import (
    OTHER_HASH_SEED,
    failed_tests,
    faults,
    not_deterministic,
    of_error,
    of_request,
    policy_findings,
    same_evidence_in_tests,
)
from workers.gate.type_errors import type_errors_of_files
from workers.policy.checks import check_workspace_policy
from workers.sandbox import runner
from workers.sandbox.interface import Bindings, Sandbox, SandboxError
from workers.sandbox.limits import Limits

logger = structlog.get_logger(__name__)


def judge_waiting(version_pk: str) -> None:
    """Judge the version, unless another worker has already judged it or is doing so now.

    The verdict is stored. Raises SandboxError if no sandbox was available or if a sandbox failed;
    the version is then judged later.
    """
    version = leases.claim(workspace_constraints.unjudged().filter(pk=version_pk))
    if version is None:
        return
    try:
        with leases.kept(version):
            verdict = judge(version.constraint, version)
    except Exception as error:
        leases.fail(version, f"{type(error).__name__}: {error}")
        raise
    try:
        with transaction.atomic():
            leases.release(
                version,
                state=VersionState.PASSED if verdict.accepted else VersionState.REFUSED,
                verdict=verdict.to_json(),
                bytecode=verdict.bytecode.get(version.constraint.path, ""),
                image_digest=verdict.image_digest,
                judged_at=timezone.now(),
                attempts=0,
                last_error="",
            )
            newer = version.constraint.versions.filter(number__gt=version.number)
            if verdict.accepted and not newer.exists():
                backtests.start(version, by="the checks")
    except leases.LeaseLost:
        logger.warning("lease_lost", version=version_pk)


def judge(constraint: WorkspaceConstraint, version: WorkspaceConstraintVersion) -> Verdict:
    """Run the checks on a version, from cheap to expensive, stopping at the first that fails.

    Raises SandboxError if infrastructure problems keep the version from being judged.
    """
    started = time.monotonic()
    verdict = Verdict()
    sources = {constraint.path: version.source, constraint.tests_path: version.tests}
    found = [one for path in sources for one in check_workspace_policy(path, sources[path])]
    verdict.checks.append(Check("policy", list(policy_findings(found))))
    if verdict.accepted:
        verdict.checks.append(Check("shape", list(_shape(constraint.path, version.source))))
    try:
        if verdict.accepted:
            verdict.checks.append(Check("types", list(type_errors_of_files(sources))))
        verdict.timings["types"] = time.monotonic() - started
        if verdict.accepted:
            _execute(constraint, needs_of(version.source), sources, verdict)
    except SandboxError as error:
        if error.infrastructure:
            raise
        verdict.checks.append(Check("execution", [of_request(error)]))
    verdict.timings["total"] = time.monotonic() - started
    return verdict


def _shape(path: str, source: str) -> Iterator[Finding]:
    try:
        needs_of(source)
    except ShapeError as error:
        yield Finding(
            code="shape", path=path, line=error.line, message=error.message, fix=error.fix
        )


def _execute(
    constraint: WorkspaceConstraint, needs: Needs, sources: Mapping[str, str], verdict: Verdict
) -> None:
    """Run the constraint on empty collections, and run its tests, in two fresh sandboxes.

    The two sandboxes iterate over sets in different orders.
    """
    allowance = allowance_of(constraint.workspace)
    with (
        runner.open_sandbox(shape=allowance.shape) as sandbox,
        runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=allowance.shape) as other,
    ):
        verdict.runner, verdict.image_digest = sandbox.runner_name, sandbox.image_digest
        verdict.bytecode = sandbox.compile(sources)  # before the sandbox executes any user code
        sandboxes = (sandbox, other)
        for one in sandboxes:
            one.load(bytecode=verdict.bytecode)
        found = _silence(sandboxes, constraint.path, needs, allowance.limits)
        verdict.checks.append(Check("execution", list(found)))
        if verdict.accepted:
            found = _tests(sandboxes, constraint.tests_path, sources, allowance.limits)
            verdict.checks.append(Check("tests", list(found)))
        if verdict.accepted:
            source = {constraint.name: sources[constraint.path]}
            survivors = surviving_mutants(other, source, sources, allowance.limits, folder=FOLDER)
            verdict.checks.append(Check("mutants", list(survivors)))


def _silence(
    sandboxes: Sequence[Sandbox], path: str, needs: Needs, limits: Limits
) -> Iterator[Finding]:
    """With empty collections, the constraint must yield no alert and must not raise."""
    bindings: Bindings = {path: {parameter.name: [] for parameter in needs.parameters}}
    ran = [
        one.run_constraints(
            [path], now=timezone.now(), time_zone="UTC", bindings=bindings, limits=limits
        )
        for one in sandboxes
    ]
    failed, differing = faults(ran)
    for error in failed.values():
        yield of_error("constraint_failed", error, path=path)
    for _ in differing:
        yield not_deterministic(path)
    if not failed and ran[0].results[0].alerts:
        yield Finding(
            code="speaks_of_nothing",
            path=path,
            message="raises an alert for a user who has none of the records that it needs",
            fix="yield alerts only for records that exist",
        )


def _tests(
    sandboxes: Sequence[Sandbox], path: str, sources: Mapping[str, str], limits: Limits
) -> Iterator[Finding]:
    """Yield a finding for each test that fails in either of the two sandboxes."""
    results, others = (one.run_tests([path], limits=limits).results for one in sandboxes)
    yield from failed_tests(results, sources)
    yield from same_evidence_in_tests(results)
    failed = {result.name for result in results if result.error is not None}
    for result in others:
        if result.error is not None and result.name not in failed:
            yield Finding(
                code="not_deterministic",
                path=path,
                test=result.name,
                message=f"{result.name} fails when sets are iterated in a different order",
                fix="sort sets before iterating over them",
            )
