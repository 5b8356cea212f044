"""Workers, dispatchers and callers at the same row: whoever comes second writes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.db import transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.alerts.delivery import webhook_endpoints
from memory.alerts.models.alerts import Alert
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt
from memory.constraints import backtests
from memory.kernel import users
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import UserExists, create_user
from memory.log import entry_log, lanes
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.operations.verification import problems
from memory.recall.search import announcing, index, index_maintenance
from memory.recall.search.finding import find
from memory.versions import rollback, runs
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunStatus, RunTrigger
from tests.factories import make_checkpoint
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.integration.commits.conftest import append, checkpoint, trip
from tests.integration.time.test_backtest import END, passed, person, rental, say
from tests.integration.webhooks.conftest import allowed_here, endpoint_at, send, told
from tests.rivals import Act, at_once
from tests.webhook_receiver import receiver
from workers import tasks
from workers.commits import on_head
from workers.delivery import webhooks
from workers.execution import constraints
from workers.service import dispatching

__all__ = ["allowed_here", "append", "checkpoint", "endpoint_at"]

JustBefore = Callable[[object, str, Act], None]
Append = Callable[..., Any]


def lane_of(user: MemoryUser, name: LaneName = LaneName.RECORDS) -> Lane:
    return Lane.objects.get(user=user, name=name)


# -- Checkpoints ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_rollback_during_a_commit_stands_and_the_entry_is_kept(
    user: MemoryUser,
    append: Append,
    checkpoint: Append,
    just_before: JustBefore,
    fields_of: Callable[[str], dict[str, Any]],
) -> None:
    # Given two versions, and an entry whose version is about to be committed
    checkpoint(trip(key="a"))
    checkpoint(trip("Oslo", key="b"))
    append(trip("Bonn", key="c"))
    # When somebody goes back to the first one at that very moment
    just_before(on_head, "_commit", lambda: rollback.restore(user, 1, reopen=False, by="eve"))
    tasks.work("records", user.pk)
    tasks.work("records", user.pk)
    # Then the entry is added to what was restored, and nothing else came back
    assert list(fields_of("travel.trips")) == ["a", "c"]
    assert [one.origin for one in Checkpoint.objects.filter(user=user).order_by("version")] == [
        *("records", "records", "restored", "records")
    ]
    assert entry_log.coverage(user).pending == 0
    assert list(problems(user)) == []


@pytest.mark.django_db
def test_an_entry_that_comes_while_the_lane_is_given_back_is_not_forgotten(
    user: MemoryUser, append: Append, just_before: JustBefore
) -> None:
    append(trip(key="a"))
    # The lane was found empty; it is not yet released.
    just_before(lanes, "release", lambda: append(trip("Oslo", key="b")))

    tasks.work("records", user.pk)
    if lane_of(user).due_at is not None:
        tasks.work("records", user.pk)

    assert entry_log.coverage(user).covered == 2
    assert lane_of(user).due_at is None


# -- Leases ---------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_lease_that_expires_while_a_sandbox_works_belongs_to_the_successor(
    user: MemoryUser, checkpoint: Append, just_before: JustBefore
) -> None:
    # Given a run of the constraints whose results are about to be written
    checkpoint(trip(key="a"))
    run_finds(user, finding(record("m-1", 1)))
    user.refresh_from_db()
    Run.objects.filter(user=user).exclude(status=RunStatus.DONE).delete()
    run = runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.CHECKPOINT, checkpoint=user.head)

    def successor() -> None:
        Run.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now())
        tasks.work("runs", str(run.pk))

    # When its lease expires, and another worker does it again
    just_before(constraints, "finish_run", successor)
    tasks.work("runs", str(run.pk))
    # Then it was done once, by that one: nothing is told twice
    run.refresh_from_db()
    assert (run.status, run.attempts, run.last_error) == ("done", 2, "")
    events = Alert.objects.get(user=user).events
    assert sorted(events.values_list("kind", flat=True)) == ["opened", "resolved"]


def test_rival_dispatchers_queue_one_run_each(live_database: str, workspace: Workspace) -> None:
    # Given users whose daily hour has struck, each with an alert that somebody must look after
    for number in range(10):
        user = create_user(workspace, f"user-{number}", metadata=None)
        MemoryUser.objects.filter(pk=user.pk).update(
            head=make_checkpoint(user), constraints_due_at=timezone.now()
        )
        user.refresh_from_db()
        with transaction.atomic():
            run_finds(user, finding(record("m-1")))
    Run.objects.all().delete()
    # When four dispatchers look at once
    rivals = at_once(*[dispatching.queue_runs_by_the_clock] * 4)
    # Then each user has one run
    assert [rival.error for rival in rivals] == [None] * 4
    assert sorted(Run.objects.values_list("user__user_id", flat=True)) == [
        f"user-{number}" for number in range(10)
    ]


# -- Webhooks -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_second_worker_that_is_told_of_a_message_under_way_sends_nothing(
    user: MemoryUser, endpoint_at: Callable[..., Any], just_before: JustBefore
) -> None:
    with receiver() as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        just_before(webhooks, "post", lambda: send(endpoint))

        send(endpoint)

    assert len(server.received) == 1
    assert told(endpoint) == [("alert.opened", "delivered")]
    assert DeliveryAttempt.objects.count() == 1


@pytest.mark.django_db
def test_an_endpoint_that_is_deleted_while_it_is_called_leaves_nothing(
    user: MemoryUser, endpoint_at: Callable[..., Any], just_before: JustBefore
) -> None:
    with receiver() as server:
        deleted, _ = endpoint_at(server.url)
        other, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        just_before(webhooks, "post", lambda: webhook_endpoints.delete(deleted))

        send(deleted)
        send(other)

    # A sent message cannot be taken back; nothing else of it is left, and the other endpoint got
    # its own.
    assert len(server.received) == 2
    assert set(Delivery.objects.values_list("endpoint", "state")) == {(other.pk, "delivered")}
    assert DeliveryAttempt.objects.count() == 1


# -- Users ----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_rival_creation_of_user_is_noticed(workspace: Workspace, just_before: JustBefore) -> None:
    just_before(MemoryUser, "full_clean", lambda: create_user(workspace, "bob", metadata={"n": 1}))

    with pytest.raises(UserExists):
        create_user(workspace, "bob", metadata={"n": 2})

    bob = MemoryUser.objects.get(workspace=workspace)
    assert bob.metadata == {"n": 1}
    assert bob.lanes.count() == 2


def test_concurrent_creations_create_one_user(live_database: str, workspace: Workspace) -> None:
    rivals = at_once(*[lambda: users.create_user(workspace, "bob", metadata=None)] * 6)

    assert sum(rival.error is None for rival in rivals) == 1
    assert sum(isinstance(rival.error, UserExists) for rival in rivals) == 5
    assert MemoryUser.objects.get(workspace=workspace).lanes.count() == 2


# -- The search -----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_segments_that_are_merged_during_a_search_are_read_once(
    user: MemoryUser,
    just_before: JustBefore,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.UAC_EMBEDDINGS = "off"  # by meaning, every entry is found
    for module in (index, index_maintenance):
        monkeypatch.setattr(module, "TAIL", 1)

    def say(content: str) -> None:
        draft = Draft(kind=EntryKind.MESSAGE, content=content, session_id=content)
        entry_log.append(user, [draft], source="test")

    # Given segments, one of which is large enough to be merged with what is appended next
    for number in range(5):
        say(f"puppy {number}")
        announcing.want(user.pk)
        tasks.work("indexes", user.pk)
    before = find(user, "puppy")
    say("invoice")

    def merge() -> None:
        announcing.want(user.pk)
        tasks.work("indexes", user.pk)

    # When they are merged after the search has read them, before it reads the rest of the log
    just_before(index, "_live", merge)
    found = find(user, "puppy")
    # Then it finds what it found, each once, with the same scores for the same log
    assert [hit.entry.seq for hit in found.hits] == [hit.entry.seq for hit in before.hits]
    assert found.searched["archive"] == LogEntry.objects.filter(user=user).count()
    again = find(user, "puppy")
    assert [(hit.entry.seq, hit.score) for hit in found.hits] == [
        (hit.entry.seq, hit.score) for hit in again.hits
    ]


# -- Backtests ------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_backtest_that_is_cancelled_while_a_worker_writes_stays_as_it_was(
    workspace: Workspace, work: Callable[[], None], just_before: JustBefore
) -> None:
    # Given a backtest that has found something, which is about to be written
    say(person(workspace, "ada"), work, {0: [rental("main", "2027-03-20")]})
    with time_machine.travel(END, tick=False):
        backtest = backtests.start(passed(workspace), by="test")
        just_before(backtests, "store_result", lambda: backtests.cancel(backtest, by="eve"))
        # When it is cancelled at that moment
        tasks.work("backtests", str(backtest.pk))
        work()
    # Then nothing is written, and nobody goes on with it
    backtest.refresh_from_db()
    assert (backtest.state, backtest.reason) == ("cancelled", "by eve")
    assert list(backtest.report["users"].values()) == [None]
