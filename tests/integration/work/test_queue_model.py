"""The work queue as a state machine: whatever workers and clocks do, nothing is lost or done twice.

Hypothesis makes up histories of appends, runs, claims, renewals, commits, failures, stops, kills
and crashes of the database, with time passing between them. A small model foretells each result,
and invariants are checked after each step on the real rows.
"""

import datetime
import socket
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import hypothesis
import pytest
import time_machine
from django.conf import settings as server
from django.db import transaction
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from pytest_django.fixtures import Settings

from memory.kernel.models.users import Lane, LaneName
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.kernel.work.kinds import KINDS
from memory.kernel.work.leases import LeaseLost
from memory.log import lanes
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunOutcome
from tests.factories import make_checkpoint, make_run
from tests.properties import examples
from tests.steps import append_records, append_texts
from workers.service import dispatching

LEASE = datetime.timedelta(seconds=60)
STEPS = st.sampled_from([0.2, 1, 10, 61, 3600])  # seconds
HOSTS = st.sampled_from(["one", "two"])


@dataclass
class Row:
    """What the model expects of a row of work."""

    kind: str
    key: Any
    token: int = 0
    attempts: int = 0
    holder: "Claim | None" = None
    expires: datetime.datetime | None = None
    run_after: datetime.datetime = field(default_factory=timezone.now)
    hinted_at: datetime.datetime | None = None
    is_done: bool = False
    error: str = ""

    def is_free(self) -> bool:
        now = timezone.now()
        is_idle = self.expires is None or self.expires <= now
        return not self.is_done and is_idle and self.run_after <= now + leases.SKEW

    def free(self) -> None:
        self.holder = self.expires = None


@dataclass(eq=False)
class Claim:
    """A claim that some worker believes in, and the columns of the row before it."""

    row: Row
    work: Any
    before: dict[str, Any]
    model_before: tuple[int, int]


