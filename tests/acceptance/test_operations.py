"""Real processes end when they are told to, and the remaining ones report what is wrong."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cryptography.fernet import Fernet

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.test_metrics import Metrics
from tests.mail_server import MailServer
from tests.system import (
    EVERYTHING,
    Person,
    create_person,
    message,
    new_client,
    ok,
    record,
    running_system,
    select_rows,
)
from tests.waiting import polled, scaled
from tests.webhook_receiver import hangs, receiver
from workers.service.lifecycle import LEAVING_SECONDS

STOP_SECONDS = 1
# Extra seconds for beginning to stop, on a busy machine: less than the waits in the tests last.
SOME_MORE = 30
SUBSCRIBE = """
from django.contrib.auth.models import User
from memory.alerts.models.staff_mail import StaffSubscription
eve = User.objects.create(username="eve", email="eve@example.org", is_staff=True, is_superuser=True)
StaffSubscription.objects.create(staff=eve, least_severity="critical", operations=True)
"""


@pytest.fixture(scope="module")
def system(mails: MailServer, port: int) -> Iterator[System]:
    """A server that stops quickly, checks its alarms often, and lets code run for long."""
    environment = {
        "UAC_STOP_SECONDS": str(STOP_SECONDS),
        "UAC_MAX_WAIT_SECONDS": "120",
        "UAC_DISPATCH_SECONDS": "0.5",
        "UAC_ALARM_SECONDS": "1",
        "UAC_ALARM_SILENT_SECONDS": "20",
        "UAC_SANDBOX_WALL_SECONDS": "60",
        "UAC_SANDBOX_CPU_SECONDS": "60",
        "UAC_WEBHOOK_TIMEOUT_SECONDS": "60",
        "UAC_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "UAC_METRICS_PORT": str(port),
        "EMAIL_URL": f"smtp://127.0.0.1:{mails.port}",
    }
    with running_system(environment=environment) as system:
        yield system
        system.check()


@pytest.fixture(scope="module")
def manager(system: System) -> Client:
    return create_person(new_client(system, "operations", *EVERYTHING)).client


def ended_within(system: System, name: str, seconds: float) -> str:
    """Stop a process as a deploy does; return its output. It must end by itself, and in time."""
    process = system.processes[name]
    began = time.monotonic()
    process.ask_to_stop()
    polled(lambda: process.running, lambda running: not running, seconds=seconds)
    assert time.monotonic() - began < seconds
    return process.output()


def test_a_sandbox_worker_gives_back_what_it_has_not_done(system: System, manager: Client) -> None:
    ada = Person(manager, "ada")
    ada.log(record("Trip", "a", domain="travel", to="Rome"))
    long = "sum(number for number in range(10**9))"
    run = ok(manager.post("users/ada/query/?wait=0", {"code": long}))["id"]
    leased = "SELECT lease_owner, attempts, token FROM memory_run WHERE id = %s"
    [(_, attempts, token)] = polled(
        lambda: select_rows(system, leased, run), lambda rows: rows[0][0]
    )
    assert attempts == 1

    said = ended_within(system, "sandbox-1", STOP_SECONDS + LEAVING_SECONDS + SOME_MORE)

    assert "work_given_back" in said
    assert select_rows(system, leased, run) == [("", 0, token + 1)]
    assert select_rows(system, "SELECT name FROM memory_sandboxhost") == []
    began = time.monotonic()
    system.start("sandbox-1")
    polled(lambda: select_rows(system, leased, run), lambda rows: rows[0][0])
    assert time.monotonic() - began < 45  # no lease had to expire
    system.kill("sandbox-1")
    # Then no other worker claims that run again.
    select_rows(system, "UPDATE memory_run SET status = 'done' WHERE id = %s RETURNING id", run)
    system.start("sandbox-1")


def test_default_worker_gives_back_hanging_message(system: System, manager: Client) -> None:
    leased = "SELECT lease_owner, attempts FROM memory_delivery"
    with receiver(hangs) as server:
        endpoint = ok(manager.post("webhooks/", {"url": server.url}))
        ok(manager.post(f"webhooks/{endpoint['id']}/test/", {}))
        polled(lambda: select_rows(system, leased), lambda rows: rows and rows[0][0])

        ended_within(system, "default-1", STOP_SECONDS + LEAVING_SECONDS + SOME_MORE)

        assert select_rows(system, leased) == [("", 0)]
        system.start("default-1")
        polled(lambda: len(server.received), lambda calls: calls >= 2)


def test_beat_and_an_idle_worker_end_at_once(system: System) -> None:
    for name in ("beat", "default-1"):
        ended_within(system, name, SOME_MORE)
        system.start(name)


def test_web_stop_loses_no_acknowledged_entry(system: System, manager: Client) -> None:
    acknowledged: list[int] = []
    stopping = threading.Event()

    def write() -> None:
        while not stopping.is_set():
            try:
                status, answer = manager.post(
                    "users/ada/entries/",
                    {"entries": [message("Hello.")]},
                )
            except OSError:
                continue
            if status == 202:
                acknowledged.extend(entry["seq"] for entry in answer["entries"])

    def wait() -> None:
        with suppress(OSError, ValueError):  # its connection ends with the process
            manager.get("events/?after=now&wait=120")

    threads = [threading.Thread(target=target, daemon=True) for target in (write, write, wait)]
    for thread in threads:
        thread.start()
    polled(lambda: len(acknowledged), lambda number: number >= 20)

    ended_within(system, "web", 10 + SOME_MORE)  # --workers-kill-timeout
    stopping.set()
    system.start("web")
    for thread in threads:
        thread.join(scaled(60))

    there = {seq for (seq,) in select_rows(system, "SELECT seq FROM memory_logentry")}
    assert set(acknowledged) <= there
    assert len(acknowledged) == len(set(acknowledged))


def test_silent_dispatcher_raises_an_alarm(system: System, mails: MailServer, port: int) -> None:
    def subjects() -> list[str]:
        return [str(mail["Subject"]) for mail in mails.mails]

    system.manage("shell", "-c", SUBSCRIBE)
    silent = "uac_dispatcher_silent_seconds"
    polled(lambda: Metrics(port + 1).total(silent), lambda seconds: seconds < 5)
    there = {"state": "there"}
    polled(lambda: Metrics(port + 1).total("uac_sandbox_hosts", **there), lambda hosts: hosts == 1)

    system.kill("default-1")
    alarm, over = "[UaC] ALARM: dispatcher", "[UaC] cleared: dispatcher"
    polled(subjects, lambda told: alarm in told)
    web = Metrics(port + 1)
    assert web.total(silent) > 10
    assert web.total("uac_alarm", alarm="dispatcher") == 1
    assert web.total("uac_queue_hints", queue="default") > 1

    system.start("default-1")
    polled(subjects, lambda told: over in told)
    assert (subjects().count(alarm), subjects().count(over)) == (1, 1)
