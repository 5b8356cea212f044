"""Processes and services are killed under traffic, which delays work and loses none of it.

Four writers post all the while and repeat what was not acknowledged. At the end of each test the
logs, outcomes, projects and alerts must follow exactly from what was acknowledged.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from deploy.embedded.system import System
from tests.concurrent_writers import Traffic, new_traffic
from tests.processes import Process, gone
from tests.system import count_rows, running_system, select_rows
from tests.waiting import eventually, polled


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """A server of its own, since its processes are killed; quick to notice a lost worker."""
    quick = {"UAC_LEASE_SECONDS": "3", "UAC_DISPATCH_SECONDS": "0.5"}
    with running_system(sandbox_workers=2, environment=quick) as system:
        yield system


@pytest.fixture(scope="module")
def traffic(system: System) -> Traffic:
    return new_traffic(system, users=4, guarded=2, pause=0.1)


@contextlib.contextmanager
def flowing(system: System, traffic: Traffic) -> Iterator[None]:
    """Run traffic before, during and after this context; then everything must be consistent."""
    with traffic.flowing(writers=4):
        some_more(traffic)
        yield
        some_more(traffic)
    traffic.settle()
    assert traffic.problems() == []
    assert system.manage("verify").rstrip().endswith(" 0 problems")
    system.check()


def some_more(traffic: Traffic) -> None:
    goal = acknowledged(traffic) + 20
    polled(lambda: acknowledged(traffic), lambda count: count >= goal, seconds=120)


def acknowledged(traffic: Traffic) -> int:
    return sum(len(user.acknowledged) for user in traffic.users)


def until_requests_fail(traffic: Traffic) -> None:
    before = traffic.failures.total()
    polled(traffic.failures.total, lambda failures: failures > before)


def lanes_held_by(system: System, pid: int) -> int:
    """Return how many users' lanes a worker process has claimed and not released."""
    return count_rows(system, "memory_lane WHERE lease_owner LIKE %s", f"%:{pid}:%")


def test_the_proof_notices_a_loss(system: System, traffic: Traffic) -> None:
    with flowing(system, traffic):
        pass
    user = traffic.users[0]
    seq = max(user.acknowledged)  # not the one acknowledged last: the next number has to be free
    entry = user.acknowledged.pop(seq)

    user.acknowledged[seq + 1] = entry

    problems = "\n".join(traffic.problems())
    assert f"entry {seq} must be None, the log has {{" in problems
    assert f"entry {seq + 1} must be {{" in problems
    del user.acknowledged[seq + 1]
    user.acknowledged[seq] = entry
    assert traffic.problems() == []


def test_sandbox_workers_killed_in_the_middle_of_checkpoints(
    system: System, traffic: Traffic
) -> None:
    with flowing(system, traffic):
        for name in ("sandbox-1", "sandbox-2", "sandbox-1"):
            worker = system.processes[name].pid
            killed_at_work = False
            while not killed_at_work:
                polled(lambda: lanes_held_by(system, worker), bool)  # noqa: B023
                sandboxes = Process.of(worker).descendants()
                system.kill(name)
                killed_at_work = lanes_held_by(system, worker) > 0
                assert eventually(lambda: gone(sandboxes))  # noqa: B023
                system.start(name)
                worker = system.processes[name].pid


def test_redis_emptied_and_killed(system: System, traffic: Traffic) -> None:
    with flowing(system, traffic):
        for _ in range(3):
            with redis.Redis.from_url(system.services.redis.url) as server:
                server.flushall()
            some_more(traffic)
        failures = traffic.failures.copy()

        system.kill("redis")
        some_more(traffic)
        system.start("redis")
        some_more(traffic)

        # Appends need no Redis.
        assert traffic.failures == failures


def kill_postgres(system: System) -> None:
    """Kill PostgreSQL; its backends, which have their own sessions, exit when they notice.

    Until then a new one does not start, since the shared memory is in use.
    """
    backends = Process.of(system.processes["postgres"].pid).descendants()
    system.kill("postgres")
    assert eventually(lambda: gone(backends))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_postgres_restarted(system: System, traffic: Traffic, end: str) -> None:
    with flowing(system, traffic):
        if end == "kill":
            kill_postgres(system)
        else:
            system.stop("postgres")
        until_requests_fail(traffic)
        system.start("postgres")


def test_web_killed_in_the_middle_of_requests(system: System, traffic: Traffic) -> None:
    with flowing(system, traffic):
        for _ in range(2):
            system.kill("web")
            until_requests_fail(traffic)
            system.start("web")
            some_more(traffic)


def test_everything_killed_at_once(system: System, traffic: Traffic) -> None:
    with flowing(system, traffic):
        for name in system.processes:
            kill_postgres(system) if name == "postgres" else system.kill(name)
        until_requests_fail(traffic)
        services, others = ["postgres", "redis"], list(system.processes)[2:]
        system.start(*services)
        system.start(*others)


def test_two_beats_do_no_work_twice(system: System, traffic: Traffic) -> None:
    beat = system.processes["beat"]
    schedule = str(system.data_folder / "beat-schedule")
    second = dataclasses.replace(
        beat,
        name="beat-2",
        command=[part.replace(schedule, f"{schedule}-2") for part in beat.command],
        log_path=beat.log_path.with_name("beat-2.log"),
    )
    second.start()
    try:
        with flowing(system, traffic):
            due = "UPDATE memory_memoryuser SET constraints_due_at = now() RETURNING id"
            select_rows(system, due)
            some_more(traffic)
        watched = [user for user in traffic.users if user.guarded]
        runs = polled(
            lambda: clock_runs(system),
            lambda runs: len(runs) == len(watched) and all(done for _, done in runs),
        )
    finally:
        second.stop()

    assert [count for count, _ in runs] == [1] * len(watched)


def clock_runs(system: System) -> list[tuple[Any, ...]]:
    """Return for each user the number of runs that the clock queued, and whether all are done."""
    return select_rows(
        system,
        "SELECT count(*), bool_and(status = 'done') FROM memory_run"
        " WHERE trigger IN ('daily', 'instant') GROUP BY user_id",
    )
