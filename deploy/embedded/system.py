"""The entire server as real processes under one supervisor: services, web, workers, beat."""

import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

from deploy.embedded.forking import Forker
from deploy.embedded.preparation import is_prepared, mark_prepared
from deploy.embedded.process import (
    ManagedProcess,
    ProcessFailed,
    execute,
    held_port,
)
from deploy.embedded.sandboxes import prepare_sandboxes
from deploy.embedded.services import Services, claimed_services

# Of the checkout, or where the package is installed: Python finds our packages there.
_ROOT = Path(__file__).resolve().parents[2]

# Language model calls wait for the network, so there can be more threads than processors.
LLM_THREADS = 8
# Webhook calls also wait for the network, and a call that hangs must leave threads for the other
# calls.
DEFAULT_THREADS = 8


@dataclass(frozen=True)
class System:
    """A running server.

    `environment` contains the variables that another process needs to join the server. The server's
    processes are forked by `forker`, unless they have variables of their own. `processes` maps
    names to processes in the order they were started: postgres, redis, web, mcp, sandbox-1
    ..., llm-1 ..., default-1 ..., beat, beat-2 ...
    """

    services: Services
    forker: Forker
    environment: Mapping[str, str]
    processes: Mapping[str, ManagedProcess]
    base_url: str
    mcp_url: str = ""

    @property
    def data_folder(self) -> Path:
        """The directory with data, logs and secrets."""
        return self.services.data_folder

    def manage(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Run the command of manage.py that `arguments` name; return its output.

        `environment` adds variables that the command itself reads: the settings stay the
        server's. Raises ProcessFailed if the command fails.
        """
        finished = self.forker.run("django", *arguments, environment=environment)
        if finished.returncode != 0:
            command = " ".join(arguments)
            end = "\n".join((finished.stdout + finished.stderr).splitlines()[-30:])
            raise ProcessFailed(f"{command} failed:\n{end}")
        return finished.stdout

    def prepare(self) -> None:
        """Bring the database up to date with the code."""
        postgres = self.services.postgres
        if not is_prepared(postgres.cluster):
            command = ["deploy.embedded.preparation", postgres.owner_url]
            self.make_process("preparation", command, ready=lambda process: True).run()
            mark_prepared(postgres.cluster)

    def make_process(
        self,
        name: str,
        command: Sequence[str],
        *,
        ready: Callable[[ManagedProcess], bool],
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> ManagedProcess:
        """Return an unstarted process of the server.

        It is forked, with `settings` of its own, unless it needs an environment of its own.
        """
        return ManagedProcess(
            name=name,
            command=[sys.executable, "-m", *command],
            log_path=self.data_folder / "logs" / f"{name}.log",
            ready=ready,
            environment={**os.environ, **self.environment, **(environment or {})},
            folder=_ROOT,
            inherited=self.services.inherited,
            begin=execute if environment else partial(self.forker.fork, settings=settings or {}),
        )

    def start(self, *names: str) -> None:
        """Start processes that were stopped or killed, in parallel; wait until all are ready."""
        for name in names:
            self.processes[name].launch()
        for name in names:
            self.processes[name].wait_until_ready()

    def stop(self, name: str) -> None:
        """Stop one process the way an operator would."""
        self.processes[name].stop()

    def kill(self, name: str) -> None:
        """Kill one process and its children with SIGKILL."""
        self.processes[name].kill()

    def check(self) -> None:
        """Raise ProcessFailed, with the end of its log, if a process exited on its own."""
        for process in self.processes.values():
            if process.died:
                raise ProcessFailed(f"{process.name} exited on its own.\n{process.log_tail()}")


@contextmanager
def running_system(
    data_folder: Path | None = None,
    *,
    web: bool = True,
    web_host: str = "127.0.0.1",
    web_port: int = 0,
    mcp: bool = False,
    sandbox_workers: int = 1,
    llm_workers: int = 0,
    default_workers: int = 1,
    beats: int = 1,
    environment: Mapping[str, str] | None = None,
    environment_of: Mapping[str, Mapping[str, str]] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Iterator[System]:
    """Run an entire server until the context ends; then stop its processes in reverse order.

    If `data_folder` is None, the data is deleted afterwards. `web_port` is the first port to try
    (0: any), at the address `web_host`; if `mcp` is set, the process for agents takes a later port.
    `environment` adds or replaces variables for all processes, `environment_of` for individual
    processes, keyed by process name. UAC_METRICS_PORT is the first worker's port; the other
    processes use the ports after it. `report` is called at each stage. Within the context, SIGTERM
    and SIGHUP raise SystemExit unless they already have another handler. Raises AlreadyRunning if
    another supervisor is using the directory, and ProcessFailed, with the end of the process's log,
    if one doesn't become ready.
    """
    with ExitStack() as stack:
        stack.enter_context(_signals_as_exit())
        report("PostgreSQL and Redis")
        services = stack.enter_context(claimed_services(data_folder))
        port = stack.enter_context(held_port(web_port))
        variables = {
            **services.environment,
            "DJANGO_SETTINGS_MODULE": "uac_site.settings",
            "UAC_BASE_URL": f"http://127.0.0.1:{port}",
            **(environment or {}),
        }
        variables |= prepare_sandboxes(variables, report)
        # It imports the code while the services start.
        forker = Forker(
            environment={**os.environ, **variables},
            log_path=services.data_folder / "logs" / "forker.log",
            folder=_ROOT,
            inherited=services.inherited,
            # Importing it takes a second: here while the services start, later while others wait.
            modules=("memory.integrations.mcp.web",) if mcp else (),
        )
        stack.callback(forker.stop)
        services.start()
        system = System(
            services=services,
            forker=forker,
            environment=variables,
            processes={
                process.name: process
                for process in (services.postgres.process, services.redis.process)
            },
            base_url=f"http://127.0.0.1:{port}",
        )
        report("migrations")
        system.prepare()
        mcp_port = stack.enter_context(held_port(port + 1)) if mcp else 0
        commands = {
            **(
                {"web": granian_command("wsgi", web_host, port, "--blocking-threads", "16")}
                if web
                else {}
            ),
            **({"mcp": granian_command("asgi", web_host, mcp_port)} if mcp else {}),
            **_worker_commands(sandbox_workers, llm_workers, default_workers),
            **_beat_commands(beats, services.data_folder),
        }
        ports = {"web": port, "mcp": mcp_port}
        started = _make_processes(system, commands, ports, environment_of or {})
        system = replace(
            system,
            processes={**system.processes, **started},
            mcp_url=f"http://127.0.0.1:{mcp_port}" if mcp else "",
        )
        report(", ".join(started))
        stack.callback(stop_all, list(started.values()))
        system.start(*started)
        yield system


def _worker_commands(
    sandbox_workers: int, llm_workers: int, default_workers: int
) -> dict[str, list[str]]:
    """Return a mapping from each worker's name to its command."""
    # Sandboxes are CPU-bound: running more of them at a time than there are processors would only
    # starve the web process. There is one extra thread, since some threads don't do long work
    # (workers/service/fair_turns.py).
    sandbox_threads = 1 + max(1, (os.cpu_count() or 1) // max(1, sandbox_workers))
    return {
        f"{queue}-{number}": worker_command(f"{queue}-{number}", queue, "threads", threads)
        for queue, workers, threads in (
            ("sandbox", sandbox_workers, sandbox_threads),
            ("llm", llm_workers, LLM_THREADS),
            ("default", default_workers, DEFAULT_THREADS),
        )
        for number in range(1, workers + 1)
    }


def _beat_commands(beats: int, data_folder: Path) -> dict[str, list[str]]:
    """Return a mapping from each beat's name to its command."""
    names = ["beat" if number == 1 else f"beat-{number}" for number in range(1, beats + 1)]
    return {name: beat_command(data_folder / f"{name}-schedule") for name in names}


def _make_processes(
    system: System,
    commands: Mapping[str, Sequence[str]],
    ports: Mapping[str, int],
    environment_of: Mapping[str, Mapping[str, str]],
) -> dict[str, ManagedProcess]:
    """Return an unstarted process for each command; one with a port is ready once it responds."""
    first_port = system.environment.get("UAC_METRICS_PORT") or os.environ.get("UAC_METRICS_PORT")
    metrics = _metrics_ports(commands, int(first_port or 0))
    return {
        name: system.make_process(
            name,
            command,
            ready=web_is_ready(ports[name]) if name in ports else celery_is_ready,
            environment=environment_of.get(name),
            settings=metrics.get(name),
        )
        for name, command in commands.items()
    }


def granian_command(interface: str, host: str, port: int, *options: str) -> list[str]:
    """Return the command of a process that serves HTTP, "wsgi" for web and "asgi" for mcp."""
    return [
        "granian",
        *("--interface", interface),
        *("--host", host),
        *("--port", str(port)),
        *("--workers", "1"),
        *("--workers-kill-timeout", "10"),
        *options,
        f"uac_site.{interface}:application",
    ]


def worker_command(name: str, queue: str, pool: str, concurrency: int) -> list[str]:
    """Return the command of a Celery worker for one queue."""
    return [
        *("celery", "--app", "uac_site", "worker"),
        *("--queues", queue),
        *("--pool", pool),
        *("--concurrency", str(concurrency)),
        *("--hostname", f"{name}@%h"),
        # Workers don't message each other, but would wait a second for each other on startup.
        *("--without-gossip", "--without-mingle"),
        *("--loglevel", "INFO"),
    ]


def _metrics_ports(names: Iterable[str], first: int) -> dict[str, dict[str, int]]:
    """Return the setting that sets each process's own metrics port.

    The workers for sandboxes and language models get the first ports.
    """
    workers = ("sandbox-", "llm-")
    serving = sorted(names, key=lambda name: not name.startswith(workers)) if first else []
    return {name: {"UAC_METRICS_PORT": port} for port, name in enumerate(serving, first)}


def beat_command(schedule: Path) -> list[str]:
    """Return the command of Celery's beat, which keeps its schedule in the file."""
    return [
        *("celery", "--app", "uac_site", "beat"),
        *("--schedule", str(schedule)),
        "--pidfile=",
        *("--loglevel", "INFO"),
    ]


def web_is_ready(port: int) -> Callable[[ManagedProcess], bool]:
    """Return a check of whether the process that serves this port is ready for requests."""

    def answers(_: ManagedProcess) -> bool:
        url = f"http://127.0.0.1:{port}/readyz"
        with urllib.request.urlopen(url, timeout=5) as response:  # nosec B310 # of this machine
            return bool(response.status == 200)

    return answers


def celery_is_ready(process: ManagedProcess) -> bool:
    """Return whether a worker, or beat, is ready by its own words."""
    sign = "beat_ready" if "beat" in process.command else " ready."
    return sign in process.output()


def stop_all(processes: list[ManagedProcess]) -> None:
    """Signal all processes, last started first, before waiting for any: they stop in parallel."""
    for process in reversed(processes):
        process.ask_to_stop()
    for process in reversed(processes):
        process.stop()


@contextmanager
def _signals_as_exit() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that every `finally` on the way out runs."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "run the system from the main thread: its processes exit when the thread that started"
            " them exits"
        )

    def leave(number: int, frame: FrameType | None) -> None:
        # Ignore further signals: a second one must not interrupt the shutdown.
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    ours = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
