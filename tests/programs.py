"""Programs that the second tier of tests needs and no wheel brings.

`python -m tests.programs` lists the missing ones, says how to install them on Debian, and ends with
status 1; `make test-all` begins with it.
"""

import os
import shutil
import sys
from collections.abc import Mapping

import docker

# Program → Debian's package of it.
ALWAYS: Mapping[str, str] = {
    "chromium": "chromium",
    "curl": "curl",
    "git": "git",
    "kubectl": "kubernetes-client",
}
# Tests that need these do not run without an engine that answers.
WITH_ENGINE: Mapping[str, str] = {
    "docker": "docker.io",
    "docker-compose": "docker-compose",
    "openssl": "openssl",
}
# For tests that start engines of their own, or build images from Debian's packages.
WITH_ENGINE_AS_ROOT: Mapping[str, str] = {
    "containerd": "containerd",
    "crun": "crun",
    "debootstrap": "debootstrap",
    "dockerd": "docker.io",
    "faketime": "faketime",
    "haproxy": "haproxy",
    "ip": "iproute2",
    "pgbouncer": "pgbouncer",
    "runsc": "runsc",
    "unshare": "util-linux",
}
# Alternative names of a program.
_ALSO = {"chromium": "chromium-browser"}


def missing_programs(*, engine: bool, root: bool) -> dict[str, str]:
    """Return the required programs that are not installed, with their packages."""
    needed = {
        **ALWAYS,
        **(WITH_ENGINE if engine else {}),
        **(WITH_ENGINE_AS_ROOT if engine and root else {}),
    }
    return {
        program: package
        for program, package in needed.items()
        if not any(map(shutil.which, (program, _ALSO.get(program, program))))
    }


def _engine_answers() -> bool:
    try:
        return bool(docker.from_env(timeout=10).ping())
    except docker.errors.DockerException:
        return False


def main() -> int:
    """List the missing programs."""
    missing = missing_programs(engine=_engine_answers(), root=os.geteuid() == 0)
    if not missing:
        return 0
    sys.stderr.write(
        f"make test-all needs programs that are not installed: {', '.join(missing)}.\n"
        "The tests were not run. On Debian and Ubuntu:\n"
        f"    apt install {' '.join(sorted({*missing.values()}))}\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
