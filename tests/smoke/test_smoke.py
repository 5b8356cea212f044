"""Guarantees of every build, on one whole server that is broken more from test to test.

`tests/chaos` breaks more, under traffic, by a schedule that follows from a seed.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, expect

from benchmarks.harness import Client
from deploy.embedded.process import free_port
from deploy.embedded.system import System
from tests.browser import follow
from tests.docker_engine import Engine
from tests.sandbox_hosts import Work, find_home, find_host, find_problem
from tests.system import Person, count_rows, ok, select_rows, task
from tests.waiting import polled
from tests.webhook_receiver import Call, answers, receiver

pytestmark = pytest.mark.docker

SANDBOX_WORKERS = ("sandbox-1", "sandbox-2")


def late_task(name: str) -> dict[str, Any]:
    return task(name, days=3)


def message_about(name: str) -> str:
    return f"{name} is 3 days late"


def wait_for_alert(person: Person, name: str) -> dict[str, Any]:
    """Wait until the work on a late task is done; return its alert with its events."""
    polled(lambda: person.get()["entries"]["pending"], lambda pending: not pending)
    alerts = polled(
        lambda: [one for one in person.alerts() if one["message"] == message_about(name)], bool
    )
    assert len(alerts) == 1
    alert: dict[str, Any] = ok(person.client.get(f"alerts/{alerts[0]['id']}/"))
    return alert


def kinds_of(alert: dict[str, Any]) -> list[str]:
    return [event["kind"] for event in alert["events"]]


def test_three_clicks_lead_from_the_front_page_to_the_entry(page: Page, person: Person) -> None:
    [entry] = person.log(late_task("passport"))
    wait_for_alert(person, "passport")

    follow(page.locator("#rail").get_by_role("link", name="Alerts", exact=True))
    row = page.get_by_role("row").filter(has_text=message_about("passport"))
    expect(row.get_by_text("warning", exact=True)).to_be_visible()
    expect(row.get_by_text("open", exact=True)).to_be_visible()
    expect(row).to_contain_text(person.user_id)
    expect(row.locator(".field-about")).to_contain_text("late")

    row.get_by_role("link", name=message_about("passport")).click()  # opens beside the list
    expect(page.locator(".field-evidence_tree")).to_contain_text("Task passport in work.tasks")
    expect(page.locator(".field-evidence_tree")).to_contain_text("days 3")
    expect(page.locator(".field-rule")).to_contain_text("constraints/late.py")
    expect(page.locator(".field-rule pre").first).to_contain_text("if task.days > 0:")

    evidence = page.locator(".field-evidence_tree li", has_text="passport in")
    follow(evidence.get_by_role("link", name=f"#{entry['seq']}", exact=True))
    expect(page.get_by_role("heading", name="Log entry")).to_be_visible()
    expect(page.locator(".field-content_and_data")).to_contain_text('"name": "passport"')
    expect(page.locator(".field-outcome")).to_contain_text(re.compile(r"covered with v\d"))

    follow(page.get_by_role("link", name=message_about("passport")))  # back to what cites it
    expect(page.get_by_role("heading", name=re.compile("^(Critical|Warning) · "))).to_be_visible()


def test_webhook_survives_every_failure(system: System, client: Client, person: Person) -> None:
    called = threading.Event()

    def hang(call: Call) -> None:
        called.set()
        call.wait(600)

    # Given a worker that is killed between its call and the answer
    port = free_port()
    with receiver(hang, answers(500), port=port) as server:
        endpoint = ok(client.post("webhooks/", {"url": server.url}))
        person.log(late_task("visa"))
        assert called.wait(120)
        system.kill("default-1")
        system.start("default-1")
        # And a receiver that then fails
        polled(lambda: len(server.received), lambda number: number >= 2)
        refused = list(server.received)
    # And that then is down, while something else happens
    unanswered = "memory_deliveryattempt WHERE status IS NULL AND error <> ''"
    polled(lambda: count_rows(system, unanswered), bool)
    alert = wait_for_alert(person, "visa")
    ok(client.post(f"alerts/{alert['id']}/acknowledge/", {}))

    # When it is back
    with receiver(port=port) as server:
        path = f"webhooks/{endpoint['id']}/"
        state = polled(lambda: ok(client.get(path)), lambda state: state["pending"] == 0)
        taken = list(server.received)

    # Then each event has arrived, and been taken once
    events = ok(client.get(f"alerts/{alert['id']}/"))["events"]
    assert [event["kind"] for event in events] == ["opened", "acknowledged"]
    messages = [call.verified(endpoint["secret"]) for call in taken]
    assert [one["data"]["event"]["seq"] for one in messages] == [one["seq"] for one in events]
    assert len({call.id for call in taken}) == len(taken)
    # Under the id that it had from the first call on
    assert {call.id for call in refused} == {taken[0].id}
    assert all(call.verifies(endpoint["secret"]) for call in refused)
    assert (state["enabled"], state["given_up"]) == (True, 0)
    status, _ = client.request("DELETE", path)
    assert status == 204


def test_checkpoint_of_killed_worker_is_made_once(system: System, person: Person) -> None:
    before = person.get()["head"]

    # Given a checkpoint that is judged and half written
    with outcomes_locked(system):
        [entry] = person.log(late_task("tax"), wait=0)
        waiting = "pg_locks WHERE relation = 'memory_entryoutcome'::regclass AND NOT granted"
        polled(lambda: count_rows(system, waiting), bool)
        worker = find_worker_of_lane(system, person)
        # When its worker is killed
        system.kill(worker)
        assert find_worker_of_lane(system, person) == worker
        assert find_outcomes(system, person, entry) == []

    # Then another one makes it, and its alert opens once
    alert = wait_for_alert(person, "tax")
    assert kinds_of(alert) == ["opened"]
    assert find_outcomes(system, person, entry) == ["covered"]
    assert person.get()["head"] == before + 1
    system.start(worker)
    unfinished = "memory_run WHERE status <> 'done'"
    polled(lambda: count_rows(system, unfinished), lambda number: not number)
    assert kinds_of(wait_for_alert(person, "tax")) == ["opened"]


@contextmanager
def outcomes_locked(system: System) -> Iterator[None]:
    """Block whoever writes the outcome of an entry, in the middle of the transaction."""
    with psycopg.connect(system.services.postgres.owner_url) as database:
        database.execute("LOCK TABLE memory_entryoutcome IN SHARE MODE")
        yield
        database.rollback()


def find_worker_of_lane(system: System, person: Person) -> str:
    """Return the worker that has claimed the person's typed entries."""
    statement = (
        "SELECT split_part(lease_owner, ':', 2) FROM memory_lane l"
        " JOIN memory_memoryuser u ON u.id = l.user_id"
        " WHERE l.name = 'records' AND u.user_id = %s"
    )
    ((pid,),) = select_rows(system, statement, person.user_id)
    return next(name for name in SANDBOX_WORKERS if str(system.processes[name].pid) == pid)


