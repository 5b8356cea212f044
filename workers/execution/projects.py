"""Load a version of a user's project into a sandbox, with the limits of its workspace."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from memory import checkpoints
from memory.constraints import applicability, workspace_constraints
from memory.models import Checkpoint, Workspace, WorkspaceConstraint
from memory.models.workspace_constraints import FOLDER
from memory.project.paths import is_code
from workers.sandbox import runner
from workers.sandbox.interface import Sandbox, SandboxError
from workers.sandbox.limits import Allowance, Limits, Shape

# Compiles path → source for the image of that digest, in a sandbox of that shape.
Compile = Callable[[Mapping[str, str], str, Shape], dict[str, str]]


def allowance_of(workspace: Workspace) -> Allowance:
    """Return the current limits of the code of a workspace's users."""
    limits = workspace.limits
    alerts = workspace.alert_limits.alerts_per_constraint
    return Allowance(
        limits=Limits.of(limits, alerts=alerts),
        shape=Shape.of(limits),
        single_use=workspace.single_use,
    )


@contextmanager
def loaded(
    checkpoint: Checkpoint,
    allowance: Allowance,
    constraints: Collection[WorkspaceConstraint] | None = None,
    *,
    compile_: Compile | None = None,
) -> Iterator[Sandbox]:
    """Lease a sandbox of the user whose next request runs on this version; raise SandboxError.

    These constraints of the workspace are loaded with it, and no others; by default those that the
    sandbox has already. Only the files that it lacks are sent, with that request. A sandbox in
    which other code was executed is not used: the answers of a version depend on nothing but its
    files.
    """

    def suits(resident: Mapping[str, str]) -> bool:
        wanted = {**checkpoint.tree, **_hashes(resident, constraints)}
        return all(wanted.get(path) == hash_ for path, hash_ in resident.items() if is_code(path))

    with runner.lease(checkpoint.user_id, allowance, suits=suits) as lease:
        tree = {**checkpoint.tree, **_hashes(lease.tree, constraints)}
        same = {path for path, hash_ in tree.items() if lease.tree.get(path) == hash_}
        removed = sorted(lease.tree.keys() - tree.keys())
        if removed or len(same) < len(tree):
            digest = lease.sandbox.image_digest
            bytecode = bytecode_of(
                checkpoint, digest, allowance.shape, without=same, compile_=compile_
            )
            missing = [one for one in constraints or () if one.path not in same]
            added = compiled(missing, digest, allowance.shape)
            lease.tree = {}  # after a failed load, nobody may go on with the content
            lease.sandbox.prepare(bytecode={**bytecode, **added}, removed=removed)
        try:
            yield lease.sandbox
        except SandboxError as error:
            if lease.sandbox.prepared:
                _forget_nonsense(checkpoint, lease.sandbox, error, constraints or ())
            raise
        finally:
            if not lease.sandbox.prepared:
                lease.tree = tree


def _hashes(
    resident: Mapping[str, str], constraints: Collection[WorkspaceConstraint] | None
) -> dict[str, str]:
    """Return path → hash of the workspace's constraints in a sandbox."""
    if constraints is None:
        return {path: hash_ for path, hash_ in resident.items() if path.startswith(FOLDER)}
    return {one.path: one.live.source_hash for one in constraints if one.live is not None}


def compiled(
    constraints: Collection[WorkspaceConstraint], digest: str, shape: Shape
) -> dict[str, str]:
    """Return path → bytecode of a workspace's constraints, as `bytecode_of` does for a project.

    Raises SandboxError. Once an image has compiled a version, its bytecode serves all users of the
    workspace: it belongs to the workspace, and compiling executed nobody's code.
    """
    if not constraints:
        return {}
    live = applicability.read_live(constraints)
    sources = {path: one.source for path, one in live.items() if one.image_digest != digest}
    new = _compile(sources, digest, shape) if sources else {}
    for path, bytecode in new.items():
        workspace_constraints.store_bytecode(live[path].pk, bytecode, digest)
    return {path: new.get(path, one.bytecode) for path, one in live.items()}


def load(
    sandbox: Sandbox,
    checkpoint: Checkpoint | None,
    bytecode: Mapping[str, str],
    *,
    removed: Sequence[str] = (),
) -> None:
    """Load bytecode, part of which was stored with a version; raise SandboxError.

    Stored bytecode that the sandbox cannot read is deleted, and compiled again the next time.
    """
    try:
        sandbox.load(bytecode=bytecode, removed=removed)
    except SandboxError as error:
        if checkpoint is not None:
            _forget_nonsense(checkpoint, sandbox, error)
        raise


def _forget_nonsense(
    checkpoint: Checkpoint,
    sandbox: Sandbox,
    error: SandboxError,
    constraints: Collection[WorkspaceConstraint] = (),
) -> None:
    if error.outcome == "protocol_error":
        checkpoints.forget_bytecode(checkpoint, sandbox.image_digest)
        for one in constraints:
            if one.live_id is not None:
                workspace_constraints.store_bytecode(one.live_id, "", "")


def bytecode_of(
    checkpoint: Checkpoint | None,
    digest: str,
    shape: Shape,
    *,
    without: Collection[str] = (),
    compile_: Compile | None = None,
) -> Mapping[str, str]:
    """Return path → bytecode of a version's files, without those paths; raise SandboxError.

    It loads in sandboxes of that image digest. Files that this image has not compiled yet (all of
    them, after an upgrade) are compiled now, in a sandbox of this shape, and stored.
    """
    if checkpoint is None:
        return {}
    modules = checkpoints.read_modules(checkpoint, digest, without=without)
    if not modules.sources:
        return modules.bytecode
    compiled = (compile_ or _compile)(modules.sources, digest, shape)
    checkpoints.store_bytecode(checkpoint, compiled, digest)
    return {**modules.bytecode, **compiled}


def _compile(sources: Mapping[str, str], digest: str, shape: Shape) -> dict[str, str]:
    with compiling() as compile_:
        return compile_(sources, digest, shape)


@contextmanager
def compiling() -> Iterator[Compile]:
    """Compile any number of times in this context, for one user, in one sandbox.

    It is opened when it is first needed. A sandbox that compiles executes nobody's code, so its
    bytecode can be trusted.
    """
    with ExitStack() as stack:
        opened: list[Sandbox] = []

        def compile_(sources: Mapping[str, str], digest: str, shape: Shape) -> dict[str, str]:
            if not opened:
                opened.append(stack.enter_context(runner.open_sandbox(shape=shape)))
            (sandbox,) = opened
            if sandbox.image_digest != digest:
                raise SandboxError(
                    "killed",
                    "the image of the sandboxes was replaced meanwhile",
                    infrastructure=True,
                )
            return sandbox.compile(sources)

        yield compile_
