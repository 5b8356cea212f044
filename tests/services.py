"""A pytest plugin that starts PostgreSQL and Redis before Django reads its settings.

Loaded with `-p tests.services` (see pyproject.toml), because pytest-django reads the settings
before any conftest.py is imported.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.redis import Redis, redis_in
from deploy.embedded.services import Services, running_services
from tests.waiting import scaled, slowness

# Only our other tools need this module. With it, importing jsonschema takes seconds.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

slowness()  # measured while nothing else of ours runs yet

# The data folder of stopped services whose test database is migrated.
TEMPLATE = "UAC_TEST_TEMPLATE"
_COPIED = ("kept", "postgres")  # the passwords, and the databases that have them

_stack = ExitStack()


def _copy_template() -> Path | None:
    """Return a copy of the template, or None in a process that has none."""
    template = os.environ.get(TEMPLATE)
    if template is None:
        return None
    copy = Path(_stack.enter_context(tempfile.TemporaryDirectory(prefix="uac-")))
    copy.chmod(0o711)  # PostgreSQL may run as another user than we
    sources = [f"{template}/{name}" for name in _COPIED]
    subprocess.run(["cp", "--archive", *sources, str(copy)], check=True)
    return copy


SERVICES: Services = _stack.enter_context(running_services(_copy_template(), durable=False))

# The owner creates and migrates the test database; tests then run as the server does, with a role
# that owns nothing (see conftest.py).
os.environ.update(SERVICES.environment)
os.environ["DATABASE_URL"] = SERVICES.postgres.owner_url
# All tests make their requests in the same process, one after the other.
os.environ["UAC_PROCESSOR_PERCENT"] = "100"
os.environ["STATIC_ROOT"] = tempfile.mkdtemp(dir=SERVICES.data_folder)
os.environ["DJANGO_SETTINGS_MODULE"] = "uac_site.settings"
# An app that a setting adds cannot be added for some tests alone.
_settings: Any = importlib.import_module("uac_site.settings")
_settings.INSTALLED_APPS.append("allauth.socialaccount.providers.saml")
# Static files would be looked for anew by each test's client.
_settings.WHITENOISE_USE_FINDERS = False


def become_template() -> None:
    """Stop PostgreSQL: processes started from here on begin with a copy of its data."""
    SERVICES.postgres.process.stop()
    os.environ[TEMPLATE] = str(SERVICES.data_folder)


@contextmanager
def own_redis_server() -> Iterator[Redis]:
    """Run a Redis for one test, which may misconfigure, stop and kill it."""
    # pytest's own folders are not accessible to the user that the server runs as.
    with tempfile.TemporaryDirectory(prefix="uac-redis-") as name:
        own = Path(name)
        own.chmod(0o711)
        (own / "logs").mkdir()
        server = redis_in(own, inherited=())
        try:
            server.process.start()
            yield server
        finally:
            server.process.kill()


def pytest_report_header() -> str:
    """Report the factor of this session's waits and timeouts."""
    return f"slowness: {slowness():g} (waits and timeouts are scaled by it)"


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> object:
    """Scale each test's timeout, wherever it was set: the command line or a marker."""
    import pytest_timeout  # here: imported any earlier, it could not be rewritten as a plugin is

    return pytest_timeout.pytest_timeout_set_timer(
        item, settings._replace(timeout=scaled(settings.timeout))
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the services, whatever the result of the tests."""
    _stack.close()
