"""The kinds of work that workers do.

Each kind is one entry of `KINDS`; Celery's tasks and their queues, the dispatcher, stuck work,
alarms, metrics and the admin's lists derive from it. To add a kind, add an entry and the function
that does the work.

Functions are named by text ("package.module:name"), since this module is imported by those that
announce work, and must not import what does it.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pkgutil import resolve_name
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from memory.kernel.models.leased import LeasedWork


def _all(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows


@dataclass(frozen=True)
class WorkKind:
    """A kind of work. `waiting` selects all work of this kind that has to be done, now or later.

    `does` does one piece of work: it takes the claimed row, and returns True if more of the same
    may be due. `queue` is the Celery queue of the workers that can do it, and `label` names the
    work for people.
    """

    name: str
    label: str
    queue: str
    waiting: str
    does: str
    _: KW_ONLY
    # The field whose value a hint carries: a worker claims the free row with this value.
    key: str = "pk"
    # Claims by other rules: takes the hint's value, returns the row or None.
    claims: str = ""
    # Called with the row once it is no longer held.
    afterwards: str = ""
    # The column that stores when the work became due; "" if there is none.
    since: str = "due_at"
    # The field that refers to the owner (a user, a workspace or another row), and the path to the
    # workspace, if there is one.
    owner: str = "user"
    workspace: str | None = "user__workspace"
    # Nobody waits for work that is not urgent: other work comes first.
    urgent: bool = True
    # How many rows of this kind may be in progress, in all and while runs wait; None: any number.
    most: int | None = None
    most_beside_runs: int | None = None
    # Selects the work that a worker may begin now; "" means all work that no worker holds.
    ready: str = ""
    # Selects the rows that hints are sent for, each with its workspace, if these are not the work's
    # own rows.
    hinted: str = ""
    # Selects the work that may fail permanently, and retries such work; deletes what is old.
    mortal: str = ""
    retries: str = ""
    purges: str = ""
    # Errors may quote personal data, so only their types are stored.
    hides_errors: bool = False
    # Restricts the work, to what a staff member may see for example.
    narrow: Callable[[QuerySet[Any]], QuerySet[Any]] = _all

    @property
    def task(self) -> str:
        """The name of the Celery task."""
        return f"workers.{self.name}"

    @cached_property
    def model(self) -> type[LeasedWork]:
        """The model whose rows represent the work."""
        model: type[LeasedWork] = self.work().model
        return model

    def work(self) -> QuerySet[Any]:
        """Select all work of this kind, held work included."""
        return self._select(self.waiting)

    def ready_work(self) -> QuerySet[Any] | None:
        """Select the work that a worker may begin now; None: all work that no worker holds."""
        return self._select(self.ready) if self.ready else None

    def failing(self) -> QuerySet[Any]:
        """Select work that has failed several times and is still being retried."""
        return self.work().filter(attempts__gte=settings.UAC_STUCK_ATTEMPTS)

    def dead(self) -> QuerySet[Any]:
        """Select work that has failed permanently."""
        if not self.mortal:
            return self.model._default_manager.none()
        return self._select(self.mortal).filter(dead_since__isnull=False)

    def within(self, narrow: Callable[[QuerySet[Any]], QuerySet[Any]]) -> "WorkKind":
        """Return the same kind, restricted to the work that `narrow` keeps."""
        return replace(self, narrow=narrow)

    def _select(self, name: str) -> QuerySet[Any]:
        return self.narrow(resolve_name(name)())


_KINDS = (
    WorkKind(
        "records",
        "typed records",
        "sandbox",
        "memory.log.lanes:due_with_records",
        "workers.commits.typed_entries:settle_pending",
        key="user_id",
    ),
    WorkKind(
        "structure",
        "language model work",
        "llm",
        "memory.log.lanes:due_for_models",
        "workers.authoring.lane:settle_pending",
        key="user_id",
        claims="memory.llm.llm_turns:claim_lane",
        afterwards="memory.llm.llm_turns:pass_on",
        urgent=False,
    ),
    WorkKind(
        "runs",
        "runs",
        "sandbox",
        "memory.versions.runs:waiting",
        "workers.runs:execute",
        claims="memory.versions.runs:claim",
        since="queued_at",
        mortal="memory.versions.runs:select_for_sandboxes",
        retries="memory.versions.runs:try_again",
    ),
    WorkKind(
        "questions",
        "questions",
        "llm",
        "memory.versions.runs:questions",
        "workers.runs:execute",
        claims="memory.llm.llm_turns:claim_question",
        afterwards="memory.llm.llm_turns:pass_on",
        since="queued_at",
        mortal="memory.versions.runs:select_for_models",
        retries="memory.versions.runs:try_again",
    ),
    WorkKind(
        "redactions",
        "redactions",
        "sandbox",
        "memory.privacy.redaction:waiting",
        "workers.commits.redactions:redact",
        key="user_id",
    ),
    WorkKind(
        "erasures",
        "user erasures",
        "default",
        "memory.privacy.user_erasure:waiting",
        "memory.privacy.user_erasure:erase",
        hides_errors=True,
    ),
    WorkKind(
        "documents",
        "documents",
        "sandbox",
        "memory.log.documents:waiting",
        "workers.documents.converter:convert",
        urgent=False,
    ),
    WorkKind(
        "merges",
        "user merges",
        "default",
        "memory.integrations.merging:waiting",
        "memory.integrations.merging:copy_entries",
    ),
    WorkKind(
        "deliveries",
        "webhook messages",
        "default",
        "memory.alerts.delivery.delivery_attempts:pending",
        "workers.delivery.webhooks:send",
        claims="memory.alerts.delivery.delivery_attempts:claim",
        since="created_at",
        owner="endpoint",
        workspace="endpoint__workspace",
        ready="memory.alerts.delivery.delivery_attempts:sendable",
        hinted="memory.alerts.delivery.delivery_attempts:waiting",
        mortal="memory.alerts.models.webhooks:Delivery.objects.all",
        retries="memory.alerts.delivery.outbox:try_again",
        purges="memory.alerts.delivery.outbox:purge",
    ),
    WorkKind(
        "versions",
        "unchecked workspace constraints",
        "sandbox",
        "memory.constraints.workspace_constraints:unjudged",
        "workers.gate.workspace_constraints:judge_version",
        since="created_at",
        owner="constraint",
        workspace="constraint__workspace",
    ),
    WorkKind(
        "mails",
        "emails to staff",
        "default",
        "memory.alerts.delivery.staff_mail:waiting",
        "workers.delivery.mailing:send",
        claims="workers.delivery.mailing:claim",
        since="",
        owner="staff",
        workspace=None,
    ),
    WorkKind(
        "indexes",
        "search indexes",
        "default",
        "memory.recall.search.announcing:waiting",
        "memory.recall.search.index_maintenance:keep_up",
        key="user_id",
        urgent=False,
    ),
    WorkKind(
        "forecasts",
        "forecasts",
        "sandbox",
        "memory.constraints.forecasts:waiting",
        "workers.execution.forecasting:make",
        key="user_id",
        urgent=False,
        most=20,
        most_beside_runs=2,
        mortal="memory.constraints.models.forecasts:Forecast.objects.all",
        retries="memory.constraints.forecasts:try_again",
    ),
    WorkKind(
        "backtests",
        "backtests",
        "sandbox",
        "memory.constraints.backtests:waiting",
        "workers.execution.backtesting:go_on",
        since="created_at",
        owner="workspace",
        workspace="workspace",
        urgent=False,
        most=2,
        most_beside_runs=2,
        mortal="memory.constraints.models.backtests:Backtest.objects.all",
        retries="memory.constraints.backtests:try_again",
        purges="memory.constraints.backtests:purge",
    ),
)
KINDS: Mapping[str, WorkKind] = {kind.name: kind for kind in _KINDS}
