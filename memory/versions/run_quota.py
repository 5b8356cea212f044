"""The quota of runs that somebody waits for."""

import time

from django.db import connection

from memory.kernel.admission import pauses, refusals, usage
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import table
from memory.versions.models.runs import ASKED_FOR as ASKED_TRIGGERS
from memory.versions.models.runs import RunStatus

# Below this share of the quota, runs are admitted based on the last count plus the runs that this
# process has admitted since.
FAR = 0.5


RUNS_WAIT = 5.0


# Counts requested runs that are not done, up to the limit. Paused users' runs can be left out: such
# runs aren't executed, so they delay nobody.
ASKED_FOR = """
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
_asked_lately: dict[int, tuple[float, int, float]] = {}


def check_runs(user: MemoryUser) -> None:
    """Raise Exceeded if the user's workspace has its maximum number of runs queued or running.

    If the number of runs is far below the quota, a process does not recount on every call, so it
    misses the runs that other processes have just admitted.
    """
    now = time.monotonic()
    until, asked_for, far = _asked_lately.get(user.workspace_id, (0.0, 0, 0.0))
    if now < until and asked_for < far:
        _asked_lately[user.workspace_id] = (until, asked_for + 1, far)
        return
    needed = ("public_id", *table.QUOTAS.overridable)
    workspace = Workspace.objects.only(*needed).get(pk=user.workspace_id)
    most = usage.quotas_of(workspace)
    quota = most["max_waiting_runs"]
    asked_for = count_requested(workspace, quota)
    if asked_for >= quota and pauses.is_paused(user) is None:
        asked_for = count_requested(workspace, quota, paused=False)
    if asked_for >= quota:
        refusals.count(workspace, "max_waiting_runs")
        going_on = (
            "The number of queries, questions, proposals and imports that are queued or running is"
            f" {asked_for:,}"
        )
        raise usage.busy("max_waiting_runs", going_on, most, RUNS_WAIT)
    _asked_lately[user.workspace_id] = (now + usage.BELIEVED_SECONDS, asked_for + 1, FAR * quota)


def count_requested(workspace: Workspace, most: int, *, paused: bool = True) -> int:
    """Count the unfinished runs that someone requested, up to `most`.

    Runs of paused users are included only if `paused` is set.
    """
    with connection.cursor() as cursor:
        cursor.execute(ASKED_FOR, [workspace.pk, *ASKED_TRIGGERS, RunStatus.DONE, paused, most])
        (number,) = cursor.fetchone()
    return int(number)
