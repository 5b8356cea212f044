"""A Docker engine of the tests' own, with the OCI runtimes of docs/runtimes.md and bad ones."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from tests import docker_engine
from workers.sandbox import docker

DOCUMENT = Path(__file__).parents[3] / "docs" / "runtimes.md"
NEEDED = ("crun", "runsc")

# With the unified hierarchy mounted beside the others, crun cannot start anything.
SCRIPT = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec dockerd "$@"'
COMMAND = ("unshare", "--mount", "--net", "sh", "-c", SCRIPT, "dockerd")


def configuration(without_limits: Path) -> dict[str, Any]:
    """Return the document's configuration, plus runtimes that are not what their names say."""
    (block,) = re.findall(r"^```json\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    config: dict[str, Any] = json.loads(block)
    gvisor = config["runtimes"]["runsc"]
    unfiltered = [one for one in gvisor["runtimeArgs"] if one != "--oci-seccomp"]
    config["runtimes"] |= {
        "runsc-without-filter": {**gvisor, "runtimeArgs": unfiltered},
        "runsc-in-name-only": {"path": shutil.which("crun")},
        "anonymous": gvisor,
        "runsc-without-limits": {"path": str(without_limits)},
    }
    return config


@contextmanager
def running_engine(image: str) -> Iterator[str]:
    """Start it, with this image of the machine's engine; yield its DOCKER_HOST."""
    with tempfile.TemporaryDirectory() as folder:
        # Not visible to the engine in its arguments.
        script = Path(folder) / "without-limits"
        script.write_text(
            '#!/bin/sh\nexec runsc --ignore-cgroups --oci-seccomp --network=none "$@"\n'
        )
        script.chmod(0o755)
        runtimes = configuration(script)
        with docker_engine.running_engine(image, command=COMMAND, configuration=runtimes) as own:
            yield own.host


@contextmanager
def engine_at(host: str) -> Iterator[None]:
    """Open sandboxes on this engine in this context."""

    def forget() -> None:
        docker._thread.__dict__.clear()
        docker._image.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        forget()
        try:
            yield
        finally:
            forget()


@dataclass(frozen=True)
class Runtime:
    """An OCI runtime, by its name in that engine, or in the machine's own."""

    name: str
    host: str | None = None

    @property
    def is_gvisor(self) -> bool:
        return self.name == "runsc"

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Open sandboxes on that engine, with this runtime."""
        with ExitStack() as stack:
            if self.host is not None:
                stack.enter_context(engine_at(self.host))
            stack.enter_context(override_settings(UAC_SANDBOX_RUNTIME=self.name))
            yield
