"""One server on its machines for all scenarios, which leave it running."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.deployment import lacking
from tests.deployment.machines.rehearsal import Rehearsal, running_rehearsal
from tests.docker_engine import missing, skip_or_fail


@pytest.fixture(scope="package")
def rehearsal() -> Iterator[Rehearsal]:
    """A server whose processes have eight machines."""
    skip_or_fail(missing("ip", "haproxy") or lacking(containers=True))
    folder = Path(tempfile.mkdtemp(prefix="uac-machines-"))
    folder.chmod(0o711)
    try:
        with running_rehearsal(folder) as one:
            yield one
    finally:
        shutil.rmtree(folder, ignore_errors=True)
