"""Scheduling language model work for a user in batches, because each attempt costs money.

Work is due as soon as enough entries are waiting, no entry has arrived for a while, the oldest
entry has waited long enough, or an entry is urgent (`"urgent": true` in its metadata). The
operator's settings (`UAC_STRUCTURE_…`) apply to all workspaces unless a workspace overrides them.
"""

import datetime
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import connection

# Waiting entries are counted only up to this number.
MAX_ENTRIES = 1000

# Work that is already due stays due. Otherwise, the new entries and those already waiting determine
# when it becomes due. New entries also shorten the wait after a failure: to the longest time an
# entry may wait, or to zero if one of them is urgent.
ANNOUNCE = """
UPDATE memory_lane AS lane SET
    waiting = lane.waiting + %(number)s,
    waiting_since = coalesce(lane.waiting_since, %(first)s),
    due_at = CASE
        WHEN lane.due_at <= %(now)s THEN lane.due_at
        WHEN %(urgent)s
            OR lane.waiting + %(number)s >= coalesce(workspace.structure_entries, %(entries)s)
        THEN %(now)s
        ELSE greatest(%(now)s, least(
            %(last)s + make_interval(
                secs => coalesce(workspace.structure_idle_seconds, %(idle_seconds)s)),
            coalesce(lane.waiting_since, %(first)s) + make_interval(
                secs => coalesce(workspace.structure_age_seconds, %(age_seconds)s))
        ))
    END,
    run_after = least(lane.run_after, %(now)s + make_interval(secs => CASE
        WHEN %(urgent)s THEN 0
        ELSE coalesce(workspace.structure_age_seconds, %(age_seconds)s)
    END))
FROM memory_memoryuser AS person
    JOIN memory_workspace AS workspace ON workspace.id = person.workspace_id
WHERE person.id = %(user)s AND lane.user_id = person.id AND lane.name = 'structure'
RETURNING lane.due_at = %(now)s, workspace.llm_model
"""


def announce(
    user_pk: int,
    number: int,
    *,
    first: datetime.datetime,
    last: datetime.datetime,
    urgent: bool,
    now: datetime.datetime,
) -> bool:
    """Add `number` waiting entries, recorded between `first` and `last`, and set when work is due.

    The caller must have locked the user's row. Returns whether to wake the workers: true if this
    call made the work due and the workspace has a language model.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            ANNOUNCE,
            {
                "user": user_pk,
                "number": number,
                "first": first,
                "last": last,
                "urgent": urgent,
                "now": now,
                "entries": settings.UAC_STRUCTURE_ENTRIES,
                "idle_seconds": settings.UAC_STRUCTURE_IDLE_SECONDS,
                "age_seconds": settings.UAC_STRUCTURE_AGE_SECONDS,
            },
        )
        become_due, own_model = cursor.fetchone()
    return bool(become_due and (own_model or settings.UAC_LLM_MODEL))


def is_urgent(metadata: Mapping[str, Any] | None) -> bool:
    """Return whether an entry with this metadata should be processed without waiting."""
    return metadata is not None and metadata.get("urgent") is True


def describe_batching(holds: Mapping[str, int]) -> str:
    """Describe to staff when work begins with these settings."""
    return (
        f"when {holds['structure_entries']} of a user's entries are waiting, no entry has arrived"
        f" for {holds['structure_idle_seconds']} s, the oldest entry has waited for"
        f" {holds['structure_age_seconds']} s, or an entry is urgent"
    )
