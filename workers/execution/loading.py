"""Load a version of a user's project into a sandbox, following a plan made beforehand."""

import datetime
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

from memory.alerts.failing_constraints import PROJECT
from memory.constraints import applicability, workspace_constraints
from memory.constraints.applicability import Applicability
from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.canonical import sha256
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.log import entry_log
from memory.project import Outline
from memory.project.paths import (
    CLASSES_PATH,
    FOLDER,
    constraint_path,
    is_code,
    is_own_constraint,
)
from memory.versions import checkpoints
from memory.versions.checkpoints import AnyState
from memory.versions.models.checkpoints import Blob, Checkpoint
from sandbox_image.uac import trust_of
from workers.sandbox import runner
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import KIBIBYTE, MEBIBYTE, Allowance, Limits, Shape
from workers.sandbox.results import Bindings, ConstraintRun, SandboxError

# A function that compiles sources, keyed by path, for the image with the given digest, in a sandbox
# of the given shape.
Compile = Callable[[Mapping[str, str], str, Shape], dict[str, str]]


@dataclass
class LoadPlan:
    """A plan of what to load to run a version of a user's project, within which resource limits.

    `applicabilities` shows which workspace constraints apply to the user; only those are loaded. If
    `applicabilities` is None, the sandbox keeps the workspace constraints that it already holds.
    `code` is what will run besides the version's files, such as a query.
    """

    user: MemoryUser
    checkpoint: AnyState
    applicabilities: Sequence[Applicability] | None = None
    code: Collection[str] = ()

    @cached_property
    def allowance(self) -> Allowance:
        """The current limits on the user's code."""
        return allowance_of(self.user.workspace)

    @cached_property
    def outline(self) -> Outline:
        """The outline of the version's project."""
        return Outline.from_json(self.checkpoint.outline)

    @cached_property
    def applying(self) -> list[WorkspaceConstraint]:
        """The workspace constraints that apply to the user."""
        return [one.constraint for one in self.applicabilities or () if one.applies]

    @cached_property
    def bindings(self) -> Bindings:
        """The records that each applying workspace constraint gets, by the constraint's path."""
        applying = (one for one in self.applicabilities or () if one.applies)
        return {one.constraint.path: one.match.bindings for one in applying}

    @cached_property
    def sources(self) -> dict[str, str]:
        """Path → hash, for each of the workspace's live constraints, whether it applies or not."""
        constraints = (one.constraint for one in self.applicabilities or ())
        return {one.path: one.live.source_hash for one in constraints if one.live is not None}

    @cached_property
    def existing(self) -> list[str]:
        """The paths of all constraints that the user has, and PROJECT."""
        own = [constraint_path(name) for name in self.outline.constraints]
        return [*own, *self.bindings, PROJECT]

    @cached_property
    def ended(self) -> dict[str, str]:
        """Path → reason, for each workspace constraint that does not apply to the user."""
        return {
            one.constraint.path: one.ended for one in self.applicabilities or () if not one.applies
        }

    @cached_property
    def generated(self) -> dict[str, str]:
        """Path → text of the file with the classes of entries, if any code to be run needs it."""
        tree, name = self.checkpoint.tree, trust_of.__name__
        own = tuple(sorted(hash_ for path, hash_ in tree.items() if is_own_constraint(path)))
        theirs = tuple(sorted(self.sources.values()))
        if any(name in text for text in self.code) or _names(name, self.user.pk, own, theirs):
            return {CLASSES_PATH: f'CLASSES = "{entry_log.classes_of(self.user)}"\n'}
        return {}

    def tree(self, resident: Mapping[str, str]) -> dict[str, str]:
        """Return path → hash of all files that a sandbox with these `resident` files will hold."""
        if self.applicabilities is None:
            theirs = {path: hash_ for path, hash_ in resident.items() if path.startswith(FOLDER)}
        else:
            theirs = {path: self.sources[path] for path in self.bindings if path in self.sources}
        generated = {path: sha256(text) for path, text in self.generated.items()}
        return {**self.checkpoint.tree, **theirs, **generated}

    def suits(self, resident: Mapping[str, str]) -> bool:
        """Return whether this plan covers all the code that is `resident` in a sandbox."""
        tree = self.tree(resident)
        return all(tree.get(path) == hash_ for path, hash_ in resident.items() if is_code(path))

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


