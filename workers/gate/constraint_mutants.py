"""Mutants: modified copies of a constraint. The constraint's tests must fail for each mutant.

One mutant never alerts and another always does: if the tests fail for both, they cover both firing
and not firing, and really assert something. The mutants in `alert_mutants` show whether the tests
reach each of the constraint's alerts, and those in `boundary_mutants` whether the tests cover the
days on which the constraint starts and stops firing.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from memory.kernel.texts import parse_valid
from memory.project.parse import imported_names
from memory.project.paths import constraint_path, constraint_tests_path
from workers.findings import Finding, Verdict
from workers.gate.alert_mutants import UnreachedAlert, alert_mutants
from workers.gate.boundary_mutants import BoundaryMutant, boundary_mutants
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits

BOUNDARY_UNNOTICED = "boundary_unnoticed"
ALERT_UNREACHED = "alert_unreached"
# Finding codes for gaps in the tests that get a model's constraint rejected, but only once.
BLOCKING_ONCE = frozenset({BOUNDARY_UNNOTICED, ALERT_UNREACHED})
# Maximum number of boundary and alert mutants per version, split evenly among the constraints.
MAX_BOUNDARY_MUTANTS = 120
# Changing a number can make a loop endless, so a test that takes this many seconds counts as
# failed.
BOUNDARY_WALL_SECONDS = 2.0
BOUNDARY_TOTAL_SECONDS = 20.0
# Maximum number of findings about test gaps per constraint; the last finding says how many more
# there are.
MAX_BOUNDARIES_TOLD = 12


@dataclass(frozen=True)
class _Mutant:
    code: str
    does: str
    fix: str
    body: str

    def mutate(self, source: str) -> str:
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

# The mutant that always alerts keeps the constraint's own alerts, and adds an alert only if there
# are none. If it replaced them, tests that expect alerts would also fail and be miscounted as tests
# that expect none.
MUTANTS = (
    _Mutant(
        "never_alerts_unnoticed",
        "never alerts",
        "add a test with a state for which it fires, and assert the alert",
        "return iter(())",
    ),
    _Mutant(
        "always_alerts_unnoticed",
        "always alerts",
        "add a test with a state for which it does not fire, and assert that there is no alert",
        "return iter(list(check(*arguments, **options)) or [uac.info('always', key='always')])",
    ),
)

# Each test file runs in its own process, where the mutant replaces the constraint before the tests
# can import it.
_TESTS_OF_MUTANT = """\
from importlib import import_module
exec(compile({source!r}, {path!r}, "exec"), vars(import_module({module!r})))
from {tests} import *
__name__ = {tests!r}
"""


class _Bench:
    """Constraints and their tests, loaded in a sandbox in the given directory."""

    def __init__(self, sandbox: Sandbox, folder: str) -> None:
        self._sandbox, self._folder = sandbox, folder

    def path(self, name: str) -> str:
        return constraint_path(name, self._folder)

    def tests_path(self, name: str) -> str:
        return constraint_tests_path(name, self._folder)

    def unnoticed(self, mutants: Collection[tuple[str, str]], limits: Limits) -> list[bool]:
        """For each mutant (constraint name, modified source), return whether its tests pass."""
        files = {
            f"{self._folder}tests/mutant_{number}_of_{name}.py": _TESTS_OF_MUTANT.format(
                source=source,
                path=self.path(name),
                module=_module(self.path(name)),
                tests=_module(self.tests_path(name)),
            )
            for number, (name, source) in enumerate(mutants)
        }
        if not files:
            return []
        self._sandbox.load(files)
        results = self._sandbox.run_tests(list(files), limits=limits).results
        failed = {result.name.partition("::")[0] for result in results if result.error is not None}
        return [path not in failed for path in files]


def gaps_in_tests(verdict: Verdict) -> list[str]:
    """Return the constraints that the verdict refuses because of gaps that block only once."""
    gaps = {
        finding.path
        for check in verdict.checks
        for finding in check.findings
        if finding.code in BLOCKING_ONCE and finding.blocking and finding.path
    }
    return sorted(gaps)


def surviving_mutants(
    sandbox: Sandbox,
    constraints: Mapping[str, str],
    sources: Mapping[str, str],
    limits: Limits,
    *,
    folder: str = "",
) -> Iterator[Finding]:
    """Yield a finding for each constraint whose tests still pass when its behaviour changes.

    `constraints` maps names to sources. The sandbox must hold each constraint as `constraints/x.py`
    and its tests, which must pass, as `tests/test_x.py`, both in `folder`; `sources` maps each path
    to its text. Individual alerts and boundaries are checked only if nothing else is found;
    findings about them don't block unless the caller changes that. The sandbox can't be used
    afterwards. Raises SandboxError if the sandbox fails.
    """
    bench = _Bench(sandbox, folder)
    always = [(mutant, name, source) for mutant in MUTANTS for name, source in constraints.items()]
    survive = bench.unnoticed(
        [(name, mutant.mutate(text)) for mutant, name, text in always], limits
    )
    survivors = list(itertools.compress(always, survive))
    strangers = {
        name
        for _, name, _ in survivors
        if bench.tests_path(name) in sources  # unchanged tests have already been accepted
        and not _imports(sources[bench.tests_path(name)], _module(bench.path(name)))
    }
    for mutant, name, _ in survivors:
        message, fix = f"the tests also pass if {bench.path(name)} {mutant.does}", mutant.fix
        if name in strangers:
            package = _module(bench.path(name)).rpartition(".")[0]
            message += ", since they do not import it"
            fix = (
                f"write from {package} import {name} in the tests, and call run_check({name}, …)"
                " with a state for which it fires, and with a state for which it does not"
            )
        yield Finding(code=mutant.code, path=bench.tests_path(name), message=message, fix=fix)
    if not any(survive):
        yield from _unnoticed_parts(bench, constraints, limits)


def _imports(tests: str, module: str) -> bool:
    """Return whether the tests import this module, or a name from it."""
    tree = parse_valid(tests)
    if tree is None:
        return True  # assume so if the tests can't be parsed here
    return module in imported_names(tree)


def _unnoticed_parts(
    bench: _Bench, constraints: Mapping[str, str], limits: Limits
) -> Iterator[Finding]:
    """Yield findings for alerts that no test reaches, and for boundaries that no test checks."""
    share = MAX_BOUNDARY_MUTANTS // max(len(constraints), 1)
    mutants: list[tuple[str, UnreachedAlert | BoundaryMutant]] = []
    for name, source in constraints.items():
        of_source: list[UnreachedAlert | BoundaryMutant] = []
        of_source += alert_mutants(source)
        of_source += boundary_mutants(source)
        mutants += [(name, mutant) for mutant in of_source[:share]]
    bounded = replace(
        limits,
        wall_seconds=min(limits.wall_seconds, BOUNDARY_WALL_SECONDS),
        total_seconds=min(limits.total_seconds, BOUNDARY_TOTAL_SECONDS),
    )
    survive = bench.unnoticed([(name, mutant.source) for name, mutant in mutants], bounded)
    survivors = itertools.compress(mutants, survive)
    for name, group in itertools.groupby(survivors, key=lambda one: one[0]):
        unnoticed = [mutant for _, mutant in group]
        for number, mutant in enumerate(unnoticed[:MAX_BOUNDARIES_TOLD], 1):
            is_alert = isinstance(mutant, UnreachedAlert)
            more = len(unnoticed) - number if number == MAX_BOUNDARIES_TOLD else 0
            yield Finding(
                code=ALERT_UNREACHED if is_alert else BOUNDARY_UNNOTICED,
                path=bench.path(name),
                line=mutant.line,
                message=mutant.message + (f"; {more} more are not shown" if more else ""),
                fix=mutant.fix,
                blocking=False,
            )


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")
