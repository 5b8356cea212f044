"""The language model's lane while entries are appended and settled at the same time."""

import threading

from django.db import connection
from pytest_django.fixtures import Settings

from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import leases
from memory.log import entry_log, lanes
from memory.log.models.entries import EntryOutcome, Outcome
from tests.steps import append_texts

WRITERS = 4
ENTRIES = 25


def test_no_entry_is_forgotten_between_an_append_and_the_end_of_the_work(
    live_database: str, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_STRUCTURE_ENTRIES = 3
    settings.UAC_STRUCTURE_IDLE_SECONDS = settings.UAC_STRUCTURE_AGE_SECONDS = 3600
    rounds = 0
    written: list[int] = []
    was_often_settled = threading.Event()

    def write() -> None:
        number = 0
        while number < ENTRIES or not was_often_settled.is_set():
            written.extend(append_texts(user, "hi"))
            number += 1
        connection.close()

    def settle() -> bool:
        lane = leases.claim(lanes.due(LaneName.STRUCTURE))
        if lane is None:
            return False
        entries = lanes.pending(lane, 10)
        EntryOutcome.objects.bulk_create(
            EntryOutcome(user=user, seq=entry.seq, outcome=Outcome.COVERED) for entry in entries
        )
        lanes.release(lane)
        return True

    writers = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in writers:
        thread.start()
    try:
        while any(thread.is_alive() for thread in writers):
            rounds += settle()
            if rounds > 3:
                was_often_settled.set()
    finally:
        was_often_settled.set()
    for thread in writers:
        thread.join()
    while settle():
        pass

    assert rounds > 3
    lane = Lane.objects.get(user=user, name=LaneName.STRUCTURE)
    pending = entry_log.coverage(user).pending
    assert entry_log.coverage(user).total == len(written) >= WRITERS * ENTRIES
    assert lane.waiting == pending < settings.UAC_STRUCTURE_ENTRIES
    assert (lane.due_at is None) == (pending == 0)
