"""Turns, which limit how much language model work a workspace can do concurrently.

A workspace has as many turns as it may have concurrent calls, so that no worker thread waits for a
call slot. A third of the turns can be used only while slow calls occupy other turns, so that a call
that hangs for one user doesn't hold up everyone else until it times out.

Work that gets no turn is left for later: when a worker finishes a task, it wakes the workers for
the workspace's next task.
"""

import functools
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import language_models
from memory.kernel.work import leases
from memory.kernel.work.hints import send_hint
from memory.llm import llm_calls, track_records
from memory.log import lanes
from memory.versions import runs
from memory.versions.models.runs import Run

Leased = TypeVar("Leased", bound=LeasedWork)


def claim_lane(user_pk: int) -> Lane | None:
    """Claim a user's lane, if it is due and its workspace has a turn."""
    due = lanes.due(LaneName.STRUCTURE).filter(user_id=user_pk)
    workspace_pk = due.values_list("user__workspace", flat=True).first()
    return None if workspace_pk is None else claim(due, workspace_pk)


def claim_question(run_id: str) -> Run | None:
    """Claim a question, if its workspace has a turn."""
    open_run = runs.questions().filter(pk=run_id)
    workspace_pk = open_run.values_list("user__workspace", flat=True).first()
    if workspace_pk is None:
        return None
    return runs.claim(run_id, take=functools.partial(claim, workspace_pk=workspace_pk))


def claim(work: QuerySet[Leased], workspace_pk: int, **columns: Any) -> Leased | None:
    """Claim a workspace's first unclaimed row of work if a turn is free (see `leases.claim`).

    If no turn is free, a question is still admitted unless another question is running, since
    somebody is waiting for the answer. While the workspace's model is stopped because of its track
    record, no lane is claimed: the reason is stored as the error of the unclaimed lanes, which are
    retried later.
    """
    with transaction.atomic():
        workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_pk)
        if work.model is Lane and (reason := track_records.judge(workspace)):
            _put_off(work, reason)
            return None
        now = timezone.now()
        held = {"user__workspace": workspace, "lease_expires_at__gt": now}
        questions = runs.questions().filter(**held).count()
        working = questions + Lane.objects.filter(**held, name=LaneName.STRUCTURE).count()
        budget = language_models.budget(workspace.chosen_llm)
        full = not budget.has_room(working, llm_calls.slow(workspace, now))
        if full and (questions or work.model is not Run):
            return None
        return leases.claim(work, **columns)


def _put_off(work: QuerySet[Leased], reason: str) -> None:
    now = timezone.now()
    # Skip locked rows: a lane's holder may be waiting for the lock on the workspace's row, which we
    # hold.
    free = work.filter(leases.free(now)).select_for_update(
        of=("self",), no_key=True, skip_locked=True
    )
    work.model._default_manager.filter(pk__in=[row.pk for row in free]).update(
        run_after=now + track_records.AGAIN, last_error=reason, hinted_at=None
    )


def pass_on(done: Lane | Run) -> None:
    """Wake workers for the workspace's next work that needs the model, questions first."""
    now = timezone.now()
    users = MemoryUser.objects.filter(pk=done.user_id)
    workspace_pk = users.values_list("workspace_id", flat=True).first()
    free = leases.free(now)
    questions = runs.questions().filter(free, user__workspace=workspace_pk)
    question = questions.order_by("queued_at").values_list("pk", flat=True).first()
    if question is not None:
        send_hint("questions", str(question), workspace_pk=workspace_pk)
    due = lanes.due(LaneName.STRUCTURE).filter(free, user__workspace=workspace_pk)
    user_pk = due.order_by("run_after").values_list("user_id", flat=True).first()
    if user_pk is not None:
        send_hint("structure", user_pk, workspace_pk=workspace_pk)
