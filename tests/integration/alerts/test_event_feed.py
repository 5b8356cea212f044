"""The feed of events: numbered without gaps, and visible in the order of the numbers."""

import datetime
import threading
import time

import pytest
from django.db import connection, transaction

from memory.alerts import alert_actions, alert_events
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind, EventCounter
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.llm import reopening
from memory.llm.reopening import Selection
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, Outcome
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision
from tests.factories import reject
from tests.integration.alerts.test_life import finding, record, run_finds

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def seqs(workspace: Workspace) -> list[int]:
    found = AlertEvent.objects.filter(workspace=workspace).order_by("seq")
    return list(found.values_list("seq", flat=True))


def event_of(alert: Alert) -> AlertEvent:
    return AlertEvent(alert=alert, kind=AlertEventKind.CHANGED, at=NOON, actor="tests")


@pytest.mark.django_db
def test_events_are_numbered_per_workspace_over_all_users(user: MemoryUser) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)
    stranger = create_user(Workspace.objects.create(name="other"), "ada", metadata=None)

    run_finds(user, finding(record("m-1")), finding(record("m-2")))
    run_finds(bob, finding(record("m-1")))
    run_finds(stranger, finding(record("m-1")))
    alert_actions.resolve(Alert.objects.get(user=bob), actor="key:x", reason="done")

    assert seqs(user.workspace) == [1, 2, 3, 4]
    assert seqs(stranger.workspace) == [1]


@pytest.mark.django_db
def test_a_run_that_changes_nothing_takes_no_number(user: MemoryUser) -> None:
    run_finds(user)

    assert not EventCounter.objects.exists()


@pytest.mark.django_db
def test_rolled_back_event_leaves_no_gap(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")))

    with transaction.atomic():
        run_finds(user, finding(record("m-2")))
        transaction.set_rollback(True)
    run_finds(user, finding(record("m-3")))

    # Opened; then m-1 resolved and m-3 opened.
    assert seqs(user.workspace) == [1, 2, 3]


def test_rivals_are_numbered_in_commit_order(live_database: str, workspace: Workspace) -> None:
    # Given writers of which some roll back, and a reader that looks at the feed all the while.
    users = [create_user(workspace, f"user-{number}", metadata=None) for number in range(6)]
    for user in users:
        with transaction.atomic():
            run_finds(user, finding(record("m-1")))
    first_alerts = [Alert.objects.get(user=user) for user in users]
    before = len(seqs(workspace))
    looks: list[list[int]] = []
    written: list[MemoryUser] = []
    over = threading.Event()

    def reader_has_seen_little() -> bool:
        return reader.is_alive() and len({len(look) for look in looks}) <= 5

    def write(user: MemoryUser, alert: Alert) -> None:
        number = 0
        while number < 20 or reader_has_seen_little():
            with transaction.atomic():
                MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
                alert_events.record(user, [event_of(alert)])
                time.sleep(0.001 * (number % 3))
                transaction.set_rollback(number % 4 == 3)
            if number % 4 != 3:
                written.append(user)
            number += 1
        connection.close()

    def read() -> None:
        while not over.is_set():
            looks.append(seqs(workspace))
        connection.close()

    # When all of them work at a time.
    reader = threading.Thread(target=read)
    writers = [
        threading.Thread(target=write, args=pair) for pair in zip(users, first_alerts, strict=True)
    ]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()

    # Then there is no gap at the end, and there never was one.
    assert len(written) >= 6 * 15
    assert seqs(workspace) == list(range(1, before + len(written) + 1))
    assert len({len(look) for look in looks}) > 5
    for look in looks:
        assert look == list(range(1, len(look) + 1))


# -- Rejected entries --------------------------------------------------------------------------


def settle(user: MemoryUser, *outcomes: Outcome) -> None:
    """Decide on the user's first entries, as the lane of the language model does."""
    lane = leases.claim(Lane.objects.filter(user=user, name=LaneName.STRUCTURE))
    assert lane is not None
    decisions = [Decision(seq, outcome, "why") for seq, outcome in enumerate(outcomes, 1)]
    checkpoints.commit(lane, user, None, decisions)
    leases.write(lane, lease_owner="", lease_expires_at=None)


def say(user: MemoryUser, number: int) -> None:
    entry_log.append(
        user, [Draft(kind=EntryKind.MESSAGE, content="x") for _ in range(number)], source="test"
    )


def rejections_of(user: MemoryUser) -> list[tuple[int, list[int]]]:
    found = AlertEvent.objects.filter(user=user, kind=AlertEventKind.REJECTED).order_by("seq")
    return list(found.values_list("seq", "entries"))


@pytest.mark.django_db
def test_entries_rejected_together_are_one_event(
    user: MemoryUser,
) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)

    run_finds(bob, finding(record("m-1")))
    entries = reject(user, 25)
    run_finds(bob)

    assert rejections_of(user) == [(2, entries)]
    assert seqs(user.workspace) == [1, 2, 3]
    event = AlertEvent.objects.get(user=user)
    assert (event.actor, event.alert, event.person) == ("records", None, user)


@pytest.mark.django_db
def test_only_the_rejected_entries_of_a_batch_are_in_its_event(user: MemoryUser) -> None:
    say(user, 3)

    settle(user, Outcome.COVERED, Outcome.REJECTED, Outcome.DISMISSED)

    assert rejections_of(user) == [(1, [2])]


@pytest.mark.django_db
def test_an_entry_that_was_reopened_and_is_rejected_again_is_told_again(user: MemoryUser) -> None:
    say(user, 1)
    settle(user, Outcome.REJECTED)
    reopening.reopen(user, Selection(entries=[1]), by="test")

    settle(user, Outcome.REJECTED)

    assert rejections_of(user) == [(1, [1]), (2, [1])]
