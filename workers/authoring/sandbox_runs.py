"""Runs that sandbox workers perform on behalf of the language model."""

import datetime
from typing import Any

from django.db import transaction

from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.work import leases
from memory.recall import retrieval
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from workers.authoring import prompts
from workers.authoring.workbench import ToolFailed

# How long a sandbox worker may take, queue included, to check the model's edits.
GATE_SECONDS = 600.0


class NotJudged(Exception):
    """No sandbox worker has judged the proposed edits; retrying may succeed."""


class NotJudgedYet(NotJudged):
    """The edits may yet be judged, so asking the model again now would mean paying twice."""


class SandboxRuns:
    """Sandbox runs for some of a lane's entries; `at` is the newest entry's timestamp.

    Constraints run as of `at` rather than today, because a log may be imported years after it was
    written.
    """

    def __init__(self, lane: Lane, at: datetime.datetime) -> None:
        self._lane = lane
        self.at = at

    def complete(self, user: MemoryUser, kind: RunKind, input: dict[str, Any]) -> Run:
        """Queue a run on the user's newest version, wait for it to finish, and return it.

        Raises NotJudgedYet if no sandbox worker finishes the run in time, and LeaseLost if the
        lane's lease has been lost, since the run's input may then contain redacted content.
        """
        with transaction.atomic():
            leases.check(self._lane)
            run = runs.queue(
                user,
                kind,
                RunTrigger.MODEL,
                checkpoint=user.head,
                instant=self.at,
                input=input,
            )
        runs.wait(run, GATE_SECONDS)
        if run.status != RunStatus.DONE:
            raise NotJudgedYet(f"no sandbox worker finished run {run.pk} within {GATE_SECONDS:g} s")
        return run

    def query(self, user: MemoryUser, code: str) -> Any:
        """Return a query's value on the user's newest version; raise ToolFailed on failure."""
        run = self.complete(user, RunKind.QUERY, {"code": code})
        if run.outcome != RunOutcome.OK:
            raise ToolFailed(f"The search failed: {(run.error or {})['message']}")
        return (run.output or {})["value"]

    def alerts(self, user: MemoryUser) -> str:
        """Describe the alerts that the user's newest version raises on the newest entry's day.

        The alerts in the database aren't used: they may belong to an earlier version, and they are
        those for the current day.
        """
        if not retrieval.may_alert(user):
            return ""
        outlook = self.complete(user, RunKind.OUTLOOK, {}).output or {}
        return prompts.alerts(outlook) if outlook.get("day") else ""
