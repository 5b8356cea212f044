"""The server works behind PgBouncer in transaction mode, with the settings that the docs name."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks.harness import new_client
from deploy.embedded.folder import give_to_service_user, kept, service_folder
from deploy.embedded.postgres import Postgres
from deploy.embedded.process import ManagedProcess, free_port, service_user
from deploy.embedded.system import System
from tests.deployment.own_postgres import data_folder, running_postgres
from tests.docker_engine import skip_or_fail
from tests.system import LATE, create_person, log_tasks, running_system, task
from tests.waiting import polled

# Connections that PgBouncer keeps to the database, for all processes.
POOL = 6
USERS = {"uac": "postgres_server_password", "uac_owner": "postgres_owner_password"}
CONFIGURATION = """
[databases]
uac = host=127.0.0.1 port={database_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
stats_users = uac
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 500
"""
# As in docs/operations.md.
LIMITS = {
    "statement_timeout": "300s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
}


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with running_postgres() as one:
        with psycopg.connect(one.superuser_url, autocommit=True) as database:
            for name, value in LIMITS.items():
                database.execute(f"ALTER ROLE uac SET {name} = '{value}'")
        yield one


@pytest.fixture
def port(postgres: Postgres) -> Iterator[int]:
    """The port of a PgBouncer in front of PostgreSQL."""
    skip_or_fail("" if shutil.which("pgbouncer") else "not installed: pgbouncer")
    folder, port = service_folder(postgres.folder, "pgbouncer"), free_port()
    with psycopg.connect(postgres.superuser_url) as database:
        database_port = database.info.port
    write_file(
        folder / "users",
        "".join(f'"{user}" "{kept(postgres.folder, name)}"\n' for user, name in USERS.items()),
    )
    write_file(
        folder / "pgbouncer.ini",
        CONFIGURATION.format(database_port=database_port, port=port, folder=folder, pool=POOL),
    )

    def answers(_: ManagedProcess) -> bool:
        with psycopg.connect(at(postgres.runtime_url, port), connect_timeout=5):
            return True

    process = ManagedProcess(
        name="pgbouncer",
        command=["pgbouncer", str(folder / "pgbouncer.ini")],
        log_path=postgres.folder / "logs" / "pgbouncer.log",
        ready=answers,
        environment={"PATH": "/usr/sbin:/usr/bin:/bin"},
        folder=folder,
        user=service_user(),
    )
    process.start()
    yield port
    process.stop()


def write_file(path: Path, text: str) -> None:
    path.write_text(text)
    give_to_service_user(path)


def at(url: str, port: int) -> str:
    """Return a URL of the database with another port."""
    return psycopg.conninfo.make_conninfo(url, port=port)


@pytest.fixture
def system(postgres: Postgres, port: int) -> Iterator[System]:
    login = postgres.runtime_url.partition("@")[0]
    pooled = {"DATABASE_URL": f"{login}@127.0.0.1:{port}/uac", "DATABASE_POOLER": "transaction"}
    with (
        data_folder(kept_by=postgres) as folder,
        running_system(folder, llm_workers=1, environment=pooled) as one,
    ):
        yield one


@pytest.mark.docker
@pytest.mark.timeout(300)
def test_facts_become_alerts_through_a_few_connections(
    system: System,
    postgres: Postgres,
    port: int,
    record_property: Callable[[str, object], None],
) -> None:
    client = new_client(system, "pooled")
    people = [create_person(client, f"person-{number}") for number in range(4)]
    for person in people:
        person.log(task("first", days=0))
        person.write_constraint("late", LATE)

    for person in people:
        log_tasks(person, *range(8))

    for person in people:
        polled(person.alerts, lambda alerts: len(alerts) == 7)
        asked = person.post("query/?wait=0", {"code": "len(tasks)"}, status=202)
        assert client.finished(asked["id"])["output"]["value"] == 9
    system.manage("verify")
    with psycopg.connect(
        at(postgres.runtime_url, port), autocommit=True, dbname="pgbouncer"
    ) as console:
        clients = len(console.execute("SHOW CLIENTS").fetchall())
        record_property("clients", clients)
    with psycopg.connect(postgres.superuser_url) as database:
        statement = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'uac'"
        ((connections,),) = database.execute(statement).fetchall()
    assert connections <= POOL < clients
