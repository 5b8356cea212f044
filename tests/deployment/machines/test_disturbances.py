"""Machines, and the network between them, fail: nothing is lost or doubled, and little is late.

With pytest's option `-s`, a row of figures is printed for each disturbance.
"""

import psycopg
import pytest

from tests.chaos.running import verified
from tests.deployment.machines.rehearsal import Figures, Rehearsal
from tests.waiting import scaled

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

# Every kind of link that work goes over; the others are their twins.
LINKS = (
    ("balancer", "web-1"),
    ("web-1", "database"),
    ("web-1", "redis"),
    ("host-1", "database"),
    ("host-1", "redis"),
    ("workers", "database"),
    ("workers", "redis"),
    ("workers", "outside"),
)
# A caller's own time limit, and what says that the request may be repeated.
EXPECTED = {"TimeoutError", "status 409", "status 429", "status 502", "status 503", "status 504"}
# Until others do the waiting work of a lost machine: a silent host is noticed after eight seconds,
# and the dispatcher announces its work every two.
HOST_SECONDS = 20.0


def assert_harmless(figures: Figures) -> None:
    assert figures.violations == []
    assert figures.failures.keys() <= EXPECTED
    assert figures.requests > 20


@pytest.mark.parametrize("milliseconds", [2, 20])
def test_latency_costs_time_alone(rehearsal: Rehearsal, milliseconds: int) -> None:
    with rehearsal.scenario(f"round trips of {milliseconds} ms") as figures:
        rehearsal.network.set_all(delay=milliseconds / 2000)
        rehearsal.sleep(10)

    assert_harmless(figures)


def test_lost_packets_cost_time_alone(rehearsal: Rehearsal) -> None:
    with rehearsal.scenario("1 % of packets lost") as figures:
        rehearsal.network.set_all(delay=0.001, loss=0.01)
        rehearsal.sleep(10)

    assert_harmless(figures)


def test_each_link_may_be_cut_for_a_moment(rehearsal: Rehearsal) -> None:
    with rehearsal.scenario("each link cut for 5 s, one after the other") as figures:
        for link in LINKS:
            rehearsal.network.cut(*link)
            rehearsal.sleep(5)
            rehearsal.network.set_link(*link)
            rehearsal.sleep(3)

    assert_harmless(figures)


@pytest.mark.parametrize("machine", ["web-1", "host-1"])
def test_a_machine_may_be_without_database_for_a_minute(rehearsal: Rehearsal, machine: str) -> None:
    with rehearsal.scenario(f"{machine} without database for 60 s") as figures:
        rehearsal.network.cut(machine, "database")
        rehearsal.sleep(60)

    assert_harmless(figures)
    assert figures.pause < scaled(HOST_SECONDS)


@pytest.mark.parametrize("machine", ["web-1", "host-1"])
def test_a_machine_that_vanishes_is_replaced(rehearsal: Rehearsal, machine: str) -> None:
    with rehearsal.scenario(f"{machine} vanishes for 20 s") as figures:
        rehearsal.vanish(machine, 20)

    assert_harmless(figures)
    assert figures.pause < scaled(HOST_SECONDS)


def test_redis_that_vanishes_is_done_without(rehearsal: Rehearsal) -> None:
    with rehearsal.scenario("Redis vanishes for 20 s") as figures:
        rehearsal.vanish("redis", 20)

    assert_harmless(figures)
    assert figures.failures.total() < figures.requests / 2


def test_work_waits_for_a_database_that_vanishes(rehearsal: Rehearsal) -> None:
    with rehearsal.scenario("the database vanishes for 20 s") as figures:
        rehearsal.vanish("database", 20)

    assert_harmless(figures)


def test_a_slow_disk_costs_time_alone(rehearsal: Rehearsal) -> None:
    """Each flush of the write-ahead log takes 0.1 s longer."""
    with rehearsal.scenario("a disk that needs 0.1 s for a flush") as figures:
        delay_commits(rehearsal, 100_000)
        try:
            rehearsal.sleep(10)
        finally:
            delay_commits(rehearsal, 0)

    assert_harmless(figures)


def delay_commits(rehearsal: Rehearsal, microseconds: int) -> None:
    url = rehearsal.deployment.system.services.postgres.superuser_url
    with psycopg.connect(url, autocommit=True) as database:
        for name, value in (("commit_delay", microseconds), ("commit_siblings", 0)):
            database.execute(f"ALTER SYSTEM SET {name} = {value}")
        database.execute("SELECT pg_reload_conf()")


def test_a_wrong_clock_takes_a_process_out_of_service(rehearsal: Rehearsal) -> None:
    with rehearsal.scenario("the clock of web-2 90 s ahead") as figures:
        rehearsal.set_clock("web-2", 90)
        try:
            rehearsal.sleep(15)
        finally:
            rehearsal.set_clock("web-2", 0)

    assert_harmless(figures)


def test_the_server_finds_nothing_wrong_itself(rehearsal: Rehearsal) -> None:
    assert verified(rehearsal.deployment) == []
