"""Loading a version of a user's project into a sandbox."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from memory import checkpoints
from memory.models import Checkpoint
from workers.sandbox.runner import Sandbox, SandboxError, image_digest, open_sandbox


@contextmanager
def loaded(checkpoint: Checkpoint) -> Iterator[Sandbox]:
    """Open a sandbox with this version resident in it; raises SandboxError."""
    bytecode = bytecode_of(checkpoint)
    with open_sandbox() as sandbox:
        load(sandbox, checkpoint, bytecode)
        yield sandbox


def load(sandbox: Sandbox, checkpoint: Checkpoint | None, bytecode: Mapping[str, str]) -> None:
    """Load bytecode of which some was stored with a version; raises SandboxError.

    What was stored and makes no sense to the sandbox is forgotten, and compiled anew the next time.
    """
    try:
        sandbox.load(bytecode=bytecode)
    except SandboxError as error:
        if checkpoint is not None and error.outcome == "protocol_error":
            checkpoints.forget_bytecode(checkpoint, sandbox.image_digest)
        raise


def bytecode_of(
    checkpoint: Checkpoint | None, *, without: Collection[str] = ()
) -> Mapping[str, str]:
    """Return path → bytecode of a version's files, without those paths; raises SandboxError.

    What this image has not compiled yet (all of it, after an upgrade) is compiled now and kept.
    """
    if checkpoint is None:
        return {}
    modules = checkpoints.read_modules(checkpoint, image_digest(), without=without)
    if not modules.sources:
        return modules.bytecode
    # A sandbox that compiles executes nothing of anybody's, so its bytecode can be trusted.
    with open_sandbox() as sandbox:
        compiled = sandbox.compile(modules.sources)
        checkpoints.store_bytecode(checkpoint, compiled, sandbox.image_digest)
    return {**modules.bytecode, **compiled}
