"""PostgreSQL and Redis together, and the environment variables that point to them."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.folder import claimed, kept, usable_folder
from deploy.embedded.postgres import Postgres, postgres_in
from deploy.embedded.redis import Redis, redis_in


@dataclass(frozen=True)
class Services:
    """PostgreSQL and Redis.

    `data_folder` is where both actually store their data, which isn't always the requested
    directory. `inherited` contains the descriptors that any other process using this data must
    inherit.
    """

    data_folder: Path
    postgres: Postgres
    redis: Redis
    inherited: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a server needs to use these services."""
        return {
            "UAC_ENVIRONMENT": "development",
            "DATABASE_URL": self.postgres.runtime_url,
            "REDIS_URL": self.redis.url,
            "SECRET_KEY": kept(self.data_folder, "secret_key"),
            "ALLOWED_HOSTS": "127.0.0.1,localhost",
        }

    def start(self) -> None:
        """Start both; raise ProcessFailed if one doesn't start."""
        self.redis.process.launch()
        self.postgres.start()
        self.redis.process.wait_until_ready()


@contextmanager
def claimed_services(
    data_folder: Path | None = None, *, durable: bool = True
) -> Iterator[Services]:
    """Yield PostgreSQL and Redis, which don't run yet; stop them when the context ends.

    If `data_folder` is given, a later run finds the data again; otherwise, the data is deleted at
    the end. `durable=False` makes PostgreSQL faster, but then a power failure may destroy the data.
    Call this function from the main thread. Raises AlreadyRunning if another supervisor is using
    the directory.
    """
    with ExitStack() as stack:
        if data_folder is None:
            folder = Path(tempfile.mkdtemp(prefix="uac-"))
            folder.chmod(0o711)  # PostgreSQL may run as a different user from this process
            stack.callback(shutil.rmtree, folder)
        else:
            folder = usable_folder(data_folder)
        inherited = (stack.enter_context(claimed(folder)),)
        (folder / "logs").mkdir(exist_ok=True)
        postgres = postgres_in(
            folder, durable=durable and data_folder is not None, inherited=inherited
        )
        stack.callback(postgres.process.stop)
        redis = redis_in(folder, inherited=inherited)
        stack.callback(redis.process.stop)
        yield Services(folder, postgres, redis, inherited)


@contextmanager
def running_services(
    data_folder: Path | None = None, *, durable: bool = True
) -> Iterator[Services]:
    """Run PostgreSQL and Redis until the context ends (see `claimed_services`).

    Raises ProcessFailed if one doesn't start.
    """
    with claimed_services(data_folder, durable=durable) as services:
        services.start()
        yield services
