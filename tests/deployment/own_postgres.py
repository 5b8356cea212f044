"""A PostgreSQL of a test's own, apart from the one that its server would start."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.embedded.postgres import Postgres, postgres_in


@contextmanager
def data_folder(kept_by: Postgres | None = None) -> Iterator[Path]:
    """Yield a folder that PostgreSQL's user can reach, with another server's passwords."""
    with tempfile.TemporaryDirectory(prefix="uac-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "logs").mkdir()
        if kept_by is not None:
            shutil.copytree(kept_by.folder / "kept", folder / "kept")
        yield folder


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a PostgreSQL with an empty database."""
    with data_folder() as folder:
        postgres = postgres_in(folder, durable=True, inherited=())
        postgres.start()
        yield postgres
        postgres.process.kill()
