"""A Docker engine of the tests' own, with the OCI runtimes of docs/runtimes.md and bad ones."""

import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker as engine
import pytest
from django.test import override_settings

from tests.integration.sandbox.processes import with_argument
from uac_site.embedded.process import ManagedProcess
from workers.sandbox import docker

DOCUMENT = Path(__file__).parents[3] / "docs" / "runtimes.md"
NEEDED = ("dockerd", "crun", "runsc", "unshare")

# Its bridges and mounts are its own: without a network namespace it would remove another engine's
# bridge, and with the unified hierarchy mounted beside the others crun starts nothing.
SCRIPT = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec dockerd "$@"'


def missing() -> str:
    """What keeps an engine of one's own from being started here; empty if nothing does."""
    if os.geteuid() != 0:
        return "only root can start an engine with other runtimes"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def configuration(folder: Path) -> dict[str, Any]:
    """What the document says, and runtimes that are not what their names say."""
    (block,) = re.findall(r"^```json\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    config: dict[str, Any] = json.loads(block)
    gvisor = config["runtimes"]["runsc"]
    unfiltered = [one for one in gvisor["runtimeArgs"] if one != "--oci-seccomp"]
    config["runtimes"] |= {
        "runsc-without-filter": {**gvisor, "runtimeArgs": unfiltered},
        "runsc-in-name-only": {"path": shutil.which("crun")},
        "anonymous": gvisor,
        "runsc-without-limits": {"path": f"{folder}/without-limits"},
    }
    return config


@contextmanager
def running_engine(image: str) -> Iterator[str]:
    """Start it, with this image of the engine that is there; yields its DOCKER_HOST."""
    folder = Path(tempfile.mkdtemp(prefix="uac-engine-"))  # the paths of its sockets must be short
    host = f"unix://{folder}/sock"
    (folder / "daemon.json").write_text(json.dumps(configuration(folder)))
    # What the engine does not see in its arguments.
    script = folder / "without-limits"
    script.write_text('#!/bin/sh\nexec runsc --ignore-cgroups --oci-seccomp --network=none "$@"\n')
    script.chmod(0o755)
    arguments = [
        *("--config-file", f"{folder}/daemon.json", "--pidfile", f"{folder}/pid"),
        *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--host", host),
        *("--bridge", "none", "--iptables=false", "--ip-forward=false"),
    ]
    process = ManagedProcess(
        name="dockerd",
        command=["unshare", "--mount", "--net", "sh", "-c", SCRIPT, "dockerd", *arguments],
        log_path=folder / "log",
        ready=lambda process: engine.DockerClient(base_url=host).ping(),
        environment=dict(os.environ),
        folder=folder,
    )
    try:
        process.start()
        ours, theirs = engine.from_env(timeout=60), engine.DockerClient(base_url=host)
        theirs.images.load(b"".join(ours.images.get(image).save(named=True)))
        ours.close()
        theirs.close()
        yield host
    finally:
        process.stop()
        end_shims(f"{folder}/exec/containerd/containerd.sock")
        shutil.rmtree(folder, ignore_errors=True)


def end_shims(address: str) -> None:
    """End those who watched over the containers of an engine, by its containerd's address.

    They outlive it where containers did not start well, or where it was killed.
    """
    for shim in with_argument(address):
        for process in [*shim.descendants(), shim]:
            with suppress(ProcessLookupError):
                process.send(signal.SIGKILL)


@contextmanager
def engine_at(host: str) -> Iterator[None]:
    """Have sandboxes come from this engine."""

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
    """An OCI runtime, by its name in the engine there, or in the one that there is anyway."""

    name: str
    host: str | None = None

    @property
    def is_gvisor(self) -> bool:
        return self.name == "runsc"

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Have sandboxes come from that engine, with this runtime."""
        with ExitStack() as stack:
            if self.host is not None:
                stack.enter_context(engine_at(self.host))
            stack.enter_context(override_settings(UAC_SANDBOX_RUNTIME=self.name))
            yield
