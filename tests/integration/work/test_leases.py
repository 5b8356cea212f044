"""Leases: one worker at a time, and no late worker writes over its successor."""

import datetime
import socket
import threading
from collections.abc import Callable
from unittest.mock import Mock, create_autospec

import pytest
import time_machine
from django.db import OperationalError, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from memory.alerts.models.alerts import Alert, AlertKind
from memory.kernel.daily_runs import next_daily_run
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import leases
from memory.kernel.work.kinds import KINDS
from memory.kernel.work.leases import LeaseLost
from memory.log import entry_log, lanes
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.project import Outline
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus
from tests.factories import make_checkpoint, make_run
from tests.steps import append_records, append_texts, not_none
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]

DUE = Lane.objects.filter(name=LaneName.RECORDS, due_at__isnull=False)


def append_record(user: MemoryUser) -> int:
    return append_records(user, {"type": "Trip"})[0]


@pytest.fixture
def lane(user: MemoryUser) -> Lane:
    """A lane in which an entry waits, as a worker has claimed it."""
    append_record(user)
    return not_none(leases.claim(DUE))


def later(seconds: float) -> time_machine.travel:
    return time_machine.travel(timezone.now() + datetime.timedelta(seconds=seconds), tick=True)


def test_a_lane_with_nothing_pending_cannot_be_claimed(user: MemoryUser) -> None:
    assert leases.claim(DUE.filter(user=user)) is None


def test_an_expired_lease_is_claimed_by_another_and_the_first_can_write_no_more(
    lane: Lane, settings: Settings
) -> None:
    assert leases.claim(DUE) is None

    with later(settings.UAC_LEASE_SECONDS + 1):
        successor = leases.claim(DUE)

    assert successor is not None
    assert successor.token == lane.token + 1
    with pytest.raises(LeaseLost), transaction.atomic():
        leases.check(lane)
    with pytest.raises(LeaseLost):
        lanes.release(lane)
    with transaction.atomic():
        leases.check(successor)


