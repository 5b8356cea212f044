"""Load a version of a user's project into a sandbox, following a plan made beforehand."""

import datetime
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from memory.alerts.failures import PROJECT
from memory.constraints import applicability, workspace_constraints
from memory.constraints.applicability import Applicability
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.project import Outline
from memory.project.paths import FOLDER, is_code
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint
from workers.sandbox import runner
from workers.sandbox.interface import Bindings, Sandbox, SandboxError
from workers.sandbox.limits import Allowance, Limits, Shape
from workers.sandbox.results import ConstraintRun

# A function that compiles sources, keyed by path, for the image with the given digest, in a sandbox
# of the given shape.
Compile = Callable[[Mapping[str, str], str, Shape], dict[str, str]]


@dataclass(frozen=True)
class LoadPlan:
    """A plan of what to load to run a version of a user's project, within which resource limits.

    `standings` shows which workspace constraints apply to the user; only those are loaded. If
    `standings` is None, the sandbox keeps the workspace constraints that it already holds.
    """

    user: MemoryUser
    checkpoint: Checkpoint
    allowance: Allowance
    standings: Sequence[Applicability] | None = None

    @cached_property
    def outline(self) -> Outline:
        """The outline of the version's project."""
        return Outline.from_json(self.checkpoint.outline)

    @cached_property
    def applying(self) -> list[WorkspaceConstraint]:
        """The workspace constraints that apply to the user."""
        return [one.constraint for one in self.standings or () if one.applies]

    @cached_property
    def bindings(self) -> Bindings:
        """The records that each applying workspace constraint gets, by the constraint's path."""
        applying = (one for one in self.standings or () if one.applies)
        return {one.constraint.path: one.match.bindings for one in applying}

    @cached_property
    def sources(self) -> dict[str, str]:
        """Path → hash, for each of the workspace's live constraints, whether it applies or not."""
        constraints = (one.constraint for one in self.standings or ())
        return {one.path: one.live.source_hash for one in constraints if one.live is not None}

    @cached_property
    def existing(self) -> list[str]:
        """The paths of all constraints that the user has, and PROJECT."""
        own = [f"constraints/{name}.py" for name in self.outline.constraints]
        return [*own, *self.bindings, PROJECT]

    @cached_property
    def ended(self) -> dict[str, str]:
        """Path → reason, for each workspace constraint that does not apply to the user."""
        return {one.constraint.path: one.ended for one in self.standings or () if not one.applies}

    def tree(self, resident: Mapping[str, str]) -> dict[str, str]:
        """Return path → hash of all files that a sandbox with these `resident` files will hold."""
        if self.standings is None:
            theirs = {path: hash_ for path, hash_ in resident.items() if path.startswith(FOLDER)}
        else:
            theirs = {path: self.sources[path] for path in self.bindings if path in self.sources}
        return {**self.checkpoint.tree, **theirs}

    def suits(self, resident: Mapping[str, str]) -> bool:
        """Return whether this plan covers all the code that is `resident` in a sandbox."""
        tree = self.tree(resident)
        return all(tree.get(path) == hash_ for path, hash_ in resident.items() if is_code(path))

    def difference(self, resident: Mapping[str, str]) -> tuple[set[str], list[str]]:
        """Return which files a sandbox with these `resident` files lacks, and has to remove."""
        tree = self.tree(resident)
        missing = {path for path, hash_ in tree.items() if resident.get(path) != hash_}
        return missing, sorted(resident.keys() - tree.keys())

    def run_constraints(
        self, sandbox: Sandbox, now: datetime.datetime, paths: Sequence[str] | None = None
    ) -> ConstraintRun:
        """Run constraints (by default, all of them) with this plan's user, bindings and limits.

        The sandbox must have loaded the workspace constraints that `bindings` names. The gate's
        plan names none, and its sandboxes hold the candidate instead of the planned version.
        """
        return sandbox.run_constraints(
            paths,
            now=now,
            time_zone=self.user.time_zone,
            bindings=self.bindings,
            limits=self.allowance.limits,
        )


def plan_load(
    user: MemoryUser,
    checkpoint: Checkpoint | None,
    *,
    standings: Sequence[Applicability] | None = None,
) -> LoadPlan:
    """Plan to load a version, or an empty project if it is None. Reads only the database."""
    if checkpoint is None:
        checkpoint = Checkpoint(user=user, tree={}, outline=Outline().to_json())
    return LoadPlan(user, checkpoint, allowance_of(user.workspace), standings)


def plan_run(user: MemoryUser, checkpoint: Checkpoint) -> LoadPlan:
    """Plan to load a version with the workspace's constraints. Reads only the database."""
    standings = applicability.applicabilities(user, Outline.from_json(checkpoint.outline))
    return plan_load(user, checkpoint, standings=standings)


def allowance_of(workspace: Workspace) -> Allowance:
    """Return the current limits on code from the workspace's users."""
    limits = workspace.limits
    alerts = workspace.alert_limits.alerts_per_constraint
    return Allowance(
        limits=Limits.of(limits, alerts=alerts),
        shape=Shape.of(limits),
        single_use=workspace.single_use,
    )


