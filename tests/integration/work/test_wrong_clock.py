"""A worker whose clock is wrong does nothing, and stores no time at which nobody looks."""

import datetime
import threading
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.database import clock
from memory.kernel.models.operations import Alarm
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import leases
from memory.kernel.work.leases import LeaseLost
from memory.log import lanes
from memory.log.models.entries import LogEntry
from memory.operations import alarms
from memory.versions import runs
from tests.factories import make_checkpoint, make_run
from tests.steps import append_records, not_none
from workers.service import dispatching

pytestmark = pytest.mark.django_db

DAY = datetime.timedelta(days=1)
RECORD = {"type": "Trip", "data": {"to": "Rome"}}


@pytest.fixture(autouse=True)
def strict(settings: Settings) -> None:
    settings.UAC_CLOCK_SECONDS = 30.0


@pytest.fixture
def due(user: MemoryUser) -> Lane:
    """A lane in which work is due."""
    append_records(user, RECORD)
    Lane.objects.update(hinted_at=None)
    return Lane.objects.get(user=user, name=LaneName.RECORDS)


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_wrong_clock_claims_and_dispatches_nothing(due: Lane, ahead: datetime.timedelta) -> None:
    with time_machine.travel(timezone.now() + ahead):
        assert leases.claim(lanes.due(LaneName.RECORDS)) is None
        assert dispatching.dispatch() == {}

    due.refresh_from_db()
    assert (due.token, due.hinted_at) == (0, None)
    assert dispatching.dispatch()["records"] == 1
    assert leases.claim(lanes.due(LaneName.RECORDS)) is not None


def test_leases_are_lost_when_the_clock_leaps(due: Lane) -> None:
    lane = not_none(leases.claim(lanes.due(LaneName.RECORDS)))
    due.refresh_from_db()

    with time_machine.travel(timezone.now() + DAY):
        with pytest.raises(LeaseLost):
            leases.check(lane)
        with pytest.raises(LeaseLost):
            leases.write(lane, due_at=None)
        leases.fail(lane, "boom")

    after = Lane.objects.get(pk=lane.pk)
    assert (after.run_after, after.lease_expires_at) == (due.run_after, due.lease_expires_at)
    leases.check(lane)


def test_a_clock_that_is_a_little_wrong_is_no_reason(due: Lane) -> None:
    with time_machine.travel(timezone.now() + datetime.timedelta(seconds=20)):
        assert leases.claim(lanes.due(LaneName.RECORDS)) is not None


def test_ticks_that_pile_up_are_dropped(due: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick that waits for the database would be joined by the next, until no thread is left."""
    found: list[dict[str, int]] = []

    def second_tick() -> int:
        thread = threading.Thread(target=lambda: found.append(dispatching.dispatch()))
        thread.start()
        thread.join()
        return 0

    monkeypatch.setattr(dispatching, "abandon_hopeless_runs", second_tick)

    assert dispatching.dispatch()["records"] == 1
    assert found == [{}]


def test_hanging_tick_holds_back_no_other(due: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "LONGEST_TICK_SECONDS", -1.0)
    found: list[dict[str, int]] = []

    def hangs_meanwhile() -> int:
        monkeypatch.setattr(dispatching, "abandon_hopeless_runs", lambda: 0)
        found.append(dispatching.dispatch())
        return 0

    monkeypatch.setattr(dispatching, "abandon_hopeless_runs", hangs_meanwhile)

    dispatching.dispatch()

    assert found[0].keys() >= {"records", "deliveries"}


class Stalled:
    """A database cursor that answers slowly."""

    def __init__(self, cursor: Any, clock: time_machine.Traveller, seconds: float) -> None:
        self._cursor, self._clock, self._seconds = cursor, clock, seconds

    def __enter__(self) -> "Stalled":
        return self

    def __exit__(self, *args: object) -> None:
        self._cursor.close()

    def execute(self, statement: str) -> None:
        self._cursor.execute(statement)

    def fetchone(self) -> Any:
        self._clock.shift(self._seconds)
        return self._cursor.fetchone()


@pytest.mark.parametrize(("off", "is_right"), [(0, True), (45, False), (-150, False)])
def test_a_database_that_stalls_is_not_taken_for_a_wrong_clock(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch, off: int, is_right: bool
) -> None:
    monkeypatch.setattr(clock, "_asked_at", float("-inf"))
    there = timezone.now() + datetime.timedelta(seconds=off)
    cursor = connection.cursor()
    with time_machine.travel(there) as traveller:
        stalled = Stalled(cursor, traveller, 60)
        monkeypatch.setattr(connection, "cursor", lambda: stalled)

        assert clock.is_right() is is_right

    monkeypatch.undo()


@pytest.mark.parametrize(("ahead", "claimed"), [(0.3, True), (600, False)])
def test_run_of_somebody_a_little_ahead_can_be_claimed(
    user: MemoryUser, settings: Settings, ahead: float, claimed: bool
) -> None:
    settings.UAC_CLOCK_SECONDS = 0
    run = make_run(
        make_checkpoint(user), run_after=timezone.now() + datetime.timedelta(seconds=ahead)
    )

    assert (runs.claim(str(run.pk)) is not None) == claimed


def test_a_run_is_not_claimed_by_a_wrong_clock(user: MemoryUser) -> None:
    run = make_run(make_checkpoint(user))

    with time_machine.travel(timezone.now() + DAY):
        assert runs.claim(str(run.pk)) is None

    run.refresh_from_db()
    assert (run.token, run.started_at) == (0, None)
    assert runs.claim(str(run.pk)) is not None


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_web_process_with_a_wrong_clock_is_not_ready_and_refuses_writes(
    api: APIClient, user: MemoryUser, ahead: datetime.timedelta
) -> None:
    path = f"/v1/users/{user.user_id}/entries/"
    body = {"entries": [{"kind": "record", **RECORD}]}
    with time_machine.travel(timezone.now() + ahead):
        refused = api.post(path, body)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:uac:problem:unavailable")
        assert int(refused["Retry-After"]) > 0
        assert api.get("/readyz").status_code == 503
        assert api.get(path).status_code == 200

    assert not LogEntry.objects.exists()
    assert api.get("/readyz").status_code == 200
    assert api.post(path, body).status_code == 202


def test_with_a_wrong_clock_no_alarm_is_raised(due: Lane) -> None:
    with time_machine.travel(timezone.now() + DAY):
        alarms.look()

    assert not Alarm.objects.exists()
