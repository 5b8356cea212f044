"""The quota of runs that somebody waits for."""

import time

from django.db import connection

from memory.kernel import pauses
from memory.kernel.admission import quotas
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import environment
from memory.versions.models.runs import ASKED_FOR, RunStatus

# Below this share of the quota, runs are admitted based on the last count plus the runs that this
# process has admitted since.
FAR = 0.5
# Seconds after which to ask again for a run that was refused.
RUNS_WAIT = 5.0
# Counts requested runs that are not done, up to the limit. Paused users' runs can be left out: such
# runs aren't executed, so they delay nobody.
REQUESTED = """
SELECT count(*) FROM (
    SELECT FROM memory_run AS run JOIN memory_memoryuser AS person ON person.id = run.user_id
    WHERE person.workspace_id = %s AND run.trigger IN (%s, %s) AND NOT run.status = %s
        AND (%s OR NOT EXISTS (SELECT FROM memory_pause AS pause
            WHERE pause.user_id = person.id AND pause.resumed_at IS NULL))
    LIMIT %s
) AS asked_for
"""


# For each workspace: the time until which its count of requested runs can be relied on, the count
# itself, and the number of runs below which no recount is needed.
_requested: dict[int, tuple[float, int, float]] = {}


def check_runs(user: MemoryUser) -> None:
    """Raise LimitExceeded if the user's workspace has its maximum number of runs queued or running.

    If the number of runs is far below the quota, a process does not recount on every call, so it
    misses the runs that other processes have just admitted.
    """
    now = time.monotonic()
    until, number, far = _requested.get(user.workspace_id, (0.0, 0, 0.0))
    if now < until and number < far:
        _requested[user.workspace_id] = (until, number + 1, far)
        return
    needed = ("public_id", *environment.QUOTAS.overridable)
    workspace = Workspace.objects.only(*needed).get(pk=user.workspace_id)
    quota = quotas.quotas_of(workspace)["max_waiting_runs"]
    number = count_requested(workspace, quota)
    if number >= quota and pauses.is_paused(user) is None:
        number = count_requested(workspace, quota, paused=False)
    if number >= quota:
        has = (
            "The number of queries, questions, proposals and imports that are queued or running is"
            f" {number:,}"
        )
        quotas.refuse_for_now(workspace, "max_waiting_runs", has, RUNS_WAIT)
    _requested[user.workspace_id] = (now + quotas.BELIEVED_SECONDS, number + 1, FAR * quota)


def count_requested(workspace: Workspace, most: int, *, paused: bool = True) -> int:
    """Count the unfinished runs that someone requested, up to `most`.

    Runs of paused users are included only if `paused` is set.
    """
    with connection.cursor() as cursor:
        cursor.execute(REQUESTED, [workspace.pk, *ASKED_FOR, RunStatus.DONE, paused, most])
        (number,) = cursor.fetchone()
    return int(number)
