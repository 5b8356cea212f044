"""A pytest plugin that starts PostgreSQL and Redis before Django reads its settings.

Loaded with `-p tests.services` (see pyproject.toml), because pytest-django reads the settings
before any conftest.py is imported.
"""

import os
import tempfile
from contextlib import ExitStack

import pytest

from uac_site.embedded.services import Services, running_services

_stack = ExitStack()
SERVICES: Services = _stack.enter_context(running_services())

# The test database is created and migrated by the owner; tests then run as the server does, with
# the role that owns nothing (see conftest.py).
os.environ.update(SERVICES.environment)
os.environ["DATABASE_URL"] = SERVICES.postgres.owner_url
os.environ["STATIC_ROOT"] = tempfile.mkdtemp(dir=SERVICES.data_folder)
os.environ["DJANGO_SETTINGS_MODULE"] = "uac_site.settings"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started, whatever became of the tests."""
    _stack.close()
