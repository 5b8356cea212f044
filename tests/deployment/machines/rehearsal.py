"""A server on several machines, and what may happen to them, under the traffic of `make chaos`."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from cryptography.fernet import Fernet
from psycopg.rows import dict_row
from redis import Redis

from deploy.embedded.folder import give_to_service_user
from deploy.embedded.forking import Forker
from deploy.embedded.process import ManagedProcess, execute
from deploy.embedded.services import Services, claimed_services
from deploy.embedded.system import (
    System,
    beat_command,
    celery_is_ready,
    granian_command,
    stop_all,
    web_is_ready,
    worker_command,
)
from tests.chaos.checker import Checker
from tests.chaos.deployment import (
    ENVIRONMENT,
    FAKETIME,
    WORKSPACES,
    Deployment,
    Receivers,
    create_workspace,
)
from tests.chaos.journal import Journal
from tests.chaos.model import Model
from tests.chaos.running import rest
from tests.chaos.traffic import Traffic
from tests.deployment.machines.network import Machine, Network, connected
from tests.docker_engine import Engine, running_engine
from tests.llm_server import llm_server
from tests.waiting import scaled
from tests.webhook_receiver import certificate, receiver
from workers.sandbox.build import ensure_image, ensure_typecheck_image

ROOT = Path(__file__).parents[3]
SEED = 55
PEOPLE = 12
# Seconds of undisturbed traffic before and after a disturbance.
BEFORE, AFTER = 3.0, 3.0
PORT = 8000
BALANCER_PORT = 8080
# Process → its machine. Beside them there are the outside, where clients, the language model and
# webhook receivers are, and the balancer.
PLACES = {
    "postgres": "database",
    "redis": "redis",
    "engine-1": "host-1",
    "engine-2": "host-2",
    "web-1": "web-1",
    "web-2": "web-2",
    "sandbox-1": "host-1",
    "sandbox-2": "host-2",
    "llm-1": "workers",
    "default-1": "workers",
    "beat": "workers",
    "haproxy": "balancer",
}
# Unlike in `make chaos`, the server's defaults decide how soon the dead are noticed.
DEFAULTS = ("UAC_LEASE_SECONDS", "UAC_DISPATCH_SECONDS")

ENTRY_SECONDS = """
    SELECT max(extract(epoch FROM o.decided_at - e.recorded_at))
    FROM memory_logentry e
    JOIN memory_entryoutcome o ON o.user_id = e.user_id AND o.seq = e.seq
    WHERE e.kind = 'record' AND e.recorded_at > %(began)s
"""
PAUSE_SECONDS = """
    SELECT max(extract(epoch FROM pause)) FROM (
        SELECT o.decided_at - lag(o.decided_at) OVER (ORDER BY o.decided_at) AS pause
        FROM memory_logentry e
        JOIN memory_entryoutcome o ON o.user_id = e.user_id AND o.seq = e.seq
        WHERE e.recorded_at BETWEEN %(began)s AND %(ended)s
    ) pauses
"""
# From the first entry of those that are the cause, up to the one that ends it.
ALERT_SECONDS = """
    WITH purchases AS (
        SELECT user_id, seq, recorded_at, data->>'key' AS key,
               coalesce((data->'data'->>'cents')::int, 0) < 0 AS is_cause
        FROM memory_logentry WHERE kind = 'record'
    )
    SELECT max(extract(epoch FROM a.opened_at - (
        SELECT min(cause.recorded_at) FROM purchases cause
        WHERE cause.user_id = a.user_id AND cause.key = a.evidence->0->>'key' AND cause.is_cause
        AND cause.recorded_at < a.opened_at
        AND NOT EXISTS (
            SELECT FROM purchases later
            WHERE later.user_id = cause.user_id AND later.key = cause.key AND NOT later.is_cause
            AND later.seq > cause.seq AND later.recorded_at < a.opened_at
        )
    )))
    FROM memory_alert a WHERE a.kind = 'finding' AND a.opened_at > %(began)s
