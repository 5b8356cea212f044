"""Choose the sandbox runner, and open its sandboxes for the gate, constraints and queries."""

import functools
import os
import threading
from contextlib import AbstractContextManager
from dataclasses import asdict
from importlib import import_module
from typing import Any, cast

import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from memory.kernel.settings.sandbox_limits import effective
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.limits import Shape
from workers.sandbox.pool import Pool
from workers.sandbox.pool_stock import PoolLimits
from workers.sandbox.results import SandboxError

logger = structlog.get_logger(__name__)

# Selects Docker if an engine responds and has the image, else processes; for development.
AUTO = "auto"

# Maximum number of users' containers that a sandbox worker keeps for further requests.
LEASES = 16

# Runner → its module, a `Runner`, imported only when the runner is used.
RUNNERS = {
    "docker": "workers.sandbox.docker",
    "process": "workers.sandbox.process",
}


def open_sandbox(
    *, hash_seed: int = 0, shape: Shape | None = None
) -> AbstractContextManager[Sandbox]:
    """Open a fresh sandbox; leaving the context destroys it.

    Raises ImproperlyConfigured if the configured runner is unknown, SandboxError if the sandbox
    does not start.
    """
    return pool().fresh(hash_seed=hash_seed, shape=shape)


def forget(user_pk: int) -> bool:
    """Destroy this user's sandboxes in this process for good; return whether all are gone."""
    nothing_left = [one.forget(user_pk) for one in pools()]
    return all(nothing_left)


def close_pool() -> None:
    """Destroy all kept sandboxes; from now on, sandboxes are single-use."""
    for name in RUNNERS:
        if name in _pools:
            _pools[name].close()


def report() -> dict[str, Any]:
    """Return this host's sandboxes and counters, for staff; `image` is "" if it is missing."""
    try:
        image = image_digest()
    except SandboxError:
        image = ""
    own = pool()
    return {"runner": runner_name(), "image": image, **own.size, **asdict(own.counts)}


def problem() -> str:
    """Return why no sandbox can currently be opened; "" if no reason is known."""
    return configured_runner().problem()


def pools() -> list[Pool]:
    """Return this process's pools."""
    with _opening:
        return list(_pools.values())


def image_digest() -> str:
    """Return a digest of the contents of the configured runner's sandboxes.

    Raises ImproperlyConfigured if the runner is unknown, SandboxError if there is no image yet.
    """
    return configured_runner().image_digest()


def runner_name() -> str:
    """Return the name of a runner: the setting or, for "auto", the runner chosen here."""
    name = str(settings.UAC_SANDBOX_RUNNER)
    if name != AUTO:
        return name
    with _finding:
        return _found_runner()


_finding = threading.Lock()


@functools.cache
def _found_runner() -> str:
    """Choose the runner for "auto", once per process.

    Choosing it only once means that an engine that fails later does not weaken the isolation.
    """
    try:
        load_runner("docker").start().close()
    except SandboxError as error:
        logger.warning("process_runner_for_lack_of_docker", reason=error.message)
        return "process"
    return "docker"


_pools: dict[str, Pool] = {}
_opening = threading.Lock()
# A forked process must not use its parent's sandboxes, and lacks the threads that maintain them.
os.register_at_fork(after_in_child=_pools.clear)


def pool() -> Pool:
    """Return the configured runner's pool in this process; see `open_sandbox` for the errors."""
    name = runner_name()
    with _opening:
        if name not in _pools:
            runner = configured_runner()
            _pools[name] = Pool(runner, _limits(runner), Shape.from_limits(effective({})))
        return _pools[name]


def _limits(runner: Runner) -> PoolLimits:
    if not runner.KEEPS_SANDBOXES:
        return PoolLimits()
    return PoolLimits(
        least=settings.UAC_SANDBOX_POOL_LEAST,
        most=settings.UAC_SANDBOX_POOL_MOST,
        least_others=1,
        lease_seconds=settings.UAC_SANDBOX_LEASE_SECONDS,
        leases=LEASES,
        reap=True,
    )


def configured_runner() -> Runner:
    """Return the configured runner; raise ImproperlyConfigured if the setting names none."""
    return load_runner(runner_name())


def load_runner(name: str) -> Runner:
    """Return the runner of this name; raise ImproperlyConfigured if there is none."""
    if name not in RUNNERS:
        raise ImproperlyConfigured(
            f"UAC_SANDBOX_RUNNER is {name!r}: set it to one of {', '.join(sorted(RUNNERS))},"
            f" or to {AUTO} on a development machine"
        )
    return cast("Runner", import_module(RUNNERS[name]))
