"""Faults, and their schedule, which follows from a seed."""

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import redis

from tests.chaos.deployment import CLOCKED, Deployment, Receivers
from tests.chaos.model import Model
from tests.processes import Process

Fault: TypeAlias = Callable[[Deployment, random.Random], None]

# Durations of a fault, in seconds.
SHORT, LONG = 1.0, 6.0
HOUR, DAY = 3600.0, 86400.0
LEAPS = (-DAY, -HOUR, -20.0, 20.0, HOUR, DAY)


def _killed(*names: str) -> Fault:
    def strike(system: Deployment, choices: random.Random) -> None:
        system.kill(choices.choice(names))

    return strike


def _signalled(number: signal.Signals, *names: str, pause: float | None = None) -> Fault:
    """End a process by a signal: SIGTERM asks it to stop, as a deploy does."""

    def strike(system: Deployment, choices: random.Random) -> None:
        system.signal(choices.choice(names), number, pause)

    return strike


def _backend_killed(system: Deployment, choices: random.Random) -> None:
    """Kill one of the database's processes: the database ends all of them, and recovers."""
    postgres = system.processes["postgres"]
    if postgres.running and (backends := Process.of(postgres.pid).descendants()):
        with suppress(ProcessLookupError):
            choices.choice(backends).send(signal.SIGKILL)


def _redis_emptied(system: Deployment, choices: random.Random) -> None:
    url = system.system.services.redis.url
    with suppress(Exception), redis.Redis.from_url(url, socket_timeout=2) as server:
        server.flushall()  # unless it is down


def _redis_lost(system: Deployment, choices: random.Random) -> None:
    system.kill("redis")
    shutil.rmtree(system.system.data_folder / "redis" / "appendonlydir", ignore_errors=True)


def _paused(*names: str) -> Fault:
    """Stop a process for longer than its leases last, and let it go on."""

    def strike(system: Deployment, choices: random.Random) -> None:
        process = system.processes[choices.choice(names)]
        if not process.running:
            return
        pid = process.pid

        def goes_on() -> None:
            with suppress(ProcessLookupError):
                if process.running and process.pid == pid:
                    signal_group(pid, signal.SIGCONT)

        signal_group(pid, signal.SIGSTOP)
        system.later(choices.uniform(LONG, 2 * LONG), goes_on)

    return strike


def signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _container_killed(system: Deployment, choices: random.Random) -> None:
    for runner in choices.sample(found := system.runners(), min(2, len(found))):
        with suppress(ProcessLookupError):
            runner.send(signal.SIGKILL)


def _disk_full(system: Deployment, choices: random.Random) -> None:
    """Fill everything that user code may write to, in every running container."""
    for runner in system.runners():
        with suppress(OSError), Path(f"/proc/{runner.pid}/root/tmp/full").open("wb") as out:
            try:
                while True:
                    out.write(bytes(65536))
                    out.flush()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def _engine_crashed(system: Deployment, choices: random.Random) -> None:
    assert system.engine is not None
    system.engine.crash()
    system.kill("dockerd")


def _clock_jumps(system: Deployment, choices: random.Random) -> None:
    name = choices.choice(CLOCKED)
    system.set_clock(name, choices.choice(LEAPS))
    system.later(choices.uniform(LONG, 2 * LONG), lambda: system.set_clock(name, 0))


def _in_mood(whose: Callable[[Deployment], Model | Receivers], mood: str) -> Fault:
    def strike(system: Deployment, choices: random.Random) -> None:
        whose(system).mood = mood
        seconds = choices.uniform(SHORT, LONG)
        system.later(seconds, lambda: setattr(whose(system), "mood", "well"))

    return strike


TO_STOP = ("sandbox-1", "sandbox-2", "llm-2", "default-1")
# Fault → its relative frequency.
FAULTS: Mapping[str, tuple[Fault, int]] = {
    "web killed": (_killed("web"), 2),
    "sandbox worker killed": (_killed("sandbox-1", "sandbox-2"), 4),
    "llm worker killed": (_killed("llm-1", "llm-2"), 3),
    "default worker killed": (_killed("default-1"), 2),
    "beat killed": (_killed("beat", "beat-2"), 1),
    "worker paused": (_paused("sandbox-1", "sandbox-2", "llm-1", "default-1"), 2),
    "worker told to stop": (_signalled(signal.SIGTERM, *TO_STOP), 2),
    "postgres restarted": (_signalled(signal.SIGINT, "postgres"), 1),
    "postgres crashed": (_signalled(signal.SIGQUIT, "postgres"), 1),
    "postgres killed": (_signalled(signal.SIGKILL, "postgres"), 1),
    "postgres backend killed": (_backend_killed, 2),
    "redis killed": (_killed("redis"), 2),
    "redis emptied": (_redis_emptied, 2),
    "redis lost": (_redis_lost, 1),
    "container killed": (_container_killed, 4),
    "disk full": (_disk_full, 3),
    "engine killed": (_killed("dockerd"), 1),
    "engine restarted": (_signalled(signal.SIGTERM, "dockerd", pause=0.1), 1),
    "engine crashed": (_engine_crashed, 1),
    "clock jumps": (_clock_jumps, 3),
    "model hangs": (_in_mood(lambda system: system.model, "hanging"), 2),
    "model fails": (_in_mood(lambda system: system.model, "failing"), 2),
    "model mad": (_in_mood(lambda system: system.model, "mad"), 2),
    "receivers fail": (_in_mood(lambda system: system.receivers, "failing"), 2),
}
OF_CONTAINERS = (
    "container killed", "disk full", "engine killed", "engine restarted", "engine crashed",
)  # fmt: skip


def schedule(seed: int, seconds: float, *, containers: bool) -> list[tuple[float, str]]:
    """Return the faults and their times, in seconds from the beginning of the traffic.

    There are about two faults in five seconds; each kind comes once before any is repeated by its
    weight.
    """
    choices = random.Random(f"schedule {seed}")
    kinds = [name for name in FAULTS if containers or name not in OF_CONTAINERS]
    weights = [FAULTS[name][1] for name in kinds]
    first = choices.sample(kinds, len(kinds))
    events, at = [], 2.0
    while at < seconds:
        name = first.pop() if first else choices.choices(kinds, weights)[0]
        events.append((at, name))
        at += choices.uniform(0.5, 4.5)
    return events
