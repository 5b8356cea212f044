"""Test whether sandboxes work and are safe on this machine, and suggest a fix for each problem.

The doctor verifies every guarantee of the Docker runner: the engine, the image, the confinement and
each limit. It tests the actual behaviour instead of trusting the settings.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from docker.errors import DockerException
from requests.exceptions import RequestException

from workers.sandbox.doctor_host import (
    check_control_groups,
    check_engine,
    check_image,
    check_runner,
    check_runtime,
)
from workers.sandbox.doctor_inside import CHECKS_INSIDE
from workers.sandbox.doctor_outside import CHECKS_OUTSIDE
from workers.sandbox.doctor_probes import Doubtful, Failed, open_empty
from workers.sandbox.results import SandboxError

if TYPE_CHECKING:
    from workers.sandbox.client import Sandbox

State = Literal["ok", "warning", "FAILED", "not tried"]


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check; `fix` describes how to fix the problem, if there is one."""

    check: str
    state: State
    detail: str
    fix: str = ""


def examine() -> Iterator[CheckResult]:
    """Run all checks, ordered so that each depends only on earlier checks.

    Yields the result of each check as soon as the check finishes. If a failure makes the remaining
    checks pointless, they are skipped and reported as "not tried".
    """
    with ExitStack() as stack:
        opened: list[Sandbox] = []

        def start() -> str:
            opened.append(stack.enter_context(open_empty()))
            return f"started, and confined: {_describe_confinement(opened[0].hello)}"

        before = {
            "image": check_image,
            "control groups": check_control_groups,
            "runtime": check_runtime,
        }
        checks = [("engine",), tuple(before), ("start",), (*CHECKS_INSIDE, *CHECKS_OUTSIDE)]
        yield _finding("runner", check_runner)
        for needed, group in enumerate(
            ({"engine": check_engine}, before, {"start": start}), start=1
        ):
            findings = [_finding(name, check) for name, check in group.items()]
            yield from findings
            if failed := [one.check for one in findings if one.state == "FAILED"]:
                for name in chain(*checks[needed:]):
                    detail = f"depends on checks that failed: {', '.join(failed)}"
                    yield CheckResult(check=name, state="not tried", detail=detail)
                return
        for name, look in CHECKS_INSIDE.items():
            if not opened[-1].alive:  # the previous check broke the sandbox and reported it
                opened.append(stack.enter_context(open_empty()))
            yield _finding(name, partial(look, opened[-1]))
        for name, check in CHECKS_OUTSIDE.items():
            yield _finding(name, check)


def _finding(name: str, check: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(check=name, state="ok", detail=check())
    except Failed as failed:
        state: State = "warning" if isinstance(failed, Doubtful) else "FAILED"
        return CheckResult(check=name, state=state, detail=failed.detail, fix=failed.fix)
    except SandboxError as error:
        detail, fix = error.message, "see the message and dockerd's log"
    except (DockerException, RequestException, OSError) as error:
        detail = f"the engine failed: {error}"
        fix = "check dockerd's log, and that the engine still responds"
    return CheckResult(check=name, state="FAILED", detail=detail, fix=fix)


def _describe_confinement(hello: Mapping[str, Any]) -> str:
    names = ("kernel", "seccomp", "no_new_privileges", "capabilities")
    return ", ".join(f"{name.replace('_', ' ')} {hello.get(name)}" for name in names)
