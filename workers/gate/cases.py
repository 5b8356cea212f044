"""What the gate judges: a change to a user's project, or a version of a workspace constraint."""

import datetime
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Protocol

from django.utils import timezone

from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.canonical import sha256
from memory.kernel.models.users import MemoryUser
from memory.project import Change, Edit
from memory.project.paths import constraint_name, constraint_path, is_own_constraint
from memory.versions.checkpoints import State
from memory.versions.models.checkpoints import Checkpoint
from workers.execution.loading import LoadPlan, allowance_of, load
from workers.execution.outlook import foresee
from workers.findings import Check, Verdict
from workers.gate.execution_findings import OTHER_HASH_SEED
from workers.policy import kinds_of_file
from workers.policy.kinds_of_file import FileKind
from workers.sandbox import runner
from workers.sandbox.client import Sandbox


class Profile(StrEnum):
    """Who wrote a change, and so which of the gate's checks it has to pass."""

    # Records that come straight from typed entries. We don't reject a fact because a constraint
    # can't handle it: the constraint fails visibly when it runs after the checkpoint.
    TYPED = "typed entries"
    PROPOSAL = "proposals of people and products"
    MODEL = "proposals of a language model"
    # The records come from a project alone, and no text in the log supports them.
    IMPORT = "imported projects"
    REDACTION = "projects without redacted content"
    WORKSPACE = "workspace constraints"


class Case(Protocol):
    """What the judge itself has to know about a case."""

    @property
    def profile(self) -> Profile:
        """Which checks apply."""

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""

    def loaded(self) -> AbstractContextManager[None]:
        """Load the case into sandboxes for the duration of the context."""


@dataclass(frozen=True, kw_only=True)
class ProjectCase:
    """A change to the project at `parent`.

    `edits` are a proposal's edits, and `written` contains the names of the constraints that were
    sent. Constraints run as of `at`, by default now. `checks` are those that the change has already
    passed. If a model's edits aren't committed, which `dry_run` says in advance, the model is also
    told on which days alerts will change.
    """

    file_kinds: ClassVar[Sequence[FileKind]] = kinds_of_file.PROJECT
    profile: Profile
    user: MemoryUser
    parent: Checkpoint | None
    change: Change
    checks: Sequence[Check] = ()
    edits: Sequence[Edit] = ()
    written: Collection[str] = ()
    dry_run: bool = False
    at: datetime.datetime = field(default_factory=timezone.now)
    # While loaded: the sandbox that stays resident comes first. The last one iterates over sets in
    # a different order, unless there is only one.
    sandboxes: list[Sandbox] = field(default_factory=list, init=False)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        change = self.change
        counts = {
            "files_changed": len(change.files),
            "files_parsed": change.files_parsed,
            "files_rendered": change.files_rendered,
            "files_checked": len(self.sources),
            "records_added": len(change.added),
            "records_updated": len(change.updated),
            "records_retired": len(change.retired),
        }
        return Verdict(checks=[*self.checks], counts=counts)

    @cached_property
    def plan(self) -> LoadPlan:
        """Loads the previous version."""
        parent = self.parent or State(user=self.user)
        return LoadPlan(self.user, parent, code=self.sources.values())

    @cached_property
    def sources(self) -> dict[str, str]:
        """The program's changed files, without deleted files."""
        return {path: text for path, text in self.change.files.items() if text is not None}

    @cached_property
    def constraints(self) -> dict[str, str]:
        """Maps the name of each changed constraint to its source."""
        return {
            constraint_name(path): source
            for path, source in self.sources.items()
            if is_own_constraint(path) and not path.endswith("/__init__.py")
        }

    @cached_property
    def kept(self) -> dict[str, str]:
        """Maps the path of each file that the change leaves alone to the file's hash."""
        tree, changed = self.plan.checkpoint.tree, self.change.files
        return {path: hash_ for path, hash_ in tree.items() if path not in changed}

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Compile the changed files, and load the new version into one sandbox or two.

        A version that passes the checks stays resident in the first sandbox for a while, because
        its constraints will run next.
        """
        started = time.monotonic()
        plan, verdict = self.plan, self.verdict
        allowance = plan.allowance
        with (
            runner.pool().lease(
                plan.user.pk, shape=allowance.shape, single_use=allowance.single_use, fresh=True
            ) as lease,
            ExitStack() as stack,
        ):
            # The sandbox hasn't executed any user code yet, so its bytecode can be trusted.
            sandbox = lease.sandbox
            verdict.runner = sandbox.runner_name
            verdict.image_digest = sandbox.image_digest
            verdict.bytecode = sandbox.compile(self.sources)
            verdict.counts["files_compiled"] = len(verdict.bytecode)
            compiled = time.monotonic()
            verdict.timings["compile"] = compiled - started

            self.sandboxes[:] = [sandbox]
            if self.profile != Profile.TYPED:
                other = runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=allowance.shape)
                self.sandboxes.append(stack.enter_context(other))
            load(self.sandboxes, plan, self.kept.keys(), verdict.bytecode)
            verdict.timings["load"] = time.monotonic() - compiled
            yield
            if self._shows_coming():
                paths = [constraint_path(name) for name in self.change.outline.constraints]
                verdict.coming = foresee(sandbox, plan, self.at, paths)
            if verdict.accepted:
                texts = self.change.files.items()
                changed = {path: sha256(text) for path, text in texts if text is not None}
                lease.tree = {**self.kept, **changed}

    def _shows_coming(self) -> bool:
        verdict = self.verdict
        is_committed = verdict.accepted and not self.dry_run
        return self.profile == Profile.MODEL and bool(verdict.day) and not is_committed


@dataclass(frozen=True, kw_only=True)
class WorkspaceCase:
    """A version of a workspace constraint, judged in sandboxes that hold no user's data."""

    file_kinds: ClassVar[Sequence[FileKind]] = kinds_of_file.WORKSPACE
    constraint: WorkspaceConstraint
    version: WorkspaceConstraintVersion
    verdict: Verdict = field(default_factory=Verdict)
    sandboxes: list[Sandbox] = field(default_factory=list, init=False)

    @property
    def profile(self) -> Profile:
        """Workspace constraints have a profile of their own."""
        return Profile.WORKSPACE

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The constraint and its tests, by path."""
        return {
            self.constraint.path: self.version.source,
            self.constraint.tests_path: self.version.tests,
        }

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Load the version into two fresh sandboxes, which iterate over sets in different orders.

        The sandboxes serve no other purpose.
        """
        shape, verdict = allowance_of(self.constraint.workspace).shape, self.verdict
        with (
            runner.open_sandbox(shape=shape) as sandbox,
            runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=shape) as other,
        ):
            verdict.runner, verdict.image_digest = sandbox.runner_name, sandbox.image_digest
            # Compile before the sandbox executes any user code.
            verdict.bytecode = sandbox.compile(self.sources)
            self.sandboxes[:] = [sandbox, other]
            for one in self.sandboxes:
                one.load(bytecode=verdict.bytecode)
            yield
