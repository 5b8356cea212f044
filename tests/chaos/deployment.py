"""The system as in production, with a supervisor that restarts whatever ends."""

import heapq
import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker.errors
import psycopg
from cryptography.fernet import Fernet

from deploy.embedded.process import ManagedProcess
from deploy.embedded.system import System, running_system
from tests.chaos.checker import RULED
from tests.chaos.client import Client
from tests.chaos.journal import Called, Journal
from tests.chaos.model import Model
from tests.chaos.rules import NAME, SOURCE, TESTS
from tests.docker_engine import Engine, missing
from tests.llm_server import KEY, llm_server
from tests.processes import Process
from tests.system import EVERYTHING, LOCAL_WEBHOOKS, new_client
from tests.waiting import eventually, scaled
from tests.webhook_receiver import Call, answers, receiver

WORKSPACES = ("red", "green", "blue")
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
# Workers whose clocks can be set.
CLOCKED = ("sandbox-2", "default-1")
# Dead workers are noticed soon, and failed work is retried soon.
LEASE_SECONDS = 5

ENVIRONMENT = {
    "UAC_LEASE_SECONDS": str(LEASE_SECONDS),
    "UAC_DISPATCH_SECONDS": "1",
    "UAC_SANDBOX_POOL_LEAST": "1",
    "UAC_SANDBOX_POOL_MOST": "3",
    **LOCAL_WEBHOOKS,
    "UAC_WEBHOOK_TIMEOUT_SECONDS": "2",
    "UAC_WEBHOOK_RETRY_SECONDS": ",".join(["0.5"] * 500),
    "UAC_WEBHOOK_PER_MINUTE": "100000",
    "UAC_LLM_MODEL": "openai:stub",
    "UAC_LLM_API_KEY": KEY,
    "UAC_LLM_TIMEOUT_SECONDS": "3",
    "UAC_LLM_ATTEMPTS": "2",
    "UAC_LLM_BACKOFF_SECONDS": "0.2",
    "UAC_LLM_BACKOFF_SECONDS_MOST": "1",
    "UAC_STRUCTURE_IDLE_SECONDS": "2",
    "UAC_STRUCTURE_AGE_SECONDS": "8",
    # Flapping alerts must not exceed the limits here.
    "UAC_ALERTS_PER_CONSTRAINT": "1000",
    "UAC_OPENINGS_PER_DAY": "10000",
}


@dataclass
class Deployment:
    """The running system, and its current faults.

    Only the main thread may use it.
    """

    system: System
    engine: Engine | None
    journal: Journal
    model: Model
    receivers: "Receivers"
    clients: Mapping[str, Client]
    clocks: Path
    choices: random.Random
    faults: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    _due: dict[str, float] = field(default_factory=dict)
    _undo: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def processes(self) -> dict[str, ManagedProcess]:
        """Return all processes by name, in the order in which they have to be started."""
        own = {"dockerd": self.engine.process} if self.engine else {}
        return {**own, **self.system.processes}

    def kill(self, name: str, pause: float | None = None) -> None:
        self.processes[name].kill()
        self._rest(name, pause)

    def signal(self, name: str, number: signal.Signals, pause: float | None = None) -> None:
        """End a process by a signal; it is restarted after that."""
        process = self.processes[name]
        if process.running:
            os.kill(process.pid, number)
        self._rest(name, pause)

    def _rest(self, name: str, pause: float | None) -> None:
        self._due[name] = time.monotonic() + (
            self.choices.uniform(0.2, 2) if pause is None else pause
        )

    def later(self, seconds: float, undo: Callable[[], None]) -> None:
        """Schedule an action after so many seconds, or for the healing."""
        heapq.heappush(self._undo, (time.monotonic() + seconds, next(self._numbers), undo))

    def tend(self) -> None:
        """Run due actions, and restart what has ended, as an orchestrator would."""
        now = time.monotonic()
        while self._undo and self._undo[0][0] <= now:
            heapq.heappop(self._undo)[2]()
        for name, process in self.processes.items():
            if process.running:
                continue
            if name not in self._due:  # it ended by itself
                self.restarts[name] += 1
                self._due[name] = now + 1
            if now >= self._due[name]:
                del self._due[name]
                process.launch()

    def heal(self, seconds: float = 240) -> None:
        """Undo all faults, and wait until every process is ready."""
        while self._undo:
            heapq.heappop(self._undo)[2]()
        deadline = time.monotonic() + scaled(seconds)
        self._due = dict.fromkeys(self._due, 0.0)
        while True:
            self.tend()
            waiting = [name for name, process in self.processes.items() if not _ready(process)]
            if not waiting:
                return
            if time.monotonic() > deadline:
                self.journal.problem(
                    f"{', '.join(waiting)} did not come back within {scaled(seconds):g} s:"
                    f" {self.processes[waiting[0]].log_tail(5)}"
                )
                return
            time.sleep(0.1)

    def sleep(self, seconds: float) -> None:
        """Wait, and tend to the processes meanwhile."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.tend()
            time.sleep(min(left, 0.1))

    @property
    def database_url(self) -> str:
        """The address of the server's database, for a role that may do anything in it."""
        return self.system.services.postgres.superuser_url.removesuffix("/postgres") + "/uac"

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, connect_timeout=5) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    # -- What can be done to it ------------------------------------------------------------------

    def runners(self) -> list[Process]:
        """Return the first processes of the running containers; none if the engine is down."""
        if self.engine is None or not self.engine.process.running:
            return []
        with suppress(docker.errors.DockerException, OSError):
            return self.engine.runners()
        return []

    def set_clock(self, name: str, seconds: float) -> None:
        """Set a worker's clock so many seconds ahead, or behind."""
        _set_clock(self.clocks / name, seconds)