"""


@dataclass
class Figures:
    """What a disturbance has cost: the longest waits, in seconds, and failed requests."""

    requests: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    append: float = 0.0  # until an append or redaction was acknowledged, repetitions included
    pause: float = 0.0  # in which nobody's entries got an outcome
    entry: float = 0.0  # from the record of a typed entry until its outcome
    alert: float = 0.0  # from the record of its cause until the alert
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {how}" for how, count in self.failures.most_common())
        return (
            f"| {self.requests} | {failed or 'none'} | {self.append:.1f} s | {self.pause:.1f} s"
            f" | {self.entry:.1f} s | {self.alert:.1f} s |"
        )


@dataclass
class Rehearsal:
    """The running server, its network, and the traffic, which flows in scenarios alone."""

    network: Network
    deployment: Deployment
    traffic: Traffic
    engines: Mapping[str, Engine]

    def sleep(self, seconds: float) -> None:
        """Wait, and start again what ends meanwhile."""
        self.deployment.sleep(seconds)

    def set_clock(self, name: str, seconds: float) -> None:
        """Start a process again with a clock that is so many seconds ahead."""
        process = self.deployment.processes[name]
        process.environment = {
            **process.environment,
            "LD_PRELOAD": str(FAKETIME) if seconds else "",
            "FAKETIME": f"{seconds:+g}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.deployment.kill(name, pause=0)
        self.sleep(0.2)

    def vanish(self, machine: str, seconds: float) -> None:
        """Let a machine lose its power, so that nobody hears of it, and return after that."""
        self.network.cut_off(machine)
        names = [name for name in self.deployment.processes if PLACES[name] == machine]
        for name in reversed(names):
            if name in self.engines:
                self.engines[name].crash()
            self.deployment.kill(name, pause=seconds)
        # What has been killed starts after the pause: the network is there before.
        self.deployment.later(seconds - 0.2, self.network.set_all)
        self.sleep(seconds)

    @contextmanager
    def scenario(self, name: str) -> Iterator[Figures]:
        """Let the traffic flow around a disturbance; then repair, wait for all work, and check.

        The figures are complete when the context has ended.
        """
        deployment, journal, figures = self.deployment, self.deployment.journal, Figures()
        ((began,),) = deployment.sql("SELECT clock_timestamp()")
        requests, failures = journal.requests.total(), journal.failures.copy()
        waits = len(journal.waits)
        with self.traffic.flowing():
            self.sleep(BEFORE)
            try:
                yield figures
            finally:  # the scenarios after a failed one need the machines, too
                self.network.set_all()
                deployment.heal()
            self.sleep(AFTER)
            ((ended,),) = deployment.sql("SELECT clock_timestamp()")
            self.traffic.end()
            while self.traffic.busy:
                self.sleep(0.1)
        rest(deployment, self.traffic, time.monotonic() + scaled(240))
        figures.requests = journal.requests.total() - requests
        figures.failures = journal.failures - failures
        figures.append = max(journal.waits[waits:])
        with psycopg.connect(deployment.database_url, row_factory=dict_row) as database:
            for figure, statement in (
                ("pause", PAUSE_SECONDS),
                ("entry", ENTRY_SECONDS),
                ("alert", ALERT_SECONDS),
            ):
                row = database.execute(statement, {"began": began, "ended": ended}).fetchone()
                assert row is not None
                setattr(figures, figure, float(row["max"] or 0))
            figures.violations = Checker(database, journal).violations()
        print(f"| {name} {figures}", *figures.violations[:5], sep="\n", flush=True)


@contextmanager
def running_rehearsal(folder: Path) -> Iterator[Rehearsal]:
    """Run the server on its machines, with its data in the folder, until the context ends."""
    journal = Journal()
    model, receivers = Model(journal, SEED), Receivers(journal, SEED)
    image = ensure_image()
    images = (image, ensure_typecheck_image(image))
    machines = dict.fromkeys(PLACES.values())
    with ExitStack() as stack:
        network = stack.enter_context(connected(*machines))
        engines = {
            name: stack.enter_context(running_engine(*images)) for name in ("engine-1", "engine-2")
        }
        outside = network["outside"].address
        llm = stack.enter_context(llm_server(script=model, address=outside))
        hooks = {
            name: stack.enter_context(receiver(receivers.behaviour(name), address=outside))
            for name in WORKSPACES
        }
        environment = {
            **{name: value for name, value in ENVIRONMENT.items() if name not in DEFAULTS},
            "UAC_SANDBOX_RUNNER": "docker",
            "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            "UAC_LLM_BASE_URL": llm.openai_url,
            "UAC_WEBHOOK_ALLOWED_NETWORKS": network.addresses,
        }
        system = stack.enter_context(_running_system(folder, network, engines, environment))
        clients = {name: create_workspace(system, name, hooks[name].url) for name in WORKSPACES}
        choices = random.Random(SEED)
        deployment = Deployment(system, None, journal, model, receivers, clients, folder, choices)
        traffic = Traffic(clients, journal, seed=SEED, people=PEOPLE, seconds=20, pause=6.0)
        yield Rehearsal(network, deployment, traffic, engines)


@contextmanager
def _running_system(
    folder: Path, network: Network, engines: Mapping[str, Engine], environment: Mapping[str, str]
) -> Iterator[System]:
    balancer = network["balancer"].address
    with ExitStack() as stack:
        services = _placed(stack.enter_context(claimed_services(folder)), network)
        variables = {
            **services.environment,
            "DJANGO_SETTINGS_MODULE": "uac_site.settings",
            "ALLOWED_HOSTS": f"127.0.0.1,{balancer}",
            "UAC_BASE_URL": f"http://{balancer}:{BALANCER_PORT}",
            **environment,
        }
        forker = Forker(
            environment={**os.environ, **variables},
            log_path=services.data_folder / "logs" / "forker.log",
            folder=ROOT,
            inherited=services.inherited,
        )
        stack.callback(forker.stop)
        with network["database"].entered():
            services.start()
        _admit(services, network)
        processes = {
            "postgres": services.postgres.process,
            "redis": services.redis.process,
            **{name: network[PLACES[name]].place(one.process) for name, one in engines.items()},
        }
        system = System(services, forker, variables, processes, variables["UAC_BASE_URL"])
        system.prepare()
        started = {
            name: network[PLACES[name]].place(process)
            for name, process in _server_processes(system, engines, folder).items()
        }
        started["haproxy"] = network["balancer"].place(_haproxy(services.data_folder, network))
        system = replace(system, processes={**processes, **started})
        stack.callback(stop_all, list(started.values()))
        stack.callback(network.set_all)
        system.start(*started)
        yield system


def _placed(services: Services, network: Network) -> Services:
    """Return the services on their machines, with TLS; they do not run yet."""
    postgres, redis = services.postgres, services.redis
    key, postgres_url = _certified(services.data_folder, network["database"], postgres.runtime_url)
    postgres.process.command = [
        *postgres.process.command,
        "--listen_addresses=*",
        *("--ssl=on", f"--ssl_cert_file={key}", f"--ssl_key_file={key}"),
    ]
    key, redis_url = _certified(services.data_folder, network["redis"], redis.url)
    with (redis.process.folder / "redis.conf").open("a") as configuration:
        configuration.write(
            f"bind 0.0.0.0\nport 0\ntls-port {urlsplit(redis.url).port}\ntls-auth-clients no\n"
            f"tls-cert-file {key}\ntls-key-file {key}\ntls-ca-cert-file {key}\n"
        )

    def answers(_: ManagedProcess) -> bool:
        with Redis.from_url(redis_url, socket_timeout=5) as client:
            return bool(client.ping())

    redis.process.ready = answers
    for process in (postgres.process, redis.process):
        network[PLACES[process.name]].place(process)
    return replace(
        services,
        postgres=replace(
            postgres,
            superuser_url=_on(network["database"], postgres.superuser_url),
            owner_url=_on(network["database"], postgres.owner_url),
            runtime_url=postgres_url,
        ),
        redis=replace(redis, url=redis_url),
    )


def _certified(folder: Path, machine: Machine, url: str) -> tuple[Path, str]:
    """Make a machine's certificate; return it with its key, and the URL of who checks it."""
    key = certificate(folder, machine.address)
    public = folder / f"{machine.name}.pem"
    public.write_text("".join(key.read_text().partition("-----BEGIN CERTIFICATE")[1:]))
    give_to_service_user(key)
    key.chmod(0o600)
    scheme, _, rest = _on(machine, url).partition("://")
    if scheme == "redis":
        return key, f"rediss://{rest}?ssl_cert_reqs=required&ssl_ca_certs={public}"
    return key, f"{scheme}://{rest}?sslmode=verify-full&sslrootcert={public}"