@lru_cache(maxsize=1000)
def _names(name: str, user_pk: int, own: Sequence[str], theirs: Sequence[str]) -> bool:
    """Return whether constraints with these hashes, the user's or a workspace's, use a name.

    Kept, because this is asked before each run, and the text behind a hash never changes.
    """
    blobs = Blob.objects.filter(user=user_pk, hash__in=own, content__contains=name)
    versions = WorkspaceConstraintVersion.objects.filter(
        source_hash__in=theirs, source__contains=name
    )
    return blobs.exists() or versions.exists()


def plan_run(user: MemoryUser, checkpoint: Checkpoint) -> LoadPlan:
    """Plan to load a version with the workspace's constraints. Reads only the database."""
    plan = LoadPlan(user, checkpoint)
    plan.applicabilities = applicability.applicabilities(user, plan.outline)
    return plan


def allowance_of(workspace: Workspace) -> Allowance:
    """Return the current limits on code from the workspace's users."""
    limits = workspace.sandbox_limits
    return Allowance(
        limits=Limits(
            wall_seconds=limits.wall_seconds,
            total_seconds=limits.total_seconds,
            cpu_seconds=limits.cpu_seconds,
            memory_bytes=limits.process_memory_mib * MEBIBYTE,
            stdout_produced_bytes=limits.output_kib * KIBIBYTE,
            result_bytes=limits.result_kib * KIBIBYTE,
            result_depth=limits.result_depth,
            alerts=workspace.alert_limits.alerts_per_constraint,
        ),
        shape=Shape.from_limits(limits),
        single_use=workspace.single_use,
    )


@contextmanager
def loaded(plan: LoadPlan, *, compile_: Compile | None = None) -> Iterator[Sandbox]:
    """Lease a sandbox for the user; the first request to the sandbox also loads the plan.

    Only the files that the sandbox lacks are sent along with that request. A sandbox that has
    executed other code is not used, because a version's results must depend on nothing but the
    version's files. Raises SandboxError if no sandbox is available or if the sandbox fails.
    """
    allowance = plan.allowance
    with runner.pool().lease(
        plan.user.pk, shape=allowance.shape, single_use=allowance.single_use, suits=plan.suits
    ) as lease:
        sandbox, resident = lease.sandbox, lease.tree
        tree = plan.tree(resident)
        missing = {path for path, hash_ in tree.items() if resident.get(path) != hash_}
        removed = sorted(resident.keys() - tree.keys())
        if missing or removed:
            bytecode = bytecode_of(plan, sandbox.image_digest, missing, compile_=compile_)
            generated = {path: text for path, text in plan.generated.items() if path in missing}
            lease.tree = {}  # if loading fails, the sandbox's content can't be relied on
            sandbox.prepare(generated, bytecode=bytecode, removed=removed)
        try:
            yield sandbox
        except SandboxError as error:
            if sandbox.prepared:
                _forget_nonsense(plan, sandbox, error)
            raise
        finally:
            if not sandbox.prepared:
                lease.tree = tree


def load(
    sandboxes: Sequence[Sandbox],
    plan: LoadPlan,
    paths: Collection[str],
    compiled: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Load these files of the planned version, and those `compiled` since, into fresh sandboxes.

    If a sandbox cannot read stored bytecode, the stored bytecode is deleted, and the files are
    compiled again the next time. Raises SandboxError if loading fails.
    """
    bytecode = {**bytecode_of(plan, sandboxes[0].image_digest, paths), **compiled}
    for sandbox in sandboxes:
        try:
            sandbox.load(plan.generated, bytecode=bytecode)
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
    in sandboxes that hold no user data, and their bytecode is stored. That of a workspace's
    constraints is shared by all of the workspace's users. Raises SandboxError if the files cannot
    be compiled.
    """
    shape = plan.allowance.shape
    modules = checkpoints.read_modules(
        plan.checkpoint, digest, without=plan.checkpoint.tree.keys() - paths
    )
    bytecode = dict(modules.bytecode)
    if modules.sources:
        compiled = (compile_ or _compile)(modules.sources, digest, shape)
        checkpoints.store_bytecode(plan.checkpoint, compiled, digest)
        bytecode |= compiled
    theirs = [one for one in plan.applying if one.path in paths]
    live = applicability.read_live(theirs) if theirs else {}
    bytecode |= {path: one.bytecode for path, one in live.items()}
    sources = {path: one.source for path, one in live.items() if one.image_digest != digest}
    if sources:
        compiled = _compile(sources, digest, shape)
        for path, code in compiled.items():
            workspace_constraints.store_bytecode(live[path].pk, code, digest)
        bytecode |= compiled
    return bytecode


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
