"""Races for the head: the rival's write is injected at the very line where it hurts."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.log import entry_log
from memory.operations.verification import problems
from memory.versions import runs
from memory.versions.checkpoints import HeadMoved
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.integration.commits.conftest import Append, Records, trip
from tests.steps import head_of, propose
from workers import tasks
from workers.commits import on_head

pytestmark = pytest.mark.django_db

Note = Callable[[], object]
Rivals = Callable[[list[Note]], None]


@pytest.fixture
def before_each_commit(monkeypatch: pytest.MonkeyPatch) -> Rivals:
    """Let rivals act, one before each commit, between judgement and compare-and-set."""

    def arrange(rivals: list[Note]) -> None:
        real = on_head._commit

        def commit(*arguments: Any) -> None:
            if rivals:
                rivals.pop(0)()
            real(*arguments)

        monkeypatch.setattr(on_head, "_commit", commit)

    return arrange


@pytest.fixture
def rival(user: MemoryUser) -> Note:
    """Propose a note, which is accepted: the head moves."""

    def act() -> None:
        note = {"op": "note", "text": "from a rival", "sources": [1]}
        assert propose(MemoryUser.objects.get(pk=user.pk), note).outcome == "ok"

    return act


def test_the_loser_of_a_race_builds_again_on_the_new_head(
    user: MemoryUser, append: Append, fields_of: Records, before_each_commit: Rivals, rival: Note
) -> None:
    append(trip(key="a"), trip("Oslo", key="b"))
    before_each_commit([rival])

    tasks.work("records", user.pk)

    assert list(fields_of("travel.trips")) == ["a", "b"]
    assert len(fields_of("notes.notes")) == 1
    head = head_of(user)
    assert (head.version, head.origin) == (2, "records")
    assert entry_log.coverage(user).covered == 2
    assert list(problems(user)) == []


def test_worker_that_always_loses_gives_up_without_losing_entries(
    user: MemoryUser, append: Append, fields_of: Records, before_each_commit: Rivals, rival: Note
) -> None:
    append(trip(key="a"))
    # Each rival's own commit takes the next one from the list, so none acts for it.
    before_each_commit([rival, lambda: None] * on_head.MAX_BUILDS)

    with pytest.raises(HeadMoved):
        tasks.work("records", user.pk)

    lane = Lane.objects.get(user=user, name=LaneName.RECORDS)
    assert "HeadMoved" in lane.last_error
    assert lane.due_at is not None
    assert entry_log.coverage(user).pending == 1

    Lane.objects.filter(pk=lane.pk).update(run_after=timezone.now())
    tasks.work("records", user.pk)
    assert list(fields_of("travel.trips")) == ["a"]
    assert list(problems(user)) == []


def test_entries_that_arrive_while_a_checkpoint_is_made_are_settled_too(
    user: MemoryUser,
    append: Append,
    fields_of: Records,
    before_each_commit: Rivals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a slow machine the time slice would end after the first checkpoint.
    monkeypatch.setattr(tasks, "TURN_SECONDS", 600.0)
    append(trip(key="a"))

    before_each_commit([lambda: append(trip("Oslo", key="b"))])

    tasks.work("records", user.pk)

    assert list(fields_of("travel.trips")) == ["a", "b"]
    assert Checkpoint.objects.filter(user=user).count() == 2
    assert Lane.objects.get(user=user, name=LaneName.RECORDS).due_at is None


def test_waiting_run_moves_on_to_newer_version(user: MemoryUser, checkpoint: Append) -> None:
    checkpoint(trip(key="a"))
    waiting = runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.CHECKPOINT, checkpoint=user.head)
    # An alert is live, so the constraints run again although there are none any more.
    run_finds(user, finding(record("m-1", 1)))

    checkpoint(trip("Oslo", key="b"))

    queued = Run.objects.get(user=user, kind=RunKind.CONSTRAINTS, pk=waiting.pk)
    assert (queued.status, queued.checkpoint) == ("queued", user.head)
    assert queued.queued_at == waiting.queued_at
