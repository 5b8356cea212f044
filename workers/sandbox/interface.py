"""The interface to a sandbox, through which the gate, constraints and queries run user code.

A sandbox serves one user. It is opened, loaded with the user's project and sent any number of
requests. Each request runs in its own fork of the loaded project, which is discarded afterwards; if
a request runs several constraints or test files, each of them gets its own fork. The setting
UAC_SANDBOX_RUNNER names the runner, which determines how the sandbox is isolated.
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

# Maps a workspace constraint's path and then each of its parameters to the collections whose
# records are passed as that parameter, as returned by `memory.project.shapes.match`.
Bindings = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]


class SandboxError(Exception):
    """A request to a sandbox failed.

    `outcome` is one of protocol.OUTCOMES other than "ok"; `error` is set if the user's code is to
    blame; `usage` is the output printed and the resources used before the failure, if known.
    `infrastructure` is set if the sandbox or its machine failed, not the user's code: the sandbox
    did not start, died, was too slow or sent an invalid response. The same request may then succeed
    in another sandbox. The sandbox stays usable unless its `alive` is False.
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
        """Return this error for a sandbox that didn't start: user code can't be the cause."""
        said = f"; it said: {last_words}" if last_words else ""
        return SandboxError(self.outcome, f"{self.message}{said}", infrastructure=True)


class Sandbox(Protocol):
    """A sandbox for one user.

    Every method raises SandboxError if its request fails. Only one thread at a time may use a
    sandbox.
    """

    runner_name: str  # "process" or "docker"
    image_digest: str  # bytecode compiled here loads in any sandbox with the same digest

    @property
    def alive(self) -> bool:
        """False once the sandbox has failed (was killed or broke the protocol) or been closed."""
        ...

    @property
    def spent(self) -> bool:
        """True if user code had to be stopped: the sandbox still works, but won't be reused."""
        ...

    def close(self) -> None:
        """Destroy the sandbox and everything in it; may be called more than once."""
        ...

    def compile(
        self, files: Mapping[str, str], *, limits: Limits = COMPILE_LIMITS
    ) -> dict[str, str]:
        """Compile sources (path → text) without executing them; return opaque bytecode for `load`.

        If a file does not compile, SandboxError is raised with the outcome "user_error" and the
        file's path and line.
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
        """Load the project into the sandbox: everything at first, later only what has changed.

        Changed files, and modules that import them, are executed again. If a domain's module fails,
        SandboxError is raised with the outcome "user_error", and the previously loaded content
        stays loaded. Constraints and tests run only when requested, so their errors are reported in
        the results of those requests.
        """
        ...

    def prepare(
        self,
        sources: Mapping[str, str] | None = None,
        *,
        bytecode: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
    ) -> None:
        """Have the next request that runs code load these changes first, as `load` would.

        One combined request takes half as long as two separate ones. If the changes cannot be
        loaded, that request raises the error, and the next one tries to load them again.
        """
        ...

    @property
    def prepared(self) -> bool:
        """True until the changes passed to `prepare` are known to have been loaded."""
        ...

    def evaluate(
        self,
        code: str,
        *,
        now: datetime.datetime,
        time_zone: str,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Evaluation:
        """Run code; return the value of its last statement if that is an expression, else null."""
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
        """Run the constraints (by default, all of them), each on the project as it was loaded.

        The default is all of the project's own constraints, followed by the workspace constraints
        in `bindings`, which lists the collections passed to each of their parameters. If a
        constraint fails, even by being killed or taking too long, its result contains the error,
        and the others still run.
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
        """Predict when these constraints' findings will change if nothing but the clock changes.

        Each constraint is called as often as needed, but for at most half of its `wall_seconds`.
        """
        ...

    def run_tests(
        self,
        paths: Sequence[str] | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> TestRun:
        """Run the tests in these files (by default, in all); the results include failures.

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
        """Execute files from a foreign project; see `sandbox_image.foreign`.

        The response is JSON that code in the files may have forged, so the caller must validate it.
        """
        ...

    def dump(self, paths: Sequence[str] | None = None, *, limits: Limits = DUMP_LIMITS) -> Dump:
        """Read back the loaded records from these state and shard files (from all files if None).

        Request at most DUMPED_BYTES of files at a time, since a response may contain at most a
        million values.
        """
        ...


class Runner(Protocol):
    """A module that starts sandboxes of one kind."""

    def start(self, *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
        """Start a fresh sandbox; raise SandboxError if it does not start."""
        ...

    def image_digest(self) -> str:
        """Return a digest of the sandboxes' contents; raise SandboxError if there is no image."""
        ...

    def reap(self) -> int:
        """Remove sandboxes left behind by killed workers; return the number of sandboxes removed.

        Raises SandboxError if the engine does not respond.
        """
        ...
