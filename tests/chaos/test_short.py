"""A short run of chaos; `make chaos` has long ones."""

import os
import subprocess
import sys

import pytest

from tests.chaos.deployment import lacking
from tests.docker_engine import skip_or_fail


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_briefly_broken_system_loses_nothing() -> None:
    skip_or_fail(lacking(containers=True))
    # It must not use the services of the other tests.
    ours = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "STATIC_ROOT", "UAC_ENVIRONMENT")
    environment = {name: value for name, value in os.environ.items() if name not in ours}

    ended = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--short", "--seed", "55"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    told = f"{ended.stdout}{ended.stderr}"
    assert ended.stdout.splitlines()[-1:] == ["chaos: 1 seeds, 0 violations"], told
    assert ended.returncode == 0, told
