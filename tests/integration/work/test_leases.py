"""Leases: one worker at a time, and no late worker writes over its successor."""

import datetime
import threading
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import time_machine
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from memory.alerts.models.alerts import Alert, AlertKind
from memory.kernel.daily_runs import next_daily_run
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import hosts, leases
from memory.project import Outline
from memory.versions import runs
from memory.versions.models.runs import Run
from tests.factories import make_checkpoint, make_run
from tests.steps import append_records, not_none
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


def test_a_run_is_claimed_with_what_its_execution_needs_in_two_statements(
    user: MemoryUser,
    django_assert_num_queries: DjangoAssertNumQueries,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = make_checkpoint(user)
    waiting = make_run(version)
    monkeypatch.setattr(hosts, "own", "one")

    with django_assert_num_queries(2):
        run = not_none(runs.claim(str(waiting.pk)))
        assert run.checkpoint is not None
        assert (run.host, run.token, run.attempts) == ("one", 1, 1)
        assert (run.checkpoint.tree, run.checkpoint.outline) == (version.tree, version.outline)
        assert run.user.time_zone == user.time_zone


def test_run_of_erased_user_is_not_claimed(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = make_run(make_checkpoint(user))
    monkeypatch.setattr(runs._TO_EXECUTE, "first", lambda **values: None)

    assert runs.claim(str(waiting.pk)) is None


def test_abandoned_constraint_run_alerts_staff(user: MemoryUser, settings: Settings) -> None:
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


def test_first_constraint_starts_the_users_clock(user: MemoryUser, work: Work) -> None:
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


def test_daily_run_is_queued_once_at_local_hour(user: MemoryUser, settings: Settings) -> None:
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
