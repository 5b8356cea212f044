"""A standby becomes the primary under load: the server finds it, and loses what it may lose."""

import itertools
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psycopg
import pytest

from benchmarks.harness import new_client
from deploy.embedded.folder import service_folder
from deploy.embedded.postgres import Postgres, postgres_in
from deploy.embedded.process import service_user
from tests.deployment.own_postgres import data_folder, running_postgres
from tests.system import LATE, Person, create_person, running_system, select_rows, task
from tests.waiting import polled, scaled

WRITERS = 4
# Seconds of traffic before the primary dies, and how long it stays without a successor.
BEFORE, WITHOUT = 5.0, 3.0
KEYS = "SELECT idempotency_key FROM memory_logentry WHERE idempotency_key LIKE 'w%%'"


@dataclass
class Traffic:
    """Entries that threads append one by one: the keys that were acknowledged, and what failed."""

    person: Person
    acknowledged: dict[str, float] = field(default_factory=dict)
    refusals: list[tuple[float, int]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def write(self, writer: int) -> None:
        """Append entries until the end; each is repeated, with its key, until it is taken."""
        for number in itertools.count():
            key = f"w{writer}-{number}"
            entry = {**task(key, days=0), "idempotency_key": key}
            while not self.ended.is_set():
                status, _ = self.person.client.post("users/ada/entries/", {"entries": [entry]})
                if status in (200, 201, 202):
                    self.acknowledged[key] = time.monotonic()
                    break
                self.refusals.append((time.monotonic(), status))
                self.ended.wait(0.2)
            if self.ended.is_set():
                return


@contextmanager
def running(traffic: Traffic) -> Iterator[None]:
    threads = [threading.Thread(target=traffic.write, args=(place,)) for place in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        traffic.ended.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def primary() -> Iterator[Postgres]:
    """A primary with an empty database."""
    with running_postgres() as postgres:
        yield postgres


@pytest.fixture
def standby(primary: Postgres) -> Iterator[Postgres]:
    """A standby that follows the primary by streaming replication."""
    with data_folder(kept_by=primary) as folder:
        postgres = postgres_in(folder, durable=True, inherited=())
        copy = service_folder(folder, postgres.cluster.name)
        run_program(
            *(postgres.programs / "pg_basebackup", "--write-recovery-conf", "--checkpoint=fast"),
            *("--dbname", primary.superuser_url, "--pgdata", copy),
        )
        postgres.process.start()
        yield postgres
        postgres.process.kill()


def run_program(*command: object) -> None:
    """Run a program of PostgreSQL as the user that owns its data."""
    subprocess.run(
        [*map(str, command)], user=service_user(), cwd="/", check=True, capture_output=True
    )


def wait_for_standby(primary: Postgres, *, synchronous: bool) -> None:
    """Let the primary stream to the standby, and commits wait for it if they shall."""
    with psycopg.connect(primary.superuser_url, autocommit=True) as database:
        names = "*" if synchronous else ""
        database.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        database.execute("SELECT pg_reload_conf()")
        expected = "sync" if synchronous else "async"
        polled(
            lambda: database.execute("SELECT sync_state FROM pg_stat_replication").fetchall(),
            lambda states: states == [(expected,)],
        )


@pytest.mark.docker
@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
def test_server_goes_on_with_the_standby(
    primary: Postgres,
    standby: Postgres,
    record_property: Callable[[str, object], None],
    synchronous: bool,
) -> None:
    """With a synchronous standby nothing that was acknowledged is lost; nothing is ever doubled."""
    wait_for_standby(primary, synchronous=synchronous)
    login = primary.runtime_url.partition("@")[0]
    hosts = ",".join(
        urlsplit(one.runtime_url).netloc.partition("@")[2] for one in (primary, standby)
    )
    url = f"{login}@{hosts}/uac?target_session_attrs=read-write"
    with (
        data_folder(kept_by=primary) as folder,
        running_system(folder, environment={"DATABASE_URL": url}) as system,
    ):
        ada = create_person(new_client(system, "failover"), "ada")
        ada.log(task("first", days=0))
        ada.write_constraint("late", LATE)
        traffic = Traffic(ada)
        with running(traffic):
            time.sleep(scaled(BEFORE))
            primary.process.kill()
            died = time.monotonic()
            time.sleep(scaled(WITHOUT))
            with psycopg.connect(standby.superuser_url, autocommit=True) as server:
                server.execute("SELECT pg_promote()")
            promoted = time.monotonic()
            polled(lambda: max(traffic.acknowledged.values()), lambda at: at > promoted + 1)
        [alert] = ada.log(task("last", days=3)) and polled(ada.alerts, bool)

        keys = Counter(key for (key,) in select_rows(system, KEYS))
        lost = traffic.acknowledged.keys() - keys.keys()
        record_property("acknowledged", len(traffic.acknowledged))
        record_property("lost", len(lost))
        again = min(at for at in traffic.acknowledged.values() if at > died)
        record_property("seconds_to_go_on", round(again - promoted, 1))
        record_property("refused", dict(Counter(status for _, status in traffic.refusals)))

        assert not (synchronous and lost)
        assert max(keys.values()) == 1
        assert alert["message"] == "last is 3 days late"
        assert {status for _, status in traffic.refusals} <= {503}
        polled(lambda: ada.get()["entries"]["pending"], lambda pending: not pending)
        system.manage("verify")  # no log and no feed has a hole