def find_outcomes(system: System, person: Person, entry: dict[str, Any]) -> list[str]:
    statement = (
        "SELECT outcome FROM memory_entryoutcome o JOIN memory_memoryuser u ON u.id = o.user_id"
        " WHERE u.user_id = %s AND o.seq = %s"
    )
    return [outcome for (outcome,) in select_rows(system, statement, person.user_id, entry["seq"])]


def test_work_that_waits_while_docker_is_restarted_is_done(
    system: System,
    engine: Engine,
    person: Person,
    travellers: list[Person],
    costs: dict[str, list[int]],
) -> None:
    work = Work(system, travellers, costs)

    # Given work that is under way when the engine and all containers are killed
    for traveller in travellers:
        work.send_record(traveller)
    engine.crash()
    for worker in SANDBOX_WORKERS:
        problem = polled(lambda: find_problem(system, worker), bool)  # noqa: B023
        assert "does not answer" in problem
    # And more that comes while there is none
    for traveller in travellers:
        work.send_record(traveller)
    person.log(late_task("licence"), wait=0)
    for waiting in (person, *travellers):
        assert waiting.get()["entries"]["pending"] > 0
    # When the engine is back
    engine.start()

    # Then all of it is done, once
    work.all_is_there_once()
    assert kinds_of(wait_for_alert(person, "licence")) == ["opened"]


def test_the_users_of_a_killed_host_are_served_by_the_other(
    system: System, travellers: list[Person], costs: dict[str, list[int]]
) -> None:
    lost, left = (find_host(system, worker) for worker in reversed(SANDBOX_WORKERS))
    assert lost in [find_home(system, person) for person in travellers]

    system.kill("sandbox-2")

    work = Work(system, travellers, costs)
    work.send()
    assert work.hosts().keys() == {left}
    work.all_is_there_once()
