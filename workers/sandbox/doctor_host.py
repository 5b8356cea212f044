"""Checks of the host: the runner setting, the engine, the image, control groups and the runtime."""

import os

from django.conf import settings
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from workers.sandbox.doctor_probes import Doubtful, Failed, connect_engine, image_name

# The oldest Docker Engine API version that this release is tested with.
TESTED_API = (1, 41)


def check_runner() -> str:
    """Return the configured runner; raise Doubtful if it may run user code without containers."""
    name = settings.UAC_SANDBOX_RUNNER
    if name == "process":
        raise Doubtful(
            "UAC_SANDBOX_RUNNER=process: user code runs without containers",
            "set it to docker; process is for development only",
        )
    if name == "auto":
        raise Doubtful(
            "UAC_SANDBOX_RUNNER=auto: where Docker fails, user code runs without containers",
            "set it to docker wherever untrusted code runs",
        )
    return f"UAC_SANDBOX_RUNNER={name}"


def check_engine() -> str:
    """Return the engine's address and versions.

    Raises Failed if the engine does not respond, Doubtful if its API is older than the versions
    tested.
    """
    where = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        with connect_engine() as client:
            version = client.version()
    except (DockerException, RequestException, OSError) as error:
        message = str(error)
        if "Permission denied" in message or "Errno 13" in message:
            raise Failed(
                f"{where} denies this user ({os.geteuid()}) access",
                "run the sandbox workers and this command as a user who may use the engine (a"
                " member of the docker group, which is as powerful as root), or set DOCKER_HOST to"
                " the address of another engine",
            ) from None
        raise Failed(
            f"no engine responds at {where}: {message}",
            "start the Docker engine (systemctl start docker), or set DOCKER_HOST to the address of"
            " a running one",
        ) from None
    summary = f"{where}: Docker {version['Version']}, API {version['ApiVersion']}"
    if tuple(map(int, version["ApiVersion"].split("."))) < TESTED_API:
        raise Doubtful(
            summary, "this release is tested with API 1.41 and newer: upgrade the engine"
        )
    return f"{summary}, Linux {version['KernelVersion']}"


def check_image() -> str:
    """Return the sandbox image's name and id; raise Failed if the engine has no such image."""
    name = image_name()
    try:
        with connect_engine() as client:
            image = client.images.get(name)
    except ImageNotFound:
        raise Failed(
            f"the engine has no image {name}",
            "build it with `python -m workers.sandbox.build` (make image), or name another one in"
            " UAC_SANDBOX_IMAGE",
        ) from None
    return f"{name}, {image.id}"


def check_control_groups() -> str:
    """Return the cgroup version and driver.

    Raises Failed if the engine cannot enforce every limit with this version and driver.
    """
    with connect_engine() as client:
        info = client.info()
    version = f"version {info.get('CgroupVersion', '1')}, driver {info.get('CgroupDriver')}"
    missing = [
        name
        for key, name in (
            ("MemoryLimit", "memory"),
            ("SwapLimit", "swap"),
            ("PidsLimit", "processes"),
            ("CpuCfsQuota", "CPU"),
        )
        if not info.get(key)
    ]
    if missing:
        raise Failed(
            f"{version}; the engine cannot limit: {', '.join(missing)}",
            "boot the kernel with `cgroup_enable=memory swapaccount=1` or with control groups v2,"
            " and restart the engine",
        )
    return f"{version}; limits memory, swap, processes and CPU"


def check_runtime() -> str:
    """Return the runtime for sandboxes; raise Failed if it is missing or ignores limits."""
    with connect_engine() as client:
        info = client.info()
    runtimes = info.get("Runtimes") or {}
    name = settings.UAC_SANDBOX_RUNTIME or info.get("DefaultRuntime", "")
    if name not in runtimes:
        raise Failed(
            f"the engine has no runtime {name}; it has {', '.join(sorted(runtimes))}",
            "add it to /etc/docker/daemon.json as docs/runtimes.md shows and send dockerd a SIGHUP,"
            " or name another runtime in UAC_SANDBOX_RUNTIME",
        )
    about = runtimes[name] or {}
    arguments = about.get("runtimeArgs") or []
    if any(argument.lstrip("-").startswith("ignore-cgroups") for argument in arguments):
        raise Failed(
            f"{name} runs with {' '.join(arguments)}: memory and processes are not limited",
            "remove --ignore-cgroups from the runtimeArgs in /etc/docker/daemon.json",
        )
    path = about.get("path", name)
    return " ".join([name, *([] if path == name else [path]), *arguments])
