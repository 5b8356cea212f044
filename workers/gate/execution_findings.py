"""Turn the results of executing a candidate project or workspace constraint into findings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from memory.kernel.texts import shortened
from memory.project.errors import RunError
from memory.project.paths import CONSTRAINTS, TESTS
from workers.execution.results import finding_of
from workers.findings import Finding
from workers.sandbox.results import (
    ConstraintResult,
    ConstraintRun,
    FoundAlert,
    SandboxError,
    TestResult,
)

# Hash seed for a second interpreter, which orders sets differently but must produce the same
# results.
OTHER_HASH_SEED = 1
SAME_EVIDENCE = "same_evidence"


def failed_tests(
    results: Sequence[TestResult], sources: Mapping[str, str | None]
) -> Iterator[Finding]:
    """Yield a finding for each failed test."""
    for result in results:
        if result.error is not None:
            yield of_error("test_failed", result.error, sources, test=result.name)


def not_deterministic(path: str) -> Finding:
    """Return the finding for a constraint whose results differ between two interpreters."""
    return Finding(
        code="not_deterministic",
        path=path,
        message="raises different alerts when sets are iterated in a different order",
        fix="sort sets before iterating over them",
    )


def same_evidence(result: ConstraintResult) -> Iterator[Finding]:
    """Yield a finding if a constraint yields two alerts that are treated as one.

    Alerts without a `key` are distinguished only by their evidence.
    """
    by_fingerprint: dict[str, FoundAlert] = {}
    for alert in result.alerts:
        other = by_fingerprint.setdefault(finding_of(result.path, alert).fingerprint, alert)
        if other != alert and alert.key is None:
            yield _same_evidence(other.message, alert.message, path=result.path)
            return


def same_evidence_in_tests(results: Iterable[TestResult]) -> Iterator[Finding]:
    """Yield a finding per test file, for the first test in which two alerts are treated as one."""
    noted = set()
    for result in results:
        path = result.name.partition("::")[0]
        if result.same_evidence and path not in noted:
            noted.add(path)
            constraint = path.replace(TESTS + "test_", CONSTRAINTS)
            yield _same_evidence(*result.same_evidence, path=constraint, test=result.name)


def _same_evidence(one: str, other: str, path: str, test: str | None = None) -> Finding:
    return Finding(
        code=SAME_EVIDENCE,
        message="two alerts from the same check have the same evidence: only the more severe is"
        f" kept (“{shortened(one)}” and “{shortened(other)}”)",
        fix="give each alert a key=…",
        path=path,
        test=test,
        blocking=False,
    )


def faults(ran: Sequence[ConstraintRun]) -> tuple[dict[str, RunError], list[str]]:
    """Return the constraints that fail in any run, and those whose results differ between runs."""
    failed = {
        result.path: result.error
        for run in ran
        for result in run.results
        if result.error is not None
    }
    first, *others = [{result.path: result.alerts for result in run.results} for run in ran]
    differing = {path for path in first if any(first[path] != other[path] for other in others)}
    return failed, sorted(differing - failed.keys())


def of_error(
    code: str, error: RunError, sources: Mapping[str, str | None] | None = None, **where: str
) -> Finding:
    """Return the finding for an error in the user's code.

    If the user's code exceeded a limit, the finding's code is the name of that limit. An error
    without a message, such as a failed assertion, is described by the line of source that raised
    it.
    """
    return Finding.of_error(
        code if error.outcome == "user_error" else error.outcome,
        error,
        error.explanation or _line(error, sources or {}),
        **where,
    )


def _line(error: RunError, sources: Mapping[str, str | None]) -> str:
    lines = (sources.get(error.path or "") or "").splitlines()
    return lines[error.line - 1].strip() if error.line and error.line <= len(lines) else ""


def of_request(error: SandboxError) -> Finding:
    """Return the finding for a sandbox request that failed as a whole."""
    if error.error is not None:
        return of_error("does_not_run", error.error)
    message = f"{error.outcome}: {error.run_error.explanation}"
    return Finding(code=error.outcome, type=error.outcome, message=message)
