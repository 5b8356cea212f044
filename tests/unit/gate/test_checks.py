"""The table of checks: which run for whom, and which failure stops which of the others."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from memory.versions.admin.verdicts import QUESTIONS
from workers.findings import Finding, Verdict
from workers.gate import checks
from workers.gate.cases import Profile
from workers.gate.checks import CHECKS, IMPORT, MODEL, PROPOSAL, REDACTION, TYPED, WORKSPACE
from workers.sandbox.results import SandboxError

# The checks of each profile, in order; "|" is where the sandbox is opened.
BY_PROFILE = {
    TYPED: "policy, no loss, |, execution",
    PROPOSAL: "policy, no loss, grounding, types, |, execution, tests, constraints, mutants, types",
    MODEL: "policy, no loss, grounding, types, |, execution, tests, constraints, holds, mutants,"
    " types",
    IMPORT: "policy, no loss, types, |, execution, tests, constraints, mutants, types",
    REDACTION: "policy, no loss, types, |, execution, tests, constraints, mutants, types",
    WORKSPACE: "policy, shape, types, |, execution, tests, mutants",
}
# Profile, the check that fails, and the last checks that still run.
STOPS = [
    (TYPED, "policy", "policy"),
    (TYPED, "no loss", "no loss"),
    (TYPED, "execution", "execution"),
    (PROPOSAL, "policy", "policy"),
    (PROPOSAL, "no loss", "no loss"),
    (PROPOSAL, "grounding", "grounding"),
    (PROPOSAL, "types", "types"),
    (PROPOSAL, "execution", "execution"),
    (PROPOSAL, "tests", "tests"),
    (PROPOSAL, "constraints", "constraints"),
    (PROPOSAL, "mutants", "mutants, types"),
    (MODEL, "policy", "policy"),
    (MODEL, "no loss", "no loss"),
    (MODEL, "grounding", "grounding"),
    (MODEL, "types", "types"),
    (MODEL, "execution", "execution"),
    (MODEL, "tests", "tests"),
    (MODEL, "constraints", "constraints"),
    (MODEL, "holds", "holds, mutants, types"),
    (MODEL, "mutants", "mutants, types"),
    (IMPORT, "policy", "policy"),
    (IMPORT, "no loss", "no loss"),
    (IMPORT, "types", "types"),
    (IMPORT, "execution", "execution"),
    (IMPORT, "tests", "tests"),
    (IMPORT, "constraints", "constraints"),
    (IMPORT, "mutants", "mutants, types"),
    (REDACTION, "policy", "policy"),
    (REDACTION, "no loss", "no loss"),
    (REDACTION, "types", "types"),
    (REDACTION, "execution", "execution"),
    (REDACTION, "tests", "tests"),
    (REDACTION, "constraints", "constraints"),
    (REDACTION, "mutants", "mutants, types"),
    (WORKSPACE, "policy", "policy"),
    (WORKSPACE, "shape", "shape"),
    (WORKSPACE, "types", "types"),
    (WORKSPACE, "execution", "execution"),
    (WORKSPACE, "tests", "tests"),
    (WORKSPACE, "mutants", "mutants"),
]
BROKEN = SandboxError("killed", "no engine", infrastructure=True)
SLOW = SandboxError("timeout", "took too long")


@dataclass(frozen=True)
class FakeCase:
    """A case whose sandbox only notes that it was opened."""

    profile: Profile
    error: SandboxError | None = None
    ran: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Open the fake sandbox, or fail with the error."""
        self.ran.append("|")
        if self.error is not None:
            raise self.error
        yield


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Replace what each check does; return the names of the checks that shall fail."""
    names: set[str] = set()

    def stub(name: str) -> Any:
        def find(case: FakeCase) -> Iterator[Finding]:
            case.ran.append(name)
            if name in names:
                yield Finding(code="wrong", message="is wrong")

        return find

    stubs = tuple(replace(one, find=stub(one.name), applies=lambda _: True) for one in CHECKS)
    monkeypatch.setattr(checks, "CHECKS", stubs)
    return names


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("profile", Profile)
def test_each_profile_passes_its_checks_in_order(profile: Profile) -> None:
    case = FakeCase(profile)

    assert checks.judge(case).accepted
    assert ", ".join(case.ran) == BY_PROFILE[profile]


def test_every_check_of_every_profile_is_in_the_table_of_stops() -> None:
    assert {(profile, check) for profile, check, _ in STOPS} == {
        (profile, one.name) for one in CHECKS for profile in one.profiles
    }


def test_staff_read_what_each_check_asks() -> None:
    before_the_gate = {"coverage", "edits", "files", "import"}

    assert QUESTIONS.keys() == {one.name for one in CHECKS} | before_the_gate


@pytest.mark.parametrize(("profile", "check", "last"), STOPS)
def test_failing_check_stops_later_stages(
    failing: set[str], profile: Profile, check: str, last: str
) -> None:
    failing.add(check)
    case = FakeCase(profile)

    verdict = checks.judge(case)

    before = BY_PROFILE[profile].partition(check)[0]
    assert ", ".join(case.ran) == before + last
    assert not verdict.accepted
    assert verdict.reason == f"{check}: is wrong"


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("profile", Profile)
def test_broken_sandbox_gives_no_verdict(profile: Profile) -> None:
    with pytest.raises(checks.GateUnavailable, match="no engine"):
        checks.judge(FakeCase(profile, BROKEN))


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("profile", Profile)
def test_timeout_is_blamed_on_the_code_if_there_is_any(profile: Profile) -> None:
    case = FakeCase(profile, SLOW)

    if profile == TYPED:
        with pytest.raises(checks.GateUnavailable):
            checks.judge(case)
    else:
        assert checks.judge(case).checks[-1].name == "execution"
        assert [one.code for one in case.verdict.checks[-1].findings] == ["timeout"]