def _on(machine: Machine, url: str) -> str:
    return url.replace("127.0.0.1", machine.address)


def _admit(services: Services, network: Network) -> None:
    """Let PostgreSQL accept connections from the network's machines, encrypted ones alone."""
    postgres = services.postgres
    with (postgres.cluster / "pg_hba.conf").open("a") as rules:
        rules.write(f"hostssl all all {network.addresses} scram-sha-256\n")
    os.kill(postgres.process.pid, signal.SIGHUP)


def _server_processes(
    system: System, engines: Mapping[str, Engine], folder: Path
) -> dict[str, ManagedProcess]:
    web = granian_command("wsgi", "0.0.0.0", PORT, "--blocking-threads", "16")  # nosec B104
    commands = {
        "web-1": web,
        "web-2": web,
        "sandbox-1": worker_command("sandbox-1", "sandbox", "threads", 2),
        "sandbox-2": worker_command("sandbox-2", "sandbox", "threads", 2),
        "llm-1": worker_command("llm-1", "llm", "threads", 8),
        "default-1": worker_command("default-1", "default", "threads", 8),
        "beat": beat_command(folder / "beat-schedule"),
    }
    own = {
        "sandbox-1": {"DOCKER_HOST": engines["engine-1"].host},
        "sandbox-2": {"DOCKER_HOST": engines["engine-2"].host},
    }
    processes = {}
    for name, command in commands.items():
        ready = web_is_ready(PORT) if command is web else celery_is_ready
        processes[name] = system.make_process(name, command, ready=ready, environment=own.get(name))
        processes[name].begin = execute  # a forked one would be on this process's machine
    return processes


def _haproxy(folder: Path, network: Network) -> ManagedProcess:
    """Return the deployment's own balancer, without TLS, for web alone."""
    configuration = (ROOT / "deploy" / "haproxy.cfg").read_text()
    servers = "\n    ".join(
        f"server {name} {network[name].address}:{PORT}" for name in ("web-1", "web-2")
    )
    for line, ours in (
        ("bind :8443 ssl crt /run/secrets/tls.pem", f"bind :{BALANCER_PORT} #"),
        ("server-template web 16 web:8000 resolvers engine init-addr none", servers),
        ("server-template mcp 16 mcp:8001 resolvers engine init-addr none", ""),
    ):
        assert line in configuration
        configuration = configuration.replace(line, ours)
    path = folder / "haproxy.cfg"
    path.write_text(configuration)
    return ManagedProcess(
        name="haproxy",
        command=["haproxy", "-db", "-f", str(path)],
        log_path=folder / "logs" / "haproxy.log",
        ready=web_is_ready(BALANCER_PORT),
        environment={"PATH": os.environ["PATH"], "UAC_HOST": network["balancer"].address},
        folder=folder,
    )
