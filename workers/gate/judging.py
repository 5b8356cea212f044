"""The gate: judge a case by the checks in `checks.CHECKS`.

The gate's work is proportional to the change: files that a change leaves alone were already
accepted, byte for byte, so they aren't parsed, compiled or checked again. They are executed,
though, since the new version runs as one program.
"""

import time
from contextlib import ExitStack

from workers.findings import Check, Verdict
from workers.gate.cases import Case, Profile
from workers.gate.checks import CHECKS, Stage
from workers.gate.execution_findings import of_request
from workers.grounding.separate_process import ReadingFailed
from workers.sandbox.results import SandboxError


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