def test_a_claim_that_a_crash_of_the_database_forgot_does_not_share_its_token_with_the_next(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_record(user)
    before = DUE.values("token", "attempts", "lease_owner", "lease_expires_at").get()
    forgotten = not_none(leases.claim(DUE))
    DUE.update(**before)

    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    successor = leases.claim(DUE)

    assert successor is not None
    assert successor.token == forgotten.token
    with pytest.raises(LeaseLost), transaction.atomic():
        leases.check(forgotten)
    with transaction.atomic():
        leases.check(successor)


def test_a_run_is_claimed_with_what_its_execution_needs_in_two_statements(
    user: MemoryUser, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    version = make_checkpoint(user)
    waiting = make_run(version)

    with django_assert_num_queries(2):
        run = not_none(runs.claim(str(waiting.pk), host="one"))
        assert run.checkpoint is not None
        assert (run.host, run.token, run.attempts) == ("one", 1, 1)
        assert (run.checkpoint.tree, run.checkpoint.outline) == (version.tree, version.outline)
        assert run.user.time_zone == user.time_zone


def test_a_run_whose_user_is_erased_while_it_is_claimed_is_nobodys(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = make_run(make_checkpoint(user))
    monkeypatch.setattr(runs._TO_EXECUTE, "first", lambda **values: None)

    assert runs.claim(str(waiting.pk)) is None


def test_a_failure_is_kept_and_tried_again_later_and_later(user: MemoryUser) -> None:
    append_record(user)
    waits = []
    moment = timezone.now()
    for _ in range(4):
        with time_machine.travel(moment, tick=False):
            lane = not_none(leases.claim(DUE))
            leases.fail(lane, "RuntimeError: no sandbox")
            assert leases.claim(DUE) is None
        lane.refresh_from_db()
        waits.append((lane.run_after - moment).total_seconds())
        moment = lane.run_after

    assert waits == [1, 2, 4, 8]
    lane = Lane.objects.get(user=user, name=LaneName.RECORDS)
    assert lane.last_error == "RuntimeError: no sandbox"
    assert lane.lease_expires_at is None


def test_a_failure_of_a_worker_that_lost_its_lease_changes_nothing(
    lane: Lane, settings: Settings
) -> None:
    with later(settings.UAC_LEASE_SECONDS + 1):
        successor = leases.claim(DUE)
    assert successor is not None

    leases.fail(lane, "too late")

    lane = Lane.objects.get(pk=lane.pk)
    assert lane.lease_owner == successor.lease_owner != ""
    assert lane.last_error == ""


def test_a_released_lane_is_due_again_only_if_entries_wait(user: MemoryUser) -> None:
    seq = append_record(user)
    lane = not_none(leases.claim(DUE))
    append_record(user)

    EntryOutcome.objects.create(user=user, seq=seq, outcome=Outcome.COVERED)
    assert lanes.release(lane)
    assert Lane.objects.get(pk=lane.pk).due_at is not None

    again = not_none(leases.claim(DUE))
    assert [entry.seq for entry in lanes.pending(again, 10)] == [2]
    EntryOutcome.objects.create(user=user, seq=2, outcome=Outcome.REJECTED)
    assert not lanes.release(again)
    assert Lane.objects.get(pk=lane.pk).due_at is None
    assert Lane.objects.get(pk=lane.pk).attempts == 0


def test_a_lane_that_is_given_back_is_not_renewed_by_who_was_about_to(lane: Lane) -> None:
    """A renewed lease without an owner could not be claimed by anybody."""
    assert lanes.release(lane)

    leases._renew(lane)

    assert Lane.objects.get(pk=lane.pk).lease_expires_at is None
    assert leases.claim(DUE) is not None


def test_a_lane_that_could_not_be_given_back_is_kept_with_the_error_until_it_is_tried_again(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            lanes,
            "undecided",
            create_autospec(lanes.undecided, side_effect=OperationalError("gone")),
        )
        with pytest.raises(OperationalError):
            lanes.release(lane)
    leases.fail(lane, "gone")

    kept = Lane.objects.get(pk=lane.pk)
    assert (kept.last_error, kept.lease_expires_at) == ("gone", None)


def test_the_cursor_only_shortens_the_search(user: MemoryUser) -> None:
    for _ in range(3):
        append_record(user)
    lane = not_none(leases.claim(DUE))
    EntryOutcome.objects.create(user=user, seq=1, outcome=Outcome.COVERED)

    lanes.advance(lane, 1)

    assert [entry.seq for entry in lanes.pending(lane, 10)] == [2, 3]
    assert [entry.seq for entry in lanes.pending(lane, 1)] == [2]


def test_messages_never_enter_the_records_lane(user: MemoryUser) -> None:
    append_texts(user, "hi")
    append_record(user)
    lane = not_none(leases.claim(DUE))

    assert [entry.kind for entry in lanes.pending(lane, 10)] == [EntryKind.RECORD]


def test_a_finished_run_cannot_be_claimed_again(user: MemoryUser) -> None:
    run = make_run(make_checkpoint(user))
    claimed = not_none(runs.claim(str(run.pk)))
    assert claimed.status == RunStatus.RUNNING

    runs.finish(claimed, runs.Result(outcome=RunOutcome.OK, output={"value": 1}))

    assert runs.claim(str(run.pk)) is None
    run.refresh_from_db()
    assert (run.status, run.outcome, run.output) == ("done", "ok", {"value": 1})


def test_a_run_of_a_dead_worker_is_finished_once_by_its_successor(
    user: MemoryUser, settings: Settings
) -> None:
    run = make_run(make_checkpoint(user))
    dead = not_none(runs.claim(str(run.pk)))
    with later(settings.UAC_LEASE_SECONDS + 1):
        successor = runs.claim(str(run.pk))
    assert successor is not None

    runs.finish(successor, runs.Result(outcome=RunOutcome.OK, output={"value": 2}))
    with pytest.raises(LeaseLost):
        runs.finish(dead, runs.Result(outcome=RunOutcome.OK, output={"value": 1}))

    run.refresh_from_db()
    assert run.output == {"value": 2}
    assert run.attempts == 2


def test_the_dispatcher_finds_work_whose_hint_was_lost(user: MemoryUser) -> None:
    append_record(user)
    make_run(make_checkpoint(user))

    found = dispatching.dispatch()

    assert found == {
        "daily": 0,
        "overslept": 0,
        "leapt": 0,
        "changed": 0,
        "woken": 0,
        "escalated": 0,
        "abandoned": 0,
        "merged": 0,
        **dict.fromkeys(KINDS, 0),
        "runs": 1,
        "records": 1,
        "interrupted": 0,
        "forgotten": 0,
        "counted": found["counted"],  # not at every tick
        "outlived": 0,
    }


def test_the_dispatcher_does_not_repeat_a_hint_at_once_and_repeats_it_later(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "HINT_AGAIN", datetime.timedelta(hours=1))
    append_record(user)
    dispatching.dispatch()

    assert dispatching.dispatch()["records"] == 0
    with later(dispatching.HINT_AGAIN.total_seconds() + 1):
        assert dispatching.dispatch()["records"] == 1


def test_what_a_clock_that_had_leapt_put_off_is_done_today(user: MemoryUser) -> None:
    """The clock is a worker's, between its last check and the end of its transaction."""
    tomorrow = timezone.now() + datetime.timedelta(days=1)
    append_record(user)
    Lane.objects.filter(user=user).update(run_after=tomorrow, hinted_at=tomorrow)
    version = make_checkpoint(user)
    put_off, failed = make_run(version), make_run(version)
    Run.objects.update(run_after=tomorrow, hinted_at=tomorrow)
    Run.objects.filter(pk=failed.pk).update(attempts=1, last_error="the engine is away")

    found = dispatching.dispatch()

    assert (found["leapt"], found["records"], found["runs"]) == (2, 1, 1)
    put_off.refresh_from_db()
    failed.refresh_from_db()
    assert put_off.run_after < timezone.now()
    assert failed.run_after == tomorrow


def test_the_dispatcher_leaves_claimed_and_waiting_work_alone(lane: Lane) -> None:
    assert dispatching.dispatch()["records"] == 0

    for _ in range(5):
        lane.attempts += 1
    leases.fail(lane, "no sandbox")
    assert dispatching.dispatch()["records"] == 0


def test_a_run_that_takes_every_worker_down_is_given_up_with_an_error(
    user: MemoryUser, settings: Settings
) -> None:
    run = make_run(make_checkpoint(user), kind=RunKind.QUERY, attempts=settings.UAC_MAX_ATTEMPTS)

    assert dispatching.dispatch()["abandoned"] == 1

    run.refresh_from_db()
    assert (run.status, run.outcome) == (RunStatus.DONE, RunOutcome.ABANDONED)
    assert "failed permanently" in str(run.error)
    assert runs.claim(str(run.pk)) is None


def test_constraints_are_tried_longer_and_given_up_with_an_alert_for_the_staff(
    user: MemoryUser, settings: Settings
) -> None:
    checkpoint = make_checkpoint(user)
    run = make_run(checkpoint, attempts=settings.UAC_MAX_ATTEMPTS, last_error="no engine")
    assert dispatching.dispatch()["abandoned"] == 0

    most = settings.UAC_MAX_ATTEMPTS * dispatching.CONSTRAINTS_PATIENCE
    Run.objects.filter(pk=run.pk).update(attempts=most)
    assert dispatching.dispatch()["abandoned"] == 1

    alert = Alert.objects.get(user=user)
    assert alert.kind == AlertKind.CONSTRAINT_ERROR
    assert "no engine" in alert.message


def test_without_constraints_and_alerts_there_is_no_daily_run(user: MemoryUser) -> None:
    user.head = make_checkpoint(user)
    user.constraints_due_at = timezone.now()
    user.save()

    assert dispatching.dispatch()["daily"] == 1

    assert not Run.objects.exists()
    assert MemoryUser.objects.get(pk=user.pk).constraints_due_at is None
    with time_machine.travel(timezone.now() + datetime.timedelta(days=2)):
        assert dispatching.dispatch()["daily"] == 0


def test_the_clock_of_a_user_goes_on_with_the_first_constraint(
    user: MemoryUser, work: Work
) -> None:
    user.head = make_checkpoint(user)
    user.constraints_due_at = None
    user.save()
    outline = Outline().with_constraint("allergy", "").to_json()
    run = make_run(make_checkpoint(user, 2, outline=outline))

    # So that the hour of the daily run does not come between the run and the check.
    with time_machine.travel(timezone.now(), tick=False):
        work()

        run.refresh_from_db()
        assert run.outcome
        user.refresh_from_db()
        assert user.constraints_due_at == next_daily_run(user, timezone.now())


def test_the_daily_run_is_queued_once_at_the_users_own_hour(
    user: MemoryUser, settings: Settings
) -> None:
    # Berlin, 2026-03-29: the clocks go forward at 02:00; 06:00 is 04:00 UTC, the day before 05:00.
    settings.UAC_DAILY_RUN_HOUR = 6
    outline = Outline().with_constraint("allergy", "").to_json()
    user.head = make_checkpoint(user, outline=outline)
    user.constraints_due_at = datetime.datetime(2026, 3, 28, 5, tzinfo=datetime.UTC)
    user.save()

    with time_machine.travel("2026-03-28T05:00:01Z"):
        assert dispatching.dispatch()["daily"] == 1
        assert dispatching.dispatch()["daily"] == 0

    user.refresh_from_db()
    assert user.constraints_due_at == datetime.datetime(2026, 3, 29, 4, tzinfo=datetime.UTC)
    run = Run.objects.get(user=user)
    assert (run.kind, run.trigger, run.checkpoint) == ("constraints", "daily", user.head)


def test_entries_stay_whatever_happens_to_the_work(user: MemoryUser) -> None:
    seq = append_record(user)
    lane = not_none(leases.claim(DUE))
    leases.fail(lane, "boom")

    assert LogEntry.objects.filter(user=user, seq=seq).exists()
    assert entry_log.coverage(user).pending == 1


def test_a_thread_that_could_not_be_started_is_started_for_the_next_piece_of_work(
    user: MemoryUser, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Mock(side_effect=RuntimeError("can't start new thread"))
    with monkeypatch.context() as limited:
        limited.setattr(leases._keeper, "_thread", None)
        limited.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"), leases.kept(lane):
            pytest.fail("it is not kept")
    assert not leases.works_on(user.pk)

    with leases.kept(lane):
        assert not_none(leases._keeper._thread).is_alive()
