"""A pytest plugin that starts PostgreSQL and Redis before Django reads its settings.

Loaded with `-p tests.services` (see pyproject.toml), because pytest-django reads the settings
before any conftest.py is imported.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from uac_site.embedded.redis import Redis, redis_in
from uac_site.embedded.services import Services, running_services

_stack = ExitStack()
SERVICES: Services = _stack.enter_context(running_services())

# The test database is created and migrated by the owner; tests then run as the server does, with
# the role that owns nothing (see conftest.py).
os.environ.update(SERVICES.environment)
os.environ["DATABASE_URL"] = SERVICES.postgres.owner_url
os.environ["STATIC_ROOT"] = tempfile.mkdtemp(dir=SERVICES.data_folder)
os.environ["DJANGO_SETTINGS_MODULE"] = "uac_site.settings"


@contextmanager
def own_redis_server() -> Iterator[Redis]:
    """Run a Redis for one test, which may misconfigure, stop and kill it."""
    # pytest's own folders are closed to the user that the server runs as.
    with tempfile.TemporaryDirectory(prefix="uac-redis-") as name:
        own = Path(name)
        own.chmod(0o711)
        (own / "logs").mkdir()
        server = redis_in(own, inherited=())
        try:
            yield server
        finally:
            server.process.kill()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started, whatever became of the tests."""
    _stack.close()