class Receivers:
    """One webhook receiver for each workspace, which may fail."""

    def __init__(self, journal: Journal, seed: int) -> None:
        self.mood = "well"
        self._journal = journal
        self._choices = random.Random(f"receiver {seed}")

    def behaviour(self, workspace: str) -> Callable[[Call], None]:
        def behave(call: Call) -> None:
            bad = 0.9 if self.mood == "failing" else 0.03
            fails = self._choices.random() < bad
            body = json.loads(call.received.body)
            self._journal.note("called", Called(workspace, body, taken=not fails))
            if not fails:
                answers(200)(call)
            elif self._choices.random() < 0.3:
                call.wait(3)
            else:
                answers(self._choices.choice((500, 503, 404)))(call)

        return behave


def lacking(*, containers: bool) -> str:
    """Return what prevents some of the faults here; "" if nothing does."""
    if containers and (engine := missing()):
        return engine
    return "" if FAKETIME else "no faketime to set clocks with: install it (Debian: faketime)"


def _ready(process: ManagedProcess) -> bool:
    try:
        return process.running and process.ready(process)
    except Exception:
        return False


@contextmanager
def deployed(
    folder: Path,
    journal: Journal,
    seed: int,
    *,
    engine: Engine | None,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[Deployment]:
    """Run the system, with its data in the folder, until the context ends.

    It has two sandbox workers, two for the language model, one for the rest, two beats and the web;
    outside of it are the model and the webhook receivers. Without an engine, sandboxes are
    processes.
    """
    model, receivers = Model(journal, seed), Receivers(journal, seed)
    with ExitStack() as stack:
        llm = stack.enter_context(llm_server(script=model))
        hooks = {
            name: stack.enter_context(receiver(receivers.behaviour(name))) for name in WORKSPACES
        }
        sandboxes = {"UAC_SANDBOX_RUNNER": "process"}
        if engine is not None:
            sandboxes = {"UAC_SANDBOX_RUNNER": "docker", "DOCKER_HOST": engine.host}
            # This process asks the same engine for the images.
            os.environ["DOCKER_HOST"] = engine.host
            stack.callback(os.environ.pop, "DOCKER_HOST", None)
        system = stack.enter_context(
            running_system(
                folder,
                sandbox_workers=2,
                llm_workers=2,
                beats=2,
                environment={
                    **ENVIRONMENT,
                    **sandboxes,
                    "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
                    "UAC_LLM_BASE_URL": llm.openai_url,
                },
                environment_of={name: _clocked(folder / name) for name in CLOCKED},
                report=report,
            )
        )
        report("workspaces, constraints and webhooks")
        clients = {name: create_workspace(system, name, hooks[name].url) for name in WORKSPACES}
        choices = random.Random(f"faults {seed}")
        yield Deployment(system, engine, journal, model, receivers, clients, folder, choices)


def _clocked(clock: Path) -> dict[str, str]:
    """Return the variables that give a process a clock that can be set while it runs."""
    _set_clock(clock, 0)
    if FAKETIME is None:
        return {}
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _set_clock(clock: Path, seconds: float) -> None:
    unfinished = clock.with_suffix(".new")
    unfinished.write_text(f"{seconds:+g}\n")
    unfinished.rename(clock)


def create_workspace(system: System, name: str, hook: str) -> Client:
    """Create a workspace with a webhook, and with the constraint if it is ruled."""
    client = Client(system.base_url, name, new_client(system, name, *EVERYTHING).key)
    kinds = ["finding", "constraint_error", "constraint_paused"]
    _asked(client, "POST", "webhooks/", {"url": hook, "alert_kinds": kinds})
    if name in RULED:
        new = {"name": NAME, "source": SOURCE, "tests": TESTS}
        _asked(client, "POST", "constraints/?wait=0", new)
        approve = f"constraints/{NAME}/versions/1/approve/"
        if not eventually(lambda: client.request("POST", approve, {})[0] == 200, 240):
            told = client.request("GET", f"constraints/{NAME}/versions/1/")[2]
            raise AssertionError(f"the constraint is not approved: {told}")
        _asked(client, "PATCH", f"constraints/{NAME}/", {"percentage": 100})
    return client


def _asked(client: Client, method: str, path: str, body: Any) -> Any:
    status, answer, _ = client.request(method, path, body)
    assert 200 <= status < 300, answer
    return answer
