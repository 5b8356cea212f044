"""Loading a version of a user's project into a sandbox."""

from collections.abc import Iterator
from contextlib import contextmanager

from memory import checkpoints
from memory.models import Checkpoint
from workers.sandbox.image import image_digest
from workers.sandbox.runner import Sandbox, open_sandbox


@contextmanager
def loaded(checkpoint: Checkpoint) -> Iterator[Sandbox]:
    """Open a sandbox with this version resident in it; raises SandboxError."""
    with open_sandbox() as sandbox:
        modules = checkpoints.read_modules(checkpoint, image_digest())
        sandbox.load(modules.sources, bytecode=modules.bytecode)
        yield sandbox
