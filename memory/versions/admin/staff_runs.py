"""Runs that staff start from a page, such as queries in the console."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff import access
from memory.kernel.users import UserMerged, refuse_merged
from memory.log import content_policy, sensitive_text
from memory.versions import past_states, runs
from memory.versions.checkpoints import Redacted
from memory.versions.models.runs import Run, RunKind, RunTrigger

# The errors that mean a run was rejected.
REFUSED = (
    past_states.NoState,
    UserMerged,
    past_states.BeingRedacted,
    Redacted,
    LimitExceeded,
    sensitive_text.NotAdmitted,
)
# Seconds that a page waits for a run it has started.
_WAIT_SECONDS = 5.0


def may_ask(request: HttpRequest) -> bool:
    """Return whether a staff member may run queries.

    This requires access to content and permission to act on runs.
    """
    runs = admin.site.get_model_admin(Run)
    allowed: bool = runs.has_operate_permission(request)  # type: ignore[attr-defined]
    sees = access.sees_content(request.user) and runs.has_view_permission(request)
    return allowed and sees


def wait_a_little(run: Run) -> None:
    """Wait briefly for a run that a page has started, so that the page usually shows the result."""
    runs.wait_for(run, min(_WAIT_SECONDS, float(settings.UAC_MAX_WAIT_SECONDS)))


def asked_run(request: HttpRequest, user: MemoryUser, rows: QuerySet[Run]) -> Run | None:
    """Return the run given in the URL, or None if there is none.

    Raises Http404 if that run isn't one of the user's `rows`.
    """
    key = request.GET.get("run")
    if key is None:
        return None
    try:
        run = rows.get(pk=uuid.UUID(key))
    except (ValueError, Run.DoesNotExist):
        raise Http404("This user has no such run.") from None
    run.user = user
    return run


def propose(
    user: MemoryUser, edits: Sequence[Mapping[str, Any]], *, expects: Mapping[str, str], staff: str
) -> Run:
    """Queue a staff member's edits to the newest version of a user's project for the gate.

    The edits are rejected unless the files still have the hashes in `expects`, which maps each path
    to a hash, or to "" if the file did not exist. Raises `LimitExceeded` if too many requested
    runs are already waiting, and other errors if the user has been merged or is being redacted.
    """
    refuse_merged(user)
    past_states.refuse_being_redacted(user)
    content_policy.refuse_sensitive(user.workspace.content_policy, {"edits": list(edits)})
    return runs.queue(
        user,
        RunKind.PROPOSAL,
        RunTrigger.STAFF,
        checkpoint=user.head,
        input={"edits": [dict(edit) for edit in edits], "expects": dict(expects)},
        asked_by=staff,
    )