@contextmanager
def loaded(plan: LoadPlan, *, compile_: Compile | None = None) -> Iterator[Sandbox]:
    """Lease a sandbox for the user; the first request to the sandbox also loads the plan.

    Only the files that the sandbox lacks are sent along with that request. The files are read, and
    compiled if necessary, before the sandbox is leased. A sandbox that has executed other code is
    not used, because a version's results must depend on nothing but the version's files. Raises
    SandboxError if no sandbox is available or if the sandbox fails.
    """
    resident = runner.peek(plan.user.pk)
    digest = runner.image_digest()
    expected, _ = plan.difference(resident if plan.suits(resident) else {})
    bytecode = bytecode_of(plan, digest, expected, compile_=compile_)
    with runner.lease(plan.user.pk, plan.allowance, suits=plan.suits) as lease:
        tree = plan.tree(lease.tree)
        missing, removed = plan.difference(lease.tree)
        if missing or removed:
            if not missing <= expected or lease.sandbox.image_digest != digest:
                # The expected sandbox is gone, and the sandbox leased instead lacks more files.
                digest = lease.sandbox.image_digest
                bytecode = bytecode_of(plan, digest, missing, compile_=compile_)
            added = {path: code for path, code in bytecode.items() if path in missing}
            lease.tree = {}  # if loading fails, the sandbox's content can't be relied on
            lease.sandbox.prepare(bytecode=added, removed=removed)
        try:
            yield lease.sandbox
        except SandboxError as error:
            if lease.sandbox.prepared:
                _forget_nonsense(plan, lease.sandbox, error)
            raise
        finally:
            if not lease.sandbox.prepared:
                lease.tree = tree


def load(sandbox: Sandbox, plan: LoadPlan, bytecode: Mapping[str, str]) -> None:
    """Load bytecode, some of which may have been stored with the planned version.

    If the sandbox cannot read stored bytecode, the stored bytecode is deleted, and the files are
    compiled again the next time. Raises SandboxError if loading fails.
    """
    try:
        sandbox.load(bytecode=bytecode)
    except SandboxError as error:
        _forget_nonsense(plan, sandbox, error)
        raise


def _forget_nonsense(plan: LoadPlan, sandbox: Sandbox, error: SandboxError) -> None:
    if error.outcome == "protocol_error":
        checkpoints.forget_bytecode(plan.checkpoint, sandbox.image_digest)
        for one in plan.applying:
            if one.live_id is not None:
                workspace_constraints.store_bytecode(one.live_id, "", "")


def bytecode_of(
    plan: LoadPlan, digest: str, paths: Collection[str], *, compile_: Compile | None = None
) -> dict[str, str]:
    """Return the bytecode of these files in a plan, by path, for sandboxes with this image digest.

    Files that are not compiled yet for this image (after an upgrade, all of them) are compiled now,
    in sandboxes that hold no user data, and their bytecode is stored. Raises SandboxError if the
    files cannot be compiled.
    """
    theirs = [one for one in plan.applying if one.path in paths]
    return {
        **_workspace_bytecode(theirs, digest, plan.allowance.shape),
        **_project_bytecode(plan, digest, paths, compile_ or _compile),
    }


def _workspace_bytecode(
    constraints: Collection[WorkspaceConstraint], digest: str, shape: Shape
) -> dict[str, str]:
    """Return the bytecode of a workspace's constraints, by path.

    Once a constraint version is compiled for an image, its bytecode is shared by all users of the
    workspace: the bytecode belongs to the workspace, and was compiled in a sandbox that received no
    user data.
    """
    if not constraints:
        return {}
    live = applicability.read_live(constraints)
    sources = {path: one.source for path, one in live.items() if one.image_digest != digest}
    new = _compile(sources, digest, shape) if sources else {}
    for path, bytecode in new.items():
        workspace_constraints.store_bytecode(live[path].pk, bytecode, digest)
    return {path: new.get(path, one.bytecode) for path, one in live.items()}


def _project_bytecode(
    plan: LoadPlan, digest: str, paths: Collection[str], compile_: Compile
) -> Mapping[str, str]:
    others = plan.checkpoint.tree.keys() - paths
    modules = checkpoints.read_modules(plan.checkpoint, digest, without=others)
    if not modules.sources:
        return modules.bytecode
    compiled = compile_(modules.sources, digest, plan.allowance.shape)
    checkpoints.store_bytecode(plan.checkpoint, compiled, digest)
    return {**modules.bytecode, **compiled}


def _compile(sources: Mapping[str, str], digest: str, shape: Shape) -> dict[str, str]:
    with compiling() as compile_:
        return compile_(sources, digest, shape)


@contextmanager
def compiling() -> Iterator[Compile]:
    """Yield a function that compiles one user's files, always in the same sandbox.

    The sandbox is opened when it is first needed. It only compiles code and never executes any, so
    the bytecode that it returns can be trusted.
    """
    with ExitStack() as stack:
        opened: list[Sandbox] = []

        def compile_(sources: Mapping[str, str], digest: str, shape: Shape) -> dict[str, str]:
            if not opened:
                opened.append(stack.enter_context(runner.open_sandbox(shape=shape)))
            (sandbox,) = opened
            if sandbox.image_digest != digest:
                raise SandboxError.unavailable("the sandbox image was replaced in the meantime")
            return sandbox.compile(sources)

        yield compile_
