"""The gate's checks of a workspace constraint, each as a function of the case."""

import time
from collections.abc import Iterator
from typing import Any

from django.utils import timezone

from memory.project.paths import FOLDER
from memory.project.shapes import ShapeError, needs_of
from workers.execution.loading import allowance_of
from workers.findings import Finding
from workers.gate.cases import WorkspaceCase
from workers.gate.constraint_mutants import surviving_mutants
from workers.gate.execution_findings import (
    failed_tests,
    faults,
    not_deterministic,
    of_error,
    same_evidence_in_tests,
)
from workers.gate.type_errors import type_errors_of_files
from workers.sandbox.limits import Limits


def check_shape(case: WorkspaceCase) -> Iterator[Finding]:
    """Yield a finding if the constraint's declaration of the records that it needs is wrong."""
    try:
        needs_of(case.version.source)
    except ShapeError as error:
        yield Finding(
            code="shape",
            path=case.constraint.path,
            line=error.line,
            message=error.message,
            fix=error.fix,
        )


def check_types(case: WorkspaceCase) -> Iterator[Finding]:
    """Yield a finding for each type error."""
    started = time.monotonic()
    yield from type_errors_of_files(case.sources)
    case.verdict.timings["types"] = time.monotonic() - started


def check_silence(case: WorkspaceCase) -> Iterator[Finding]:
    """With empty collections, the constraint must yield no alert and must not raise."""
    path, limits = case.constraint.path, _limits(case)
    parameters = needs_of(case.version.source).parameters
    none: dict[str, list[dict[str, Any]]] = {parameter.name: [] for parameter in parameters}
    ran = [
        one.run_constraints(
            [path], now=timezone.now(), time_zone="UTC", bindings={path: none}, limits=limits
        )
        for one in case.sandboxes
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


def check_tests(case: WorkspaceCase) -> Iterator[Finding]:
    """Yield a finding for each test that fails in either of the two sandboxes."""
    path, limits = case.constraint.tests_path, _limits(case)
    results, others = (one.run_tests([path], limits=limits).results for one in case.sandboxes)
    yield from failed_tests(results, case.sources)
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


def check_mutants(case: WorkspaceCase) -> Iterator[Finding]:
    """Yield a finding for each mutant of the constraint that its tests do not notice."""
    source = {case.constraint.name: case.version.source}
    last = case.sandboxes[-1]
    return surviving_mutants(last, source, case.sources, _limits(case), folder=FOLDER)


def _limits(case: WorkspaceCase) -> Limits:
    return allowance_of(case.constraint.workspace).limits
