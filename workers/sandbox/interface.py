"""The interface to a sandbox, through which the gate, constraints and queries run user code.

A sandbox serves one user. It is opened, loaded with the user's project and asked any number of
questions; each question, and each of several constraints or test files, runs in its own fork of the
loaded project, which is discarded afterwards. The runner named by the setting UAC_SANDBOX_RUNNER
decides how the sandbox is isolated.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from workers.sandbox.limits import (
    COMPILE_LIMITS,
    DEFAULT_LIMITS,
    DEFAULT_SHAPE,
    DUMP_LIMITS,
    FOREIGN_LIMITS,
    LOAD_LIMITS,
    Limits,
    Shape,
)
from workers.sandbox.results import (
    ConstraintRun,
    Dump,
    Evaluation,
    ForecastRun,
    Loaded,
    TestRun,
    Usage,
    UserError,
)

# Path of a workspace constraint → parameter → the collections whose records it gets, as
# `memory.project.shapes.match` returns them.
Bindings = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]


class SandboxError(Exception):
    """A request did not succeed.

    `outcome` is one of protocol.OUTCOMES other than "ok"; `error` is set if the user's code is at
    fault; `usage` is what was printed and consumed until then, if known. `infrastructure` says that
    the sandbox or its machine failed, not the user's code: it did not start, died, was too slow or
    answered nonsense, and the same request may well succeed in another sandbox. The sandbox stays
    usable unless `alive` is False.
    """

    def __init__(
        self,
        outcome: str,
        message: str,
        error: UserError | None = None,
        usage: Usage | None = None,
        *,
        infrastructure: bool = False,
    ) -> None:
        super().__init__(f"{outcome}: {message}")
        self.outcome = outcome
        self.message = message
        self.error = error
        self.usage = usage or Usage()
        self.infrastructure = infrastructure

    def at_start(self, last_words: str) -> "SandboxError":
        """Return an error of a sandbox that did not start: nobody's code is at fault."""
        said = f"; it said: {last_words}" if last_words else ""
        return SandboxError(self.outcome, f"{self.message}{said}", infrastructure=True)


class Sandbox(Protocol):
    """A sandbox of one user. Every method raises SandboxError; one thread at a time may use it."""

    runner_name: str  # "process", "docker"
    image_digest: str  # bytecode of this sandbox loads in sandboxes with the same digest

    @property
    def alive(self) -> bool:
        """False once the sandbox has broken (killed, protocol error) or been closed."""
        ...

    @property
    def spent(self) -> bool:
        """True if user code had to be stopped: the sandbox may still be used, but is not kept."""
        ...

    def close(self) -> None:
        """Destroy the sandbox with everything in it; may be called again."""
        ...

    def compile(
        self, files: Mapping[str, str], *, limits: Limits = COMPILE_LIMITS
    ) -> dict[str, str]:
        """Compile sources by path, executing nothing; return opaque bytecode that load accepts.

        A file that does not compile raises "user_error" with its path and line.
        """
        ...

    def load(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
        limits: Limits = LOAD_LIMITS,
    ) -> Loaded:
        """Make the project resident: everything at first, later only what changed.

        Changed files, and modules that import them, are executed again. When a domain's module
        fails, "user_error" is raised and the earlier content stays. Constraints and tests run only
        when asked for, so their errors are in the results of those calls.
        """
        ...

    def prepare(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
    ) -> None:
        """Have the next request that runs something load this first, as `load` does.

        One combined request takes half the time of two. A request that cannot load it raises the
        error, and the next one tries again.
        """
        ...

    @property
    def prepared(self) -> bool:
        """True if what was prepared is not yet known to be loaded."""
        ...

    def evaluate(
        self,
        code: str,
        *,
        now: datetime.datetime,
        time_zone: str,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Evaluation:
        """Run code; its value is that of its last statement if that is an expression, else null."""
        ...

    def run_constraints(
        self,
        paths: Sequence[str] | None = None,
        *,
        now: datetime.datetime,
        time_zone: str,
        bindings: Bindings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ConstraintRun:
        """Run the constraints (all of them by default), each on the project as it was loaded.

        The default is the project's constraints and, after them, those of the workspace that have
        bindings, which say what records each of their parameters gets. A constraint that fails,
        even one that is killed or takes too long, has its error in its own result and does not stop
        the others.
        """
        ...

    def forecast(
        self,
        paths: Sequence[str],
        *,
        now: datetime.datetime,
        until: datetime.datetime,
        time_zone: str,
        bindings: Bindings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ForecastRun:
        """Find when the findings of these constraints change if nothing changes but the clock.

        Each is called as often as needed, but for at most half of its wall_seconds.
        """
        ...

    def run_tests(
        self,
        paths: Sequence[str] | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> TestRun:
        """Run the tests of these files (all of them by default); failures are in the results.

        Each file runs on the project as it was loaded.
        """
        ...

    def run_foreign(
        self,
        task: str,
        files: Mapping[str, str],
        entries: Sequence[str],
        *,
        now: datetime.datetime,
        time_zone: str,
        limits: Limits = FOREIGN_LIMITS,
    ) -> dict[str, Any]:
        """Execute files of a foreign project; see `sandbox_image.foreign`.

        The answer is JSON that their code may have forged: the caller must check its content.
        """
        ...

    def dump(self, paths: Sequence[str] | None = None, *, limits: Limits = DUMP_LIMITS) -> Dump:
        """Read the loaded records back: those of these state and shard files (None: all).

        Ask for at most DUMPED_BYTES of files at a time: an answer has at most a million values.
        """
        ...


class Runner(Protocol):
    """A module that starts sandboxes of one kind."""

    def start(self, *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
        """Start a fresh sandbox; raise SandboxError."""
        ...

    def image_digest(self) -> str:
        """Return the digest of what its sandboxes are made of; raise SandboxError."""
        ...

    def reap(self) -> int:
        """Remove what killed processes left behind, and return how many; raise SandboxError."""
        ...
