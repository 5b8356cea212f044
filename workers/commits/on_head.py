"""Build a version on a user's newest one, and commit it, whoever else is writing meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from memory.kernel import users
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser
from memory.project import Change, Edit, edit_to_json
from memory.versions import checkpoints
from memory.versions.checkpoints import Candidate, Decision, HeadMoved
from memory.versions.models.checkpoints import Checkpoint, Origin
from workers.findings import Verdict

# Maximum number of times that a version is built for the same work, once on each new head.
MAX_BUILDS = 5


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A change that has passed the gate, and what is stored along with the new version.

    If the change is empty, there is no new version, but entries are still settled. `notes` are
    stored with the verdict.
    """

    change: Change | None
    verdict: Verdict
    origin: Origin
    seen_seq: int
    edits: Sequence[Edit] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def decide(self, user: MemoryUser) -> Sequence[Decision]:
        """Return the outcomes of the entries that the draft settles; called in the transaction.

        `user` is the user as it was when the draft was built. Raises HeadMoved if the draft no
        longer holds.
        """
        raise NotImplementedError

    def finish(self, user: MemoryUser, made: Checkpoint | None) -> None:
        """Write what follows from the new version, if there is one, in the same transaction."""


def commit_on_head(
    work: LeasedWork, user_pk: int, build: Callable[[MemoryUser], Draft | None]
) -> None:
    """Build a draft on the user's newest version and commit it; again if the head has moved.

    `work` is the work item that the caller has claimed, and `build` has the gate judge the draft,
    and returns None if there is nothing to commit. Raises HeadMoved if the head keeps moving, and
    LeaseLost if the caller has lost its claim; in either case nothing is written.
    """
    for number in range(1, MAX_BUILDS + 1):
        user = users.select_head(MemoryUser.objects.select_related("workspace")).get(pk=user_pk)
        draft = build(user)
        if draft is None:
            return
        try:
            _commit(work, user, draft)
        except HeadMoved:
            if number == MAX_BUILDS:
                raise
        else:
            return


@transaction.atomic
def _commit(work: LeasedWork, user: MemoryUser, draft: Draft) -> None:
    decisions = draft.decide(user)
    change, verdict, candidate = draft.change, draft.verdict, None
    if change is not None and (change.files or change.ended):
        candidate = Candidate(
            parent=user.head,
            change=change,
            edits=[edit_to_json(edit) for edit in draft.edits],
            origin=draft.origin,
            seen_seq=max(user.head.seen_seq if user.head else 0, draft.seen_seq),
            verdict={**verdict.to_json(), **draft.notes},
            bytecode=verdict.bytecode,
            image_digest=verdict.image_digest,
        )
    draft.finish(user, checkpoints.commit(work, user, candidate, decisions))
