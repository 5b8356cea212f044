"""Helpers shared by the doctor's checks: exceptions, and sandboxes to run code in."""

import datetime
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import docker as engine
from django.conf import settings

from memory.kernel.settings.sandbox_limits import effective
from workers.sandbox.client import Sandbox
from workers.sandbox.image import default_image
from workers.sandbox.limits import Limits, Shape
from workers.sandbox.results import SandboxError
from workers.sandbox.runner import load_runner

# The runner whose guarantees the doctor verifies, whichever runner is configured.
RUNNER = load_runner("docker")
ENGINE_SECONDS = 30


class Failed(Exception):
    """A check failed; `found` describes the problem, and `fix` how to solve it."""

    def __init__(self, detail: str, fix: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fix = fix


class Doubtful(Failed):
    """A check passed, but something could be better."""


def value_of(sandbox: Sandbox, code: str, **limits: Any) -> Any:
    """Run code in a sandbox, by default with generous time limits, and return its value."""
    now = datetime.datetime.now(datetime.UTC)
    wide = {"wall_seconds": 20, "cpu_seconds": 20} | limits
    return sandbox.evaluate(code, now=now, time_zone="UTC", limits=Limits(**wide)).value


@contextmanager
def open_empty(*, hash_seed: int = 0, shape: Shape | None = None) -> Iterator[Sandbox]:
    """Open a sandbox with an empty project; raise Failed if it does not start."""
    try:
        sandbox = RUNNER.start(hash_seed=hash_seed, shape=shape or default_shape())
    except SandboxError as error:
        raise Failed(error.message, _fix_of_start(error.message)) from None
    try:
        sandbox.load({})
        yield sandbox
    finally:
        sandbox.close()


def _fix_of_start(message: str) -> str:
    if "is not confined" in message:
        return (
            "an engine that cannot read workers/sandbox/seccomp.json starts containers without it:"
            " upgrade the engine; gVisor needs --oci-seccomp, and its runtime's name must contain"
            " runsc or gvisor (docs/runtimes.md)"
        )
    if "rebuild its image" in message:
        return "build the image with `python -m workers.sandbox.build`"
    return "see the message and dockerd's log"


def default_shape() -> Shape:
    """Return the container shape for workspaces that don't override any limits."""
    return Shape.from_limits(effective({}))


def image_name() -> str:
    """Return the name of the sandbox image."""
    return settings.UAC_SANDBOX_IMAGE or default_image()


@contextmanager
def connect_engine() -> Iterator[engine.DockerClient]:
    """Open an engine client, and close it afterwards."""
    with closing(engine.from_env(timeout=ENGINE_SECONDS)) as client:
        yield client
