"""Mutants: a constraint that never alerts, and one that always does, must fail its tests.

So each constraint ships tests that show it speak and be silent, and a test that asserts nothing is
found out: nothing that the constraint does makes it fail.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workers.checkpointing.findings import Finding
from workers.sandbox.interface import Limits, Sandbox


@dataclass(frozen=True)
class _Mutant:
    code: str
    does: str
    fix: str
    body: str

    def of(self, source: str) -> str:
        """The constraint as it would be if it did this."""
        return source + _TEMPLATE.replace("BODY", self.body)


_TEMPLATE = """

def mutated(check):
    import inspect
    import uac

    def mutant(*arguments, **options):
        BODY

    mutant.__signature__ = inspect.signature(check)
    return mutant


check = mutated(check)
"""

# The one that always alerts says what the constraint says, and something where it says nothing: so
# that a test of the alerts themselves does not stand for one of silence.
MUTANTS = (
    _Mutant(
        "never_alerts_unnoticed",
        "never alerts",
        "add a test with a state on which it alerts, and assert the alert",
        "return iter(())",
    ),
    _Mutant(
        "always_alerts_unnoticed",
        "always alerts",
        "add a test with a state on which it is silent, and assert that there is no alert",
        "return iter(list(check(*arguments, **options)) or [uac.info('always', key='always')])",
    ),
)


def surviving_mutants(
    sandbox: Sandbox, constraints: Mapping[str, str], limits: Limits, *, folder: str = ""
) -> Iterator[Finding]:
    """Yield a finding for each constraint whose tests pass, too, when it does something else.

    `constraints` are sources by name, resident in the sandbox with their tests, which pass: in this
    folder, as `constraints/x.py` and `tests/test_x.py`. What is resident afterwards is of no use.
    Raises SandboxError.
    """
    if not constraints:
        return
    paths = {name: f"{folder}constraints/{name}.py" for name in constraints}
    tests = {name: f"{folder}tests/test_{name}.py" for name in constraints}
    for mutant in MUTANTS:
        sandbox.load({paths[name]: mutant.of(source) for name, source in constraints.items()})
        results = sandbox.run_tests(sorted(tests.values()), limits=limits).results
        failed = {result.name.partition("::")[0] for result in results if result.error is not None}
        for name, path in tests.items():
            if path not in failed:
                yield Finding(
                    code=mutant.code,
                    path=path,
                    message=f"its tests also pass if {paths[name]} {mutant.does}",
                    fix=mutant.fix,
                )
