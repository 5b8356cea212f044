"""What a runner has to offer: it starts sandboxes, in which user code runs.

A sandbox serves one user. It is opened, loaded with the user's project and sent any number of
requests. Each request runs in its own fork of the loaded project, which is discarded afterwards; if
a request runs several constraints or test files, each of them gets its own fork. The setting
UAC_SANDBOX_RUNNER names the runner, which determines how the sandbox is isolated. A further runner
is a module with the attributes of `Runner`, and an entry in `workers.sandbox.runner.RUNNERS`.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from workers.sandbox.client import Sandbox
from workers.sandbox.exchange import Channel
from workers.sandbox.limits import DEFAULT_SHAPE, Shape


@dataclass(frozen=True)
class Program:
    """Another program of ours that reads users' code and is confined like the sandboxes.

    `image` is the name of its image, which the setting `setting` may replace. Without images, it is
    started as the module `module`. It says hello first, as sandboxes do.
    """

    image: str
    setting: str
    module: str


class Runner(Protocol):
    """A module that starts sandboxes of one kind."""

    # Whether sandboxes are kept ready and resident; otherwise, each is started when it is needed.
    KEEPS_SANDBOXES: bool

    def start(self, *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
        """Start a fresh sandbox; raise SandboxError if it does not start."""

    def open_channel(
        self, program: Program, shape: Shape, deadline: float
    ) -> AbstractContextManager[Channel]:
        """Start a program and yield a channel to it, once it has reported its confinement.

        Raises SandboxError if the program is not available or not confined, and EOFError,
        TimeoutError or OSError if it does not report before the deadline.
        """

    def image_digest(self) -> str:
        """Return a digest of the sandboxes' contents; raise SandboxError if there is no image."""

    def problem(self) -> str:
        """Return why no sandbox can start at the moment, at little cost; "" if none is known."""

    def reap(self) -> int:
        """Remove sandboxes left behind by killed workers; return the number of sandboxes removed.

        Raises SandboxError if the engine does not respond.
        """
