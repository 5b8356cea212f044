"""The gate: its checks in the order in which they run, which changes must pass them, and `judge`.

The gate's work is proportional to the change: files that a change leaves alone were already
accepted, byte for byte, so they aren't parsed, compiled or checked again. They are executed,
though, since the new version runs as one program.

Before there is a change to judge, a proposal's edits pass two checks while they are built into one:
`coverage` (each considered entry gets exactly one outcome) and `edits` (each edit can be applied);
see `workers.commits.proposals`.
"""

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from workers.findings import Check, Finding, Verdict
from workers.gate import project_checks as project
from workers.gate import workspace_checks as workspace
from workers.gate.cases import Case, Profile
from workers.gate.execution_findings import of_request
from workers.gate.type_errors import can_cause_type_errors
from workers.grounding.separate_process import ReadingFailed
from workers.sandbox.results import SandboxError


class Stage(StrEnum):
    """When a check runs. If one fails, later checks are skipped, except those in the last stage."""

    TEXT = "text"  # before any of the code runs
    LOADED = "loaded"  # with the candidate loaded into sandboxes
    SOUND = "sound"  # with a candidate that has passed all of these


@dataclass(frozen=True)
class GateCheck:
    """A check: the rule for changes of these profiles, and what the check needs to verify it.

    `find` yields a finding for each violation. The profiles decide the class of its case. A case to
    which the check doesn't apply passes it.
    """

    name: str
    stage: Stage
    profiles: Collection[Profile]
    needs: str
    rule: str
    find: Callable[[Any], Iterable[Finding]]
    applies: Callable[[Any], bool] = lambda case: True


TEXT, LOADED, SOUND = Stage
TYPED, PROPOSAL, MODEL, IMPORT, REDACTION, WORKSPACE = Profile

WRITTEN = (PROPOSAL, MODEL)
CODE = (PROPOSAL, MODEL, IMPORT, REDACTION)
PROJECT = (TYPED, *CODE)

CHECKS = (
    GateCheck(
        "policy", TEXT, (*PROJECT, WORKSPACE), "changed files",
        "the code is of the kind that its file may contain", project.check_files,
    ),
    GateCheck(
        "no loss", TEXT, PROJECT, "changed files",
        "records before + added − retired = records after", project.check_no_loss,
    ),
    GateCheck(
        "shape", TEXT, (WORKSPACE,), "the constraint",
        "the records that it needs are declared", workspace.check_shape,
    ),
    GateCheck(
        "grounding", TEXT, WRITTEN, "cited entries",
        "cited entries support each value, change and retirement", project.check_grounding,
    ),
    GateCheck(
        "types", TEXT, CODE, "type checker",
        "the change causes no type error", project.check_types,
        lambda case: can_cause_type_errors(case.parent, case.change),
    ),
    GateCheck(
        "types", TEXT, (WORKSPACE,), "type checker",
        "there is no type error", workspace.check_types,
    ),
    GateCheck(
        "execution", LOADED, PROJECT, "sandbox",
        "the interpreter sees the records that the edits describe", project.check_records,
    ),
    GateCheck(
        "execution", LOADED, (WORKSPACE,), "two sandboxes",
        "without records, the constraint raises no alert and does not fail",
        workspace.check_silence,
    ),
    GateCheck(
        "tests", LOADED, CODE, "sandbox",
        "each changed constraint has a test, and all tests pass", project.check_tests,
    ),
    GateCheck(
        "tests", LOADED, (WORKSPACE,), "two sandboxes",
        "all tests pass, whatever the order of sets", workspace.check_tests,
    ),
    GateCheck(
        "constraints", LOADED, CODE, "two sandboxes, previous version",
        "no constraint newly fails or depends on the order of sets", project.check_constraints,
    ),
    GateCheck(
        "holds", SOUND, (MODEL,), "sandbox, previous version, cited entries",
        "no alert or rule is silenced unless a cited entry mentions it",
        project.check_silenced_alerts, lambda case: case.parent is not None,
    ),
    GateCheck(
        "mutants", SOUND, CODE, "sandbox",
        "the tests notice changes to a constraint", project.check_mutants,
    ),
    GateCheck(
        "mutants", SOUND, (WORKSPACE,), "sandbox",
        "the tests notice changes to the constraint", workspace.check_mutants,
    ),
    GateCheck(
        "types", SOUND, CODE, "type checker",
        "a constraint that was sent and still fails has no type error, even an old one",
        project.check_types_of_failing, project.has_failing_constraints,
    ),
)  # fmt: skip


class GateUnavailable(Exception):
    """The sandbox was unavailable or failed: there is no verdict, and a retry may succeed."""


def judge(case: Case) -> Verdict:
    """Run the checks of the case's profile; raise GateUnavailable if there is no verdict.

    The checks run from cheap to expensive and stop at the first failure, because later checks would
    only report its consequences. Those of the last stage are independent of each other, and are
    reported together.
    """
    started = time.monotonic()
    verdict = case.verdict
    try:
        with ExitStack() as stack:
            is_loaded = False
            for check in CHECKS:
                if case.profile not in check.profiles or not check.applies(case):
                    continue
                if check.stage != Stage.TEXT and not is_loaded:
                    stack.enter_context(case.loaded())
                    is_loaded = True
                verdict.checks.append(Check(check.name, list(check.find(case))))
                if check.stage != Stage.SOUND and not verdict.accepted:
                    break
    except ReadingFailed as error:
        raise GateUnavailable(f"reading the cited entries: {error}") from error
    except SandboxError as error:
        # Typed entries contain no code, so blame a timeout or a killed process on the machine.
        is_of_machine = error.outcome in ("timeout", "killed") and case.profile == Profile.TYPED
        if error.infrastructure or is_of_machine:
            raise GateUnavailable(str(error)) from error
        verdict.checks.append(Check("execution", [of_request(error)]))
    verdict.timings["total"] = time.monotonic() - started
    return verdict
