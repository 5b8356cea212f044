"""Leases between workers that really run at the same time."""

import datetime
import threading
from contextlib import ExitStack

from django.db import connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.constraints import forecasts
from memory.constraints.models.forecasts import Forecast
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.log import lanes
from memory.versions import runs
from memory.versions.models.runs import RunKind, RunTrigger
from tests.factories import make_checkpoint
from tests.integration.work.test_leases import DUE, append_record
from tests.rivals import run_at_once
from tests.steps import not_none
from tests.waiting import eventually, scaled


def test_only_one_of_many_workers_claims_a_lane(live_database: str, user: MemoryUser) -> None:
    append_record(user)
    claimed: list[Lane | None] = []

    run_at_once(*[lambda: claimed.append(leases.claim(DUE.filter(user=user)))] * 8)

    assert len([lane for lane in claimed if lane is not None]) == 1


def test_a_kept_lease_does_not_expire_while_the_work_goes_on(
    live_database: str, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_LEASE_SECONDS = 3
    append_record(user)
    lane = not_none(leases.claim(DUE))
    first_expiry = lane.lease_expires_at

    with leases.kept(lane):
        assert eventually(lambda: expiry(lane) != first_expiry)


def expiry(lane: Lane) -> datetime.datetime | None:
    lane.refresh_from_db()
    return lane.lease_expires_at


def test_many_leases_are_kept_by_one_thread_and_one_that_is_being_written_holds_up_none(
    live_database: str, workspace: Workspace, settings: Settings
) -> None:
    settings.UAC_LEASE_SECONDS = 3
    lanes = []
    for name in ("ada", "bob", "eve"):
        append_record(create_user(workspace, name, metadata=None))
        lane = not_none(leases.claim(DUE.filter(user__user_id=name)))
        lanes.append(lane)
    written, *others = lanes
    before = {lane.pk: lane.lease_expires_at for lane in lanes}

    with ExitStack() as stack:
        # First, so that it is not renewed before it is written.
        stack.enter_context(transaction.atomic())
        leases.check(written)
        for lane in lanes:
            stack.enter_context(leases.kept(lane))
        assert eventually(lambda: all(expiry(lane) != before[lane.pk] for lane in others))
        keepers = [thread for thread in threading.enumerate() if thread.name == "leases"]

        assert Lane.objects.get(pk=written.pk).lease_expires_at == before[written.pk]
        assert len(keepers) == 1


def test_work_is_claimed_while_its_user_is_locked(live_database: str, user: MemoryUser) -> None:
    """Every append locks the user's row: users with constant appends must be processed, too."""
    append_record(user)
    run = runs.queue(user, RunKind.QUERY, RunTrigger.API, checkpoint=make_checkpoint(user))
    forecast, _ = Forecast.objects.update_or_create(user=user, defaults={"due_at": timezone.now()})
    MemoryUser.objects.filter(pk=user.pk).update(head=run.checkpoint)
    held, done = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
            held.set()
            done.wait(scaled(60))
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert held.wait(scaled(60))
    try:
        claimed = [
            leases.claim(lanes.due(LaneName.RECORDS).filter(user=user)),
            runs.claim(str(run.pk)),
            leases.claim(forecasts.waiting().filter(pk=forecast.pk)),
        ]
    finally:
        done.set()
        writer.join()

    assert None not in claimed
