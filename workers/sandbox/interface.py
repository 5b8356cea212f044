"""The interface to a sandbox, through which the gate, constraints and queries run user code.

A sandbox serves one user. It is opened, loaded with the user's project and sent any number of
requests. Each request runs in its own fork of the loaded project, which is discarded afterwards; if
a request runs several constraints or test files, each of them gets its own fork. The setting
UAC_SANDBOX_RUNNER names the runner, which determines how the sandbox is isolated.
"""

from typing import Protocol

from workers.sandbox.client import Sandbox
from workers.sandbox.limits import DEFAULT_SHAPE, Shape
from workers.sandbox.results import Bindings, SandboxError

__all__ = ["Bindings", "Runner", "Sandbox", "SandboxError"]


class Runner(Protocol):
    """A module that starts sandboxes of one kind."""

    def start(self, *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
        """Start a fresh sandbox; raise SandboxError if it does not start."""

    def image_digest(self) -> str:
        """Return a digest of the sandboxes' contents; raise SandboxError if there is no image."""

    def reap(self) -> int:
        """Remove sandboxes left behind by killed workers; return the number of sandboxes removed.

        Raises SandboxError if the engine does not respond.
        """
