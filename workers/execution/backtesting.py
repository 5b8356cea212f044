"""Backtests: run a constraint over the past versions of users' projects, one user at a time.

For each stretch of versions in which nothing that the constraint reads changed, a forecast gives
the times at which the constraint's findings could have changed. The constraint is run as of each of
these times.
"""

import datetime
import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.conf import settings
from django.utils import timezone

from memory.constraints import applicability, backtests, forecasts
from memory.constraints.models.backtests import Backtest, BacktestState
from memory.constraints.simulated_alerts import BacktestIssue, Evaluation, simulate_alerts
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases
from memory.log.models.entries import By
from memory.project import Outline
from memory.project.errors import RunError
from memory.versions import computed_states, redactions, runs
from memory.versions.checkpoints import AnyState
from memory.versions.models.checkpoints import Checkpoint
from workers.execution import forecasting
from workers.execution.loading import Compile, LoadPlan, compiling, loaded
from workers.execution.results import findings_of, found_too_much
from workers.policy.checks import check_policy
from workers.sandbox.client import Sandbox
from workers.sandbox.results import SandboxError

logger = structlog.get_logger(__name__)

# Seconds that a worker spends on a backtest before moving on to other tasks; the second limit
# applies while runs are waiting.
SLICE_SECONDS = 30.0
HURRIED_SECONDS = 3.0
# Maximum number of seconds spent on one user's history; the findings for the rest of the history
# are unknown.
USER_SECONDS = 120.0
KILLED = "the worker was killed repeatedly"
# Errors that a constraint raises if it runs on a version older than the version it was written for.
_NOT_THERE = ("ImportError", "ModuleNotFoundError")


def go_on(backtest: Backtest) -> None:
    """Continue a backtest that the caller has claimed, for a limited time."""
    begun = time.monotonic()
    if backtest.state == BacktestState.WAITING:
        leases.write(backtest, state=BacktestState.RUNNING, started_at=timezone.now())
    if (refused := _refused(backtest)) is not None:
        backtests.give_up(backtest, refused)
        return
    if not backtest.report:
        if backtest.attempts > settings.UAC_MAX_ATTEMPTS:
            backtests.give_up(backtest, backtest.last_error or KILLED, ours=True)
            return
        backtests.select_users(backtest)
    for pk in [int(pk) for pk, result in backtest.report["users"].items() if result is None]:
        _evaluate(backtest, MemoryUser.everybody.select_related("workspace").get(pk=pk))
        passed = time.monotonic() - begun
        hurried = passed > HURRIED_SECONDS and runs.are_waiting()
        if hurried or passed > SLICE_SECONDS:
            now = timezone.now()  # move this backtest to the back: see dispatching.hint_backtests
            leases.release(backtest, run_after=now, hinted_at=now if hurried else None)
            return
    backtests.finish(backtest)
    logger.info("backtest_done")


def _refused(backtest: Backtest) -> str | None:
    """Return why the policy forbids the source as a user's own constraint; None if it doesn't."""
    head = backtest.user.head if backtest.user else None
    if head is None or head.tree.get(backtest.constraint) == backtest.source_hash:
        return None  # a workspace constraint, or a constraint that passed the gate
    findings = check_policy(backtest.constraint, backtests.own_source(backtest))
    problems = [f"line {finding.line}: {finding.message}" for finding in findings]
    return "; ".join(problems) or None


def _evaluate(backtest: Backtest, user: MemoryUser) -> None:
    """Process one user: store the alerts and problems or, after too many attempts, the failure."""
    if backtest.attempts > settings.UAC_MAX_ATTEMPTS:  # each attempt's worker was killed
        _store_failure(backtest, user, backtest.last_error or KILLED)
        return
    try:
        history = _History(backtest, user)
        alerts, problems = simulate_alerts(history.evaluations(), user.workspace.alert_limits)
    except computed_states.NotComputable as error:
        _store_failure(backtest, user, str(error))
    except Exception as error:
        if backtest.attempts < settings.UAC_MAX_ATTEMPTS and _is_alive(user):
            raise
        logger.exception("user_given_up")
        _store_failure(backtest, user, f"{type(error).__name__}: {error}")
    else:
        backtests.store_result(backtest, user, alerts, problems)


def _is_alive(user: MemoryUser) -> bool:
    return MemoryUser.objects.filter(pk=user.pk).exists()


def _store_failure(backtest: Backtest, user: MemoryUser, error: str) -> None:
    failed = BacktestIssue(kind="failed", message=error)
    backtests.store_result(backtest, user, [], [failed.to_json()])


