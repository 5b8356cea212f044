"""Faults, and their schedule, which follows from a seed."""

import errno
import os
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from tests.chaos.deployment import CLOCKED, Deployment

Fault: TypeAlias = Callable[[Deployment, random.Random], None]

# Durations of a fault, in seconds.
SHORT, LONG = 1.0, 6.0
HOUR, DAY = 3600.0, 86400.0
LEAPS = (-DAY, -HOUR, -20.0, 20.0, HOUR, DAY)


def _killed(*names: str) -> Fault:
    def strike(system: Deployment, choices: random.Random) -> None:
        system.kill(choices.choice(names))

    return strike


def _postgres(number: signal.Signals) -> Fault:
    def strike(system: Deployment, choices: random.Random) -> None:
        system.signal("postgres", number)

    return strike


def _backend_killed(system: Deployment, choices: random.Random) -> None:
    """Kill one of the database's processes: the database ends all of them, and recovers."""
    backends = system.backends()
    if backends:
        with suppress(ProcessLookupError):
            choices.choice(backends).send(signal.SIGKILL)


def _redis_emptied(system: Deployment, choices: random.Random) -> None:
    with suppress(Exception):  # it may be down
        system.empty_redis()


def _redis_lost(system: Deployment, choices: random.Random) -> None:
    system.lose_redis()


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
    """Send a signal to a process and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _told_to_stop(*names: str) -> Fault:
    """Stop a process as a deploy does: ask it to end, kill it if it does not, and restart it."""

    def strike(system: Deployment, choices: random.Random) -> None:
        system.signal(choices.choice(names), signal.SIGTERM)

    return strike


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


def _engine_killed(system: Deployment, choices: random.Random) -> None:
    system.kill("dockerd")


def _engine_restarted(system: Deployment, choices: random.Random) -> None:
    system.signal("dockerd", signal.SIGTERM, pause=0.1)


def _engine_crashed(system: Deployment, choices: random.Random) -> None:
    assert system.engine is not None
    system.engine.crash()
    system.kill("dockerd")


def _clock_jumps(system: Deployment, choices: random.Random) -> None:
    name = choices.choice(CLOCKED)
    system.set_clock(name, choices.choice(LEAPS))
    system.later(choices.uniform(LONG, 2 * LONG), lambda: system.set_clock(name, 0))


def _model_is(mood: str) -> Fault:
    def strike(system: Deployment, choices: random.Random) -> None:
        def recovers() -> None:
            system.model.mood = "well"

        system.model.mood = mood
        system.later(choices.uniform(SHORT, LONG), recovers)

    return strike


def _receivers_fail(system: Deployment, choices: random.Random) -> None:
    def recover() -> None:
        system.receivers.mood = "well"

    system.receivers.mood = "failing"
    system.later(choices.uniform(SHORT, LONG), recover)


# Fault → its relative frequency.
FAULTS: Mapping[str, tuple[Fault, int]] = {
    "web killed": (_killed("web"), 2),
    "sandbox worker killed": (_killed("sandbox-1", "sandbox-2"), 4),
    "llm worker killed": (_killed("llm-1", "llm-2"), 3),
    "default worker killed": (_killed("default-1"), 2),
    "beat killed": (_killed("beat", "beat-2"), 1),
    "worker paused": (_paused("sandbox-1", "sandbox-2", "llm-1", "default-1"), 2),
    "worker told to stop": (_told_to_stop("sandbox-1", "sandbox-2", "llm-2", "default-1"), 2),
    "postgres restarted": (_postgres(signal.SIGINT), 1),
    "postgres crashed": (_postgres(signal.SIGQUIT), 1),
    "postgres killed": (_postgres(signal.SIGKILL), 1),
    "postgres backend killed": (_backend_killed, 2),
    "redis killed": (_killed("redis"), 2),
    "redis emptied": (_redis_emptied, 2),
    "redis lost": (_redis_lost, 1),
    "container killed": (_container_killed, 4),
    "disk full": (_disk_full, 3),
    "engine killed": (_engine_killed, 1),
    "engine restarted": (_engine_restarted, 1),
    "engine crashed": (_engine_crashed, 1),
    "clock jumps": (_clock_jumps, 3),
    "model hangs": (_model_is("hanging"), 2),
    "model fails": (_model_is("failing"), 2),
    "model mad": (_model_is("mad"), 2),
    "receivers fail": (_receivers_fail, 2),
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
