"""Deliveries by workers that really run at the same time."""

import datetime
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

from django.db import connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.alerts.delivery import outbox, webhook_endpoints
from memory.alerts.models.webhooks import Delivery, DeliveryState, WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.integration.webhooks.conftest import NOWHERE, EndpointAt, send
from tests.rivals import somebody_waits
from tests.waiting import eventually
from tests.webhook_receiver import Call, Received, answers, hangs, receiver


def pending(endpoint: WebhookEndpoint) -> int:
    return Delivery.objects.filter(endpoint=endpoint, state=DeliveryState.PENDING).count()


def test_an_endpoint_that_hangs_holds_up_no_other(
    live_database: str, user: MemoryUser, endpoint_at: EndpointAt, settings: Settings
) -> None:
    # Given a worker of five threads, and far more hints for the endpoint that hangs.
    settings.UAC_WEBHOOK_CONCURRENCY = 3
    settings.UAC_WEBHOOK_TIMEOUT_SECONDS = 3600.0
    ended: list[Received] = []

    def hangs_until_closed(call: Call) -> None:
        hangs(call)
        ended.append(call.received)

    with receiver(hangs_until_closed) as slow, receiver() as quick:
        hanging, _ = endpoint_at(slow.url)
        healthy, _ = endpoint_at(quick.url)
        with transaction.atomic():
            run_finds(user, *(finding(record(f"m-{number}")) for number in range(20)))

        def work(endpoint: WebhookEndpoint) -> None:
            send(endpoint)
            connection.close()

        with ThreadPoolExecutor(5) as worker:
            for endpoint in [hanging] * 20 + [healthy] * 2:
                worker.submit(work, endpoint)
            had_all = eventually(lambda: not pending(healthy))
            all_hung = eventually(lambda: len(slow.received) == 3)
            ended_before = len(ended)
            webhook_endpoints.disable(hanging, "tests")
            slow.close()  # which ends the calls

    # Then the healthy one had all before the first call of the other one was over.
    assert had_all
    assert all_hung
    assert ended_before == 0
    assert len(slow.received) == 3


def test_many_workers_send_each_message_once_and_in_order(
    live_database: str, workspace: Workspace, endpoint_at: EndpointAt
) -> None:
    # Given a receiver that takes its time for the first of every few calls.
    taken: list[Received] = []

    def slowly(call: Call) -> None:
        call.wait(0.3)
        at_once(call)

    def at_once(call: Call) -> None:
        taken.append(call.received)
        answers(200)(call)

    with receiver(*(slowly, at_once, at_once) * 9) as server:
        endpoint, secret = endpoint_at(server.url)
        users = [create_user(workspace, f"user-{number}", metadata=None) for number in range(3)]

        def write(user: MemoryUser) -> None:
            for number in range(8):
                with transaction.atomic():
                    run_finds(user, finding(record("m-1", number)))
            connection.close()

        def work() -> None:
            while pending(endpoint):
                send(endpoint)
                time.sleep(0.01)
            connection.close()

        workers = [threading.Thread(target=work) for _ in range(4)]
        writers = [threading.Thread(target=write, args=(user,)) for user in users]
        for threads in (writers, workers):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    order: dict[str, list[int]] = defaultdict(list)
    for call in taken:
        data = call.verified(secret)["data"]
        order[data["user_id"]].append(data["event"]["seq"])
    assert len(taken) == len({call.id for call in taken}) == 3 * 8
    for seqs in order.values():
        assert seqs == sorted(seqs)


def test_an_endpoint_may_be_deleted_while_events_are_written(
    live_database: str, user: MemoryUser, endpoint_at: EndpointAt
) -> None:
    endpoints = [endpoint_at(NOWHERE)[0] for _ in range(10)]
    failures: list[Exception] = []
    written: list[int] = []
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                with transaction.atomic():
                    run_finds(
                        user,
                        finding(record("m-1", number)),
                        instant=timezone.now(),
                    )
                written.append(number)
            except Exception as error:
                failures.append(error)
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    for endpoint in endpoints:
        before = len(written)
        assert eventually(lambda: failures or len(written) > before)  # noqa: B023
        webhook_endpoints.delete(endpoint)
    over.set()
    writer.join()

    assert failures == []
    assert not Delivery.objects.exists()


def test_message_replayed_during_a_purge_is_sent(
    live_database: str, user: MemoryUser, endpoint_at: EndpointAt
) -> None:
    # Given a message of long ago that somebody replays at this moment
    endpoint, _ = endpoint_at(NOWHERE)
    with transaction.atomic():
        run_finds(user, finding(record("m-1")))
    long_ago = timezone.now() - datetime.timedelta(days=31)
    Delivery.objects.update(state=DeliveryState.GIVEN_UP, settled_at=long_ago)
    cleared = threading.Event()

    def clear() -> None:
        outbox.purge(10)
        cleared.set()
        connection.close()

    # When the log is cleared before that is committed
    with transaction.atomic():
        outbox.replay(Delivery.objects.get())
        clearing = threading.Thread(target=clear)
        clearing.start()
        assert eventually(lambda: cleared.is_set() or somebody_waits())
    clearing.join()

    assert pending(endpoint) == 1
