"""Loading a version of a user's project into a sandbox, with what its workspace allows it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from memory import checkpoints
from memory.models import Checkpoint, MemoryUser
from workers.sandbox import runner
from workers.sandbox.interface import Allowance, Limits, Sandbox, SandboxError, Shape


def allowance_of(user: MemoryUser) -> Allowance:
    """Return what the user's code is given, as the settings and the workspace say now."""
    limits = user.workspace.limits
    return Allowance(
        limits=Limits.of(limits), shape=Shape.of(limits), single_use=user.workspace.single_use
    )


@contextmanager
def loaded(checkpoint: Checkpoint, allowance: Allowance) -> Iterator[Sandbox]:
    """Have a sandbox of the user's whose next request runs on this version; raises SandboxError.

    Only what it does not hold yet is sent, with that request.
    """
    with runner.lease(checkpoint.user_id, allowance) as lease:
        same = {path for path, hash_ in checkpoint.tree.items() if lease.tree.get(path) == hash_}
        removed = sorted(lease.tree.keys() - checkpoint.tree.keys())
        if removed or len(same) < len(checkpoint.tree):
            bytecode = bytecode_of(
                checkpoint, lease.sandbox.image_digest, allowance.shape, without=same
            )
            lease.tree = {}  # a load that fails leaves what nobody may go on with
            lease.sandbox.prepare(bytecode=bytecode, removed=removed)
        try:
            yield lease.sandbox
        except SandboxError as error:
            if lease.sandbox.prepared:
                _forget_nonsense(checkpoint, lease.sandbox, error)
            raise
        finally:
            if not lease.sandbox.prepared:
                lease.tree = checkpoint.tree


def load(
    sandbox: Sandbox,
    checkpoint: Checkpoint | None,
    bytecode: Mapping[str, str],
    *,
    removed: Sequence[str] = (),
) -> None:
    """Load bytecode of which some was stored with a version; raises SandboxError.

    What was stored and makes no sense to the sandbox is forgotten, and compiled anew the next time.
    """
    try:
        sandbox.load(bytecode=bytecode, removed=removed)
    except SandboxError as error:
        if checkpoint is not None:
            _forget_nonsense(checkpoint, sandbox, error)
        raise


def _forget_nonsense(checkpoint: Checkpoint, sandbox: Sandbox, error: SandboxError) -> None:
    if error.outcome == "protocol_error":
        checkpoints.forget_bytecode(checkpoint, sandbox.image_digest)


def bytecode_of(
    checkpoint: Checkpoint | None, digest: str, shape: Shape, *, without: Collection[str] = ()
) -> Mapping[str, str]:
    """Return path → bytecode of a version's files, without those paths; raises SandboxError.

    It loads in sandboxes of that image digest. What this image has not compiled yet (all of it,
    after an upgrade) is compiled now, in a sandbox of this shape, and kept.
    """
    if checkpoint is None:
        return {}
    modules = checkpoints.read_modules(checkpoint, digest, without=without)
    if not modules.sources:
        return modules.bytecode
    # A sandbox that compiles executes nothing of anybody's, so its bytecode can be trusted.
    with runner.open_sandbox(shape=shape) as sandbox:
        if sandbox.image_digest != digest:
            raise SandboxError(
                "killed", "the image of the sandboxes was replaced meanwhile", infrastructure=True
            )
        compiled = sandbox.compile(modules.sources)
        checkpoints.store_bytecode(checkpoint, compiled, sandbox.image_digest)
    return {**modules.bytecode, **compiled}
