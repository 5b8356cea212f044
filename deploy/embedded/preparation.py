"""Migrations: run only if code has changed.

`python -m deploy.embedded.preparation URL` runs them, with the environment of a server; the URL is
that of the database, for its owner.
"""

import hashlib
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

_ROOT = Path(__file__).resolve().parents[2]
# What the database is made from: our own code, and these packages.
_FOLDERS = ("memory", "uac_site")
_PACKAGES = ("django", "django-allauth")


def is_prepared(cluster: Path) -> bool:
    """Return whether the code is unchanged since `mark_prepared`."""
    mark = _mark(cluster)
    return mark.exists() and mark.read_text() == _digest()


def mark_prepared(cluster: Path) -> None:
    """Remember the code by which the database was prepared."""
    _mark(cluster).write_text(_digest())


def _mark(cluster: Path) -> Path:
    """Return the file of the mark: in the cluster, which a new database has not."""
    return cluster / "uac-prepared"


def _digest() -> str:
    """Return a digest of the code, by sizes and times of its files."""
    digest = hashlib.sha256()
    for part in (*(f"{name} {version(name)}" for name in _PACKAGES), *_files()):
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()


def _files() -> Iterator[str]:
    for folder in _FOLDERS:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            status = path.stat()
            yield f"{path} {status.st_size} {status.st_mtime_ns}"


def main() -> int:
    """Migrate the database."""
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    owner = conninfo_to_dict(sys.argv[1])
    connection.settings_dict.update(USER=owner["user"], PASSWORD=owner["password"])
    call_command("migrate", verbosity=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
