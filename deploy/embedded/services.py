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
    """PostgreSQL and Redis, both running.

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


@contextmanager
def running_services(
    data_folder: Path | None = None, *, durable: bool = True
) -> Iterator[Services]:
    """Run PostgreSQL and Redis until the context ends; then stop them.

    If `data_folder` is given, a later run finds the data again; otherwise, the data is deleted at
    the end. `durable=False` makes PostgreSQL faster, but then a power failure may destroy the data.
    Call this function from the main thread. Raises AlreadyRunning if another supervisor is using
    the directory, and ProcessFailed if a service doesn't start.
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
