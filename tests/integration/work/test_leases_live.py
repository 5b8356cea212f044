"""Leases between workers that really run at the same time."""

import threading
import time
from contextlib import ExitStack

from django.db import connection, transaction
from pytest_django.fixtures import Settings

from memory import leases
from memory.models import Lane, MemoryUser, Workspace
from memory.users import create_user
from tests.integration.work.test_leases import DUE, append_record


def test_only_one_of_many_workers_claims_a_lane(live_database: str, user: MemoryUser) -> None:
    append_record(user)
    barrier = threading.Barrier(8)
    claimed: list[Lane] = []

    def work() -> None:
        barrier.wait()
        lane = leases.claim(DUE.filter(user=user))
        if lane is not None:
            claimed.append(lane)
        connection.close()

    workers = [threading.Thread(target=work) for _ in range(8)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()

    assert len(claimed) == 1


def test_a_kept_lease_does_not_expire_while_the_work_goes_on(
    live_database: str, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_LEASE_SECONDS = 1
    append_record(user)
    lane = leases.claim(DUE)
    assert lane is not None
    first_expiry = lane.lease_expires_at

    with leases.kept(lane):
        deadline = threading.Event()
        for _ in range(200):
            lane.refresh_from_db()
            if lane.lease_expires_at != first_expiry:
                break
            deadline.wait(0.02)

    assert lane.lease_expires_at != first_expiry


def test_many_leases_are_kept_by_one_thread_and_one_that_is_being_written_holds_up_none(
    live_database: str, workspace: Workspace, settings: Settings
) -> None:
    settings.UAC_LEASE_SECONDS = 1
    lanes = []
    for name in ("ada", "bob", "eve"):
        append_record(create_user(workspace, name, metadata=None))
        lane = leases.claim(DUE.filter(user__user_id=name))
        assert lane is not None
        lanes.append(lane)
    written, *others = lanes
    before = {lane.pk: lane.lease_expires_at for lane in lanes}

    with ExitStack() as stack:
        for lane in lanes:
            stack.enter_context(leases.kept(lane))
        stack.enter_context(transaction.atomic())
        leases.check(written)
        for _ in range(200):
            for lane in others:
                lane.refresh_from_db()
            if all(lane.lease_expires_at != before[lane.pk] for lane in others):
                break
            time.sleep(0.02)
        keepers = [thread for thread in threading.enumerate() if thread.name == "leases"]

        assert all(lane.lease_expires_at != before[lane.pk] for lane in others)
        assert Lane.objects.get(pk=written.pk).lease_expires_at == before[written.pk]
        assert len(keepers) == 1