class Queue(RuleBasedStateMachine):
    """Workers on two hosts, one user's lane of typed records, and runs of his newest version."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.rollback = transaction.atomic()
        self.rollback.__enter__()
        self.clock = time_machine.travel(timezone.now(), tick=False)
        self.traveller = self.clock.start()
        workspace = Workspace.objects.create(name="queue")
        self.user = create_user(workspace, "ada", metadata=None)
        self.version = make_checkpoint(self.user)
        self.lane = Row("records", self.user.pk, is_done=True)
        self.rows: list[Row] = [self.lane]
        self.entries: list[EntryKind] = []
        self.settled: set[int] = set()
        self.finished: dict[str, dict[str, int]] = {}

    def teardown(self) -> None:
        """Let time pass and workers come: then everything must be done."""
        try:
            for row in self.rows:
                for _ in range(3):
                    self.traveller.shift(7200)
                    if (claim := self._claim(row, "last")) is not None:
                        self._commit(claim, len(self.entries))
                assert row.is_done
            self.rows_are_as_expected()
            assert self.settled == set(self._records())
        finally:
            self.clock.stop()
            transaction.set_rollback(True)
            self.rollback.__exit__(None, None, None)

    @rule(number=st.integers(1, 3), is_typed=st.booleans())
    def append(self, number: int, is_typed: bool) -> None:
        if is_typed:
            append_records(self.user, *[{"type": "Trip"}] * number)
            self.lane.is_done = False
        else:
            append_texts(self.user, *["hi"] * number)
        self.entries += [EntryKind.RECORD if is_typed else EntryKind.MESSAGE] * number

    @rule()
    def queue_run(self) -> None:
        run = make_run(self.version, kind=RunKind.QUERY)
        self.rows.append(Row("runs", str(run.pk)))

    @rule(target=claims, data=st.data(), host=HOSTS)
    def claim(self, data: st.DataObject, host: str) -> Any:
        claimed = self._claim(data.draw(st.sampled_from(self.rows)), host)
        return multiple() if claimed is None else claimed

    @rule(claim=claims)
    def renew(self, claim: Claim) -> None:
        leases._renew(claim.work)
        if claim.row.holder is claim:
            claim.row.expires = timezone.now() + LEASE

    @rule(claim=claims, number=st.integers(1, 5))
    def commit(self, claim: Claim, number: int) -> None:
        """Settle the oldest entries of a lane, or finish a run, and release the row."""
        self._commit(claim, number)

    @rule(claim=claims, counts=st.booleans(), wait=st.sampled_from([None, 600]))
    def fail(self, claim: Claim, counts: bool, wait: int | None) -> None:
        now = timezone.now()
        until = now + datetime.timedelta(seconds=wait) if wait else None
        leases.fail(claim.work, "no sandbox", until=until, counts=counts)
        row = claim.row
        if row.holder is claim:
            backoff = datetime.timedelta(seconds=min(2 ** (claim.work.attempts - 1), 300))
            row.run_after = max(now + backoff, until or now)
            row.error = "no sandbox"
            row.attempts = claim.work.attempts - (not counts)
            row.free()

    @rule(claim=claims)
    def stop(self, claim: Claim) -> None:
        """The worker that believes in this claim stops, and gives back what it holds."""
        with leases.kept(claim.work):
            assert leases.give_back_all() == (claim.row.holder is claim)
        if claim.row.holder is claim:
            claim.row.token += 1
            claim.row.attempts -= 1
            claim.row.hinted_at = None
            claim.row.free()

    @rule(claim=consumes(claims))
    def kill(self, claim: Claim) -> None:
        """The worker with this claim is gone without a word."""

    @rule(claim=claims)
    def crash_database(self, claim: Claim) -> None:
        """The database forgets a claim, whose commit had not reached the disk."""
        row = claim.row
        if row.holder is not claim:
            return
        manager = type(claim.work)._default_manager
        manager.filter(pk=claim.work.pk).update(**claim.before)
        row.token, row.attempts = claim.model_before
        row.free()

    @rule(seconds=STEPS)
    def let_time_pass(self, seconds: float) -> None:
        self.traveller.shift(seconds)

    @rule()
    def dispatch(self) -> None:
        """Exactly the free work without a recent hint is announced."""
        now = timezone.now()
        for kind in ("records", "runs"):
            unheard = [
                row
                for row in self.rows
                if row.kind == kind
                and row.is_free()
                and (row.hinted_at is None or row.hinted_at <= now - dispatching.HINT_AGAIN)
            ]
            assert dispatching.hint_work(KINDS[kind]) == len(unheard)
            for row in unheard:
                row.hinted_at = now

    @rule()
    def abandon(self) -> None:
        """Exactly the free runs that were attempted too often are given up."""
        hopeless = [
            row
            for row in self.rows[1:]
            if row.is_free() and row.attempts >= server.UAC_MAX_ATTEMPTS
        ]
        assert dispatching.abandon_hopeless_runs() == len(hopeless)
        for row in hopeless:
            row.is_done = True
            row.free()
            assert Run.objects.get(pk=row.key).outcome == RunOutcome.ABANDONED

    @invariant()
    def rows_are_as_expected(self) -> None:
        queued = {str(run.pk): run for run in Run.objects.filter(user=self.user)}
        for row in self.rows:
            stored = self._lane() if row is self.lane else queued[row.key]
            assert (stored.token, stored.attempts) == (row.token, row.attempts)
            assert stored.lease_expires_at == row.expires
            assert bool(stored.lease_owner) == (row.expires is not None)
            assert (stored.run_after, stored.last_error) == (row.run_after, row.error)
            assert stored.hinted_at == row.hinted_at
        done = {key: run.output for key, run in queued.items() if run.outcome == RunOutcome.OK}
        assert done == self.finished

    @invariant()
    def nothing_is_lost(self) -> None:
        entries = LogEntry.objects.filter(user=self.user).order_by("seq")
        assert list(entries.values_list("seq", flat=True)) == [*range(1, len(self.entries) + 1)]
        outcomes = EntryOutcome.objects.filter(user=self.user)
        assert set(outcomes.values_list("seq", flat=True)) == self.settled
        pending = [seq for seq in self._records() if seq not in self.settled]
        assert [entry.seq for entry in lanes.pending(self._lane(), 100)] == pending
        assert (self._lane().due_at is not None) == bool(pending)

    def _records(self) -> list[int]:
        kinds = enumerate(self.entries, 1)
        return [seq for seq, kind in kinds if kind == EntryKind.RECORD]

    def _lane(self) -> Lane:
        return Lane.objects.get(user=self.user, name=LaneName.RECORDS)

    def _claim(self, row: Row, host: str) -> Claim | None:
        columns = ("token", "attempts", "lease_owner", "lease_expires_at")
        stored = self._lane() if row is self.lane else Run.objects.get(pk=row.key)
        before = {name: getattr(stored, name) for name in columns}
        expected = row.is_free()
        with mock.patch.object(socket, "gethostname", return_value=host):
            if row is self.lane:
                work: Any = leases.claim(KINDS["records"].work().filter(user_id=row.key))
            else:
                work = runs.claim(row.key)
        assert (work is not None) == expected
        if work is None:
            return None
        claim = Claim(row, work, before, (row.token, row.attempts))
        row.token, row.attempts = row.token + 1, row.attempts + 1
        row.holder, row.expires = claim, timezone.now() + LEASE
        return claim

    def _commit(self, claim: Claim, number: int) -> None:
        is_holder = claim.row.holder is claim
        try:
            with transaction.atomic():
                if claim.row is self.lane:
                    settled = self._settle(claim.work, number)
                else:
                    output = {"token": claim.work.token, "claim": id(claim)}
                    result = runs.Result(outcome=RunOutcome.OK, output=output)
                    runs.finish(claim.work, result)
        except LeaseLost:
            assert not is_holder
            return
        assert is_holder
        row = claim.row
        row.free()
        if row is self.lane:
            self.settled |= settled
            row.is_done = set(self._records()) <= self.settled
            row.attempts, row.error, row.run_after = 0, "", timezone.now()
        else:
            row.is_done = True
            self.finished[row.key] = output

    def _settle(self, lane: Lane, number: int) -> set[int]:
        batch = [entry.seq for entry in lanes.pending(lane, number)]
        for seq in batch:
            EntryOutcome.objects.create(user=self.user, seq=seq, outcome=Outcome.COVERED)
        if batch:
            lane.cursor_seq = batch[-1]
        assert lanes.release(lane) == bool(lanes.undecided(lane).exists())
        return set(batch)


@pytest.mark.django_db
def test_queue_loses_nothing_and_does_nothing_twice(settings: Settings) -> None:
    settings.UAC_LEASE_SECONDS = LEASE.total_seconds()
    settings.UAC_MAX_ATTEMPTS = 3
    limits = hypothesis.settings(
        max_examples=examples(12),
        stateful_step_count=30,
        phases=[hypothesis.Phase.generate],  # a failing history takes minutes to shrink
    )
    run_state_machine_as_test(Queue, settings=limits)