@dataclass
class _Stretch:
    """Consecutive versions of a user in which nothing that the constraint reads changed.

    `versions` contains the time at which each version became the head, and the version's number.
    `plan` loads the first version and the constraint. If `key` is empty, the constraint does not
    run.
    """

    plan: LoadPlan
    key: str
    start: datetime.datetime
    end: datetime.datetime
    problem: BacktestIssue | None = None
    versions: list[tuple[datetime.datetime, int]] = field(default_factory=list)

    def version_at(self, at: datetime.datetime) -> int:
        return max(version for start, version in self.versions if start <= max(at, self.start))


class _History:
    """The findings that a constraint would have had for one user, collected step by step."""

    def __init__(self, backtest: Backtest, user: MemoryUser) -> None:
        self._user, self._path, self._hash = user, backtest.constraint, backtest.source_hash
        self._constraint = (
            applicability.make_live_copy(backtest.version) if backtest.version else None
        )
        self._since = backtest.until - datetime.timedelta(days=backtest.days)
        self._until = backtest.until
        self._by = By(backtest.by)
        self._compile: Compile | None = None
        self._deadline = time.monotonic() + USER_SECONDS
        self._has_ended = False

    def evaluations(self) -> Iterator[Evaluation]:
        """Yield the findings as of each time at which the findings may have changed."""
        with compiling() as self._compile:
            yield from self._evaluations()

    def _evaluations(self) -> Iterator[Evaluation]:
        for stretch in self._stretches():
            if time.monotonic() > self._deadline:
                yield self._unknown(stretch, stretch.start, "the history is too long", ends=True)
                return
            if stretch.problem is not None:
                yield self._moment(stretch, stretch.start, problem=stretch.problem)
            elif not stretch.key:
                yield self._moment(stretch, stretch.start)
            else:
                try:
                    with loaded(stretch.plan, compile_=self._compile) as sandbox:
                        yield from self._look(sandbox, stretch)
                except SandboxError as error:
                    if error.infrastructure:
                        raise
                    problem = _error(error.run_error)
                    yield self._moment(stretch, stretch.start, problem=problem)
            if self._has_ended:
                return

    # -- The user's versions ----------------------------------------------------------------------

    def _stretches(self) -> Iterator[_Stretch]:
        current: _Stretch | None = None
        versions = self._heads() if self._by == By.RECORDED else self._occurrences()
        for checkpoint, start, end in versions:
            if current is not None and time.monotonic() > self._deadline:
                break  # the caller reports that the history is too long
            stretch = self._stretch(checkpoint, start, end)
            same = current is not None and (current.key, current.problem, current.end) == (
                *(stretch.key, stretch.problem, stretch.start),
            )
            if current is not None and same:
                current.end = end
                current.versions += stretch.versions
                continue
            if current is not None:
                yield current
            current = stretch
        if current is not None:
            yield current

    def _occurrences(self) -> Iterator[tuple[AnyState, datetime.datetime, datetime.datetime]]:
        """Yield the period's states, with start and end, ordered by the entries' own timestamps.

        Raises computed_states.NotComputable if the states cannot be reconstructed in this order.
        """
        versions = Checkpoint.objects.filter(user=self._user, created_at__lt=self._until)
        head = versions.select_related("user").order_by("-version").first()
        if head is None:
            return
        states = computed_states.occurrences(head, self._since, self._until)
        start: datetime.datetime | None = None
        last: AnyState = head
        for moment, state in states:
            if start is not None:
                yield last, start, moment
            start, last = moment, state
        if start is not None:
            yield last, start, self._until

    def _heads(self) -> Iterator[tuple[Checkpoint, datetime.datetime, datetime.datetime]]:
        """Yield the versions that were the head during the period, each with its start and end."""
        versions = Checkpoint.objects.filter(user=self._user, created_at__lt=self._until)
        before = versions.filter(created_at__lte=self._since).order_by("-version")
        first = before.values_list("version", flat=True).first() or 0
        rows = versions.filter(version__gte=first).order_by("version")
        last: Checkpoint | None = None
        start = self._since
        for checkpoint in defer_large(rows, keep=["tree", "outline"]).iterator(chunk_size=20):
            # Begin no earlier than the previous version, even if a worker's clock was wrong.
            begin = max(checkpoint.created_at, start)
            if last is not None and start < begin:
                yield last, start, begin
            last, start = checkpoint, begin
        if last is not None:
            yield last, start, self._until

    def _stretch(
        self, checkpoint: AnyState, start: datetime.datetime, end: datetime.datetime
    ) -> _Stretch:
        versions = [(start, checkpoint.version)]
        problem = self._redacted(checkpoint)
        if problem is not None:
            plan = LoadPlan(self._user, checkpoint)
            return _Stretch(plan, "", start, end, problem, versions)
        if self._constraint is None:
            own = computed_states.replace_constraint(checkpoint, self._path, self._hash)
            plan = LoadPlan(self._user, own, applicabilities=[])
            keys = forecasting.keys_of(plan, own=[self._path])
        else:
            outline = Outline.from_json(checkpoint.outline)
            result = applicability.applicability_of(self._constraint, self._user, outline)
            plan = LoadPlan(self._user, checkpoint, applicabilities=[result])
            keys = forecasting.keys_of(plan, own=[]) if result.applies else {}
        return _Stretch(plan, keys.get(self._path, ""), start, end, None, versions)

    @functools.cached_property
    def _redactions(self) -> list[tuple[int, datetime.datetime]]:
        return redactions.moments(self._user.pk)

    def _redacted(self, checkpoint: AnyState) -> BacktestIssue | None:
        seq = redactions.first_since(checkpoint, self._redactions)
        if seq is None:
            return None
        return BacktestIssue(
            kind="redacted", message=f"these versions use entry {seq}, which has been redacted"
        )

    # -- The findings for these versions ----------------------------------------------------------

    def _look(self, sandbox: Sandbox, stretch: _Stretch) -> Iterator[Evaluation]:
        plan, at = stretch.plan, stretch.start
        while True:
            (foreseen,) = sandbox.forecast(
                [self._path],
                now=at,
                until=stretch.end,
                time_zone=self._user.time_zone,
                bindings=plan.bindings,
                limits=plan.allowance.limits,
            ).results
            # If the constraint can't be forecast, only its findings at the start of the stretch are
            # known.
            changes = [(change.at, change.error or change.findings) for change in foreseen.changes]
            for number, (when, status) in enumerate(changes or [("", "unknown")]):
                instant = at if not number else forecasts.instant_of(when, self._user.time_zone)
                if instant >= stretch.end:
                    break
                if time.monotonic() > self._deadline:
                    yield self._unknown(
                        stretch, instant, "the findings change too often", ends=True
                    )
                    return
                if not status:
                    yield self._moment(stretch, instant)
                    continue
                yield self._run(sandbox, stretch, instant)
            if foreseen.error is not None and not self._lacks(foreseen.error):
                reason = f"{foreseen.error.type}: {foreseen.error.message}"
                yield self._unknown(stretch, at, f"the constraint cannot be forecast: {reason}")
                return
            if foreseen.error is not None or foreseen.until is None:
                return
            later = forecasts.instant_of(foreseen.until, self._user.time_zone)
            if later >= stretch.end:
                return
            late = time.monotonic() > self._deadline
            if late or later <= at:
                reason = "the constraint would have to run too often"
                yield self._unknown(stretch, max(later, at), reason, ends=late)
                return
            at = later

    def _run(self, sandbox: Sandbox, stretch: _Stretch, at: datetime.datetime) -> Evaluation:
        (result,) = stretch.plan.run_constraints(sandbox, at, [self._path]).results
        if result.error is None:
            return self._moment(stretch, at, findings=findings_of(result))
        if found_too_much(result):
            most = stretch.plan.allowance.limits.alerts
            problem = BacktestIssue(
                kind="alert_limit", message=f"it raised more than {most} alerts at once"
            )
            return self._moment(stretch, at, problem=problem)
        if self._lacks(result.error):
            return self._moment(stretch, at)
        return self._moment(stretch, at, problem=_error(result.error))

    def _lacks(self, error: RunError) -> bool:
        """Return whether a user's own constraint imports something that the version lacks."""
        return self._constraint is None and error.type in _NOT_THERE

    def _moment(self, stretch: _Stretch, at: datetime.datetime, **columns: Any) -> Evaluation:
        return Evaluation(at=at, version=stretch.version_at(at), **columns)

    def _unknown(
        self, stretch: _Stretch, at: datetime.datetime, why: str, *, ends: bool = False
    ) -> Evaluation:
        """Report the findings for these versions as unknown from the given time on.

        If `ends` is set, the findings for later versions are unknown as well.
        """
        if ends:
            self._has_ended = True
        return self._moment(stretch, at, problem=BacktestIssue(kind="unknown", message=why))


def _error(error: RunError) -> BacktestIssue:
    where = f" at line {error.line}" if error.line else ""
    return BacktestIssue(kind="error", message=f"failed{where}: {error.type}: {error.explanation}")
