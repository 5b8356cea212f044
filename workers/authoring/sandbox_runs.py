"""Runs that the language model's work needs, which sandbox workers carry out."""

import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from memory.models import Lane, MemoryUser, Run
from memory.models.runs import RunKind, RunOutcome, RunStatus, RunTrigger
from memory.recall import retrieval
from memory.work import leases, runs
from workers.authoring import prompts
from workers.authoring.workbench import ToolFailed


class NotJudged(Exception):
    """No sandbox worker has judged the proposed edits; worth another attempt."""


class NotJudgedYet(NotJudged):
    """The edits may still be judged: asking the model again now would mean paying twice."""


class SandboxRuns:
    """The runs for some entries of a lane, the newest of which is from the moment `at`.

    Constraints run as of that moment, not as of the server's day: a log may be imported years
    later.
    """

    def __init__(self, lane: Lane, at: datetime.datetime) -> None:
        self._lane = lane
        self.at = at

    def complete(self, user: MemoryUser, kind: RunKind, input: dict[str, Any]) -> Run:
        """Queue a run on the user's version, wait for it, and return it.

        Raises NotJudgedYet, and LeaseLost if the lane was lost, since its content may then have
        been redacted.
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
        runs.wait(run, settings.UAC_GATE_SECONDS)
        if run.status != RunStatus.DONE:
            raise NotJudgedYet(
                f"no sandbox worker finished run {run.pk} within {settings.UAC_GATE_SECONDS:g} s"
            )
        return run

    def query(self, user: MemoryUser, code: str) -> Any:
        """Return the value of a query on the user's version; raise ToolFailed if it fails."""
        run = self.complete(user, RunKind.QUERY, {"code": code})
        if run.outcome != RunOutcome.OK:
            raise ToolFailed(f"The search failed: {(run.error or {})['message']}")
        return (run.output or {})["value"]

    def alerts(self, user: MemoryUser) -> str:
        """Return the alerts of the user's version, on the day of the newest entry.

        The stored alerts may belong to an earlier version, and are those of the server's current
        day.
        """
        if not retrieval.may_alert(user):
            return ""
        run = self.complete(user, RunKind.PROPOSAL, {"edits": [], "dry_run": True})
        verdict = (run.output or {}).get("verdict", {})
        return prompts.alerts(verdict) if verdict.get("day") else ""
